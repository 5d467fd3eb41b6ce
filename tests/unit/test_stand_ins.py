"""Whatever tests replace in the product or around it has a row in `tests/stand_ins.md`, which says why."""

import ast
import collections
import functools
import pathlib
import re

import pytest

from tests.scenes import written_keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("tests/**/*.py"))
TABLE = ROOT / "tests" / "stand_ins.md"
KINDS = ["fault", "clock", "size", "watch", "known", "surroundings", "stub"]
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
SETTERS = {"setattr", "delattr", "setitem", "delitem"}


def imports_of(tree):
    """The whole name of each name that a file imports."""
    found = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            names = [(it.asname or it.name.partition(".")[0], it) for it in each.names]
            found |= {name: it.name if it.asname else name for name, it in names}
        elif isinstance(each, ast.ImportFrom):
            found |= {it.asname or it.name: f"{each.module}.{it.name}" for it in each.names}
        elif isinstance(each, ast.Assign) and "importorskip(" in ast.unparse(each.value):
            found[ast.unparse(each.targets[0])] = each.value.args[0].value
    return found


@functools.cache
def imports_in(module):
    """Imports of a module of this repository; others import nothing that is of interest."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    return imports_of(ast.parse(path.read_text())) if path.exists() else {}


def followed(name):
    """The name at home of what is replaced by way of a module that imports its module."""
    parts = name.split(".")
    for end in range(len(parts) - 2, 0, -1):
        known = imports_in(".".join(parts[:end]))
        if parts[end] in known:
            return ".".join([known[parts[end]], *parts[end + 1 :]])
    return name


class StandIns:
    """Objects that a file replaces; `*` stands for what a variable says."""

    def __init__(self, text):
        self._tree = ast.parse(text)
        self._imports = imports_of(self._tree)
        self._loops = collections.defaultdict(list)
        for each in ast.walk(self._tree):
            if isinstance(each, ast.For) and isinstance(each.iter, ast.Tuple | ast.List):
                self._loops[ast.unparse(each.target)] += each.iter.elts

    def names(self):
        """Without what belongs to the tests."""
        found = {followed(name) for each in ast.walk(self._tree) for name in self._replaced(each)}
        return {name for name in found if not name.startswith("tests.")}

    def _replaced(self, node):
        if isinstance(node, ast.Call):
            return self._by_call(ast.unparse(node.func), node.args, node.keywords)
        if isinstance(node, ast.Assign | ast.Delete):
            flat = [it for target in node.targets for it in getattr(target, "elts", [target])]
            return [name for it in flat for name in self._by_assignment(it)]
        return self._by_assignment(node.target) if isinstance(node, ast.AugAssign) else []

    def _by_call(self, function, given, keywords):
        owner, _, last = function.rpartition(".")
        if last in ("setenv", "delenv"):
            return [f"${name}" for name in self._texts(given[0])]
        if last in ("chdir", "syspath_prepend"):
            return ["os.getcwd" if last == "chdir" else "sys.path"]
        if last == "patch" and given:
            return self._texts(given[0])
        if owner.endswith("patch") and last in ("object", "multiple", "dict"):
            last = {"object": "setattr", "dict": "setitem"}.get(last, last)
        if last == "multiple":
            return [f"{holder}.{it.arg or '*'}" for holder in self._dotted(given[0]) for it in keywords]
        if last in SETTERS and isinstance(given[0], ast.Constant):
            return self._texts(given[0])
        if last in SETTERS and (owner or ast.unparse(given[0]).partition(".")[0] in self._imports):
            return self._parts(given[0], given[1], last.endswith("item"))
        return []

    def _by_assignment(self, target):
        """To an attribute or an item of something that is imported."""
        if ast.unparse(target).partition(".")[0].partition("[")[0] not in self._imports:
            return []
        if isinstance(target, ast.Subscript):
            return self._parts(target.value, target.slice, True)
        return self._dotted(target) if isinstance(target, ast.Attribute) else []

    def _parts(self, holder, part, is_item):
        """Attributes are named; of what holds items itself, but for modules."""
        found = []
        for name in self._dotted(holder):
            if is_item and name != "sys.modules":
                found.append(name)
            else:
                found += [f"{name}[{text}]" if is_item else f"{name}.{text}" for text in self._texts(part)]
        return found

    def _dotted(self, node):
        root, dot, rest = ast.unparse(node).partition(".")
        if root in self._loops and not rest:
            return [name for each in self._loops[root] for name in self._dotted(each)]
        return [self._imports.get(root, root) + dot + rest]

    def _texts(self, node):
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.JoinedStr):
            return [
                "".join(str(getattr(it, "value", "")) if isinstance(it, ast.Constant) else "*" for it in node.values)
            ]
        return [text for it in self._loops.get(ast.unparse(node), []) for text in self._texts(it)] or ["*"]


def replaced():
    """The replaced names, and in which files."""
    found = collections.defaultdict(set)
    for path in FILES:
        for name in StandIns(path.read_text()).names():
            found[name].add(path.stem)
    return dict(found)


def table():
    """Replaced objects by kind: why, and by which files."""
    rows = {kind: ROW.findall(text) for kind, text in SECTION.findall(TABLE.read_text())}
    return {kind: {name: (why, set(files.split(", "))) for name, why, files in found} for kind, found in rows.items()}


def test_every_stand_in_is_in_the_table_and_no_other():
    """With the files in which it is used; one may have several kinds."""
    listed = collections.defaultdict(set)
    for rows in table().values():
        for name, (_, files) in rows.items():
            listed[name] |= files
    assert dict(listed) == replaced()


def test_every_row_of_the_table_is_read_and_has_a_reason():
    text, rows = TABLE.read_text(), table()
    assert list(rows) == KINDS
    assert sum(map(len, rows.values())) == text.count("\n| `")
    assert all(len(why.split()) <= 15 for found in rows.values() for why, _ in found.values())


def test_files_in_which_written_keys_draw_are_there():
    assert {path.stem for path in FILES} >= written_keys.FILES


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("patch.setattr(noise, 'draw_release', record)", {"dapple_dp.transforms.core.noise.draw_release"}),
        ("patch.setattr('dapple_dp.pipelines.run.graph.run_graph', None)", {"dapple_dp.pipelines.run.graph.run_graph"}),
        ("patch.setattr(noise.np, 'exp', sloppy)", {"numpy.exp"}),
        (
            "for it in (noise, os):\n    patch.setattr(it, 'x', 1)",
            {"dapple_dp.transforms.core.noise.x", "os.x"},
        ),
        ("for it in ('a', 'b'):\n    mock.patch.object(os, it, None)", {"os.a", "os.b"}),
        ("mock.patch.object(os, name)", {"os.*"}),
        ("with mock.patch('secrets.token_bytes'):\n    pass", {"secrets.token_bytes"}),
        ("mock.patch.multiple(os, link=None, fsync=None)", {"os.link", "os.fsync"}),
        ("mock.patch.dict(os.environ, place)", {"os.environ"}),
        ("patch.setitem(sys.modules, 'jax', None)", {"sys.modules[jax]"}),
        ("del sys.modules[name]", {"sys.modules[*]"}),
        ("patch.setenv('HOME', '')\npatch.delenv(f'A_{name}')", {"$HOME", "$A_*"}),
        ("patch.chdir(folder)\npatch.syspath_prepend(folder)", {"os.getcwd", "sys.path"}),
        (
            "os.environ['HOME'] = ''\nnoise.KEY, known = 1, 2",
            {"os.environ", "dapple_dp.transforms.core.noise.KEY"},
        ),
        ("setattr(noise, 'KEY', 1)\nsetattr(own, 'key', 2)", {"dapple_dp.transforms.core.noise.KEY"}),
        ("patch.setattr(lake, 'KEY', 1)\nnoise.draw_release(key)", set()),
    ],
)
def test_replacements_are_found_however_they_are_written(line, names):
    head = "import os, sys\nfrom tests.scenes import lake\nfrom dapple_dp.transforms.core import noise\n"
    assert StandIns(head + line).names() == names
