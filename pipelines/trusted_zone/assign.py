"""The `assign` job: the nearest center of every row of a lake, for the trusted zone."""

import logging

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from pipelines.tables.features import with_features
from pipelines.trusted_zone.trusted_folder import apart, model_manifest, run_on_rows
from schemas.privacy.flow import NOT_PRIVATE, Zone
from schemas.trusted_zone.job_configs import AssignConfig, load_assign_config
from transforms.files.file_bytes import LISTING_FILE, WrittenFile, written_files
from transforms.files.saved_model import SavedModel, load_model
from transforms.numerics.statistics.nearest import NearestCenters
from transforms.tables.read import CheckRows, ListShards
from transforms.tables.source import Source
from transforms.trusted_zone.assign_rows import AssignParams, AssignRows

ASSIGNMENTS = "assignments.parquet"
"""A folder of Parquet files, which readers take for one table."""
_LOGGER = logging.getLogger(__name__)


def build(root: beam.Pipeline, source: Source, params: AssignParams, folder: str) -> None:
    """Adds the job to an empty pipeline; `folder` is private and holds a folder `ASSIGNMENTS`."""
    shards = root | "List" >> ListShards(source=source, contract=params.contract)
    _ = shards | "CheckRows" >> CheckRows()
    paths = {"folder": FileSystems.join(folder, ASSIGNMENTS), "listing": FileSystems.join(folder, LISTING_FILE)}
    _ = shards | "AssignRows" >> AssignRows(params=params, **paths)


def _work(run: Run[AssignConfig], model: SavedModel) -> list[WrittenFile]:
    """Writes `ASSIGNMENTS` into the staging folder; its files, sorted by name."""
    config, folder = run.settings, run.folder.staging
    params = AssignParams(
        model=NearestCenters.of(model.centers),
        digest=model.digest,
        contract=model.contract(config.data),
        id_columns=config.id_columns,
        numbers=model.numbers,
    )
    FileSystems.mkdirs(FileSystems.join(folder, ASSIGNMENTS))
    run_on_rows(run, build, params=params)
    return written_files(folder)


def _plan(run: Run[AssignConfig]) -> SavedModel:
    model = load_model(run.settings.model)
    _LOGGER.info("run %s: assigning rows, %s", run.options.run_id, NOT_PRIVATE["label"])
    return model


def _write(run: Run[AssignConfig], model: SavedModel, files: list[WrittenFile]) -> Outcome:
    for file in files:
        run.folder.record(f"{ASSIGNMENTS}/{file.name}", file.digest)
    return Outcome(UNPROTECTED, model_manifest("assign", run.settings, model))


JOB = Job(
    "assign",
    load_assign_config,
    _plan,
    _work,
    _write,
    Zone.TRUSTED,
    shows=ASSIGNMENTS,
    place=apart("assign"),
    resolve=with_features,
)
