"""Features and algorithms can be taken out: their packages, and entries of the lists that name them, and no more."""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests import ratchet
from tests.unit.test_import_direction import ROOT, module_of


class Feature(NamedTuple):
    """An optional feature.

    Attributes:
      packages: folders and files that are the feature.
      users: features that are built on it, and leave with it.
    """

    packages: Sequence[str]
    users: Sequence[str] = ()


_SCORES = tuple(f"transforms/numerics/trusted_zone/{each}.py" for each in ("clustering_scores", "curves"))
"""Sums and costs stay: estimators have a `score`."""
FEATURES = {
    "beam": Feature(("dapple_dp/beam",)),
    "clustered_fl": Feature(
        (
            "pipelines/clustered_fl",
            "transforms/clustered_fl",
            "transforms/numerics/clustered_fl",
            "schemas/clustered_fl",
        )
    ),
    "profile": Feature(("pipelines/profile", "transforms/profile", "schemas/profile")),
    "integrations": Feature(("dapple_dp/integrations",)),
    "trusted_zone": Feature(
        ("pipelines/trusted_zone", "transforms/trusted_zone", "schemas/trusted_zone", *_SCORES), ("integrations",)
    ),
    "reports": Feature(
        ("pipelines/reports", "transforms/reports", "transforms/numerics/reports", "schemas/reports"), ("integrations",)
    ),
    "stream": Feature(("pipelines/kmeans/stream",)),
    "arrivals": Feature(("pipelines/tables/arrivals", "transforms/arrivals"), ("reports", "stream")),
}
"""A plain fit works without each of them; `ARCHITECTURE.md` has this table, too."""
ALGORITHMS = {
    "dp_medians": Feature(
        ("transforms/kmeans/dp_medians", "transforms/kmeans/median_starts.py", "schemas/kmeans/medians_config.py")
    ),
    "k_prototypes": Feature(("transforms/kmeans/k_prototypes", "schemas/kmeans/prototypes_config.py")),
    "spherical": Feature(
        (
            "transforms/kmeans/spherical",
            "schemas/kmeans/spherical_config.py",
            "schemas/kmeans/jobs/topics_config.py",
            "pipelines/command/topics.py",
            "dapple_dp/estimator/dp_topics.py",
        )
    ),
}
"""Algorithms of `fit`, each with the job and the estimator that are made of it alone."""
TABLES = (
    "schemas/choices.py",
    "schemas/kmeans/fit_config.py",
    "transforms/kmeans/protocols.py",
    "transforms/core/allow_list.py",
    "transforms/core/audited_types.py",
    "transforms/core/stated_sensitivity.py",
)
"""All that an algorithm changes of the product besides its own files; `docs/how-to/extend.md` names them, too."""
LISTS = (
    "pipelines/command/words.py",
    "pipelines/command/fit.py",
    "transforms/core/allow_list.py",
    "transforms/core/audited_types.py",
    "transforms/core/stated_sensitivity.py",
    "dapple_dp/api.py",
    "dapple_dp/__init__.pyi",
)
"""Where features are registered: words of the command, the checker's tables, and public names."""
SERVE = """\
import json, os, sys
import apache_beam, pipeline_dp, pyarrow.dataset, pydantic, scipy.stats, sklearn.cluster, sklearn.metrics, yaml
for line in sys.stdin:
    if not (child := os.fork()):
        os.chdir(json.loads(line)[0])
        for stream in (1, 2):
            os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        use, sys.argv = sys.argv[1], ["-c", *json.loads(line)]
        exec(use, {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process with the libraries, which take most of the time, and without Dapple. It forks one for each tree."""
USE = """\
import importlib, sys
root, *modules = sys.argv[1:]
sys.path.insert(0, root)
for each in modules:
    importlib.import_module(each)
import dapple_dp
from dapple_dp.pipelines.command import main, words
assert dapple_dp.__file__.startswith(root)
for each in dapple_dp.__all__:
    getattr(dapple_dp, each)
for word in words.WORDS.values():
    assert importlib.import_module(word.module).JOB
    word.loaded(word.example)
sys.argv[1:] = []
for asked in (["--help"], ["fit", "--config", "job.yaml", "--output", "result"]):
    if code := main.main(asked):
        sys.exit(code)
"""


