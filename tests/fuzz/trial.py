"""Breaking files of a format many times, and what became of it."""

import collections
import contextlib
import pathlib
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

from dapple_dp.schemas.errors import DappleError
from tests.fuzz.formats import FORMATS
from tests.fuzz.mutations import mutated

CODES = (2, 3, 4, 5)
"""Exit codes of a refusal; all others are failures."""
MOST_SECONDS = 30.0
"""Of processors, which a busy machine does not change."""
_WAIT = 20.0
"""This many times the seconds may pass where nothing is computed, as for who waits for a pipe."""


class HangError(BaseException):
    """A reader took too long; no handler of exceptions may take it for one of a parser."""


class Found(NamedTuple):
    """Results of reading the broken files of a format.

    Attributes:
      accepted: read to the end; most of them were broken where nothing is said, or not at all.
      refused: by exit code.
      failed: seed and traceback of every other end.
      slowest: seconds.
    """

    accepted: int
    refused: dict[int, int]
    failed: list[tuple[int, str]]
    slowest: float


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises HangError in what takes longer, by the time of this process's threads on processors, or waits forever."""

    def stop(*_: Any) -> None:
        raise HangError

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, _WAIT * seconds)}
    before = {each: signal.signal(each, stop) for each in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for each, (timer, _) in timers.items():
            signal.setitimer(timer, 0.0)
            signal.signal(each, before[each])


def _files(folder: pathlib.Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def tried(name: str, number: int, first_seed: int = 0) -> Found:
    """Breaks a good file of a format `number` times and reads it."""
    form = FORMATS[name]
    outcomes: collections.Counter[int] = collections.Counter()
    failed, slowest = [], 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        form.make(folder)
        form.read(folder)
        good, before = (folder / form.file).read_bytes(), _files(folder)
        for seed in range(first_seed, first_seed + number):
            (folder / form.file).write_bytes(mutated(random.Random(f"{name} {seed}"), good, form.ways))
            start = time.perf_counter()
            try:
                with within(MOST_SECONDS):
                    form.read(folder)
                outcomes[0] += 1
            except DappleError as error:
                sound = error.exit_code in CODES and "\n" not in str(error)
                outcomes[error.exit_code] += sound
                failed += [] if sound else [(seed, f"{error.exit_code} {error}")]
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                failed.append((seed, traceback.format_exc(limit=-3)))
            slowest = max(slowest, time.perf_counter() - start)
            if _files(folder) != before:
                failed.append((seed, "files were written"))
                before = _files(folder)
    return Found(outcomes.pop(0, 0), dict(outcomes), failed, slowest)
