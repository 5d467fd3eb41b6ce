"""The kernel of the sources as they are now, whatever was built before beside them."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from dapple_dp.transforms.numerics.kernel import lattice_rows, row_pass
from dapple_dp.transforms.numerics.kernel.library import LEVELS, Library, library
from deploy.local.downloads import UnavailableError
from tests.scenes.conformance import needed

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILED = [name for name, level in LEVELS.items() if level]


def build(folder: pathlib.Path, **variables: str) -> subprocess.CompletedProcess:
    """Runs the build of `setup.py` into a folder."""
    words = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(folder), "--build-temp", str(folder)]
    return subprocess.run(
        words, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=True, timeout=600
    )


def built_in(folder: pathlib.Path) -> pathlib.Path:
    """Returns where a build into a folder leaves the library."""
    return folder / "dapple_dp" / "transforms" / "numerics" / "kernel" / "_rows.so"


@functools.cache
def compiled() -> Library:
    """The library that is installed beside its sources, or one that is built for these tests."""
    with needed("compiler"):
        found = library()
        if found is None and shutil.which("cc") is None:
            raise UnavailableError("there is no C compiler")
    if found is None:
        with tempfile.TemporaryDirectory() as folder:
            build(pathlib.Path(folder))
            found = Library.of(built_in(pathlib.Path(folder)), max(LEVELS.values()))
    assert found is not None, "the kernel was built and cannot be loaded"
    return found


def levels() -> Iterator[Library | None]:
    """NumPy, then every level of vectors that this processor has."""
    found = compiled()
    yield None
    for name in COMPILED:
        if LEVELS[name] <= found.level:
            yield found._replace(level=LEVELS[name])


def use(patch: pytest.MonkeyPatch, chosen: Library | None) -> None:
    """Has statistics take one way to their integers."""
    row_pass.start()
    for module in (row_pass, lattice_rows):
        patch.setattr(module, "library", lambda: chosen)