def dotted(path: str) -> str:
    """A package or a file as a module."""
    name = path.removesuffix(".py").replace("/", ".")
    return name if name.startswith("dapple_dp.") else f"dapple_dp.{name}"


def leaving(feature: str) -> list[str]:
    """Everything that leaves with a feature or an algorithm."""
    packages, users = (FEATURES | ALGORITHMS)[feature]
    return sorted({*packages, *(path for user in users for path in leaving(user))})


class Entries(ast.NodeTransformer):
    """Takes entries out of a list, and what only they used.

    Attributes:
      modules: that are gone, with everything below.
      names: that no longer stand for anything: imports, constants, functions, words of the command and algorithms.
    """

    def __init__(self, modules: Sequence[str], names: Sequence[str] = ()):
        self.modules = re.compile(rf"({'|'.join(map(re.escape, modules))})(?!\w)")
        self.names = set(names)

    def is_gone(self, node: ast.AST) -> bool:
        """Returns whether anything in an entry or a statement names what is gone."""
        return any(
            (isinstance(each, ast.Name) and each.id in self.names)
            or (isinstance(each, ast.Attribute) and each.attr in self.names)
            or (isinstance(each, ast.Constant) and self.modules.match(str(each.value)))
            for each in ast.walk(node)
        )

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        gone = [each for each in node.names if self.modules.match(f"{node.module}.{each.name}")]
        self.names |= {each.asname or each.name for each in gone}
        node.names = [each for each in node.names if each not in gone]
        return node if node.names else None

    def visit_If(self, node: ast.If) -> ast.If | None:
        self.generic_visit(node)
        return node if node.body and not any(map(self.is_gone, node.body)) else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef | None:
        self.generic_visit(node)
        if self.is_gone(node):
            self.names.add(node.name)
            return None
        return node

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> ast.AST | None:
        value = node.value
        if isinstance(value, ast.Dict):
            pairs = list(zip(value.keys, value.values, strict=True))
            kept = [pair for pair in pairs if not self.is_gone(pair[1]) and not (pair[0] and self.is_gone(pair[0]))]
            gone = [key for key, _ in pairs if isinstance(key, ast.Constant) and (key, _) not in kept]
            self.names |= {str(key.value) for key in gone}
            value.keys, value.values = [key for key, _ in kept], [each for _, each in kept]
        elif isinstance(value, ast.Tuple):
            value.elts = [each for each in value.elts if not self.is_gone(each)]
        elif isinstance(value, ast.Call) and all(isinstance(each, ast.Tuple) for each in value.args):
            value.args = [each for each in value.args if not self.is_gone(each)]
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(map(self.is_gone, targets)) and (value is None or not self.is_gone(value)):
            return node
        self.names |= {each.id for each in targets if isinstance(each, ast.Name)}
        return None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return self.visit_Assign(node)


class Words(ast.NodeTransformer):
    """Takes words that are gone out of the literals that hold them, and pairs of which no word is left."""

    def __init__(self, words: set[str]):
        self.words = words

    def _stays(self, node: ast.AST | None) -> bool:
        return not (isinstance(node, ast.Constant) and node.value in self.words)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and " | " in node.value:
            node.value = " | ".join(each for each in node.value.split(" | ") if each not in self.words)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        node.elts = [each for each in node.elts if self._stays(each)]
        return self.generic_visit(node)

    def visit_List(self, node: ast.List) -> ast.AST:
        node.elts = [each for each in node.elts if self._stays(each)]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if self._stays(key)]
        pairs = [(key, value) for key, value in pairs if not ast.unparse(value).endswith(", ())")]
        node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        return node


