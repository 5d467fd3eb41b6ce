"""The `stream` job: releases the due windows of an epoch one after another, and waits for the next.

A window is a `fit` with a ledger, so it is released only once even if this job is killed, and the next call resumes
where this one stopped. The calendar and the clock decide which windows are due, never the rows. With `--once` the job
doesn't wait; its windows are the same, byte for byte. With `--drain` it finishes the charged windows and stops.

A window released too early by a wrong clock can't be taken back. So only one window may be due at a time: several mean
that the clock jumped or that nights were missed, and a person has to say which.
"""

import dataclasses
import functools
import logging
import sys
from collections.abc import Iterator, Sequence

from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs import waiting
from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.jobs.job import Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind, Writes
from dapple_dp.pipelines.jobs.run_job import run_settings
from dapple_dp.pipelines.jobs.waiting import Watch
from dapple_dp.pipelines.jobs.warned import total_warnings
from dapple_dp.pipelines.jobs.windows import Due, Released, due_windows, of_window, release_in_time
from dapple_dp.pipelines.kmeans import fit
from dapple_dp.pipelines.kmeans.stream.windows_page import PAGE, write_page
from dapple_dp.pipelines.ledger.private_state import Register
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.tables.arrivals.landing import Landing
from dapple_dp.pipelines.tables.arrivals.records import Records
from dapple_dp.pipelines.tables.arrivals.window_rows import FolderRows, LakeRows, TopicWindows, arriving, clear
from dapple_dp.schemas.arrivals.topic import MessageColumns
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.errors import ConfigError, ProducerStoppedError
from dapple_dp.schemas.kmeans.jobs.stream_config import StreamConfig, in_stream_words, load_stream_config
from dapple_dp.transforms.arrivals.consume import TopicClient
from dapple_dp.transforms.files.signals.measures import MEASURES, NEXT_DUE, WINDOWS, WINDOWS_LEFT
from dapple_dp.transforms.files.stores import join

_LOGGER = logging.getLogger(__name__)


def _plan(run: Run[StreamConfig]) -> Due:
    due, name = due_windows(run.settings.calendar, run.options.output), run.settings.options.name
    begun = Ledger(str(run.settings.ledger)).windows(str(run.settings.template.data.name), name)
    if run.options.drain:
        due = dataclasses.replace(due, indices=tuple(index for index in due.indices if index in begun))
    _check_clock(run, [index for index in due.indices if index not in begun], asking=_has_person())
    _count_windows(run.settings, due.done)
    _LOGGER.info("stream %s: %s %s", name, plural(len(due.indices), "window"), "begun" if run.options.drain else "due")
    return due


def _work(run: Run[StreamConfig], due: Due) -> Released:
    """Releases windows as they become due, until the epoch ends or a signal arrives."""
    config = run.settings
    if due.done and not due.indices:
        # The process that released the last window may have been killed before it wrote the page.
        write_page(config, run.options.output, due.done)
    if not due.indices:
        clear(_window_rows(config, run.options.beam))
    warned: list[int | None] = []
    release = functools.partial(_arrived, run, warned)
    once, check = run.options.once or run.options.drain, functools.partial(_check_clock, run, asking=False)
    return Released(release_in_time(config.calendar, due, once, release, check), warned)


def _check_clock(run: Run[StreamConfig], indices: Sequence[int], *, asking: bool) -> None:
    """Refuses several new windows at once, except up to the date that a person has confirmed.

    Args:
      run: run of the job.
      indices: due windows that haven't begun.
      asking: whether to ask for confirmation on the terminal.

    Raises:
      ConfigError: if several windows after that date are due.
    """
    dates = [run.settings.calendar.date(index) for index in indices]
    new = [date for date in dates if date > run.options.catch_up]
    if len(new) <= 1:
        return
    moment = waiting.now().isoformat(" ", "minutes").removesuffix("+00:00")
    found = f"{len(new)} windows are due at once, {new[0]} to {new[-1]}, by this machine's clock ({moment} UTC)"
    remedy = "A window can't be taken back. If the clock is right"
    if not asking:
        raise ConfigError(f"{found}. {remedy}, add --catch_up {new[-1]}.")
    sys.stderr.write(f"{found}. {remedy}, type {new[-1]} to release all of them: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != new[-1]:
        raise ConfigError(f"{found}. Nothing is released. {remedy}, add --catch_up {new[-1]}.")


def _has_person() -> bool:
    """Returns whether a person can be asked on the terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _arrived(run: Run[StreamConfig], warned: list[int | None], indices: tuple[int, ...], watch: Watch) -> Iterator[str]:
    """Makes the rows of the windows readable, then releases the windows."""
    with arriving(_window_rows(run.settings, run.options.beam), run.options.output) as rows:
        yield from _released(run, warned, rows, indices, watch)
        if rows.short:
            expected = run.settings.options.expected_rows
            raise ProducerStoppedError(
                f"A window had fewer than stream.expected_rows = {expected} rows. All due windows are released; check "
                "the producer, and see the operator's file for the date."
            )


def _released(
    run: Run[StreamConfig], warned: list[int | None], rows: FolderRows, indices: tuple[int, ...], watch: Watch
) -> Iterator[str]:
    """Releases windows in order until a signal arrives, and yields the date of each.

    Appends the number of warnings of each window to `warned`.
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
    """Reports the number of released windows and the next due time as metrics, so that monitoring sees a lag."""
    MEASURES.put(WINDOWS, done)
    MEASURES.put(WINDOWS_LEFT, config.options.windows - done)
    if done < config.calendar.n_wanted:
        MEASURES.put(NEXT_DUE, config.calendar.due_at(done).timestamp())


def _write(run: Run[StreamConfig], due: Due, released: Released) -> Outcome:
    done = due.done + len(released.dates)
    if done:
        _LOGGER.info("done: %s", join(run.options.output, PAGE))
    rest = run.settings.options.windows - done
    summary = {"output": run.options.output, "released": list(released.dates), "windows": done, "windows_left": rest}
    summary |= {"drained": len(released.dates)} if run.options.drain else {}
    return Outcome(summary | {"warnings": total_warnings(released.warned)})


def _window_rows(config: StreamConfig, options: PipelineOptions) -> TopicWindows | LakeRows:
    """Source of the windows' rows: a topic, or folders.

    Args:
      config: the job.
      options: Beam options.
    """
    stream, data = config.options, config.template.data
    if stream.kafka is None:
        return LakeRows(config.calendar, data, stream.column, stream.expected_rows)
    client, columns = TopicClient.of(stream.kafka), MessageColumns.of(data, stream.kafka)
    records = Records(
        client=client,
        folder=data.path,
        epoch=stream.name,
        days=stream.days,
        first=stream.first,
        register=Register(str(config.ledger), str(data.name), stream.name),
    )
    landing = Landing(records=records, columns=columns, column=stream.column, setting="data.path", options=options)
    band = len(config.template.weights)
    return TopicWindows(calendar=config.calendar, band=band, landing=landing, expected=stream.expected_rows)


JOB = Job(
    "stream",
    load_stream_config,
    _plan,
    _work,
    _write,
    Zone.PUBLIC,
    flags=("--output", "--once", "--drain", "--catch_up"),
    place=OutputKind(writes=Writes.PARTS).place,
)
