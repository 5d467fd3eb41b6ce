"""The code that decides epsilon can be read alone: the core imports nothing but itself, and needs no Beam."""

import ast
import pathlib
import subprocess
import sys

import pytest

from tests.unit.test_import_direction import ROOT, imported_modules, module_of

CORE = ("schemas/core", "transforms/core")
ON_BEAM = ("transforms/on_beam",)
OWN = ("dapple_dp.schemas.core", "dapple_dp.transforms.core")
ALLOWED = {"numpy", "dapple_dp.schemas.errors", *OWN}
ALONE = {
    "cryptography": {"transforms/core/keystream.py"},
    "dp_accounting": {"transforms/core/accounting.py"},
    "scipy": {"transforms/core/accounting.py"},
}
"""Libraries that one file each may import."""
BY_NAME = ("import_module", "__import__", "exec", "eval")
MOST_LINES = 500
MOST_CORE, MOST_ON_BEAM = 4_755, 1_009


def files(folders):
    return sorted(path for each in folders for path in (ROOT / each).rglob("*.py"))


def name_of(path):
    return str(path.relative_to(ROOT))


def starts(module, names):
    return any(f"{module}.".startswith(f"{name}.") for name in names)


def strangers(name, source, allowed):
    """Imports of a file, lazy ones among them, that its package must do without."""
    own = allowed | {library for library, users in ALONE.items() if name in users}
    modules = {each for each in imported_modules(source) if each.partition(".")[0] not in sys.stdlib_module_names}
    return sorted(each for each in modules if not starts(each, own))


def test_the_closure_of_the_core_is_the_core():
    found = {name_of(path): strangers(name_of(path), path.read_text(), ALLOWED) for path in files(CORE)}
    assert len(found) > 15
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_on_beam_imports_the_core_and_beam_alone():
    allowed = ALLOWED | {"apache_beam", "dapple_dp.transforms.on_beam"}
    found = {name_of(path): strangers(name_of(path), path.read_text(), allowed) for path in files(ON_BEAM)}
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pyarrow",
        "def late():\n    from apache_beam import pvalue",
        "from dapple_dp.schemas.tables.contract import TableContract",
        "from dapple_dp.transforms import files",
        "from scipy import optimize",
    ],
)
def test_a_planted_import_is_found(source):
    assert len(strangers("transforms/core/round.py", source, ALLOWED)) == 1


def test_errors_import_nothing_either():
    modules = imported_modules((ROOT / "schemas/errors.py").read_text())
    assert [each for each in modules if each.partition(".")[0] not in sys.stdlib_module_names] == []


def test_no_module_is_imported_by_name():
    """A module that is found by its name at run time would be in no closure."""
    calls = {
        f"{name_of(path)}:{node.lineno}"
        for path in files(CORE + ON_BEAM)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
        and (getattr(node, "id", None) or getattr(node, "attr", None)) in BY_NAME
    }
    assert calls == set()


def test_the_core_runs_without_what_it_does_not_import():
    modules = [module_of(path.relative_to(ROOT)) for path in files(CORE) if path.name != "__init__.py"]
    code = (
        f"import importlib, sys\nfor each in {modules!r}:\n    importlib.import_module(each)\n"
        "libraries = ('apache_beam', 'pyarrow', 'pandas', 'pydantic', 'sklearn', 'scipy', 'dp_accounting', 'yaml')\n"
        "print([each for each in libraries if each in sys.modules])\n"
        "print(sorted(each for each in sys.modules if each.startswith('dapple_dp.')))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    libraries, own = run.stdout.splitlines()
    assert libraries == "[]"
    parents = {"dapple_dp.schemas", "dapple_dp.transforms", *OWN, "dapple_dp.schemas.errors"}
    assert set(ast.literal_eval(own)) - set(modules) - parents <= {"dapple_dp.transforms.core.statistics"}


def lines(paths):
    return {name_of(path): len(path.read_text().splitlines()) for path in paths}


def test_an_evening_is_enough_to_read_it():
    core, beam = lines(files(CORE)), lines(files(ON_BEAM))
    assert {name: n for name, n in (core | beam).items() if n > MOST_LINES} == {}
    assert sum(core.values()) <= MOST_CORE
    assert sum(beam.values()) <= MOST_ON_BEAM


def test_the_reading_order_names_every_file():
    text = (ROOT / "transforms/core/README.md").read_text()
    names = [name_of(path) for path in files(CORE + ON_BEAM) if path.name != "__init__.py"]
    assert [each for each in names if text.count(f"`{each}`") < 1] == []
    assert [each for each in names if not pathlib.Path(ROOT / each).exists()] == []
