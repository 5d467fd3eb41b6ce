"""The `stream` job: releases the windows of an epoch that are due, one after another, and waits for the next.

A window is a `fit` of its own with a ledger, so it is released once, whatever kills this job, and the next call goes on
where this one ended. Which windows are due follows from the calendar and the clock, never from rows. With `--once` the
job does not wait; its windows are the same, byte for byte. With `--drain` it finishes what was charged, and ends.
"""

import dataclasses
import functools
import logging
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from pipelines.jobs.forewarnings import plural
from pipelines.jobs.job import Job, Outcome, Run
from pipelines.jobs.run_job import run_settings
from pipelines.jobs.waiting import Watch
from pipelines.jobs.warned import total_warnings
from pipelines.jobs.windows import Due, Released, WindowsFolder, due_windows, of_window, release_in_time
from pipelines.kmeans import fit
from pipelines.kmeans.stream.arriving import window_rows
from pipelines.kmeans.stream.windows_page import PAGE, write_page
from pipelines.ledger.store import Ledger
from pipelines.tables.arrivals.window_rows import FolderRows, arriving, clear
from schemas.errors import ProducerStoppedError
from schemas.kmeans.stream_config import StreamConfig, in_stream_words, load_stream_config
from schemas.privacy.flow import Zone
from transforms.files.signals.measures import MEASURES, NEXT_DUE, WINDOWS, WINDOWS_LEFT

_LOGGER = logging.getLogger(__name__)


def _plan(run: Run[StreamConfig]) -> Due:
    due, name = due_windows(run.settings.calendar, run.options.output), run.settings.options.name
    if run.options.drain:
        begun = Ledger(str(run.settings.ledger)).windows(str(run.settings.template.data.name), name)
        due = dataclasses.replace(due, indices=tuple(index for index in due.indices if index in begun))
    _count_windows(run.settings, due.done)
    _LOGGER.info("stream %s: %s %s", name, plural(len(due.indices), "window"), "begun" if run.options.drain else "due")
    return due


def _work(run: Run[StreamConfig], due: Due) -> Released:
    """Releases windows as they are due, until there are no more, or it is asked to end."""
    config = run.settings
    if due.done and not due.indices:
        # The process that released the last window may have been killed before the page.
        write_page(config, run.options.output, due.done)
    if not due.indices:
        clear(window_rows(config, run.options.beam))
    warned: list[int | None] = []
    release = functools.partial(_arrived, run, warned)
    return Released(release_in_time(config.calendar, due, run.options.once or run.options.drain, release), warned)


def _arrived(run: Run[StreamConfig], warned: list[int | None], indices: tuple[int, ...], watch: Watch) -> Iterator[str]:
    """Releases windows whose rows are made readable first."""
    with arriving(window_rows(run.settings, run.options.beam), run.options.output) as rows:
        yield from _released(run, warned, rows, indices, watch)
        if rows.short:
            expected = run.settings.options.expected_rows
            raise ProducerStoppedError(
                f"each window must have stream.expected_rows = {expected} rows at least, got one with fewer; all that "
                "were due are released, so look at the producer, and into the operator's file for the date."
            )


def _released(
    run: Run[StreamConfig], warned: list[int | None], rows: FolderRows, indices: tuple[int, ...], watch: Watch
) -> Iterator[str]:
    """Releases windows one after another, until the job is asked to end; gives the date of each.

    The number of warnings of each goes to `warned`.
    """
    config, options = run.settings, run.options
    for index in indices:
        if watch.asked:
            return
        date = config.calendar.date(index)
        own = of_window(options, config.calendar, index, config.options.name)
        own = dataclasses.replace(own, leaves=rows.ready(index))
        with in_stream_words(index):
            warned.append(run_settings(fit.JOB, config.window(index, options.output), own)["warnings"])
        rows.released(index)
        write_page(config, options.output, index + 1)
        _count_windows(config, index + 1)
        yield date


def _count_windows(config: StreamConfig, done: int) -> None:
    """Says how many windows are released, and when the next one is due, so that a lag is seen from outside."""
    MEASURES.put(WINDOWS, done)
    MEASURES.put(WINDOWS_LEFT, config.options.windows - done)
    if done < config.calendar.n_wanted:
        MEASURES.put(NEXT_DUE, config.calendar.due_at(done).timestamp())


def _write(run: Run[StreamConfig], due: Due, released: Released) -> Outcome:
    done = due.done + len(released.dates)
    if done:
        _LOGGER.info("done: %s", FileSystems.join(run.options.output, PAGE))
    rest = run.settings.options.windows - done
    summary = {"output": run.options.output, "released": list(released.dates), "windows": done, "windows_left": rest}
    summary |= {"drained": len(released.dates)} if run.options.drain else {}
    return Outcome(summary | {"warnings": total_warnings(released.warned)})


JOB = Job(
    "stream",
    load_stream_config,
    _plan,
    _work,
    _write,
    Zone.PUBLIC,
    flags=("--output", "--once", "--drain"),
    place=WindowsFolder.of,
)
