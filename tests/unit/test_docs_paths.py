"""Names on the pages exist: paths, modules and what is in them, and targets of links."""

import ast
import functools
import itertools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
AT_ROOT = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md", "llms.txt")
PAGES = [
    *(ROOT / name for name in AT_ROOT),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "benchmarks/papers/coverage.md",
    ROOT / "benchmarks/results/README.md",
    ROOT / "benchmarks/arena/README.md",
    ROOT / "transforms/numerics/reports/FORMAT.md",
]
DECISIONS = ROOT / "docs" / "decisions"
FOLDERS = ("dapple_dp", "schemas", "transforms", "pipelines", "tests", "benchmarks", "examples", "deploy", "schedule")
FOLDERS += ("docs",)

_TOPS = "dapple_dp|schemas|transforms|pipelines|tests"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_TOPS})(?:/[\w*-]+)+(?:\.\w+)?")
_FILE = re.compile(r"[\w*/-]+\.py\b")
_DOTTED = re.compile(rf"(?<![\w/.-])((?:{_TOPS})(?:\.\w+)+)(?::(\w+))?")
_PLACEHOLDER = re.compile(r"(?<![a-z])[A-Z]{2,}(?![a-z])")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_DECIDED = re.compile(r"\nDecided on \d{4}-\d\d-\d\d[.,]")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@functools.cache
def project_files() -> tuple[pathlib.PurePosixPath, ...]:
    files = [path for top in FOLDERS for path in (ROOT / top).rglob("*.py")]
    return tuple(pathlib.PurePosixPath(path.relative_to(ROOT)) for path in [*files, *ROOT.glob("*.py")])


def is_there(path: str) -> bool:
    """Returns whether a path exists; a part in capitals stands for any name."""
    return any(ROOT.glob(_PLACEHOLDER.sub("*", path)))


def is_a_file(name: str) -> bool:
    """Returns whether some Python file has this name, or this path at its end."""
    pattern = _PLACEHOLDER.sub("*", name)
    return any(path.match(pattern) for path in project_files())


def members(tree: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    """Returns what a module or class defines or imports by name, at its top level or for type checkers."""
    found: dict[str, ast.stmt] = {}
    inside = [each for node in tree.body if isinstance(node, ast.If) for each in node.body]
    for node in [*tree.body, *inside]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name: node for alias in node.names}
    return found


def defines(path: pathlib.Path, names: list[str]) -> bool:
    """Returns whether a file holds a name, or a class with it."""
    scope: ast.AST = ast.parse(path.read_text())
    for name in names:
        inside = members(scope) if isinstance(scope, ast.Module | ast.ClassDef) else {}
        if name not in inside:
            return False
        scope = inside[name]
    return True


def resolves(dotted: str) -> bool:
    """Returns whether a dotted name is a folder, a module, or something in a module; nothing is imported."""
    parts = _PLACEHOLDER.sub("*", dotted).split(".")
    if any(path.is_dir() for path in ROOT.glob("/".join(parts))):
        return True
    for cut in range(len(parts), 0, -1):
        stem = "/".join(parts[:cut])
        modules = [*ROOT.glob(f"{stem}.py"), *ROOT.glob(f"{stem}/__init__.py*")]
        if modules:
            return any(defines(path, dotted.split(".")[cut:]) for path in modules)
    return False


def missing_names(text: str) -> list[str]:
    paths = [path for path in _PATH.findall(text) if not is_there(path)]
    files = [name for name in _FILE.findall(text) if not is_a_file(name.lstrip("/"))]
    dotted = [".".join(filter(None, groups)) for groups in _DOTTED.findall(text)]
    return sorted({*paths, *files, *(name for name in dotted if not resolves(name))})


def anchors(text: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    found: list[str] = []
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        plain = re.sub(r"[^\w\- ]", "", _LINK.sub("", heading).lower()).replace(" ", "-")
        found.append(f"{plain}-{times}" if (times := found.count(plain)) else plain)
    return set(found)


def leads_somewhere(page: pathlib.Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    return path.exists() and (not anchor or anchor in anchors(path.read_text()))


def dead_links(page: pathlib.Path, text: str) -> list[str]:
    relative = [target for target in _LINK.findall(_CODE.sub("", _FENCED.sub("", text))) if "://" not in target]
    return [target for target in relative if not leads_somewhere(page, target)]


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request):
    return request.param


def test_what_a_page_names_exists(page):
    assert missing_names(page.read_text()) == []


def test_where_a_page_leads_exists(page):
    assert dead_links(page, page.read_text()) == []


def decision_pages():
    """Pages of decisions by their file, but the index."""
    return {path.name: path.read_text() for path in DECISIONS.glob("*.md") if path.name != "README.md"}


def undated(text: str) -> list[str]:
    """Titles of sections without the line of their day."""
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return [each.splitlines()[0] for each in sections if not _DECIDED.match(each.partition("\n")[2])]


def test_every_page_of_decisions_is_listed_once_under_its_title():
    lines = re.findall(r"^- \[(.+)\]\(([\w.-]+)\)", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    titles = {name: text.splitlines()[0].removeprefix("# ") for name, text in decision_pages().items()}
    assert sorted(lines) == sorted((title, name) for name, title in titles.items())


def test_decisions_are_sections_of_topics_with_their_day():
    assert [name for name in decision_pages() if not re.fullmatch(r"[a-z][a-z-]*\.md", name)] == []
    assert {name: undated(text) for name, text in decision_pages().items() if undated(text)} == {}
    titles = [line for text in decision_pages().values() for line in text.splitlines() if line.startswith("## ")]
    assert len(set(titles)) == len(titles) > 40


def test_a_decision_without_its_day_is_found():
    assert undated("# Topic\n\n## One\n\nDecided on 2026-11-21.\n\n## Two\n\nWhy.\n") == ["Two"]


@pytest.mark.parametrize(
    "text",
    [
        "`transforms/noise_stage.py`",
        "`tests/unit/nowhere`",
        "`no_such_file.py`",
        "`transforms/kmeans/NAME/no_such_file.py`",
        "`dapple_dp.transforms.noise_stage`",
        "`dapple_dp.transforms.on_beam.noise_stage.NoSuchName`",
        "`dapple_dp.transforms.on_beam.noise_stage:NoSuchName`",
    ],
)
def test_a_name_without_a_thing_is_found(text):
    assert missing_names(text)


@pytest.mark.parametrize(
    "text",
    [
        "`transforms/on_beam/noise_stage.py`, `noise_stage.py`, `on_beam/noise_stage.py` and `tests/unit/`",
        "`transforms/kmeans/NAME/rounds.py`",
        "`dapple_dp.transforms.privacy` and `dapple_dp.transforms.on_beam.noise_stage`",
        "`dapple_dp.transforms.on_beam.noise_stage.AddNoise.expand`",
        "`dapple_dp.transforms.on_beam.noise_stage:AddNoise`",
    ],
)
def test_a_name_with_a_thing_passes(text):
    assert missing_names(text) == []


@pytest.mark.parametrize("target", ["nowhere.md", "README.md#no-such-heading", "#no-such-heading"])
def test_a_link_to_nowhere_is_found(target):
    assert dead_links(ROOT / "README.md", f"[a link]({target})") == [target]


def test_every_sharp_edge_has_a_target_of_its_own():
    lines = (ROOT / "docs" / "sharp-edges.md").read_text().splitlines()
    targets = [line for line in lines if re.fullmatch(r"\(edge-[a-z-]+\)=", line)]
    titles = [before for before, line in itertools.pairwise(lines) if line.startswith("**")]
    assert titles == targets
    assert len(set(targets)) == len(targets)
