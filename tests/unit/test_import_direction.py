"""Imports point one way only: schemas <- transforms.numerics <- transforms <- pipelines."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("schemas", "transforms.numerics", "transforms", "pipelines")
OUTSIDE = ("tests", "benchmarks", "examples")
WITHOUT_BEAM = ("schemas", "transforms.numerics")


def room_of(module: str) -> str | None:
    inside = [room for room in ROOMS if f"{module}.".startswith(f"{room}.")]
    return max(inside, key=len, default=None)


def imported_modules(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    return found


def violations(room: str, source: str) -> list[str]:
    def forbidden(module: str) -> bool:
        target = room_of(module)
        top = module.partition(".")[0]
        backward = target is not None and ROOMS.index(target) > ROOMS.index(room)
        return backward or module.startswith(".") or top in OUTSIDE or (top == "apache_beam" and room in WITHOUT_BEAM)

    return [module for module in imported_modules(source) if forbidden(module)]


def source_files() -> list[pathlib.Path]:
    tops = sorted({room.partition(".")[0] for room in ROOMS})
    return [path.relative_to(ROOT) for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("path", source_files(), ids=str)
def test_imports_point_left(path):
    room = room_of(".".join(path.with_suffix("").parts))
    assert violations(room, (ROOT / path).read_text()) == []


def test_every_room_is_searched():
    assert {room_of(".".join(path.with_suffix("").parts)) for path in source_files()} == set(ROOMS)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("schemas", "import transforms.numerics.lattice"),
        ("schemas", "from apache_beam import coders"),
        ("transforms.numerics", "from transforms import noise"),
        ("transforms.numerics", "def late():\n    import apache_beam as beam"),
        ("transforms", "from pipelines.fit import run"),
        ("transforms", "from . import rounds"),
        ("transforms", "from .numerics.lattice import quantize"),
        ("pipelines", "from tests.conformance import RunnerConformance"),
    ],
)
def test_a_planted_import_is_caught(room, source):
    assert len(violations(room, source)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("transforms.numerics", "from transforms.numerics import lattice\nfrom schemas.plan import PrivacyPlan"),
        ("transforms", "import apache_beam as beam\nfrom transforms.numerics import lattice"),
        ("pipelines", "import schemas.plan, transforms.rounds, transforms.numerics.lattice"),
    ],
)
def test_an_import_to_the_left_is_allowed(room, source):
    assert violations(room, source) == []
