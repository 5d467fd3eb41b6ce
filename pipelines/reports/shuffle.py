"""The `shuffle` job: rewrites arrived reports without order, ids or times."""

import dataclasses
import functools
import logging

import apache_beam as beam

from dapple_dp.pipelines.jobs.job import Job, Outcome, Run
from dapple_dp.pipelines.reports import outputs as report_outputs
from dapple_dp.pipelines.reports.source import ReportSource, find_reports
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import spilling
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.reports.config import ShuffleConfig, load_shuffle_config
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.schemas.reports.rows import REPORTS_FOLDER
from dapple_dp.transforms.files.file_bytes import LISTING_FILE, WrittenFile, written_files
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.reports.batches import ReadArrivals
from dapple_dp.transforms.reports.shuffle import ShuffleReports
from dapple_dp.transforms.tables.file_seal import open_parquet
from dapple_dp.transforms.tables.shard_rows import n_listed

_LOGGER = logging.getLogger(__name__)
_ARRIVED = "reports.arrived"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffleResult:
    """Written files, sorted by name, and the number of reports in them."""

    files: list[WrittenFile]
    n_reports: int


def _plan(run: Run[ShuffleConfig]) -> ReportSource:
    """Reads the public parameters of the reports, and finds the reports."""
    source = find_reports(run.settings, str(run.settings.reports.arrived), _ARRIVED)
    _LOGGER.info("run %s: shuffling reports", run.options.run_id)
    return source


def shuffling(parameters: ReportParameters, folder: str, spill_folder: str | None) -> beam.PTransform:
    """Builds the transform that shuffles a collection's reports into `folder`.

    Args:
      parameters: public parameters of the collection.
      folder: folder with an existing folder `REPORTS_FOLDER`; receives the listing.
      spill_folder: see `dapple_dp.transforms.reports.batches.GroupReports`.
    """
    inside, listing = join(folder, REPORTS_FOLDER), join(folder, LISTING_FILE)
    return ShuffleReports(parameters=parameters, folder=inside, listing=listing, spill_folder=spill_folder)


def too_few(parameters: ReportParameters, n_reports: int) -> InputError:
    """The error for a batch below its guaranteed minimum."""
    return InputError(
        f"a shuffled batch must have at least {parameters.guarantee.min_batch} reports, got {n_reports}; wait for "
        "more with its parameters: with fewer, clients would have less privacy than they were promised."
    )


def build(root: beam.Pipeline, source: ReportSource, folder: str, spill_folder: str | None) -> None:
    """Adds the job to an empty pipeline.

    Args:
      root: an empty pipeline.
      source: source of the reports.
      folder: private folder with an existing folder `REPORTS_FOLDER`.
      spill_folder: see `dapple_dp.transforms.reports.batches.GroupReports`.
    """
    read = ReadArrivals(path=source.path, parameters=source.parameters, setting=_ARRIVED)
    _ = root | "Arrived" >> read | "Shuffle" >> shuffling(source.parameters, folder, spill_folder)


def _work(run: Run[ShuffleConfig], source: ReportSource) -> ShuffleResult:
    """Writes `REPORTS_FOLDER` into the staging folder; raises InputError if there are too few reports."""
    options, folder = run.options.beam, run.folder.staging
    STORE.make_folder(join(folder, REPORTS_FOLDER))
    with spilling(folder, options) as spill:
        add = functools.partial(build, source=source, folder=folder, spill_folder=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC))
    result = shuffled_batch(source.parameters, folder)
    if not result.n_reports:
        raise InputError(
            f"{_ARRIVED} must hold at least one report with its parameters, got none in {source.path}; check the path."
        )
    return result


def shuffled_batch(parameters: ReportParameters, folder: str) -> ShuffleResult:
    """Counts the shuffled reports in a staging folder; everything marked `shuffled` passes this check.

    Args:
      parameters: public parameters of the collection.
      folder: folder with the listing and `REPORTS_FOLDER`.

    Raises:
      InputError: if there are fewer reports than the guarantee needs.
    """
    files = written_files(folder)
    n_reports = sum(_n_rows(join(folder, REPORTS_FOLDER, file.name)) for file in files)
    if n_reports and not parameters.guarantee.is_met_by(n_reports):
        raise too_few(parameters, n_reports)
    return ShuffleResult(files=files, n_reports=n_reports)


def _n_rows(path: str) -> int:
    with open_parquet(path) as file:
        return n_listed(file)


def _write(run: Run[ShuffleConfig], source: ReportSource, result: ShuffleResult) -> Outcome:
    parameters = source.parameters
    report_outputs.stage_reports(run.folder, parameters, result.files)
    summary = {"n_clients": result.n_reports} | report_outputs.spent(parameters)
    return Outcome(summary, report_outputs.shuffle_manifest(parameters, run.settings, result.n_reports))


JOB = Job("shuffle", load_shuffle_config, _plan, _work, _write, Zone.PUBLIC, shows=REPORTS_FOLDER)
