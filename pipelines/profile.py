"""The `profile` job: a differentially private description of each cluster of a released model, by PipelineDP."""

import functools
import json
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.fingerprint import source_fingerprint
from pipelines.graph import run_graph
from pipelines.options import parse_job, read_text, shuffles_in_memory
from pipelines.run_folder import KEY_FILE, RunFolder
from pipelines.spending import charge_of, spending
from pipelines.versions import versions
from schemas.config import config_digest
from schemas.errors import ConfigError
from schemas.flow import Promise, Zone
from schemas.profile import PROFILE_FILE, ProfileResult
from schemas.profile_config import ProfileConfig, load_profile_config
from transforms import hive, row_spill
from transforms.keys import create_key, delete_key
from transforms.measure_clusters import MeasureClusters
from transforms.numerics.nearest import NearestCenters
from transforms.pipeline_dp_noise import AddPipelineDPNoise
from transforms.prepared_files import read_manifest
from transforms.profile_accounting import calibrate, statement
from transforms.profile_rows import ProfileParams, check_columns
from transforms.publish import read_bytes, table_from_bytes
from transforms.publish_profile import PublishProfile
from transforms.read import CheckRows, ListShards, open_parquet
from transforms.saved_model import SavedModel, load_model
from transforms.source import Source
from transforms.table_snapshots import resolve

_LOGGER = logging.getLogger(__name__)


class PreparedProfile(NamedTuple):
    """A job that is ready to run.

    Attributes:
      config: of the job.
      source: where the rows are.
      params: what is read and measured, with the calibrated plan.
      numbers: of the model's clusters, in its order; empty for 0, 1, ...
    """

    config: ProfileConfig
    source: Source
    params: ProfileParams
    numbers: tuple[int, ...] = ()


def prepare(config: ProfileConfig, model: SavedModel) -> PreparedProfile:
    """Chooses the snapshot of the table and calibrates all mechanisms; no private rows are read.

    Raises:
      ConfigError: if the settings do not fit the model or the data set, or the budget is out of range.
      InputError: if there are no files, or the columns of the first one cannot be described.
    """
    contract = model.contract(config.data, by_client=config.by_client)
    params = ProfileParams(
        model=NearestCenters.of(model.centers), contract=contract, plan=calibrate(config, len(model.centers))
    )
    source = resolve(config.data)
    _check_whole_rows(config)
    _check_first_file(source, params)
    return PreparedProfile(config, source, params, model.numbers)


def _check_whole_rows(config: ProfileConfig) -> None:
    """Refuses a folder in which one row of the input decides on two rows."""
    manifest = read_manifest(config.data.path)
    if manifest is not None and manifest.max_rows_per_client is not None and not config.by_client:
        raise ConfigError(
            f"data.path must hold all rows for privacy.unit record, got a folder prepared with "
            f"max_rows_per_client {manifest.max_rows_per_client}; give the original data or use unit client."
        )


def _check_first_file(source: Source, params: ProfileParams) -> None:
    """Stops early where the described columns cannot be described; other files are checked where they are read."""
    path = source.list_files()[0]
    with open_parquet(path) as file:
        schema = file.schema_arrow
    for name in params.others:
        schema = hive.with_field(schema, path, name)
    check_columns(schema, path, params.plan)


def build(root: beam.Pipeline, prepared: PreparedProfile, key_uri: str, folder: str, *, spill: bool = False) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      prepared: the job.
      key_uri: where workers find the key that ranks and samples rows.
      folder: private; holds `profile.parquet` afterwards.
      spill: whether rows on their way to their client go through files in the folder.
    """
    params = prepared.params
    shards = root | "List" >> ListShards(source=prepared.source, contract=params.contract)
    _ = shards | "CheckRows" >> CheckRows()
    measured = shards | "MeasureClusters" >> MeasureClusters(
        params=params, key_uri=key_uri, spill_folder=folder if spill else None
    )
    noised = measured | "PipelineDPNoise" >> AddPipelineDPNoise(plan=params.plan)
    _ = noised | "Publish" >> PublishProfile(plan=params.plan, folder=folder, numbers=prepared.numbers)


def execute(prepared: PreparedProfile, options: PipelineOptions, folder: str) -> ProfileResult:
    """Runs a prepared job to its end; its key is new and does not outlive it.

    Args:
      prepared: the job.
      options: for Beam.
      folder: private staging folder; `profile.parquet` is there afterwards.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    key_uri = FileSystems.join(folder, KEY_FILE)
    spill = prepared.config.by_client and shuffles_in_memory(options)
    create_key(key_uri)
    try:
        add = functools.partial(build, prepared=prepared, key_uri=key_uri, folder=folder, spill=spill)
        run_graph(add, options, Promise(zone=Zone.PUBLIC, declared=(prepared.params.plan,)))
        digest = config_digest(prepared.config)
        fingerprint = source_fingerprint(prepared.source, prepared.params.contract, digest, key_uri)
    finally:
        delete_key(key_uri)
        if spill:
            row_spill.remove(folder)
    path = FileSystems.join(folder, PROFILE_FILE)
    if not FileSystems.exists(path):
        raise ConfigError(
            f"--output must be a folder that workers and launcher share, got {folder}; choose another place."
        )
    return ProfileResult(table_from_bytes(read_bytes(path)), statement(prepared.params.plan), fingerprint)


def _manifest(prepared: PreparedProfile, result: ProfileResult, model: SavedModel, run_id: str) -> dict[str, Any]:
    """Content of `run.json`, without the list of files."""
    snapshot, plan = prepared.source.snapshot, prepared.params.plan
    return {
        "run_id": run_id,
        "job": "profile",
        "model": {"digest": model.digest},
        "sampling_rate": plan.rate,
        "max_rows_per_client": plan.unit_rows if plan.by_client else None,
        "config_digest": config_digest(prepared.config),
        "input_fingerprint": result.fingerprint,
        "snapshot": None if snapshot is None else snapshot.to_json(),
        "versions": versions(),
    }


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: describes, publishes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been published then.
    """
    options = parse_job("profile", argv)
    config = load_profile_config(read_text(options.config))
    folder = RunFolder(options.output, options.run_id)
    folder.check()
    model = load_model(config.model)
    _LOGGER.info("run %s: calibrating noise", options.run_id)
    prepared = prepare(config, model)
    plan = prepared.params.plan
    _LOGGER.info("plan: %d mechanisms, epsilon %.6g, delta %.3g", len(plan.events), plan.epsilon, plan.delta)
    charge = charge_of(statement(plan), config.data, "profile")
    with spending(config.ledger, charge, options.run_id), folder.opened():
        result = execute(prepared, options.beam, folder.staging)
        folder.adopt(PROFILE_FILE)
        folder.write("privacy.json", json.dumps(result.privacy.to_json(), indent=2, sort_keys=True).encode())
        folder.publish(_manifest(prepared, result, model, options.run_id))
    _LOGGER.info("done: %s", FileSystems.join(options.output, PROFILE_FILE))
    spent = {"epsilon": result.privacy.epsilon, "delta": result.privacy.delta}
    return {"run_id": options.run_id, "output": options.output} | spent
