"""The `decode` job: a model from the private reports of a collection."""

import dataclasses
import functools
import io
import json
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import report_outputs, report_summary
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text, shuffles_in_memory
from pipelines.report_source import check_shuffled, find_reports
from pipelines.run_folder import RunFolder
from pipelines.shuffle import too_few
from schemas.errors import InputError
from schemas.model import ClusterModel, model_from_tables
from schemas.release import releases_to_table
from schemas.report_config import DecodeConfig, load_decode_config
from schemas.report_parameters import ReportParameters
from schemas.split_parameters import CollectionParameters
from transforms import row_spill
from transforms.decode_reports import DecodedBatch, DecodeParams, DecodeReports
from transforms.publish import CENTERS_FILE, read_bytes, table_bytes, write_bytes
from transforms.report_batches import ReadReports
from transforms.split_messages import DecodeMessages, ReadMessages

_FOUND = "found.json"
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedDecode:
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


def prepare(config: DecodeConfig) -> PreparedDecode:
    """Reads the public parameters of the reports.

    Raises:
      ConfigError: if they are missing, do not keep their promise, or differ from what the job says, or if reports of
        mode shuffle are not those that a shuffler wrote.
    """
    source = find_reports(config, str(config.reports.path), "reports.path")
    check_shuffled(source, report_outputs.digest(source.parameters))
    return PreparedDecode(config=config, path=source.path, parameters=source.parameters)


def build(root: beam.Pipeline, job: PreparedDecode, folder: str, spill_folder: str | None) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      job: ready to run.
      folder: exists; what was decoded goes there.
      spill_folder: see `transforms.report_batches.GroupReports`.
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


def execute(job: PreparedDecode, options: PipelineOptions, folder: str) -> DecodeResult:
    """Runs a job to its end.

    Args:
      job: ready to run.
      options: for Beam.
      folder: staging; `centers.parquet` lies there afterwards.

    Raises:
      InputError: if there are no reports, or fewer than the guaranteed minimum of a shuffled batch.
    """
    local = FileSystems.get_scheme(folder) in (None, "file") and shuffles_in_memory(options)
    spill = folder if local else None
    try:
        run_graph(functools.partial(build, job=job, folder=folder, spill_folder=spill), options)
    finally:
        if local:
            row_spill.remove(folder)
    found = FileSystems.join(folder, _FOUND)
    if not FileSystems.exists(found):
        raise InputError(f"reports.path must hold at least one report, got {job.path} without; check the path.")
    n_reports = int(json.loads(read_bytes(found)))
    FileSystems.delete([found])
    centers = FileSystems.join(folder, CENTERS_FILE)
    if not FileSystems.exists(centers):
        raise too_few(job.parameters, n_reports)
    model = model_from_tables(pq.read_table(io.BytesIO(read_bytes(centers))), releases_to_table([]))
    return DecodeResult(model=model, n_reports=n_reports)


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: decodes, publishes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been published then.
    """
    options = parse_job("decode", argv)
    job = prepare(load_decode_config(read_text(options.config)))
    folder = RunFolder(options.output, options.run_id)
    folder.check()
    _LOGGER.info("run %s: decoding reports", options.run_id)
    folder.open()
    try:
        result = execute(job, options.beam, folder.staging)
        folder.adopt(CENTERS_FILE)
        folder.write("privacy.json", report_outputs.privacy_json(job.parameters))
        folder.write("deployment.yaml", report_outputs.deployment_yaml(job.parameters, result.n_reports))
        folder.write("report.html", report_summary.render(job.parameters, result.model, result.n_reports).encode())
        folder.publish(report_outputs.decode_manifest(job.parameters, job.config, result.n_reports, options.run_id))
    except BaseException:
        folder.discard()
        raise
    _LOGGER.info("done: %s", FileSystems.join(options.output, "report.html"))
    guarantee = job.parameters.guarantee
    spent = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    return {"run_id": options.run_id, "output": options.output} | spent
