"""Imports point one way: down the floors, from one room to another, and never round in a circle.

The layers are schemas, transforms.core, transforms.numerics, transforms, pipelines, dapple_dp: each imports those
before it. A room is a folder with modules.
The same word names a room on every floor: the shared core, the families of protocols, and the trusted zone.
"""

import ast
import functools
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from dapple_dp.schemas.choices import Algorithm

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOUSE = ("schemas", "transforms", "pipelines")
"""Folders of packages that are imported under `dapple_dp`."""
FLOORS = (
    "dapple_dp.schemas",
    "dapple_dp.transforms.core",
    "dapple_dp.transforms.numerics",
    "dapple_dp.transforms",
    "dapple_dp.pipelines",
    "dapple_dp",
)
OUTSIDE = ("tests", "benchmarks", "examples")
WITHOUT_BEAM = ("dapple_dp.schemas", "dapple_dp.transforms.core", "dapple_dp.transforms.numerics")

CORE = {"settings", "privacy", "tables", "statistics", "files", "rounds", "core", "on_beam", "run", "ledger", "page"}
CORE |= {"arrivals", "jobs", "kernel"}
FAMILIES = {"masked", "kmeans", "reports", "clustered_fl", "profile"}
ABOVE = {"trusted_zone", "plan", "command"}
PUBLIC = {"beam", "estimator", "integrations"}
MOST_ENTRIES = 14
EXCEPTIONS = {
    # A job of its own that also reads the sections on data of a fit, private or not.
    ("dapple_dp.pipelines.tables.prepare", "dapple_dp.schemas.kmeans.jobs"),
}
"""Imports from the core to families and above, with their reasons."""
PROTOCOLS = {
    f"dapple_dp.transforms.kmeans.{each}"
    for each in (*Algorithm, "windows")
    if (ROOT / f"transforms/kmeans/{each}").is_dir()
}
SHARED_ROUNDS = "dapple_dp.transforms.kmeans.lloyd"
STARTS = "dapple_dp.transforms.kmeans.private_starts"
"""Joins the rounds of one protocol to those of another, so it knows both."""


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
def text_of(path: pathlib.Path) -> str:
    """A file of the tree, read once."""
    return (ROOT / path).read_text()


@functools.cache
def source_files() -> list[pathlib.Path]:
    return [path.relative_to(ROOT) for top in ("dapple_dp", *HOUSE) for path in sorted((ROOT / top).rglob("*.py"))]


def module_of(path: pathlib.Path) -> str:
    prefix = ["dapple_dp"] if path.parts[0] in HOUSE else []
    return ".".join([*prefix, *path.with_suffix("").parts])


def place_of(module: str) -> pathlib.Path:
    """Returns where a module or package is, without the ending of a file."""
    inside = module.removeprefix("dapple_dp.")
    return ROOT.joinpath(*(inside if inside.partition(".")[0] in HOUSE else module).split("."))


@functools.cache
def room_of(module: str) -> str:
    """The folder of a module; a name taken out of a module stands for the module."""
    path = place_of(module)
    return module.rpartition(".")[0] if path.with_suffix(".py").exists() else room_of(module.rpartition(".")[0])


def doors() -> dict[str, set[str]]:
    """For every room, the other rooms that it imports from."""
    found: dict[str, set[str]] = {}
    for path in source_files():
        room = room_of(module_of(path))
        inside = (module for module in imported_modules(text_of(path)) if floor_of(module))
        found.setdefault(room, set()).update({room_of(module) for module in inside} - {room})
    return found


@functools.cache
def file_of(module: str) -> pathlib.Path | None:
    path = place_of(module)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@functools.cache
def project_modules(source: str) -> list[str]:
    """Modules of the project that a source imports; names taken out of a module stand for the module."""
    inside = [name for name in imported_modules(source) if name.partition(".")[0] == "dapple_dp"]
    return [module for name in inside for module in (name, name.rpartition(".")[0]) if module and file_of(module)]


def reached_from(module: str, read: Callable[[pathlib.Path], str] = text_of) -> set[str]:
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
        for name in imported_modules(text_of(path))
        if floor_of(name)
    }
    return {(module, room) for module, room in targets if word_of(room_of(module)) != word_of(room)}


def edges_between(words: set[str], others: set[str]) -> set[tuple[str, str]]:
    return {(module, room) for module, room in edges() if word_of(room_of(module)) in words and word_of(room) in others}


def word_of(room: str) -> str:
    """Returns what a room is called on every floor; "" for the floor itself."""
    return room.removeprefix(f"{floor_of(room)}").strip(".").partition(".")[0]


def test_imports_point_left():
    found = {path: violations(floor_of(module_of(path)), text_of(path)) for path in source_files()}
    assert {str(path): faults for path, faults in found.items() if faults} == {}


def test_every_floor_is_searched():
    assert {floor_of(module_of(path)) for path in source_files()} == set(FLOORS)


