"""The library is used only if it is that of the sources beside it; without it everything works, slower."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from dapple_dp.transforms.core.statistics.row_pass import Tally
from dapple_dp.transforms.numerics.kernel import library as module
from dapple_dp.transforms.numerics.kernel.lattice_rows import scaled
from dapple_dp.transforms.numerics.kernel.library import LEVELS, Library, library
from dapple_dp.transforms.numerics.kernel.row_pass import CompiledPass
from tests.scenes import kernels
from tests.scenes.conformance import needed

ROOT = pathlib.Path(__file__).resolve().parents[3]
CENTERS = np.array([[0.0, 0.0], [10.0, 0.0]])
ROWS = np.array([[1, 2], [9, 0], [30, 0]], dtype=np.int32)


@pytest.fixture
def compiled(monkeypatch):
    kernels.use(monkeypatch, kernels.compiled())
    found = CompiledPass.of(CENTERS, 2.0**20)
    assert found is not None
    return found


def test_one_pass_by_hand(compiled):
    """The last row is 20 from its center: shortened to 5, it adds (5, 0)."""
    tally = Tally.zeros(2, 2)
    compiled.add(tally, ROWS, radius=5, shortens=True)
    assert tally.sums.tolist() == [[1, 2], [9 + 5, 0]]
    assert (tally.inside.tolist(), tally.outside.tolist()) == ([1, 1], [0, 1])
    compiled.add(tally, ROWS, radius=5)
    assert (tally.inside.tolist(), tally.outside.tolist()) == ([2, 2], [0, 1])


def test_cells_of_clients_by_hand(compiled):
    tally = Tally.zeros(4, 0)
    compiled.add(tally, ROWS, first_cells=np.array([0, 2, 2]))
    assert tally.inside.tolist() == [1, 0, 0, 2]


def test_no_rows_add_nothing(compiled):
    tally = Tally.zeros(2, 2)
    compiled.add(tally, ROWS[:0], first_cells=np.zeros(0, dtype=np.int64))
    assert not tally.sums.any()


@pytest.mark.parametrize(
    "cells", [[0, 3, 0], [-1, 0, 0], [0, 0], np.zeros(3, dtype=np.int32), np.zeros(6, dtype=np.int64)[::2]]
)
def test_nothing_is_written_beyond_the_tally(compiled, cells):
    with pytest.raises(IndexError, match="within the tally"):
        compiled.add(Tally.zeros(4, 2), ROWS, first_cells=np.asarray(cells))


@pytest.mark.parametrize(
    "tally",
    [
        Tally.zeros(1, 2),
        Tally.zeros(2, 3),
        Tally.zeros(2, 2)._replace(sums=np.zeros((2, 2))),
        Tally.zeros(2, 2)._replace(sums=np.zeros((2, 2), dtype=np.int64).T),
        Tally.zeros(2, 2)._replace(outside=np.zeros(1, dtype=np.int64)),
        Tally.zeros(2, 2)._replace(inside=np.zeros(2, dtype=np.int32)),
        Tally.zeros(2, 2)._replace(outside=np.zeros(4, dtype=np.int64)[::2]),
    ],
)
def test_a_tally_of_another_shape_is_refused(compiled, tally):
    with pytest.raises(IndexError, match="within the tally"):
        compiled.add(tally, ROWS)


def test_shortening_needs_sums(compiled):
    with pytest.raises(ValueError, match="counts only"):
        compiled.add(Tally.zeros(2, 0), ROWS, radius=1, shortens=True)


@pytest.mark.parametrize("rows", [ROWS.astype(np.int64), ROWS[:, :1], ROWS.T[:2].T[::-1], ROWS.ravel()])
def test_other_rows_are_refused(compiled, rows):
    from dapple_dp.schemas.errors import LatticeOverflowError

    with pytest.raises(LatticeOverflowError, match="kept from an earlier round"):
        compiled.add(Tally.zeros(2, 2), rows)


@pytest.mark.parametrize(
    ("values", "factors"),
    [
        (np.ones((4, 2)), np.ones(3)),
        (np.ones((4, 2)), np.ones(4, dtype=np.float32)),
        (np.ones((4, 2)), np.ones((4, 1))),
        (np.ones(4), np.ones(4)),
    ],
)
def test_numbers_without_a_factor_each_are_not_scaled(compiled, values, factors):
    """The library does not check where it reads."""
    assert scaled(values, factors, False) is None


def test_a_library_of_other_sources_is_not_used(tmp_path):
    """After an update of the checkout it may take other arguments."""
    with needed("compiler"):
        kernels.compiled()
    kernels.build(tmp_path)
    path = kernels.built_in(tmp_path)
    assert Library.of(path, 4) is not None
    other = tmp_path / "other.so"
    other.write_bytes(path.read_bytes().replace(module.sources_digest().encode(), b"0" * 64))
    assert Library.of(other, 4) is None


def test_two_builds_are_the_same_bytes(tmp_path):
    with needed("compiler"):
        kernels.compiled()
    built = [tmp_path / "one" / "folder", tmp_path / "another"]
    for folder in built:
        kernels.build(folder)
    one, other = (kernels.built_in(folder).read_bytes() for folder in built)
    assert one == other


@pytest.mark.parametrize("content", [b"", b"no library", None])
def test_a_file_that_is_not_a_library_is_not_used(tmp_path, content):
    if content is not None:
        (tmp_path / "x.so").write_bytes(content)
    assert Library.of(tmp_path / "x.so", 4) is None


def test_without_a_compiler_the_build_says_so_and_goes_on(tmp_path):
    """Neither `cc` nor the package that brings one; the words are those of the log of `pip install -v`."""
    done = kernels.build(tmp_path, CC="false", PATH=str(tmp_path), PYTHONPATH=_without_zig(tmp_path))
    assert "NumPy does the work of the kernel" in done.stdout
    assert not kernels.built_in(tmp_path).exists()


def _without_zig(folder: pathlib.Path) -> str:
    """A path on which `ziglang` cannot compile."""
    (folder / "ziglang").mkdir()
    (folder / "ziglang" / "__init__.py").write_text("")
    return str(folder)


@pytest.mark.parametrize(
    ("text", "level"), [("baseline", 1), ("avx2", 3), ("avx512", 4), ("numpy", 0), ("", 4), ("nonsense", 4)]
)
def test_a_variable_chooses_the_level(monkeypatch, text, level):
    monkeypatch.setenv("DAPPLE_KERNEL", text)
    library.cache_clear()
    try:
        found, built = library(), Library.of(module._FOLDER / module._NAME, 4)
        assert (found is None) == (built is None or level == 0)
        assert found is None or built is None or found.level == min(level, built.level)
    finally:
        library.cache_clear()


def test_the_names_of_levels_are_those_of_the_sources():
    text = (ROOT / "transforms" / "numerics" / "kernel" / "rows.c").read_text()
    assert {int(level) for level in re.findall(r"if \(level == (\d)\) return", text)} == {3, 4}
    assert (LEVELS["avx2"], LEVELS["avx512"]) == (3, 4)
    assert re.findall(r"(\d): AVX-512, (\d): AVX2", text) == [("4", "3")]


SANITIZED = """
    import pathlib, sys
    import numpy as np, pytest
    from tests.property.kernel import test_same_integers as same
    from tests.scenes import kernels
    from dapple_dp.transforms.numerics.kernel.library import Library
    found = Library.of(pathlib.Path(sys.argv[1]), 4)
    assert found is not None
    kernels.compiled = lambda: found
    for number, (size, width) in enumerate([(1, 1), (8, 3), (9, 50), (17, 341), (40, 16), (3, 2000), (300, 2)]):
        case = same.Case(number, size, width, 210, same.ONE)
        case.frame.integers(np.random.default_rng(number).normal(size=(50, width)) * 10.0**number, 20)
        same.check(case, same.ONE // 3, True, case.known)
        block = case.block._replace(points=case.rows / same.ONE)
        same.same(lambda: same.rows.outer_product(block, case.frame, 1.0, relative=False))
    with pytest.MonkeyPatch.context() as patch:
        same.test_a_row_beyond_its_bound_is_refused_wherever_it_lies(199, (2**31 - 1, -(2**31)), patch)
    print("no complaint")
"""


@pytest.mark.nightly
def test_sanitizers_find_nothing(tmp_path):
    """Addresses and undefined behavior are watched at every level of vectors."""
    with needed("compiler"):
        kernels.compiled()
    flags = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
    kernels.build(tmp_path, CC=f"cc {flags}")
    if not kernels.built_in(tmp_path).exists():
        pytest.skip("the compiler has no sanitizers")
    words = ["cc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    surroundings = os.environ | {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", textwrap.dedent(SANITIZED), str(kernels.built_in(tmp_path))]
    done = subprocess.run(words, env=surroundings, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "no complaint\n", done.stderr
