"""Runs of the `dapple` command in processes of their own that kill themselves at a chosen point."""

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from dapple_dp.pipelines.command import main as command
from tests.scenes import lake

_CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = [
    __name__,
    "apache_beam.runners.portability.fn_api_runner",
    "apache_beam.typehints.intrinsic_one_ops",
    "dp_accounting.pld",
    "dapple_dp.pipelines.kmeans.fit",
    "dapple_dp.pipelines.kmeans.report.files",
    "dapple_dp.pipelines.kmeans.report.report_page",
    "dapple_dp.pipelines.kmeans.stream.job",
    "dapple_dp.pipelines.ledger.store",
    "scipy.optimize",
    "sklearn.cluster",
]
"""What commands import when they need it is imported once, since processes are many."""
_CONTEXT.set_forkserver_preload(PRELOADED)


class Point(NamedTuple):
    """Point at which a process dies: the `call`-th call of a function (`module:Class.name`), before or after it.

    A process that dies after the call may go on for `delay` seconds.
    """

    function: str
    after: bool = False
    call: int = 1
    delay: float = 0.0

    @property
    def name(self) -> str:
        return f"{'after' if self.after else 'before'} {self.function.rpartition(':')[2]} {self.call}"


def run(words: list[str], out: str, *, key: bytes, point: Point | None = None, kept: bool = False) -> int:
    """Runs a command.

    Args:
      words: after `dapple`.
      out: file for its standard output.
      key: what every run key is that it makes.
      point: where it dies; None to let it live.
      kept: whether keys that a test has written are kept ones, from which those that draw are derived.

    Returns:
      Its exit code; -9 if it died.
    """
    return call(_kept_main if kept else _main, lake.with_engine(words), out, key, point)


def call(function: Callable[..., None], *args: Any) -> int:
    """Exit code of a process that calls a function of a module."""
    process = started(function, *args)
    process.join(1200)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


def started(function: Callable[..., None], *args: Any) -> Any:
    """A process that calls a function of a module."""
    process = _CONTEXT.Process(target=_as_tests_do, args=(function, *args))
    process.start()
    return process


def _as_tests_do(function: Callable[..., None], *args: Any) -> None:
    """Keys that tests write draw as they are, in another process too."""
    with lake.written_keys_draw():
        function(*args)


def _main(words: list[str], out: str, key: bytes, point: Point | None) -> None:
    """The body of a process; it ends without waiting for threads of the runner."""
    with mock.patch("secrets.token_bytes", return_value=key), _dying(point), _stdout_to(out):
        code = command.main(words)
    os._exit(code)


def _kept_main(words: list[str], out: str, key: bytes, point: Point | None) -> None:
    """`_main` under keys of runs."""
    with lake.keys_of_runs():
        _main(words, out, key, point)


@contextlib.contextmanager
def _stdout_to(path: str) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        yield


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def _dying(point: Point | None) -> Iterator[None]:
    if point is None:
        yield
        return
    module, _, path = point.function.partition(":")
    *parents, name = path.split(".")
    holder: Any = importlib.import_module(module)
    for parent in parents:
        holder = getattr(holder, parent)
    original, calls = getattr(holder, name), 0

    def dying(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == point.call and not point.after:
            _die()
        result = original(*args, **more)
        if calls == point.call and point.delay:
            threading.Timer(point.delay, _die).start()
        elif calls == point.call:
            _die()
        return result

    with mock.patch.object(holder, name, dying):
        yield


def last_line(path: str) -> dict[str, Any]:
    """The JSON object that a command printed last."""
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.loads(file.read().splitlines()[-1])
    return found