def without(source: str, modules: Sequence[str], names: Sequence[str] = ()) -> tuple[str, set[str]]:
    """A list without the entries that name modules or names, and the names that left it."""
    entries = Entries(modules, names)
    tree = entries.visit(ast.parse(source))
    return ast.unparse(Words(entries.names).visit(tree)), entries.names


def take_out(feature: str, root: pathlib.Path) -> tuple[list[str], set[str]]:
    """Deletes a feature's packages, and its entries in the lists; returns what may not be named, and changed lists."""
    for path in leaving(feature):
        if path.endswith(".py"):
            (root / path).unlink()
        else:
            shutil.rmtree(root / path)
    modules = [dotted(path) for path in leaving(feature)]
    changed, members = set(), [feature.upper()] if feature in ALGORITHMS else []
    modules += [f"Algorithm.{each}" for each in members] + [f"algorithm: {feature}" for _ in members]
    for name in dict.fromkeys((*TABLES, *LISTS)):
        before = (root / name).read_text()
        text, names = without(before, modules, members)
        if ast.unparse(ast.parse(before)) != text:
            changed.add(name)
        (root / name).write_text(text)
        modules += [f"{dotted(name)}.{each}" for each in sorted(names - {*members}) if name.endswith(".py")]
    return modules, changed


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    for folder in ratchet.PRODUCT:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=_what_is_no_source)
    return tmp_path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Takes the root and the modules of a tree as a line of JSON, and answers with the exit code of their use."""
    words, pipe = [sys.executable, "-c", SERVE, USE], subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path_factory.mktemp("served"), stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.communicate()


def _what_is_no_source(folder: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if (pathlib.Path(folder) / name).is_symlink()]


def _entries(feature: str, lists: Sequence[str]) -> int:
    """Number of lines of lists that name a feature's packages."""
    lines = [line for name in lists for line in (ROOT / name).read_text().splitlines()]
    return sum(any(dotted(path) in line for path in FEATURES[feature].packages) for line in lines)


def test_the_map_has_every_feature() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Take something out")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)`(.*)\|$", table, re.MULTILINE)
    rows = {name: [cell.strip() for cell in cells.split("|")] for name, cells in found}
    assert {name: re.findall(r"`(\w+)`", users) for name, (*_, users) in rows.items()} == {
        name: list(users) for name, (_, users) in FEATURES.items()
    }
    for name, (_, _, lines, named, _) in rows.items():
        paths = [ROOT / path for path in FEATURES[name].packages]
        files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
        counted = sum(len(file.read_text().splitlines()) for file in files)
        assert int(lines.replace(",", "")) == pytest.approx(counted, rel=0.1), name
        assert named == ", ".join(str(_entries(name, part)) for part in (LISTS[:2], LISTS[2:5], LISTS[5:])), name
    assert all((ROOT / path).exists() for packages, _ in FEATURES.values() for path in packages)


@pytest.mark.slow
@pytest.mark.parametrize("feature", [*FEATURES, *ALGORITHMS])
def test_dapple_works_without(feature: str, tree: pathlib.Path, served: subprocess.Popen[str]) -> None:
    modules, changed = take_out(feature, tree)
    assert changed <= {*LISTS} if feature in FEATURES else {*TABLES} <= changed <= {*TABLES, *LISTS}
    sources = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*.py*") if path.suffix != ".pyc"}
    named = re.compile(rf"({'|'.join(map(re.escape, modules))})(?!\w)")
    assert {name: found.group() for name, text in sources.items() if (found := named.search(text))} == {}
    files = [pathlib.Path(name) for name in sources if name.endswith(".py") and "__main__" not in name]
    left = [module_of(path).removesuffix(".__init__") for path in files]
    ratchet.write_job(tree)
    assert served.stdin
    assert served.stdout
    print(json.dumps([str(tree), *left]), file=served.stdin, flush=True)
    code, said = int(served.stdout.readline()), (tree / "said").read_text()
    assert code == 0, said
    assert "usage: dapple" in said
    assert (tree / "result" / "centers.parquet").exists()
