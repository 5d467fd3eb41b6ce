"""Which tests are run for a mutant, and in what order: those that execute the changed statement, the likely ones first.

A statement that runs at import has no line of its own in a test. All tests that execute its file are run for it, and
first those of files that say its name, and those that execute a line where it is used.
"""

import ast
import collections
import functools
import math
import os
import pathlib
import re
from collections.abc import Iterator

from tests.mutants.coverage import Coverage
from tests.mutants.operators import Mutant

MOST_SECONDS = 20.0
"""Of tests that are run for one mutant, by their times without it."""


class Choice:
    """Chooses, and learns from what has noticed others.

    Args:
      coverage: of the tests of a room.
      root: of the repository.
      files: in which names are looked for, whole paths.
    """

    def __init__(self, coverage: Coverage, root: pathlib.Path, files: set[str]):
        self._tests, self._imported = dict(coverage.tests), coverage.imported
        self._root, self._files = root, files
        self._kills: collections.Counter[tuple[str, str]] = collections.Counter()

    def of(self, mutant: Mutant) -> list[str]:
        """Names of tests, at most `MOST_SECONDS` of them."""
        path = os.fspath(self._root / mutant.path)
        lines = range(mutant.lines[0], mutant.lines[1] + 1)
        if mutant.function is None:
            names = names_given(path, mutant.lines[0])
            said = {file for file in {each.split("::")[0] for each in self._tests} if self._says(file, names)}
            near = [name for name, ran in self._tests.items() if path in ran.lines or name.split("::")[0] in said]
            near = near or list(self._tests)
            used = used_at(path, mutant.lines[0], tuple(sorted(self._files)))
        else:
            near = [name for name, ran in self._tests.items() if not ran.lines.get(path, frozenset()).isdisjoint(lines)]
            used, said = {}, set()

        def place(name: str) -> tuple[int, str]:
            ran = self._tests[name]
            likely = 1.0 + 4.0 * self._kills[name, mutant.path + mutant.scope] + self._kills[name, mutant.path]
            likely *= 20.0 if name.split("::")[0] in said else 1.0
            likely *= 8.0 if any(not ran.lines.get(each, frozenset()).isdisjoint(used[each]) for each in used) else 1.0
            return math.floor(math.log((ran.seconds + 0.02) / likely, 3.0)), name.split("::")[0]

        chosen, seconds = [], 0.0
        for name in sorted(near, key=place):
            seconds += self._tests[name].seconds
            if seconds < MOST_SECONDS or not chosen:
                chosen.append(name)
        return chosen

    def _says(self, file: str, names: frozenset[str]) -> bool:
        """Returns whether a file of tests has one of some names in it."""
        return not names.isdisjoint(_words(os.fspath(self._root / file)))

    def at_import(self, mutant: Mutant) -> bool:
        """Returns whether the statement also runs when tests are collected."""
        found = self._imported.get(os.fspath(self._root / mutant.path), frozenset())
        return not found.isdisjoint(range(mutant.lines[0], mutant.lines[1] + 1))

    def has_noticed(self, name: str, mutant: Mutant) -> None:
        """Learns that a test has noticed a mutant."""
        self._kills[name, mutant.path + mutant.scope] += 1
        self._kills[name, mutant.path] += 1

    def leave_out(self, name: str) -> None:
        """A test that is not to be believed: it fails without a change."""
        self._tests.pop(name, None)

    def limits(self) -> dict[str, float]:
        """Seconds of processors after which a test has no end."""
        return {name: 6.0 + 20.0 * ran.seconds for name, ran in self._tests.items()}


@functools.cache
def names_given(path: str, line: int) -> frozenset[str]:
    """Names that follow from a statement at the top of a module or class: its own, and those of others that use it."""
    body = _tree(path).body
    names = {name for each in body if each.lineno <= line <= (each.end_lineno or 0) for name in _given(each, line)}
    while True:
        users = [each for each in body if isinstance(each, (ast.Assign, ast.AnnAssign))]
        users = [each for each in users if not names.isdisjoint(found for found, _ in _read(each))]
        more = {name for each in users for name in _given(each, None)} - names
        if not more:
            return frozenset(names)
        names |= more


@functools.cache
def used_at(path: str, line: int, files: tuple[str, ...]) -> dict[str, set[int]]:
    """Lines where these names are used, by file."""
    names = names_given(path, line)
    found: dict[str, set[int]] = {}
    for file in files:
        for name, place in _read(_tree(file)):
            if name in names:
                found.setdefault(file, set()).add(place)
    return found


@functools.cache
def _words(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", pathlib.Path(path).read_text()))


@functools.cache
def _tree(path: str) -> ast.Module:
    return ast.parse(pathlib.Path(path).read_text())


def _given(node: ast.stmt, line: int | None) -> Iterator[str]:
    """Names that a statement gives a value; of a class only those on the line, and its own."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    if isinstance(node, ast.ClassDef) and line is not None:
        for each in node.body:
            if each.lineno <= line <= (each.end_lineno or 0):
                yield from _given(each, line)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))


def _read(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are read, with their lines."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield each.id, each.lineno
        elif isinstance(each, ast.Attribute):
            yield each.attr, each.lineno
