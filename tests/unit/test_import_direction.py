"""Imports point one way: down the floors, from one room to another, and never round in a circle.

The floors are schemas <- transforms.numerics <- transforms <- pipelines <- dapple_dp. A room is a folder with modules.
The same word names a room on every floor: the shared core, the families of protocols, and the trusted zone.
"""

import ast
import functools
import pathlib
from collections.abc import Callable

import pytest

from schemas.choices import Algorithm

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOORS = ("schemas", "transforms.numerics", "transforms", "pipelines", "dapple_dp")
OUTSIDE = ("tests", "benchmarks", "examples")
WITHOUT_BEAM = ("schemas", "transforms.numerics")

CORE = {"settings", "privacy", "tables", "statistics", "files", "rounds", "privacy_flow", "run", "ledger", "page"}
CORE |= {"arrivals", "jobs", "kernel"}
FAMILIES = {"masked", "kmeans", "reports", "clustered_fl", "profile"}
ABOVE = {"trusted_zone", "plan", "command"}
PUBLIC = {"estimator", "integrations"}
MOST_ENTRIES = 13
EXCEPTIONS = {
    # A job of its own that also reads the sections on data of a fit, private or not.
    ("pipelines.tables.prepare", "schemas.trusted_zone"),
    # The audit knows what every audited statistic states, PipelineDP's events included.
    ("transforms.privacy_flow.stated_sensitivity", "schemas.profile"),
}
"""Imports from the core to families and above, with their reasons."""
PROTOCOLS = {room for each in Algorithm if ROOT.joinpath(*(room := f"transforms.kmeans.{each}").split(".")).is_dir()}
SHARED_ROUNDS = "transforms.kmeans.lloyd"


def floor_of(module: str) -> str | None:
    inside = [floor for floor in FLOORS if f"{module}.".startswith(f"{floor}.")]
    return max(inside, key=len, default=None)


