"""Processes beside this one that add up statistics of their own shards, so that one machine uses all its cores.

Threads do not serve: a block is worked on in steps of ten microseconds, and after each the interpreter's lock is asked
for. A process is asked through a pipe and ends with this one. It keeps the rows of its shards as this process does.

Nobody waits for ever for one: it gives a sign of life with every block of rows, and is killed if it stands still.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import DappleError, RunnerError
from schemas.tables.shard import ShardRef
from transforms.files import stores
from transforms.files.progress import PROGRESS
from transforms.rounds.own_process import STOPPING, no_core_dumps
from transforms.rounds.row_cache import HeldByRun, WorkerLimits

LEAST_BYTES = 350 << 20
"""Of rows in memory as float64; for fewer a process costs more than it gains."""
_MOST_AHEAD = 1 << 14
"""Bytes that a pipe takes before anybody reads them."""
_OPTIONS, _AHEAD, _QUESTION = b"o", b"a", b"q"
_ALIVE = b""
"""An answer that is none: a block of rows more has been added up."""
_LOOK_SECONDS, _MOST_LOOKS = 1.0, 600
"""How often somebody who waits looks, and how often without a sign of life. Looks are counted, not time: whoever stops
and goes on together with the processes has not waited."""
_SIGN_SECONDS, _PARENT_SECONDS, _END_SECONDS = 1.0, 1.0, 5.0
_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from transforms.rounds import sum_processes; "
    "from {module} import {name}; sum_processes.serve({name}, int(sys.argv[2]))"
)
_WORK = "transforms.rounds.shard_sums:drain_shards"
_LENGTH = struct.Struct("<Q")
_STAYS = "all processes that add up rows must stay until the job is over, got one that"
_LOST = f"{_STAYS} ended; run it again, with fewer --cores if it ends again."
_STOOD_STILL = f"{_STAYS} stood still for {_MOST_LOOKS * _LOOK_SECONDS / 60:.0f} minutes; run it again with --cores 1."
_NO_MEMORY = (
    "all processes that add up rows must have memory enough, got one without; run it again with fewer --cores or a "
    "lower --cache_megabytes."
)


class SumProcess:
    """One process that adds up.

    Args:
      work: `module:name` of the function that it calls, of one argument; None for the sum of shards.
    """

    def __init__(self, work: str | None = None):
        self._lock = threading.Lock()
        module, _, name = (work or _WORK).partition(":")
        program = _PROGRAM.format(module=module, name=name)
        words = [sys.executable, "-I", "-c", program, json.dumps([_ROOT, *filter(None, sys.path)]), str(os.getpid())]
        # Pydantic would look through all that is installed for its plugins; this process checks no settings.
        surroundings = os.environ | {"PYDANTIC_DISABLE_PLUGINS": "1"}
        self._child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=surroundings
        )
        self._is_new = True
        self._looks = 0
        self._stood_still = False

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def answer(self, question: Any) -> Any:
        """What its function returns for a question; both travel as pickles.

        Raises:
          DappleError: if the function does.
          RunnerError: if the process has ended, or has no memory; in one sentence, why.
        """
        ask, hear = self._child.stdin, self._child.stdout
        if ask is None or hear is None:
            raise RunnerError(_LOST)
        with self._lock:
            try:
                if self._is_new:
                    # Stores ask for the flags of the job.
                    _send(ask, _OPTIONS + pickle.dumps(stores.options()))
                    self._is_new = False
                self._looks = 0
                _send(ask, _QUESTION + pickle.dumps(question))
                while (reply := _received(hear)) == _ALIVE:
                    self._looks = 0
            except (OSError, ValueError) as error:
                raise RunnerError(self._why()) from error
        if reply is None:
            raise RunnerError(self._why())
        found = pickle.loads(reply)
        if isinstance(found, Exception):
            raise found
        return found

    def expect(self, part: Any) -> None:
        """Has it import what a part of later questions needs, if that part is small; nothing is answered."""
        raw = _AHEAD + pickle.dumps(part)
        if self._child.stdin is not None and len(raw) <= _MOST_AHEAD:
            with self._lock, contextlib.suppress(OSError):
                _send(self._child.stdin, raw)

    def look(self) -> None:
        """Kills it if it stands still; to be called every `_LOOK_SECONDS` while somebody waits for its answer."""
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            self._stood_still = True
            self._child.kill()

    def _why(self) -> str:
        if self._stood_still:
            return _STOOD_STILL
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_END_SECONDS)
        code = self._child.returncode
        if code == -signal.SIGKILL:
            return f"{_STAYS} was killed, as the system does if memory is short; run it again with fewer --cores."
        if code is None or code == 0:
            return _LOST
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{_STAYS} {how}; run it again, with --cores 1 if it ends again."

    def end(self) -> None:
        """Ends it; what it was doing is of no use to anybody."""
        self._child.kill()
        try:
            self._child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return  # The system holds it, and its pipes with it.
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


_LISTENERS: list[Callable[[], None]] = []
"""Takes a sign of life of this process; nobody does where it is not asked."""


def alive() -> None:
    """Tells whoever waits for this process that it goes on."""
    for tell in _LISTENERS:
        tell()


def serve(work: Callable[[Any], Any], parent: int) -> None:
    """Answers questions until there are no more; what this process runs.

    Args:
      work: the function.
      parent: number of the process that asks.
    """
    from threadpoolctl import threadpool_limits

    no_core_dumps()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    # Who stops a command on a terminal stops all of its processes; this one ends with the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _LISTENERS.append(functools.partial(_tell, answers, [time.monotonic()]))
    with contextlib.suppress(BrokenPipeError), threadpool_limits(limits=1):
        while (message := _received(questions)) is not None:
            kind, raw = message[:1], message[1:]
            if kind == _QUESTION:
                _send(answers, pickle.dumps(_tried(work, raw)))
            elif kind == _OPTIONS:
                stores.give_options(functools.partial(pickle.loads, raw))
            else:
                _tried(lambda _: None, raw)


def _tell(answers: IO[bytes], last: list[float]) -> None:
    """Gives a sign of life, once in a while."""
    if time.monotonic() - last[0] >= _SIGN_SECONDS:
        last[0] = time.monotonic()
        _send(answers, _ALIVE)


def _end_with(parent: int) -> None:
    """Ends this process when the one that asks is gone, though a copy of that one may still hold the pipe."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)