@pytest.mark.parametrize(
    ("floor", "source"),
    [
        ("dapple_dp.schemas", "import dapple_dp.transforms.core.statistics.lattice"),
        ("dapple_dp.schemas", "from apache_beam import coders"),
        ("dapple_dp.transforms.numerics", "from dapple_dp.transforms.on_beam import noise_stage"),
        ("dapple_dp.transforms.numerics", "def late():\n    import apache_beam as beam"),
        ("dapple_dp.transforms", "from dapple_dp.pipelines.kmeans.fit import run"),
        ("dapple_dp.transforms", "from . import rounds"),
        ("dapple_dp.transforms", "from .core.statistics.lattice import quantize"),
        ("dapple_dp.pipelines", "from tests.scenes.conformance import RunnerConformance"),
    ],
)
def test_a_planted_import_is_caught(floor, source):
    assert len(violations(floor, source)) == 1


@pytest.mark.parametrize(
    ("floor", "source"),
    [
        (
            "dapple_dp.transforms.numerics",
            "from dapple_dp.transforms.core.statistics import lattice\nfrom dapple_dp.schemas.core import plan",
        ),
        (
            "dapple_dp.transforms",
            "import apache_beam as beam\nfrom dapple_dp.transforms.core.statistics import lattice",
        ),
        (
            "dapple_dp.pipelines",
            "import dapple_dp.schemas.core.plan, dapple_dp.transforms.on_beam.round",
        ),
    ],
)
def test_an_import_to_the_left_is_allowed(floor, source):
    assert violations(floor, source) == []


def test_rooms_import_each_other_in_no_circle():
    assert circle(doors()) == []


def test_files_import_each_other_in_no_circle():
    """Nor do those of one package, whether an import is at the top, in a function or for types alone."""
    graph = {module_of(path): set(project_modules(text_of(path))) - {module_of(path)} for path in source_files()}
    graph = {module: {name for name in names if file_of(name).name != "__init__.py"} for module, names in graph.items()}
    assert len(graph) > 400
    assert circle(graph) == []


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
    graph["dapple_dp.transforms.files"].add("dapple_dp.transforms.rounds")
    assert {"dapple_dp.transforms.files", "dapple_dp.transforms.rounds"} <= set(circle(graph))


def test_a_circle_by_way_of_a_folder_inside_a_room_is_caught():
    graph = {
        "dapple_dp.pipelines.run": {"dapple_dp.pipelines.ledger"},
        "dapple_dp.pipelines.ledger": {"dapple_dp.pipelines.run.inside"},
    }
    assert circle(graph) == []
    assert set(circle(folded(graph))) == {"dapple_dp.pipelines.run", "dapple_dp.pipelines.ledger"}


def test_every_room_has_a_known_name():
    assert {word_of(room) for room in doors()} - {""} == CORE | FAMILIES | ABOVE | PUBLIC


def entries(room):
    folder = place_of(room)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.suffix in (".py", ".css", ".j2")]
    return {path.parts[0] for path in files} - {"__init__.py", "__main__.py"}


def test_a_room_is_seen_at_a_glance():
    rooms = {room_of(module_of(path)) for path in source_files()}
    assert {room: len(entries(room)) for room in rooms if len(entries(room)) > MOST_ENTRIES} == {}


def beam_behind(module: str) -> set[str]:
    """Modules that import Beam among those that are imported with one."""
    found = {name: imported_modules(text_of(file_of(name))) for name in reached_from(module)}
    return {name for name, targets in found.items() if any(f"{each}.".startswith("apache_beam.") for each in targets)}


def test_a_protocol_reaches_no_beam():
    modules = [module_of(path) for path in source_files() if path.parts[:2] == ("transforms", "kmeans")]
    modules += ["dapple_dp.transforms.core.round", "dapple_dp.transforms.core.loop"]
    found = {module: beam_behind(module) for module in modules}
    assert len(found) > 20
    assert {module: behind for module, behind in found.items() if behind} == {}


def test_a_process_that_adds_up_reaches_beam_by_stores_alone():
    """It is imported where a store is met."""
    assert beam_behind("dapple_dp.transforms.rounds.shard_sums") == {"dapple_dp.transforms.files.places.beam"}


@pytest.mark.parametrize(
    "module",
    ["kmeans.plan.planned_fit", "kmeans.plan.public_fit", "kmeans.report.report_warnings", "jobs.forewarnings"],
)
def test_planning_a_fit_loads_no_beam(module):
    """It is loaded with the first graph, or by a store."""
    script = f"import sys, dapple_dp.pipelines.{module}; print('apache_beam' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_beam_behind_another_module_is_found():
    assert {"dapple_dp.transforms.on_beam.round", "dapple_dp.transforms.on_beam.exact_sums"} <= beam_behind(
        "dapple_dp.transforms.on_beam.round"
    )


def test_protocols_do_not_import_each_other():
    graph = doors()
    rooms, others = {*PROTOCOLS, SHARED_ROUNDS}, {*PROTOCOLS, STARTS}
    assert {room for room in graph if room.startswith("dapple_dp.transforms.kmeans.")} == {*rooms, STARTS}
    assert {room: graph[room] & others for room in rooms if graph[room] & others} == {}


def test_the_core_knows_no_protocol():
    assert edges_between(CORE, FAMILIES | ABOVE) == EXCEPTIONS


def test_no_family_imports_the_trusted_zone_or_the_command():
    assert edges_between(FAMILIES, ABOVE) == set()


def test_rooms_above_do_not_import_the_command():
    assert edges_between({"trusted_zone", "plan"}, {"command"}) == set()
    assert edges_between({"trusted_zone"}, {"plan"}) == set()
