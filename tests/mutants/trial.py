"""Trials of mutants: a process that has collected the tests of a room forks a child for each.

In the child the code of the changed function takes the place of the old one, wherever that is referred to. A change
outside of functions, or of what runs at import and no test has noticed so, is tried by a child that imports all of our
modules again, with the changed source in place of the file. A child ends at the first test that fails. That test must
fail alone, too, and must pass without the change, or it is not believed. Each mutant is decided before the next one is
begun.
"""

import collections
import contextlib
import dataclasses
import gc
import importlib.machinery
import json
import os
import pathlib
import signal
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from tests.mutants.children import in_child
from tests.mutants.choice import Choice
from tests.mutants.coverage import recorded
from tests.mutants.operators import Mutant, mutated
from tests.mutants.session import Verdict, run, session

NO_END = "no end"
CRASH = "a crash"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a mutant.

    Attributes:
      name: of the mutant.
      noticed_by: the first test that failed; None if all passed.
      n_tests: that execute its statement.
      seconds: that it took.
      why: what that test said.
      quick: whether quick tests alone were asked.
    """

    name: str
    noticed_by: str | None
    n_tests: int
    seconds: float
    why: str = ""
    quick: bool = False


class Server:
    """Tries mutants of a room.

    Args:
      mutants: to try.
      root: of the repository.
      files: whose lines count, relative to the root.
      store: file of what is known of tests.
    """

    def __init__(self, mutants: list[Mutant], root: pathlib.Path, files: set[str], store: pathlib.Path):
        self._mutants, self._root, self._store = mutants, root, store
        self._files = {os.fspath(root / each) for each in files}
        self._sound: set[tuple[str, bool]] = set()

    def run(
        self,
        tests: tuple[str, ...],
        tell: Callable[[Outcome], None],
        done: dict[str, str | None] | None = None,
        tier: str = "",
    ) -> None:
        """Tries all mutants.

        Args:
          tests: of the room.
          tell: is called with each outcome.
          done: those that are known, with the tests that have noticed them.
          tier: expression of markers that chooses among the tests; empty for all.

        Raises:
          RuntimeError: if the tests do not pass without a change.
        """
        known = {name: noticed for name, noticed in (done or {}).items() if noticed}
        coverage = recorded(tests, self._files, self._root, self._store, tier)
        self._choice = Choice(coverage, self._root, self._files)
        for mutant in self._mutants:
            if mutant.name in known:
                self._choice.has_noticed(known[mutant.name], mutant)
        with _Collected(self._root, tests, tier) as self._collected:
            for mutant in self._mutants:
                if mutant.name not in (done or {}):
                    tell(self._tried(mutant))

    def _tried(self, mutant: Mutant) -> Outcome:
        begin = time.monotonic()
        while True:
            names, limits = self._choice.of(mutant), self._choice.limits()
            answer: dict[str, Any] = {"failed": None, "why": "", "placed": mutant.function is not None}
            anew = False
            if names and mutant.function is not None:
                answer = self._collected.asked(mutant, names, {each: limits[each] for each in names})
            if names and not answer["failed"] and (not answer["placed"] or self._choice.at_import(mutant)):
                anew = True
                answer = _answer(lambda: _reimported(self._root, mutant, names, limits))  # noqa: B023
            failed = answer["failed"]
            if failed not in limits or self._believed(mutant, failed, names[0] == failed, anew, limits):
                break
            self._choice.leave_out(failed)
        if failed is not None:
            self._choice.has_noticed(failed, mutant)
        return Outcome(mutant.name, failed, len(names), round(time.monotonic() - begin, 1), answer["why"])

    def _believed(self, mutant: Mutant, failed: str, first: bool, anew: bool, limits: dict[str, float]) -> bool:
        """Returns whether a test fails on its own with the change, and passes without it."""

        def alone(changed: Mutant | None) -> Any:
            if anew:
                return _answer(lambda: _reimported(self._root, changed, [failed], limits))
            return self._collected.asked(changed, [failed], {failed: limits[failed]})

        if not first and not alone(mutant)["failed"]:
            return False
        if (failed, anew) not in self._sound and alone(None)["failed"]:
            return False
        self._sound.add((failed, anew))
        return True


def _answer(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        return in_child(function)
    except TimeoutError:
        return {"failed": NO_END, "why": ""}
    except ChildProcessError:
        return {"failed": CRASH, "why": ""}


class _Collected:
    """A child that has collected the tests of a room, and runs some of them in children of its own.

    Args:
      root: of the repository.
      tests: of the room.
      tier: expression of markers that chooses among them.
    """

    def __init__(self, root: pathlib.Path, tests: tuple[str, ...], tier: str):
        self._root = root
        self._tests = (f"--rootdir={root}", "-m", tier, *(os.fspath(root / each) for each in tests))

    def __enter__(self) -> "_Collected":
        asking, asked = os.pipe()
        answered, answering = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                os.close(asked)
                os.close(answered)
                self._requests, self._answers = os.fdopen(asking), os.fdopen(answering, "w")
                if not os.environ.get("DAPPLE_MUTANTS_LOUD"):
                    nowhere = os.open(os.devnull, os.O_RDWR)
                    for each in (0, 1, 2):
                        os.dup2(nowhere, each)
                self.answer: dict[str, Any] = {}
                session(self._tests, self)
            finally:
                os._exit(0)
        os.close(asking)
        os.close(answering)
        self._requests, self._answers = os.fdopen(asked, "w"), os.fdopen(answered)
        return self

    def __exit__(self, *failure: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    def asked(self, mutant: Mutant | None, names: list[str], limits: dict[str, float]) -> dict[str, Any]:
        """The first of some tests that fails with a change.

        Raises:
          RuntimeError: if the tests cannot be collected.
        """
        request = {"mutant": mutant and dataclasses.asdict(mutant), "names": names, "limits": limits}
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        if not (line := self._answers.readline()):
            raise RuntimeError("tests must be collected without a change, got a failure of collection.")
        return json.loads(line)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Takes the place of the loop over tests."""
        items = {each.nodeid: each for each in session.items}
        functions = _functions()
        for line in self._requests:
            request = json.loads(line)
            put = self._put(Mutant(**request["mutant"]), functions) if request["mutant"] else lambda: None
            answer: dict[str, Any] = {"failed": None, "why": ""}
            if put is not None:
                verdict = Verdict(put, limits=request["limits"])
                answer = _answer(lambda: run(verdict, request["names"], items))  # noqa: B023
            self._answers.write(json.dumps(answer | {"placed": put is not None}) + "\n")
            self._answers.flush()
        return True

    def _put(self, mutant: Mutant, functions: dict[tuple[str, str], list]) -> Callable[[], None] | None:
        """Puts the changed code into place; None if a function cannot take it."""
        path = self._root / mutant.path
        module = compile(mutated(path.read_text(), mutant.number), os.fspath(path), "exec")
        new = _inner(module, mutant.function or "")
        old = functions.get((os.fspath(path), mutant.function or ""))
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
    """All functions that live, by their files and names; `tests/conftest.py` has frozen them."""
    found: dict[tuple[str, str], list[types.FunctionType]] = collections.defaultdict(list)
    gc.unfreeze()
    for each in gc.get_objects():
        if type(each) is types.FunctionType:
            found[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    gc.freeze()
    return dict(found)


class _Chosen(Verdict):
    """Runs some tests of what is collected; if the change gives a test other parameters, all of them."""

    def __init__(self, names: list[str], limits: dict[str, float]):
        super().__init__(limits=limits)
        self._names = names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        there = {each.nodeid: each for each in items}
        chosen = {name: there[name] for name in self._names if name in there}
        gone = {name.split("[")[0] for name in self._names if name not in there}
        chosen |= {name: each for name, each in there.items() if name.split("[")[0] in gone}
        items[:] = chosen.values()


def _reimported(root: pathlib.Path, mutant: Mutant | None, names: list[str], limits: dict[str, float]) -> Any:
    """Runs tests in a process that has imported nothing of ours, with the changed source in place of the file."""
    files = dict.fromkeys(os.fspath(root / each.split("::")[0]) for each in names)
    if mutant is not None:
        path = os.fspath(root / mutant.path)
        code = compile(mutated(pathlib.Path(path).read_text(), mutant.number), path, "exec")
        loader = importlib.machinery.SourceFileLoader
        original = loader.get_code

        def get_code(self: Any, name: str) -> Any:
            return code if self.path == path else original(self, name)

        loader.get_code = get_code  # type: ignore[method-assign]
    return session((f"--rootdir={root}", *files), _Chosen(names, limits))
