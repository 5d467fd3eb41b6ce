"""The command `decode` with a section `windows`: decodes a model for each window of reports in turn.

Reports are in dated folders `PATH/COLUMN=DATE`, filled by someone else, or messages of a topic, which are copied there.
A window is decoded once, when its days are over by the clock; reports that arrive later are ignored. Reports are
releases already, so decoding spends nothing, and the next call simply decodes an interrupted window again. All windows
of an output have the parameters of the first.
"""

import dataclasses
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.jobs.job import Job, JobChoice, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind, Stopped, Writes
from dapple_dp.pipelines.jobs.run_job import run_settings
from dapple_dp.pipelines.jobs.waiting import Watch
from dapple_dp.pipelines.jobs.warned import total_warnings
from dapple_dp.pipelines.jobs.windows import (
    Due,
    Released,
    due_windows,
    first_complete,
    of_window,
    release_in_time,
)
from dapple_dp.pipelines.reports import decode
from dapple_dp.pipelines.reports import outputs as report_outputs
from dapple_dp.pipelines.reports.decode import PlannedDecode
from dapple_dp.pipelines.reports.source import ReportSource, any_files, check_shuffled, find_reports
from dapple_dp.pipelines.run.flags import OUTPUT_FLAGS
from dapple_dp.pipelines.tables.arrivals.landing import Landing
from dapple_dp.pipelines.tables.arrivals.records import Records
from dapple_dp.pipelines.tables.arrivals.window_rows import FolderRows, TopicWindows, arriving, clear
from dapple_dp.schemas.choices import ReportMode
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.reports.parameters import MOST_PARAMETER_BYTES, ReportParameters
from dapple_dp.schemas.reports.rows import PARAMETERS_FILE, message_columns
from dapple_dp.schemas.reports.windows import (
    DecodeWindow,
    WindowedDecode,
    has_windows,
    load_windowed_decode,
    topic_refusal,
)
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.settings.run_manifest import CollectionManifest
from dapple_dp.transforms.arrivals.consume import TopicClient
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, is_local, join, local_path
from dapple_dp.transforms.reports.decode import DecodedBatch

_FLAGS = (*OUTPUT_FLAGS, "--once")
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedWindow:
    """A window that is due.

    Attributes:
      decode: planned decoding of its reports.
      empty: whether its folder is empty or missing.
    """

    decode: PlannedDecode
    empty: bool


def _plan(run: Run[WindowedDecode]) -> Due:
    root = run.settings.root
    if run.settings.windows.kafka is None and is_local(root) and not os.path.isdir(local_path(root)):
        raise ConfigError(f"reports.path must be a folder with folders of dates, got {root}; check the path.")
    due = due_windows(run.settings.calendar, run.options.output)
    _LOGGER.info("reports %s: %s due", run.settings.windows.name, plural(len(due.indices), "window"))
    return due


def _work(run: Run[WindowedDecode], due: Due) -> Released:
    """Decodes windows as they become due, until the calendar ends or a signal arrives."""
    if not due.indices:
        clear(_topic_windows(run.settings, run.options.beam))
    warned: list[int | None] = []
    release = functools.partial(_arrived, run, warned)
    return Released(release_in_time(run.settings.calendar, due, run.options.once, release), warned)


def _arrived(
    run: Run[WindowedDecode], warned: list[int | None], indices: tuple[int, ...], watch: Watch
) -> Iterator[str]:
    """Makes the reports of the windows readable, then decodes the windows."""
    with arriving(_topic_windows(run.settings, run.options.beam) or FolderRows(), run.options.output) as rows:
        yield from _decoded(run, warned, rows, indices, watch)


def _decoded(
    run: Run[WindowedDecode], warned: list[int | None], rows: FolderRows, indices: tuple[int, ...], watch: Watch
) -> Iterator[str]:
    """Decodes windows in order until a signal arrives, and yields the date of each.

    Appends the number of warnings of each window to `warned`; it is 0 if a window has too few reports for a page.
    """
    options, name = run.options, run.settings.windows.name
    for index in indices:
        if watch.asked:
            return
        window = dataclasses.replace(run.settings.window(index), parameters_digest=_digest_of_others(run))
        rows.ready(index)
        own = of_window(options, run.settings.calendar, index, name)
        warned.append(run_settings(_WINDOW, window, own).get("warnings", 0))
        rows.released(index)
        yield window.date


def _digest_of_others(run: Run[WindowedDecode]) -> str | None:
    """Digest of the parameters of windows decoded earlier; None if there are none."""
    path = first_complete(run.settings.calendar, run.options.output)
    if path is None:
        return None
    rule = f"{path} must be the manifest of a window"
    refusal = Refusal(kind=InputError, rule=rule, remedy="restore it, or choose another --output")
    return untrusted.read_json(path, CollectionManifest, refusal).parameters_digest


