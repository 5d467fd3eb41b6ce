"""The `stream` job: releases the windows of an epoch that are due, one after another, and waits for the next.

A window is a `fit` of its own with a ledger, so it is released once, whatever kills this job, and the next call goes on
where this one ended. Which windows are due follows from the calendar and the clock, never from rows. With `--once` the
job does not wait; its windows are the same, octet for octet.
"""

import dataclasses
import datetime
import logging
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from pipelines.kmeans import fit
from pipelines.kmeans.stream import waiting
from pipelines.kmeans.stream.arriving import FolderRows, arriving
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


def due_windows(config: StreamConfig, output: str, moment: datetime.datetime) -> Due:
    """Windows whose days are over and which have no output yet; windows before these have one.

    Args:
      config: the job.
      output: its folder.
      moment: now, in UTC.
    """
    windows = range(config.options.windows)
    done = next((index for index in windows if not _is_complete(config, output, index)), len(windows))
    indices = [index for index in windows[done:] if config.is_due(index, moment)]
    return Due(done=done, indices=tuple(indices))


def _is_complete(config: StreamConfig, output: str, index: int) -> bool:
    return bool(FileSystems.exists(FileSystems.join(output, config.date(index), MANIFEST)))


def _plan(run: Run[StreamConfig]) -> Due:
    due = due_windows(run.settings, run.options.output, waiting.now())
    _LOGGER.info("stream %s: %s due", run.settings.options.name, counted(len(due.indices), "window"))
    return due


def _work(run: Run[StreamConfig], due: Due) -> tuple[str, ...]:
    """Releases windows as they are due, until there are no more, or somebody asks it to end; their dates."""
    config, indices = run.settings, due.indices
    released: list[str] = []
    if due.done and not indices:
        # Whoever released the last window may have been killed before the page.
        write_page(config, run.options.output, due.done)
    with waiting.watching() as watch:
        while True:
            if indices:
                with arriving(config, run.options.output, run.options.beam) as rows:
                    released += _released(run, rows, indices, watch)
            following = due.done + len(released)
            if run.options.once or watch.asked or following >= config.n_wanted:
                break
            _LOGGER.info("waiting for the window of %s to end", config.date(following))
            if not watch.until(config.due_at(following)):
                break
            moment = waiting.now()
            indices = tuple(index for index in range(following, config.n_wanted) if config.is_due(index, moment))
    return tuple(released)


def _released(
    run: Run[StreamConfig], rows: FolderRows, indices: tuple[int, ...], watch: waiting.Watch
) -> Iterator[str]:
    """Releases windows one after another, until somebody asks the job to end; gives the date of each."""
    config, options = run.settings, run.options
    for index in indices:
        if watch.asked:
            return
        date = config.date(index)
        own = dataclasses.replace(
            options, output=FileSystems.join(options.output, date), run_id=f"{config.options.name}-{date}"
        )
        rows.ready(index)
        run_settings(fit.JOB, config.window(index, options.output), own)
        rows.released(index)
        write_page(config, options.output, index + 1)
        yield date


def _write(run: Run[StreamConfig], due: Due, released: tuple[str, ...]) -> Outcome:
    done = due.done + len(released)
    if done:
        _LOGGER.info("done: %s", FileSystems.join(run.options.output, PAGE))
    rest = run.settings.options.windows - done
    return Outcome({"output": run.options.output, "released": list(released), "windows": done, "windows_left": rest})


JOB = Job(
    "stream", load_stream_config, _plan, _work, _write, Zone.PUBLIC, flags=("--output", "--once"), place=StreamFolder.of
)
