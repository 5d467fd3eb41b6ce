"""Trials of mutants: a process that has collected the tests of a room forks a child for each.

In the child the code of the changed function takes the place of the old one, wherever that is referred to. A change
outside of functions, and any change that no test has noticed so, is tried again by a child that imports everything of
ours anew, with the changed source in place of the file. A child runs the tests that come by the changed statement,
those that have noticed others before and short ones first, and ends at the first that fails.
"""

import collections
import contextlib
import dataclasses
import gc
import importlib.machinery
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

from tests.mutants.operators import Mutant, mutated

MOST_SECONDS = 60.0
"""Of tests that are run for one mutant, by their times without it."""
_FEW = 15
"""Examples of a property, at first."""
_PATIENCE = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant.

    Attributes:
      name: of the mutant.
      noticed_by: the first test that failed; None if all passed.
      n_tests: that come by its statement.
      seconds: that it took.
      undecided: whether it was not noticed at first, and has not been tried again.
    """

    name: str
    noticed_by: str | None
    n_tests: int
    seconds: float
    undecided: bool = False


@dataclasses.dataclass(slots=True)
class _Ran:
    """A test as it ran without any change: its seconds, and the lines that it came by."""

    seconds: float
    lines: dict[str, set[int]]


def _ran(tests: dict[str, Any]) -> dict[str, _Ran]:
    """What a recorder noted, as it comes through a pipe."""
    return {
        name: _Ran(seconds, {path: set(found) for path, found in lines.items()})
        for name, (seconds, lines) in tests.items()
    }


def in_child(function: Callable[[], Any], seconds: float = 3600.0) -> Any:
    """What a function returns in a forked child, as JSON carries it.

    Raises:
      TimeoutError: if it does not end.
      ChildProcessError: if it ends without an answer.
    """
    folder = tempfile.mkdtemp(prefix="dapple-mutants-")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            os.close(reading)
            _settle(folder)
            answer = json.dumps(function()).encode()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        try:
            answer = _read(pipe, time.monotonic() + seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            shutil.rmtree(folder, ignore_errors=True)
    if not answer:
        raise ChildProcessError("a child must answer, got nothing.")
    return json.loads(answer)


def _read(pipe: Any, end: float) -> bytes:
    """Everything that comes through a pipe before its writer ends."""
    parts = []
    while True:
        if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        if not (part := os.read(pipe.fileno(), 1 << 20)):
            return b"".join(parts)
        parts.append(part)


def _settle(folder: str) -> None:
    """A child tells nobody anything, and leaves nothing."""
    os.environ |= {"TMPDIR": folder, "PYTEST_DEBUG_TEMPROOT": folder}
    tempfile.tempdir = folder
    if not os.environ.get("DAPPLE_MUTANTS_LOUD"):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nowhere, each)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Server:
    """A pytest session that has collected tests, and tries mutants instead of running them.

    Args:
      mutants: to try.
      root: of the repository.
      tell: is called with each outcome.
    """

    def __init__(self, mutants: list[Mutant], root: pathlib.Path, tell: Callable[[Outcome], None]):
        self._mutants, self._root, self._tell = mutants, root, tell
        self._kills: collections.Counter[str] = collections.Counter()
        self._ran: dict[str, _Ran] = {}
        self._sound: tuple[set[str], set[str]] = (set(), set())
        self.answer: dict[str, Any] = {"failed": "collection"}

    def run(self, tests: tuple[str, ...]) -> None:
        """Tries all mutants.

        Raises:
          RuntimeError: if the tests do not pass without a change.
        """
        found = in_child(lambda: _session(tests, self, _FEW), 1e6)
        if found["failed"]:
            raise RuntimeError(f"tests must pass without a change, got a failure of {found['failed']}.")
        self._ran = _ran(found["tests"])
        again = [Mutant(**each) for each in found["again"]]
        if again and (failed := in_child(lambda: _reimported(self._root, None, self._chosen(again[0]), {}))["failed"]):
            raise RuntimeError(f"tests must pass without a change when imported anew, got a failure of {failed}.")
        for mutant in again:
            start = time.monotonic()
            self._try(mutant, lambda mutant, names: _reimported(self._root, mutant, names, self._limits(20.0)), start)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Takes the place of the loop over tests."""
        items = {each.nodeid: each for each in session.items}
        files = {self._file(each.path) for each in self._mutants}
        ran = in_child(lambda: _run(_Recorder(files), list(items), items), 1e6)
        self.answer = ran | {"again": []}
        if ran["failed"]:
            return True
        self._ran = _ran(ran["tests"])
        limits, functions = self._limits(2.0), _functions()
        for mutant in self._mutants:
            code = self._code(mutant, functions)

            def run(changed: Mutant | None, names: list[str], code: Any = code) -> Any:
                return _run(_Verdict(code, limits=limits) if changed else _Verdict(), names, items)

            if code is None:
                self._tell(Outcome(mutant.name, None, 0, 0.0, undecided=True))
            if code is None or not self._try(mutant, run, None):
                self.answer["again"].append(dataclasses.asdict(mutant))
        return True

    def _try(self, mutant: Mutant, run: Callable[[Mutant | None, list[str]], Any], start: float | None) -> bool:
        """Whether a mutant was noticed; without `start` it may be tried again if it was not."""
        last, begin = start is not None, start or time.monotonic()
        names = self._chosen(mutant)
        limit = _PATIENCE + 4.0 * sum(self._ran[each].seconds for each in names)
        noticed_by = None
        if names:
            try:
                noticed_by = in_child(lambda: run(mutant, names), limit)["failed"]
            except (TimeoutError, ChildProcessError):
                noticed_by = "no end, or a crash"
        if noticed_by in self._ran and noticed_by not in self._sound[last]:
            if in_child(lambda: run(None, [noticed_by]))["failed"]:
                raise RuntimeError(f"a test must pass without a change, got a failure of {noticed_by}.")
            self._sound[last].add(noticed_by)
        if noticed_by is not None:
            self._kills[noticed_by] += 1
        seconds, undecided = time.monotonic() - begin, noticed_by is None and not last
        self._tell(Outcome(mutant.name, noticed_by, len(names), seconds, undecided))
        return noticed_by is not None

    def _chosen(self, mutant: Mutant) -> list[str]:
        """Tests that come by the statement; of one that runs at import, by anything of its file."""
        path, found = self._file(mutant.path), set(range(mutant.lines[0], mutant.lines[1] + 1))
        near = [name for name, ran in self._ran.items() if found & ran.lines.get(path, set())]
        if mutant.function is None:
            near = [name for name, ran in self._ran.items() if path in ran.lines] or list(self._ran)
        by_file: dict[str, list[str]] = {}
        for name in sorted(near, key=self._cost):
            by_file.setdefault(name.split("::")[0], []).append(name)
        chosen, seconds = [], 0.0
        for name in (name for names in by_file.values() for name in names):
            seconds += self._ran[name].seconds
            if seconds < MOST_SECONDS or not chosen:
                chosen.append(name)
        return chosen

    def _limits(self, times: float) -> dict[str, float]:
        return {name: 10.0 + times * ran.seconds for name, ran in self._ran.items()}

    def _cost(self, name: str) -> float:
        return (self._ran[name].seconds + 0.01) / (1.0 + self._kills[name])

    def _file(self, path: str) -> str:
        return os.fspath(self._root / path)

    def _code(self, mutant: Mutant, functions: dict[tuple, list]) -> Callable[[], bool] | None:
        """Puts the changed code into place; None if a function cannot take it."""
        if mutant.function is None:
            return None
        path = self._root / mutant.path
        module = compile(mutated(path.read_text(), mutant.number), os.fspath(path), "exec")
        new = _inner(module, mutant.function)
        old = functions.get((os.fspath(path), mutant.function))
        if new is None or not old or any(len(each.__code__.co_freevars) != len(new.co_freevars) for each in old):
            return None

        def put() -> None:
            for each in old:
                each.__code__ = new

        return put