def _write(run: Run[WindowedDecode], due: Due, released: Released) -> Outcome:
    done = due.done + len(released.dates)
    summary = {"output": run.options.output, "released": list(released.dates), "windows": done}
    rest = {"windows_left": run.settings.calendar.windows - done, "warnings": total_warnings(released.warned)}
    return Outcome(summary | rest)


def _plan_window(run: Run[DecodeWindow]) -> PlannedWindow:
    """Reads the public parameters of a window; its reports, if any, must have been shuffled if the mode asks for it."""
    window = run.settings
    source = find_reports(window.config, str(window.config.reports.path), "reports.path")
    _check_same(window, source)
    empty = not any_files(window.root, window.column, window.date)
    if not empty:
        check_shuffled(source, report_outputs.digest(source.parameters))
    planned = PlannedDecode(config=window.config, path=source.path, parameters=source.parameters)
    return PlannedWindow(decode=planned, empty=empty)


def _check_same(window: DecodeWindow, source: ReportSource) -> None:
    """Refuses reports with parameters that differ from those of earlier windows.

    Otherwise models in one series would differ because clients were asked different questions, without saying so; and
    readers of a window's folder with separate parameters couldn't tell which ones its clients had.

    Raises:
      ConfigError: if the parameters of the job, or those in the window's folder, differ.
    """
    digest = report_outputs.digest(source.parameters)
    if window.parameters_digest not in (None, digest):
        raise ConfigError(
            f"reports of the window of {window.date} must have the parameters of the windows before, got others; give "
            "reports.parameters of the collection that began, or choose another --output for the new one."
        )
    own = join(source.folder, PARAMETERS_FILE)
    if not STORE.exists(own):
        return
    rule = f"{own} must be the parameters of all windows"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="decode this collection by a job of its own")
    parameters = ReportParameters.from_json(untrusted.read_bytes(own, refusal, MOST_PARAMETER_BYTES), own)
    if report_outputs.digest(parameters) != digest:
        raise refusal.because("those of another collection")


def _work_window(run: Run[DecodeWindow], planned: PlannedWindow) -> DecodedBatch:
    if planned.empty:
        return DecodedBatch(n_reports=0, model=None)
    return decode.decode_reports(run, planned.decode)


def _stage_window(run: Run[DecodeWindow], planned: PlannedWindow, batch: DecodedBatch) -> Outcome:
    """Stages the outputs of `decode`; with too few reports, only their number, which is public."""
    job, n_reports = planned.decode, batch.n_reports
    more: dict[str, Any] = {"windows": report_outputs.in_many_windows(job.parameters)}
    if batch.model is not None:
        outcome = decode.stage_outputs(run, job, decode.DecodeResult(model=batch.model, n_reports=n_reports), more)
    else:
        _LOGGER.info("the window of %s has no model, since it has %s", run.settings.date, plural(n_reports, "report"))
        run.folder.write_privacy(report_outputs.privacy_json(job.parameters) | more)
        manifest = report_outputs.decode_manifest(job.parameters, job.config, n_reports)
        outcome = Outcome(report_outputs.spent(job.parameters), manifest)
    own = {"window": run.settings.date, "decoded": batch.model is not None}
    return Outcome(outcome.summary, outcome.manifest | own)


def _no_text(text: str) -> DecodeWindow:
    raise NotImplementedError("a window follows from the settings of all, never from a text of its own.")


def _topic_windows(config: WindowedDecode, options: PipelineOptions) -> TopicWindows | None:
    """The windows of a job's topic; None if its reports are in folders.

    Raises:
      ConfigError: if reports of a shuffled batch would come from a topic.
    """
    given = config.windows
    if given.kafka is None:
        return None
    parameters = find_reports(config.window(0).config, config.root, "reports.path").parameters
    if parameters.guarantee.mode is ReportMode.SHUFFLE:
        raise ConfigError(topic_refusal())
    client, columns = TopicClient.of(given.kafka), message_columns(parameters)
    records = Records(client=client, folder=config.root, epoch=given.name, days=given.days, first=given.first)
    landing = Landing(records=records, columns=columns, column=given.column, setting="reports.path", options=options)
    return TopicWindows(calendar=config.calendar, band=1, landing=landing)


_WINDOW_KIND = OutputKind(stopped=Stopped.REPLACED)
_WINDOW = Job("decode", _no_text, _plan_window, _work_window, _stage_window, Zone.PUBLIC, place=_WINDOW_KIND.place)
_KIND = OutputKind(writes=Writes.PARTS)
WINDOWS = Job("decode", load_windowed_decode, _plan, _work, _write, Zone.PUBLIC, flags=_FLAGS, place=_KIND.place)


def _choose(text: str) -> Job[Any, Any, Any]:
    """Chooses between decoding windows and decoding all reports of a folder at once."""
    return WINDOWS if has_windows(text) else decode.JOB


JOB = JobChoice(name="decode", choose=_choose, flags=_FLAGS)
