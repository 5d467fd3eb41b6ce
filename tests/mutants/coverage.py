"""Which lines each test executes, and its seconds: recorded once for each file of tests, and kept in a file.

A record holds while the product, what tests share and the file of tests stay as they are, so a new test costs one run
of its file.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import resource
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mutants.children import in_child
from tests.mutants.session import Verdict, session

_SHARED = ("schemas/**/*.py", "transforms/**/*.py", "pipelines/**/*.py", "dapple_dp/**/*.py")
_SHARED += ("tests/scenes/**/*.py", "tests/**/conftest.py")


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """A test as it ran without any change.

    Attributes:
      seconds: of processors.
      lines: that it came by, by file.
    """

    seconds: float
    lines: dict[str, frozenset[int]]


@dataclasses.dataclass(frozen=True, slots=True)
class Coverage:
    """The record of the tests of a room.

    Attributes:
      tests: by their names.
      imported: lines that run when tests are collected, by file.
    """

    tests: dict[str, Ran]
    imported: dict[str, frozenset[int]]


def recorded(
    tests: tuple[str, ...], files: set[str], root: pathlib.Path, store: pathlib.Path, tier: str = ""
) -> Coverage:
    """Coverage of tests; files of them that the store does not know are run.

    Args:
      tests: files, folders and `FILE::TEST` of single ones, relative to the root.
      files: whose lines are noted, whole paths.
      root: of the repository.
      store: a line of JSON for each file of tests.
      tier: expression of markers that chooses among the tests; empty for all.

    Raises:
      RuntimeError: if the tests do not pass.
    """
    asked = _asked(tests, root)
    said = (*sorted(files), *([tier] if tier else []))
    paths = {each: _digest(each, root, said, tuple(names)) for each, names in asked.items()}
    known = _known(store, paths)
    store.parent.mkdir(parents=True, exist_ok=True)
    if missing := [each for each in paths if each not in known]:
        recorder = functools.partial(_Recorder, files, root, store, paths)
        answer = in_child(
            lambda: session(
                (f"--rootdir={root}", "-m", tier, *(f"{root}/{name}" for file in missing for name in asked[file])),
                recorder(),
            ),
            longest=1e5,
        )
        if answer["failed"]:
            raise RuntimeError(f"tests must pass without a change, got a failure of {answer['failed']}.")
        known = _known(store, paths)
    imported: dict[str, frozenset[int]] = {}
    found: dict[str, Ran] = {}
    for record in known.values():
        for path, lines in record["imported"].items():
            imported[path] = imported.get(path, frozenset()).union(lines)
        for name, (seconds, lines) in record["tests"].items():
            found[name] = Ran(seconds, {path: frozenset(each) for path, each in lines.items()})
    return Coverage(found, imported)


def _asked(tests: tuple[str, ...], root: pathlib.Path) -> dict[str, list[str]]:
    """Returns what pytest is asked for, by file: single tests, or the file itself."""
    found: dict[str, list[str]] = {}
    for each in tests:
        path, _, single = each.partition("::")
        for file in sorted((root / path).rglob("test_*.py")) or [root / path]:
            name = file.relative_to(root).as_posix()
            found.setdefault(name, []).append(each if single else name)
    return found


@functools.cache
def _shared(root: pathlib.Path) -> bytes:
    digest = hashlib.sha256()
    for pattern in _SHARED:
        for path in sorted(root.glob(pattern)):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.digest()


@functools.cache
def _digest(path: str, root: pathlib.Path, said: tuple[str, ...], names: tuple[str, ...]) -> str:
    text = "\n".join((*said, *(each for each in names if each != path)))
    return hashlib.sha256(_shared(root) + text.encode() + (root / path).read_bytes()).hexdigest()


def _known(store: pathlib.Path, paths: dict[str, str]) -> dict[str, Any]:
    lines = map(json.loads, store.read_text().splitlines() if store.exists() else ())
    return {each["file"]: each for each in lines if paths.get(each["file"]) == each["digest"]}


class _Recorder(Verdict):
    """Notes seconds and lines of each test, and writes them when its file is through."""

    def __init__(self, files: set[str], root: pathlib.Path, store: pathlib.Path, digests: dict[str, str]):
        super().__init__()
        self._files, self._root, self._store, self._digests = files, root, store, digests
        self._imported: dict[str, list[int]] | None = None
        self._tests: dict[str, Any] = {}
        self._lines: dict[str, set[int]] = {}
        self._whole: set[types.CodeType] = set()
        self._follow(True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if self._imported is None:
            self._imported = self._noted()
        self._lines, self._whole, used = {}, set(), _used()
        self._follow(True)
        try:
            return (yield)
        finally:
            self._follow(False)
            self._tests[item.nodeid] = (_used() - used, self._noted())
            if nextitem is None or nextitem.path != item.path:
                self._write(item.path.relative_to(self._root).as_posix())

    def _write(self, path: str) -> None:
        """Appends a file of tests, unless one of them has failed."""
        if not self.answer["failed"]:
            record = {"file": path, "digest": self._digests[path], "imported": self._imported, "tests": self._tests}
            with self._store.open("a") as file:
                file.write(json.dumps(record) + "\n")
        self._tests = {}

    def _noted(self) -> dict[str, list[int]]:
        return {path: sorted(found) for path, found in self._lines.items()}

    def _follow(self, on: bool) -> None:
        sys.settrace(self._trace if on else None)
        threading.settrace(self._trace if on else None)  # type: ignore[arg-type]

    def _trace(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in self._files or code in self._whole:
            return None
        found = self._lines.setdefault(code.co_filename, set())
        found.add(frame.f_lineno)

        def each_line(frame: types.FrameType, event: str, arg: Any) -> Any:
            found.add(frame.f_lineno)
            if event == "return" and found.issuperset(line for _, _, line in code.co_lines() if line is not None):
                self._whole.add(code)
            return each_line

        return each_line


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