@functools.cache
def imported_modules(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    return found


def violations(floor: str, source: str) -> list[str]:
    def forbidden(module: str) -> bool:
        target = floor_of(module)
        top = module.partition(".")[0]
        backward = target is not None and FLOORS.index(target) > FLOORS.index(floor)
        return backward or module.startswith(".") or top in OUTSIDE or (top == "apache_beam" and floor in WITHOUT_BEAM)

    return [module for module in imported_modules(source) if forbidden(module)]


@functools.cache
def source_files() -> list[pathlib.Path]:
    tops = sorted({floor.partition(".")[0] for floor in FLOORS})
    return [path.relative_to(ROOT) for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


def module_of(path: pathlib.Path) -> str:
    return ".".join(path.with_suffix("").parts)


@functools.cache
def room_of(module: str) -> str:
    """The folder of a module; a name taken out of a module stands for the module."""
    path = ROOT.joinpath(*module.split("."))
    return module.rpartition(".")[0] if path.with_suffix(".py").exists() else room_of(module.rpartition(".")[0])


def doors() -> dict[str, set[str]]:
    """For every room, the other rooms that it imports from."""
    found: dict[str, set[str]] = {}
    for path in source_files():
        room = room_of(module_of(path))
        inside = (module for module in imported_modules((ROOT / path).read_text()) if floor_of(module))
        found.setdefault(room, set()).update({room_of(module) for module in inside} - {room})
    return found


def file_of(module: str) -> pathlib.Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def project_modules(source: str) -> list[str]:
    """Modules of the project that a source imports; names taken out of a module stand for the module."""
    tops = {floor.partition(".")[0] for floor in FLOORS}
    inside = [name for name in imported_modules(source) if name.partition(".")[0] in tops]
    return [module for name in inside for module in (name, name.rpartition(".")[0]) if module and file_of(module)]


def reached_from(module: str, read: Callable[[pathlib.Path], str] = pathlib.Path.read_text) -> set[str]:
    """Modules of the project that are imported with one, by it or by what it imports; itself among them."""
    found, queue = set(), [module]
    while queue:
        current = queue.pop()
        if current not in found:
            found.add(current)
            queue += project_modules(read(file_of(current)))
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A room that can be reached from itself, with what is on the way; empty if there is none."""
    done: set[str] = set()

    def walk(room: str, path: list[str]) -> list[str]:
        if room in path:
            return path[path.index(room) :]
        if room in done:
            return []
        found = next((way for each in sorted(graph.get(room, ())) if (way := walk(each, [*path, room]))), [])
        done.add(room)
        return found

    return next((way for room in sorted(graph) if (way := walk(room, []))), [])


def edges() -> set[tuple[str, str]]:
    """Pairs of a module and a room of another word that it imports from."""
    targets = {
        (module_of(path), room_of(name))
        for path in source_files()
        for name in imported_modules((ROOT / path).read_text())
        if floor_of(name)
    }
    return {(module, room) for module, room in targets if word_of(room_of(module)) != word_of(room)}


def edges_between(words: set[str], others: set[str]) -> set[tuple[str, str]]:
    return {(module, room) for module, room in edges() if word_of(room_of(module)) in words and word_of(room) in others}


def word_of(room: str) -> str:
    """What a room is called on every floor; "" for the floor itself."""
    return room.removeprefix(f"{floor_of(room)}").strip(".").partition(".")[0]


@pytest.mark.parametrize("path", source_files(), ids=str)
def test_imports_point_left(path):
    floor = floor_of(module_of(path))
    assert violations(floor, (ROOT / path).read_text()) == []


def test_every_floor_is_searched():
    assert {floor_of(module_of(path)) for path in source_files()} == set(FLOORS)


@pytest.mark.parametrize(
    ("floor", "source"),
    [
        ("schemas", "import transforms.numerics.statistics.lattice"),
        ("schemas", "from apache_beam import coders"),
        ("transforms.numerics", "from transforms.privacy import noise_stage"),
        ("transforms.numerics", "def late():\n    import apache_beam as beam"),
        ("transforms", "from pipelines.kmeans.fit import run"),
        ("transforms", "from . import rounds"),
        ("transforms", "from .numerics.statistics.lattice import quantize"),
        ("pipelines", "from tests.scenes.conformance import RunnerConformance"),
    ],
)
def test_a_planted_import_is_caught(floor, source):
    assert len(violations(floor, source)) == 1


@pytest.mark.parametrize(
    ("floor", "source"),
    [
        ("transforms.numerics", "from transforms.numerics import lattice\nfrom schemas.privacy import plan"),
        ("transforms", "import apache_beam as beam\nfrom transforms.numerics.statistics import lattice"),
        ("pipelines", "import schemas.privacy.plan, transforms.rounds.round, transforms.numerics.statistics.lattice"),
    ],
)
def test_an_import_to_the_left_is_allowed(floor, source):
    assert violations(floor, source) == []


def test_rooms_import_each_other_in_no_circle():
    assert circle(doors()) == []


def folded(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph of rooms as words of a floor: the folders inside a room belong to it."""

    def whole(room: str) -> str:
        return f"{floor_of(room)}.{word_of(room)}".rstrip(".")

    found: dict[str, set[str]] = {}
    for room, targets in graph.items():
        found.setdefault(whole(room), set()).update(whole(target) for target in targets)
    return {room: targets - {room} for room, targets in found.items()}


def test_rooms_with_all_that_is_inside_import_each_other_in_no_circle():
    assert circle(folded(doors())) == []


def test_a_planted_circle_is_caught():
    graph = doors()
    graph["transforms.files"].add("transforms.rounds")
    assert {"transforms.files", "transforms.rounds"} <= set(circle(graph))


def test_a_circle_by_way_of_a_folder_inside_a_room_is_caught():
    graph = {"pipelines.run": {"pipelines.ledger"}, "pipelines.ledger": {"pipelines.run.inside"}}
    assert circle(graph) == []
    assert set(circle(folded(graph))) == {"pipelines.run", "pipelines.ledger"}


def test_every_room_has_a_known_name():
    assert {word_of(room) for room in doors()} - {""} == CORE | FAMILIES | ABOVE | PUBLIC


@pytest.mark.parametrize("room", sorted({room_of(module_of(path)) for path in source_files()}))
def test_a_room_is_seen_at_a_glance(room):
    folder = ROOT.joinpath(*room.split("."))
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.suffix in (".py", ".css", ".j2")]
    assert len({path.parts[0] for path in files} - {"__init__.py", "__main__.py"}) <= MOST_ENTRIES


def beam_behind(module: str) -> set[str]:
    """Modules that import Beam among those that are imported with one."""
    found = {name: imported_modules(file_of(name).read_text()) for name in reached_from(module)}
    return {name for name, targets in found.items() if any(f"{each}.".startswith("apache_beam.") for each in targets)}


PROTOCOL_MODULES = [module_of(path) for path in source_files() if path.parts[:2] == ("transforms", "kmeans")]


@pytest.mark.parametrize("module", ["transforms.rounds.protocol", *PROTOCOL_MODULES])
def test_a_protocol_reaches_no_beam(module):
    assert beam_behind(module) == set()


def test_a_process_that_adds_up_reaches_beam_by_stores_alone():
    """It is imported where a store is met."""
    assert beam_behind("transforms.rounds.shard_sums") == {"transforms.files.stores"}


def test_beam_behind_another_module_is_found():
    assert {"transforms.rounds.round", "transforms.rounds.exact_sums"} <= beam_behind("transforms.rounds.round")


def test_protocols_do_not_import_each_other():
    graph = doors()
    assert {room for room in graph if room.startswith("transforms.kmeans.")} == {*PROTOCOLS, SHARED_ROUNDS}
    assert {room: graph[room] & PROTOCOLS for room in {*PROTOCOLS, SHARED_ROUNDS} if graph[room] & PROTOCOLS} == {}


def test_the_core_knows_no_protocol():
    assert edges_between(CORE, FAMILIES | ABOVE) == EXCEPTIONS


def test_no_family_imports_the_trusted_zone_or_the_command():
    assert edges_between(FAMILIES, ABOVE) == set()


def test_rooms_above_do_not_import_the_command():
    assert edges_between({"trusted_zone", "plan"}, {"command"}) == set()
    assert edges_between({"trusted_zone"}, {"plan"}) == set()
