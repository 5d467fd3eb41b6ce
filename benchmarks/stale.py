"""Lists results whose code has changed since: the commit that a result names, beside the files of today.

A result is stale if the syntax tree, without docstrings, of a module that its command imports, directly or through
others, differs from that of the commit. Results without a command and a commit, and those of a changed tree
("-dirty"), are listed apart: nobody can say which code drew them.

    python -m benchmarks.stale
"""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks import measurement

RESULTS = Path("benchmarks/results")
PACKAGES = ("benchmarks", "dapple_dp", "pipelines", "schemas", "transforms")


def main() -> None:
    arguments = measurement.script(__doc__).parse_args()
    lines = ["| result | state | first module that differs |", "| --- " * 3 + "|"]
    states: dict[str, int] = {}
    for path in sorted(RESULTS.rglob("*.md")):
        state, why = judge(path.read_text())
        states[state] = states.get(state, 0) + 1
        lines.append(f"| {path.relative_to(RESULTS)} | {state} | {why} |")
    lines += ["", ", ".join(f"{count} {state}" for state, count in sorted(states.items()))]
    measurement.show(lines, arguments.out)


def judge(text: str) -> tuple[str, str]:
    """State of a result by its text, and why: current, stale, dirty, lost (an unknown commit) or unnamed."""
    command = re.search(r"python -m (benchmarks[\w.]*)", text)
    commit = re.search(r"^- commit: (?:\S*-g)?([0-9a-f]{7,40})(-dirty)?$", text, re.MULTILINE)
    if command is None or commit is None:
        return "unnamed", "-"
    if commit[2]:
        return "dirty", commit[1]
    then = blobs(commit[1])
    if not then:
        return "lost", commit[1]
    for path in modules(command[1]):
        if path not in then:
            return "stale", f"{path} is new"
        was = git("cat-file", "blob", then[path])
        now = Path(path).read_text()
        if was != now and tree(was) != tree(now):
            return "stale", path
    return "current", "-"


def tree(source: str) -> str:
    """The syntax tree without docstrings, comments and places."""
    parsed = ast.parse(source)
    for node in ast.walk(parsed):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return ast.dump(parsed)


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is nothing but a string: a docstring, of whatever it follows."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@functools.cache
def modules(name: str) -> tuple[str, ...]:
    """Paths of a module and of all that it imports of the repository, nearest first."""
    found: dict[str, None] = dict.fromkeys(_paths(name))
    todo = list(found)
    for path in todo:
        new = [each for imported in imports(path) for each in _paths(imported) if each not in found]
        found |= dict.fromkeys(new)
        todo += dict.fromkeys(new)
    return tuple(found)


@functools.cache
def imports(path: str) -> tuple[str, ...]:
    """Names that a file imports, with the members that may be modules."""
    return tuple(_imports(ast.parse(Path(path).read_text())))


def _imports(parsed: ast.AST) -> Iterator[str]:
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{each.name}" for each in node.names))


def _paths(name: str) -> list[str]:
    """Of a module of the repository, if it is one."""
    base = Path(*name.split("."))
    places = (base.with_suffix(".py"), base / "__main__.py", base / "__init__.py")
    return [str(each) for each in places if name.split(".")[0] in PACKAGES and each.exists()]


@functools.cache
def blobs(commit: str) -> dict[str, str]:
    """Objects of a commit by path; none if the commit is not here."""
    rows = (line.split(None, 3) for line in git("ls-tree", "-r", commit).splitlines())
    return {path: blob for _, _, blob, path in rows}


def git(*words: str) -> str:
    """What git prints, or nothing if it fails."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    main()