def _tried(function: Callable[[Any], Any], question: bytes) -> Any:
    """What a function returns, or the error that stopped it, which says no more than the command would."""
    try:
        return function(pickle.loads(question))
    except DappleError as error:
        return type(error)(str(error))
    except MemoryError:
        return RunnerError(_NO_MEMORY)
    except OSError as error:
        return OSError(error.errno, os.strerror(error.errno)) if error.errno else OSError("unexpected")
    except Exception as error:  # noqa: BLE001 - a message may hold a value
        return RuntimeError(f"unexpected {type(error).__name__} in a process that adds up rows")


def _send(pipe: IO[bytes], raw: bytes) -> None:
    pipe.write(_LENGTH.pack(len(raw)) + raw)
    pipe.flush()


def _received(pipe: IO[bytes]) -> bytes | None:
    """Reads one message; None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    found = pipe.read(length)
    return found if len(found) == length else None


class Crew:
    """This process and those beside it; each shard is always added up by the same one, which may have kept its rows.

    Args:
      n: how many they are together, at least 2.
      ahead: a part of later questions, if one is known; see `SumProcess.expect`.

    Raises:
      RunnerError: if the machine has no room for one; then none is left.
    """

    def __init__(self, n: int, ahead: Any = None):
        self.others: list[SumProcess] = []
        try:
            for _ in range(n - 1):
                self.others.append(SumProcess())
        except OSError as error:
            self.end()
            raise RunnerError(
                f"{n} processes that add up rows must start, got one that did not; run it again with fewer --cores."
            ) from error
        for each in self.others if ahead is not None else ():
            each.expect(ahead)
        self._lock = threading.Lock()
        self._owners: dict[ShardRef, int] = {}
        self._loads = [0] * n

    def parts(self, shards: Sequence[ShardRef]) -> list[list[ShardRef]]:
        """The shards of each, those of this process first; new ones go where the fewest rows are."""
        found: list[list[ShardRef]] = [[] for _ in self._loads]
        with self._lock:
            for shard in shards:
                if shard not in self._owners:
                    least = self._loads.index(min(self._loads))
                    self._owners[shard], self._loads[least] = least, self._loads[least] + shard.n_rows
                found[self._owners[shard]].append(shard)
        return found

    def sum(
        self, shards: Sequence[ShardRef], own: Callable[[Sequence[ShardRef]], Any], question: Callable[..., Any]
    ) -> NDArray[np.int64]:
        """The sum of what all of them make of their shards.

        Args:
          shards: of all.
          own: adds up the part of this process.
          question: what the others are asked about their part.
        """
        mine, *parts = self.parts(shards)
        asked = [(process, part) for process, part in zip(self.others, parts, strict=True) if part]
        with concurrent.futures.ThreadPoolExecutor(max(len(asked), 1)) as pool:
            pending = {pool.submit(process.answer, question(part)): process for process, part in asked}
            try:
                totals = [own(mine)]
            finally:
                self._wait(pending)
            totals += [each.result() for each in pending]
        with PROGRESS.reading(sum(shard.n_rows for _, part in asked for shard in part)):
            return np.sum(totals, axis=0, dtype=np.int64)

    def _wait(self, pending: dict[concurrent.futures.Future[Any], SumProcess]) -> None:
        """Waits for answers, but not for a process that stands still, nor if the command is asked to stop."""
        waiting: Iterable[concurrent.futures.Future[Any]] = pending
        while waiting := concurrent.futures.wait(waiting, _LOOK_SECONDS).not_done:
            if STOPPING.asked:
                self.end()
                return
            for each in waiting:
                pending[each].look()

    def end(self) -> None:
        """Ends the others."""
        for each in self.others:
            each.end()


class _Crews(HeldByRun[Crew]):
    """The crews of this process, by run."""

    def of_run(self, limits: WorkerLimits, n_bytes: int, ahead: Any = None) -> Crew | None:
        """The crew of a run, which is called for the first time there is much to do; None while there is not.

        Args:
          limits: of this process.
          n_bytes: of the rows at hand, in memory.
          ahead: as of `Crew`.
        """
        if limits.cores < 2 or not limits.run:
            return None
        return self.of(limits.run, (lambda: Crew(limits.cores, ahead)) if n_bytes >= LEAST_BYTES else None)


CREWS = _Crews(end=lambda crew: crew.end())
"""Of this process."""


def limits_of_others(limits: WorkerLimits) -> WorkerLimits:
    """What one process of a crew may use; rows that are kept are divided among them."""
    return dataclasses.replace(limits, cores=1, cache_bytes=limits.cache_bytes // max(limits.cores, 1))
