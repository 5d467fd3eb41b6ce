"""The `shuffle` job: reports as they arrived, written anew without order, ids or times."""

import dataclasses
import functools
import json
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import report_outputs
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text, shuffles_in_memory
from pipelines.report_source import ReportSource, find_reports
from pipelines.run_folder import RunFolder
from schemas.choices import ReportMode
from schemas.errors import ConfigError, InputError
from schemas.report_config import ShuffleConfig, load_shuffle_config
from schemas.report_parameters import ReportParameters
from schemas.report_rows import PARAMETERS_FILE, REPORTS_FOLDER
from schemas.split_parameters import CollectionParameters
from transforms import row_spill
from transforms.assign_rows import LISTING_FILE, WrittenFile
from transforms.publish import read_bytes
from transforms.read import open_parquet
from transforms.report_batches import ReadReports
from transforms.shuffle_reports import ShuffleReports
from transforms.split_messages import ReadMessages, ShuffleMessages

_LOGGER = logging.getLogger(__name__)
_ARRIVED = "reports.arrived"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShuffleResult:
    """What a job wrote: its files, sorted by name, and the reports (messages) and clients in them."""

    files: list[WrittenFile]
    n_rows: int
    n_clients: int


def prepare(config: ShuffleConfig) -> ReportSource:
    """Reads the public parameters of the reports.

    Raises:
      ConfigError: if they are missing, do not keep their promise, or differ from what the job says.
    """
    return find_reports(config, str(config.reports.arrived), _ARRIVED)


def shuffling(parameters: CollectionParameters, folder: str, spill_folder: str | None) -> beam.PTransform:
    """The transform that shuffles reports, or messages, of a collection into `folder`.

    Args:
      parameters: of the collection.
      folder: holds a folder `REPORTS_FOLDER`; the listing goes there, too.
      spill_folder: see `transforms.report_batches.GroupReports`.
    """
    inside, listing = FileSystems.join(folder, REPORTS_FOLDER), FileSystems.join(folder, LISTING_FILE)
    if isinstance(parameters, ReportParameters):
        return ShuffleReports(parameters=parameters, folder=inside, listing=listing, spill_folder=spill_folder)
    return ShuffleMessages(folder=inside, listing=listing)


def written_files(folder: str) -> list[WrittenFile]:
    """Files that a pipeline wrote, by the listing that is removed.

    Raises:
      ConfigError: if the launcher cannot see the listing.
    """
    listing = FileSystems.join(folder, LISTING_FILE)
    try:
        files = [WrittenFile(*entry) for entry in json.loads(read_bytes(listing))]
        FileSystems.delete([listing])
    except (OSError, BeamIOError) as error:
        raise ConfigError(
            f"--output must be a folder that workers and launcher share, got {folder}; choose another place."
        ) from error
    return files


def too_few(parameters: CollectionParameters, n_reports: int) -> InputError:
    """The error for a batch below its guaranteed minimum."""
    return InputError(
        f"a shuffled batch must have at least {parameters.guarantee.min_batch} reports, got {n_reports}; wait for "
        "more: with fewer, clients would have less privacy than they were promised."
    )


def build(root: beam.Pipeline, source: ReportSource, folder: str, spill_folder: str | None) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      source: of the reports.
      folder: private; holds a folder `REPORTS_FOLDER`.
      spill_folder: see `transforms.report_batches.GroupReports`.
    """
    read: beam.PTransform
    if isinstance(source.parameters, ReportParameters):
        read = ReadReports(path=source.path, parameters=source.parameters, setting=_ARRIVED)
    else:
        read = ReadMessages(path=source.path, parameters=source.parameters, setting=_ARRIVED)
    _ = root | "Arrived" >> read | "Shuffle" >> shuffling(source.parameters, folder, spill_folder)


def execute(source: ReportSource, options: PipelineOptions, folder: str) -> ShuffleResult:
    """Runs a job to its end.

    Args:
      source: of the reports.
      options: for Beam.
      folder: private and empty; holds `REPORTS_FOLDER` with the files afterwards.

    Raises:
      InputError: if there are fewer reports than the guaranteed minimum of a shuffled batch, or messages of parts of
        clients.
    """
    FileSystems.mkdirs(FileSystems.join(folder, REPORTS_FOLDER))
    local = FileSystems.get_scheme(folder) in (None, "file") and shuffles_in_memory(options)
    spill = folder if local else None
    try:
        run_graph(functools.partial(build, source=source, folder=folder, spill_folder=spill), options)
    finally:
        if local:
            row_spill.remove(folder)
    files = written_files(folder)
    n_rows = sum(_n_rows(FileSystems.join(folder, REPORTS_FOLDER, file.name)) for file in files)
    if not n_rows:
        raise InputError(f"{_ARRIVED} must hold at least one report, got {source.path} without; check the path.")
    n_clients = n_rows // source.parameters.messages_per_client
    if source.parameters.guarantee.mode is ReportMode.SHUFFLE and n_clients < source.parameters.guarantee.min_batch:
        raise too_few(source.parameters, n_clients)
    if n_rows % source.parameters.messages_per_client:
        raise InputError(
            f"{_ARRIVED} must hold all {source.parameters.messages_per_client} messages of every client, got parts; "
            "leave out clients that are not complete."
        )
    return ShuffleResult(files=files, n_rows=n_rows, n_clients=n_clients)


def _n_rows(path: str) -> int:
    """Rows of a Parquet file."""
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: shuffles, writes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been written then.
    """
    options = parse_job("shuffle", argv)
    config = load_shuffle_config(read_text(options.config))
    source = prepare(config)
    folder = RunFolder(options.output, options.run_id)
    folder.check()
    _LOGGER.info("run %s: shuffling reports", options.run_id)
    with folder.opened():
        result = execute(source, options.beam, folder.staging)
        for file in result.files:
            folder.record(f"{REPORTS_FOLDER}/{file.name}", file.digest)
        folder.write(PARAMETERS_FILE, source.parameters.to_json().encode())
        folder.write("privacy.json", report_outputs.privacy_json(source.parameters))
        folder.publish(report_outputs.shuffle_manifest(source.parameters, config, result.n_rows, options.run_id))
    _LOGGER.info("done: %s", FileSystems.join(options.output, REPORTS_FOLDER))
    guarantee = source.parameters.guarantee
    spent = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    return {"run_id": options.run_id, "output": options.output, "n_clients": result.n_clients} | spent
