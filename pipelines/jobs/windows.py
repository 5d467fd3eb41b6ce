"""Jobs that write one dated folder per window of a public calendar, and wait for the next window.

The calendar and the clock decide which windows are due, never the rows.
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
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, join

_LOGGER = logging.getLogger(__name__)
Release = Callable[[tuple[int, ...], waiting.Watch], Iterable[str]]
"""Releases windows in order until the watch asks to stop; yields the date of each."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Work for one call of the job.

    Attributes:
      done: number of complete windows.
      indices: windows to release now, in order.
    """

    done: int
    indices: tuple[int, ...]


class Released(NamedTuple):
    """Result of one call: dates of the released windows, and the number of warnings on the page of each."""

    dates: tuple[str, ...]
    warned: list[int | None]


def due_windows(calendar: Calendar, output: str) -> Due:
    """Finds the windows that have ended but have no output yet; all earlier windows have one.

    Args:
      calendar: calendar of the windows.
      output: folder of the job.

    Raises:
      InputError: if the output of a window was copied from another one.
    """
    moment, windows = waiting.now(), range(calendar.windows)
    done = next((index for index in windows if not _is_complete(calendar, output, index)), len(windows))
    for index in range(done):
        _check_own(_manifest(calendar, output, index), calendar.date(index))
    return Due(done=done, indices=tuple(index for index in windows[done:] if calendar.is_due(index, moment)))


def _check_own(path: str, date: str) -> None:
    """Refuses a manifest that wasn't written for this window; the id of a window's run ends with its date."""
    rule = f"{path} must be the manifest of the window of {date}"
    refusal = Refusal(kind=InputError, rule=rule, remedy="restore it, or remove the folder if it was copied there")
    if not untrusted.read_json(path, WindowManifest, refusal).run_id.endswith(f"-{date}"):
        raise refusal.because("that of another run")


def of_window(options: JobOptions, calendar: Calendar, index: int, name: str) -> JobOptions:
    """Options for the run of one window; its public start is when the window was due, or the job's start if later."""
    date = calendar.date(index)
    begun = max(options.begun, calendar.due_at(index))
    output = join(options.output, date)
    return dataclasses.replace(options, output=output, run_id=f"{name}-{date}", begun=begun)


def first_complete(calendar: Calendar, output: str) -> str | None:
    """Returns the manifest of the first window that has an output; None if no window has one."""
    found = (index for index in range(calendar.windows) if _is_complete(calendar, output, index))
    return next((_manifest(calendar, output, index) for index in found), None)


def _is_complete(calendar: Calendar, output: str, index: int) -> bool:
    return bool(STORE.exists(_manifest(calendar, output, index)))


def _manifest(calendar: Calendar, output: str, index: int) -> str:
    return str(join(output, calendar.date(index), MANIFEST))


def release_in_time(
    calendar: Calendar, due: Due, once: bool, release: Release, check: Callable[[tuple[int, ...]], None] | None = None
) -> tuple[str, ...]:
    """Releases windows as they become due, until the calendar ends or a signal arrives; returns their dates.

    Args:
      calendar: calendar of the windows.
      due: windows that are due at the start.
      once: whether to stop instead of waiting for more windows.
      release: releases the windows that are due.
      check: stops the job if windows that became due during a wait must not be released.
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
