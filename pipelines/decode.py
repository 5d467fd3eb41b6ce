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
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import report_outputs, report_summary
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text, shuffles_in_memory
from pipelines.run_folder import RunFolder
from schemas.errors import ConfigError, InputError
from schemas.flow import Promise, Zone
from schemas.model import ClusterModel, model_from_tables
from schemas.release import releases_to_table
from schemas.report_config import DecodeConfig, load_decode_config
from schemas.report_parameters import ReportParameters
from schemas.report_rows import PARAMETERS_FILE, REPORTS_FOLDER
from transforms import row_spill
from transforms.decode_reports import DecodedBatch, DecodeParams, DecodeReports
from transforms.numerics.amplification import check_guarantee
from transforms.publish import CENTERS_FILE, read_bytes, table_bytes, write_bytes
from transforms.report_batches import ReadReports

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
    parameters: ReportParameters


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodeResult:
    """What a job found: the model, and the number of distinct reports behind it."""

    model: ClusterModel
    n_reports: int


def prepare(config: DecodeConfig) -> PreparedDecode:
    """Reads the public parameters of the reports.

    Raises:
      ConfigError: if they are missing, do not keep their promise, or differ from what the job says.
    """
    folder = str(config.reports.path).rstrip("/")
    inside = FileSystems.join(folder, REPORTS_FOLDER)
    where = config.reports.parameters or FileSystems.join(folder, PARAMETERS_FILE)
    try:
        text = read_bytes(where).decode()
        path = inside if FileSystems.exists(inside) else folder
    except (OSError, BeamIOError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"reports.path must be a folder with {PARAMETERS_FILE}, got {folder}; give the output folder of encode, "
            "or reports.parameters."
        ) from error
    parameters = ReportParameters.from_json(text, where)
    check_guarantee(parameters.guarantee)
    config.check(parameters)
    return PreparedDecode(config=config, path=path, parameters=parameters)


def build(root: beam.Pipeline, job: PreparedDecode, folder: str, spill_folder: str | None) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      job: ready to run.
      folder: exists; what was decoded goes there.
      spill_folder: see `transforms.report_batches.GroupReports`.
    """
    params = DecodeParams(parameters=job.parameters, branching=job.config.reports.branching, seed=job.config.seed)
    batches = root | "Reports" >> ReadReports(path=job.path, parameters=job.parameters)
    decoded = batches | "Decode" >> DecodeReports(params=params, spill_folder=spill_folder)
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
        add = functools.partial(build, job=job, folder=folder, spill_folder=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC))
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
        raise InputError(
            f"a shuffled batch must have at least {job.parameters.guarantee.min_batch} reports, got {n_reports}; wait "
            "for more: with fewer, clients would have less privacy than they were promised."
        )
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
