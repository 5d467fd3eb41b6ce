"""The `assign` job: the nearest center of every row of a lake, for the trusted zone."""

import functools
import json
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text
from pipelines.run_folder import RunFolder
from pipelines.trusted_output import check_apart, manifest
from schemas.assign_config import AssignConfig, load_assign_config
from schemas.errors import ConfigError
from schemas.flow import TRUSTED_ZONE
from schemas.model_job import NOT_PRIVATE
from transforms.assign_rows import LISTING_FILE, AssignParams, AssignRows, WrittenFile
from transforms.numerics.nearest import NearestCenters
from transforms.publish import read_bytes
from transforms.read import CheckRows, ListShards
from transforms.saved_model import SavedModel, load_model
from transforms.source import Source
from transforms.table_snapshots import resolve

ASSIGNMENTS = "assignments.parquet"
"""A folder of Parquet files, which readers take for one table."""
_LOGGER = logging.getLogger(__name__)


def build(root: beam.Pipeline, source: Source, params: AssignParams, folder: str) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      source: where the rows are.
      params: what is written.
      folder: private; holds a folder `ASSIGNMENTS`.
    """
    shards = root | "List" >> ListShards(source=source, contract=params.contract)
    _ = shards | "CheckRows" >> CheckRows()
    paths = {"folder": FileSystems.join(folder, ASSIGNMENTS), "listing": FileSystems.join(folder, LISTING_FILE)}
    _ = shards | "AssignRows" >> AssignRows(params=params, **paths)


def execute(config: AssignConfig, model: SavedModel, options: PipelineOptions, folder: str) -> list[WrittenFile]:
    """Runs a job to its end.

    Args:
      config: the job.
      model: what rows are assigned to.
      options: for Beam.
      folder: private and empty; holds `ASSIGNMENTS` with the files afterwards.

    Returns:
      The files, sorted by name.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    params = AssignParams(
        model=NearestCenters.of(model.centers),
        digest=model.digest,
        contract=model.contract(config.data),
        id_columns=config.id_columns,
        numbers=model.numbers,
    )
    FileSystems.mkdirs(FileSystems.join(folder, ASSIGNMENTS))
    add = functools.partial(build, source=resolve(config.data), params=params, folder=folder)
    run_graph(add, options, TRUSTED_ZONE)
    listing = FileSystems.join(folder, LISTING_FILE)
    if not FileSystems.exists(listing):
        raise ConfigError(
            f"--output must be a folder that workers and launcher share, got {folder}; choose another place."
        )
    files = [WrittenFile(*entry) for entry in json.loads(read_bytes(listing))]
    FileSystems.delete([listing])
    return files


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: assigns, writes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been written then.
    """
    options = parse_job("assign", argv)
    config = load_assign_config(read_text(options.config))
    folder = RunFolder(options.output, options.run_id)
    check_apart(options.output, "assign", beside_released=config.assign.beside_released)
    folder.check()
    model = load_model(config.model)
    _LOGGER.info("run %s: assigning rows, %s", options.run_id, NOT_PRIVATE["label"])
    with folder.opened():
        for file in execute(config, model, options.beam, folder.staging):
            folder.record(f"{ASSIGNMENTS}/{file.name}", file.digest)
        folder.publish(manifest("assign", config, model, options.run_id))
    _LOGGER.info("done: %s; it is as private as the input", FileSystems.join(options.output, ASSIGNMENTS))
    return {"run_id": options.run_id, "output": options.output, "epsilon": None, "delta": None}
