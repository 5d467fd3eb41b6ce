"""The `decode` job: a model from the private reports of a collection."""

import dataclasses
import functools
import json
import logging
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from pipelines.jobs.job import Job, Outcome, Run
from pipelines.page.stamp import RunStamp
from pipelines.reports import decode_page
from pipelines.reports import outputs as report_outputs
from pipelines.reports.shuffle import too_few
from pipelines.reports.source import check_shuffled, find_reports
from pipelines.run.flags import OUTPUT_FLAGS
from pipelines.run.graph import run_graph
from pipelines.run.spill import spilling
from schemas.errors import InputError
from schemas.kmeans.model import ClusterModel, model_from_tables
from schemas.privacy.flow import Promise, Zone
from schemas.privacy.release import releases_to_table
from schemas.reports.config import DecodeConfig, load_decode_config
from schemas.reports.parameters import ReportParameters
from schemas.reports.split_parameters import CollectionParameters
from schemas.settings.digest import config_digest
from transforms.files import gate
from transforms.files.octets import table_bytes, write_bytes
from transforms.files.publish import CENTERS_FILE
from transforms.reports.batches import ReadReports
from transforms.reports.decode import DecodedBatch, DecodeParams, DecodeReports
from transforms.reports.split_messages import DecodeMessages, ReadMessages

_FOUND = "found.json"
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedDecode:
    """A job that is ready to run.

    Attributes:
      config: the job.
      path: where the reports lie.
      parameters: of their collection.
    """

    config: DecodeConfig
    path: str
    parameters: CollectionParameters


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodeResult:
    """What a job found: the model, and the number of distinct reports behind it."""

    model: ClusterModel
    n_reports: int


def _plan(run: Run[DecodeConfig]) -> PlannedDecode:
    """The public parameters of the reports; of mode shuffle they must be those that a shuffler wrote."""
    config = run.settings
    source = find_reports(config, str(config.reports.path), "reports.path")
    check_shuffled(source, report_outputs.digest(source.parameters))
    _LOGGER.info("run %s: decoding reports", run.options.run_id)
    return PlannedDecode(config=config, path=source.path, parameters=source.parameters)


def build(root: beam.Pipeline, job: PlannedDecode, folder: str, spill_folder: str | None) -> None:
    """Adds the job to an empty pipeline.

    Args:
      root: an empty pipeline.
      job: ready to run.
      folder: private; what was decoded goes there.
      spill_folder: see `transforms.reports.batches.GroupReports`.
    """
    public, seed = job.parameters, job.config.seed
    if isinstance(public, ReportParameters):
        params = DecodeParams(parameters=public, branching=job.config.reports.branching, seed=seed)
        batches = root | "Reports" >> ReadReports(path=job.path, parameters=public)
        decoded = batches | "Decode" >> DecodeReports(params=params, spill_folder=spill_folder)
    else:
        messages = root | "Messages" >> ReadMessages(path=job.path, parameters=public)
        decoded = messages | "Decode" >> DecodeMessages(parameters=public, seed=seed)
    _ = decoded | "Write" >> beam.Map(_write, folder)


def _write(batch: DecodedBatch, folder: str) -> None:
    if batch.model is not None:
        write_bytes(FileSystems.join(folder, CENTERS_FILE), table_bytes(batch.model.centers_table()))
    write_bytes(FileSystems.join(folder, _FOUND), json.dumps(batch.n_reports).encode())


def _work(run: Run[DecodeConfig], job: PlannedDecode) -> DecodeResult:
    """Decodes; `centers.parquet` lies in the staging folder afterwards.

    Raises:
      InputError: if there are no reports, or fewer than the guaranteed minimum of a shuffled batch.
    """
    batch = decoded(run, job)
    if not batch.n_reports:
        raise InputError(f"reports.path must hold at least one report, got none in {job.path}; check the path.")
    if batch.model is None:
        raise too_few(job.parameters, batch.n_reports)
    return DecodeResult(model=batch.model, n_reports=batch.n_reports)


def decoded(run: Run[Any], job: PlannedDecode) -> DecodedBatch:
    """What came of the reports, without a model if there are too few; its centers lie in the staging folder."""
    options, folder = run.options.beam, run.folder.staging
    with spilling(folder, options) as spill:
        add = functools.partial(build, job=job, folder=folder, spill_folder=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC))
    found = FileSystems.join(folder, _FOUND)
    if not FileSystems.exists(found):
        return DecodedBatch(n_reports=0, model=None)
    n_reports = gate.read_json(found, int, gate.staged(found))
    FileSystems.delete([found])
    centers = FileSystems.join(folder, CENTERS_FILE)
    if not FileSystems.exists(centers):
        return DecodedBatch(n_reports=n_reports, model=None)
    model = model_from_tables(gate.read_table(centers, gate.staged(centers)), releases_to_table([]))
    return DecodedBatch(n_reports=n_reports, model=model)


def _stage(run: Run[DecodeConfig], job: PlannedDecode, result: DecodeResult) -> Outcome:
    return staged(run, job, result, {})


def staged(run: Run[Any], job: PlannedDecode, result: DecodeResult, more: Mapping[str, Any]) -> Outcome:
    """Stages what goes with the centers.

    Args:
      run: whose staging folder holds them.
      job: that decoded.
      result: what it found.
      more: for `privacy.json`.
    """
    folder, parameters, n_reports = run.folder, job.parameters, result.n_reports
    folder.adopt(CENTERS_FILE)
    folder.write_privacy({**report_outputs.privacy_json(parameters), **more})
    folder.write("deployment.yaml", report_outputs.deployment_yaml(parameters, n_reports))
    stamp = RunStamp.today(run.options.run_id, config_digest(job.config), None)
    folder.write("report.html", decode_page.render(parameters, result.model, n_reports, stamp).encode())
    manifest = report_outputs.decode_manifest(parameters, job.config, n_reports)
    return Outcome(report_outputs.spent(parameters), manifest)


JOB = Job(
    "decode",
    load_decode_config,
    _plan,
    _work,
    _stage,
    Zone.PUBLIC,
    shows="report.html",
    flags=(*OUTPUT_FLAGS, "--once"),
)
