"""Forked children that answer in JSON, and that are ended when they do nothing any more."""

import contextlib
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

IDLE = 120.0
"""Seconds in which a child may use no processor."""
_LONGEST = 1800.0


def in_child(function: Callable[[], Any], idle: float = IDLE, longest: float = _LONGEST) -> Any:
    """Returns what a function returns in a forked child, as JSON carries it.

    Args:
      function: to call.
      idle: seconds in which the child and what it starts may use no processor.
      longest: seconds that it may take at all.

    Raises:
      TimeoutError: if it does not end, or if its timer of processor time does.
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
    status = 0
    with os.fdopen(reading, "rb") as pipe:
        try:
            answer = _read(pipe, child, idle, longest)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            shutil.rmtree(folder, ignore_errors=True)
    if not answer and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        raise TimeoutError
    if not answer:
        raise ChildProcessError("a child must answer, got nothing.")
    return json.loads(answer)


def _read(pipe: Any, child: int, idle: float, longest: float) -> bytes:
    """Everything that comes through a pipe before its writer ends."""
    parts, used, since, end = [], 0.0, time.monotonic(), time.monotonic() + longest
    while True:
        if select.select([pipe], [], [], min(5.0, idle))[0]:
            if not (part := os.read(pipe.fileno(), 1 << 20)):
                return b"".join(parts)
            parts.append(part)
            continue
        now = time.monotonic()
        if (seconds := _used(child)) > used + 0.05:
            used, since = seconds, now
        if now - since >= idle or now > end:
            raise TimeoutError


def _used(group: int) -> float:
    """Seconds of processors of a group of processes."""
    total = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            if int(words[2]) == group:
                total += sum(map(int, words[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def _settle(folder: str) -> None:
    """A child prints nothing, and leaves nothing."""
    os.environ |= {"TMPDIR": folder, "PYTEST_DEBUG_TEMPROOT": folder}
    tempfile.tempdir = folder
    if not os.environ.get("DAPPLE_MUTANTS_LOUD"):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nowhere, each)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
