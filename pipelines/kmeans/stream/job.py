"""The `stream` job: releases the windows of an epoch that are due, one after another, and ends.

A window is a `fit` of its own with a ledger, so it is released once, whatever kills this job, and the next call goes on
where this one ended. Which windows are due follows from the calendar and the clock, never from rows.
"""

import dataclasses
import datetime
import logging

from apache_beam.io.filesystems import FileSystems

from pipelines.kmeans import fit
from pipelines.kmeans.stream.page import PAGE, write_page
from pipelines.run.folder import MANIFEST, check_no_link
from pipelines.run.jobs.forewarnings import counted
from pipelines.run.jobs.job import Job, Outcome, Run
from pipelines.run.jobs.place import Place
from pipelines.run.jobs.run_job import run_settings
from schemas.kmeans.stream_config import StreamConfig, load_stream_config
from schemas.privacy.flow import Zone

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a call of the job does.

    Attributes:
      done: how many windows are complete.
      indices: of the windows to release now, in order.
    """

    done: int
    indices: tuple[int, ...]


class StreamFolder(Place):
    """A folder with a folder for each window; each of these is complete or absent."""

    def check(self) -> None:
        """Refuses an output that is a link."""
        check_no_link(self._options.output)


def today() -> datetime.date:
    """The date, in UTC."""
    return datetime.datetime.now(datetime.UTC).date()


def due_windows(config: StreamConfig, output: str, date: datetime.date) -> Due:
    """Windows whose days are over and which have no output yet; windows before these have one.

    Args:
      config: the job.
      output: its folder.
      date: of today, in UTC.
    """
    windows = range(config.options.windows)
    done = next((index for index in windows if not _is_complete(config, output, index)), len(windows))
    indices = [index for index in windows[done:] if config.is_due(index, date)]
    return Due(done=done, indices=tuple(indices))


def _is_complete(config: StreamConfig, output: str, index: int) -> bool:
    return bool(FileSystems.exists(FileSystems.join(output, config.date(index), MANIFEST)))


def _plan(run: Run[StreamConfig]) -> Due:
    due = due_windows(run.settings, run.options.output, today())
    _LOGGER.info("stream %s: %s due", run.settings.options.name, counted(len(due.indices), "window"))
    return due


def _work(run: Run[StreamConfig], due: Due) -> tuple[str, ...]:
    """Releases the windows; the dates of those released."""
    config, options = run.settings, run.options
    released: list[str] = []
    for index in due.indices:
        date = config.date(index)
        own = dataclasses.replace(
            options, output=FileSystems.join(options.output, date), run_id=f"{config.options.name}-{date}"
        )
        run_settings(fit.JOB, config.window(index, options.output), own)
        released.append(date)
        write_page(config, options.output, index + 1)
    if due.done and not released:
        # Whoever released the last window may have been killed before the page.
        write_page(config, options.output, due.done)
    return tuple(released)


def _write(run: Run[StreamConfig], due: Due, released: tuple[str, ...]) -> Outcome:
    done = due.done + len(released)
    if done:
        _LOGGER.info("done: %s", FileSystems.join(run.options.output, PAGE))
    rest = run.settings.options.windows - done
    return Outcome({"output": run.options.output, "released": list(released), "windows": done, "windows_left": rest})


JOB = Job("stream", load_stream_config, _plan, _work, _write, Zone.PUBLIC, flags=("--output",), place=StreamFolder.of)
