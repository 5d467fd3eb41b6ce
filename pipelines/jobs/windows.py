"""Jobs that make an output for each window of a public calendar, in a folder by its date, and wait for the next one.

Which windows are due follows from the calendar and the clock, never from rows.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dapple_dp.pipelines.jobs import waiting
from dapple_dp.pipelines.run.folder import MANIFEST
from dapple_dp.pipelines.run.options import JobOptions
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.calendar import Calendar
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import WindowManifest
from dapple_dp.transforms.files import gate
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)
Release = Callable[[tuple[int, ...], waiting.Watch], Iterable[str]]
"""Releases windows one after another, until the watch says that the job is to end; gives the date of each."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a call of the job does.

    Attributes:
      done: how many windows are complete.
      indices: of the windows to release now, in order.
    """

    done: int
    indices: tuple[int, ...]


class Released(NamedTuple):
    """What a call of the job has released: dates of windows, and how many warnings the page of each shows."""

    dates: tuple[str, ...]
    warned: list[int | None]


def due_windows(calendar: Calendar, output: str) -> Due:
    """Windows whose days are over now and which have no output yet; windows before these have one.

    Args:
      calendar: of the windows.
      output: folder of the job.

    Raises:
      InputError: if the output of a window is that of another one: it was copied there, and would stand for it.
    """
    moment, windows = waiting.now(), range(calendar.windows)
    done = next((index for index in windows if not _is_complete(calendar, output, index)), len(windows))
    for index in range(done):
        _check_own(_manifest(calendar, output, index), calendar.date(index))
    return Due(done=done, indices=tuple(index for index in windows[done:] if calendar.is_due(index, moment)))


def _check_own(path: str, date: str) -> None:
    """Refuses a manifest that is not of a window's own run, whose id ends with its date."""
    rule = f"{path} must be the manifest of the window of {date}"
    refusal = Refusal(kind=InputError, rule=rule, remedy="restore it, or remove the folder if it was copied there")
    if not gate.read_json(path, WindowManifest, refusal).run_id.endswith(f"-{date}"):
        raise refusal.because("that of another run")


def of_window(options: JobOptions, calendar: Calendar, index: int, name: str) -> JobOptions:
    """The command line of the run of a window, which began for others when it was due, or when the job did."""
    date = calendar.date(index)
    begun = max(options.begun, calendar.due_at(index))
    output = join(options.output, date)
    return dataclasses.replace(options, output=output, run_id=f"{name}-{date}", begun=begun)


def first_complete(calendar: Calendar, output: str) -> str | None:
    """The manifest of the first window that has an output; None if no window has one."""
    found = (index for index in range(calendar.windows) if _is_complete(calendar, output, index))
    return next((_manifest(calendar, output, index) for index in found), None)


def _is_complete(calendar: Calendar, output: str, index: int) -> bool:
    return bool(STORE.exists(_manifest(calendar, output, index)))


def _manifest(calendar: Calendar, output: str, index: int) -> str:
    return str(join(output, calendar.date(index), MANIFEST))


def release_in_time(
    calendar: Calendar, due: Due, once: bool, release: Release, check: Callable[[tuple[int, ...]], None] | None = None
) -> tuple[str, ...]:
    """Releases windows as they are due, until there are no more, or the job is asked to end; their dates.

    Args:
      calendar: of the windows.
      due: what is due at the start.
      once: whether to end instead of waiting for more.
      release: of windows that are due.
      check: stops the job where windows that came due while it waited are not to be released.
    """
    indices, released = due.indices, list[str]()
    with waiting.watching() as watch:
        while True:
            if indices:
                released += release(indices, watch)
            following = due.done + len(released)
            if once or watch.asked or following >= calendar.n_wanted:
                break
            _LOGGER.info("waiting for the window of %s to end", calendar.date(following))
            if not watch.until(calendar.due_at(following)):
                break
            moment = waiting.now()
            indices = tuple(index for index in range(following, calendar.n_wanted) if calendar.is_due(index, moment))
            if check is not None:
                check(indices)
    return tuple(released)