def _inner(module: types.CodeType, name: str) -> types.CodeType | None:
    """The code of a function or method within that of a module."""
    for part in module.co_consts:
        if isinstance(part, types.CodeType):
            if part.co_qualname == name:
                return part
            if name.startswith(part.co_qualname + ".") and (found := _inner(part, name)):
                return found
    return None


def _functions() -> dict[tuple[str, str], list[types.FunctionType]]:
    """All functions that live, by their files and names."""
    found: dict[tuple[str, str], list[types.FunctionType]] = collections.defaultdict(list)
    for each in gc.get_objects():
        if type(each) is types.FunctionType:
            found[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    return dict(found)


def _session(tests: tuple[str, ...], plugin: Any, most: int = 1 << 20) -> Any:
    """Runs pytest with a plugin, and returns its answer."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    pytest.main(["-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], [_Quick(most), plugin])
    return plugin.answer


@dataclasses.dataclass(frozen=True)
class _Quick:
    """Examples that fail are not made smaller: nobody reads them.

    Attributes:
      most: examples of a test.
    """

    most: int

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        for test in {id(each.obj): each.obj for each in items if isinstance(each, pytest.Function)}.values():
            own = getattr(test, "_hypothesis_internal_use_settings", None)
            if own is not None:
                most = min(self.most, own.max_examples)
                test._hypothesis_internal_use_settings = hypothesis.settings(own, phases=phases, max_examples=most)


class _Verdict:
    """The first test that fails.

    Args:
      put: puts the change into place.
      limits: seconds of processors after which a test has no end.
    """

    def __init__(self, put: Callable[[], None] = lambda: None, *, limits: dict[str, float] | None = None):
        self.put, self._limits = put, limits or {}
        self.answer: dict[str, Any] = {"failed": None, "tests": {}}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._limits.get(nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.answer["failed"] = self.answer["failed"] or report.nodeid

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.answer["failed"] = self.answer["failed"] or (None if exitstatus == 0 else "collection")


class _Recorder(_Verdict):
    """Notes seconds and lines of each test.

    Args:
      files: whose lines are noted.
    """

    def __init__(self, files: set[str]):
        super().__init__()
        self._files = files
        self._lines: dict[str, set[int]] = {}
        self._whole: set[types.CodeType] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines, self._whole, start = {}, set(), time.monotonic()
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            lines = {path: sorted(found) for path, found in self._lines.items()}
            self.answer["tests"][item.nodeid] = (time.monotonic() - start, lines)

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


def _run(verdict: _Verdict, names: list[str], items: dict[str, pytest.Item]) -> Any:
    """Runs collected tests with changed code, up to the first that fails."""
    verdict.put()
    chosen = [items[each] for each in names]
    chosen[0].config.pluginmanager.register(verdict)
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if verdict.answer["failed"]:
            break
    return verdict.answer


def _reimported(root: pathlib.Path, mutant: Mutant | None, names: list[str], limits: dict[str, float]) -> Any:
    """Runs tests in a process that has imported nothing of ours, with the changed source in place of the file."""
    tests = (f"--rootdir={root}", *(os.fspath(root / each) for each in names))
    if mutant is None:
        return _session(tests, _Verdict(limits=limits))
    path = os.fspath(root / mutant.path)
    code = compile(mutated(pathlib.Path(path).read_text(), mutant.number), path, "exec")
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, name: str) -> Any:
        return code if self.path == path else original(self, name)

    loader.get_code = get_code  # type: ignore[method-assign]
    return _session(tests, _Verdict(limits=limits))
