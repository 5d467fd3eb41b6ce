"""The `assign` job: the nearest center of every row of a lake, for the trusted zone."""

import logging

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems

from pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from pipelines.run.flags import OUTPUT_FLAGS
from pipelines.tables.features import with_features
from pipelines.trusted_zone.trusted_folder import apart, model_manifest, run_on_rows
from schemas.errors import ConfigError
from schemas.privacy.flow import NOT_PRIVATE, Zone
from schemas.trusted_zone.job_configs import AssignConfig, AssignOptions, load_assign_config
from transforms.files.file_bytes import LISTING_FILE, WrittenFile, written_files
from transforms.files.saved_model import SavedModel, load_model
from transforms.numerics.kmeans.center_tree import CenterTree, joined_below
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
        numbers=_groups(model, _cut(run)),
    )
    FileSystems.mkdirs(FileSystems.join(folder, ASSIGNMENTS))
    run_on_rows(run, build, params=params)
    return written_files(folder)


def _cut(run: Run[AssignConfig]) -> AssignOptions:
    """Which clusters become one: by the flags, or else by the settings."""
    flags = {"level": run.options.level, "least_size": run.options.least_size}
    given = {name: value for name, value in flags.items() if value is not None}
    return AssignOptions(**run.settings.assign.model_dump() | given)


def _groups(model: SavedModel, cut: AssignOptions) -> tuple[int, ...]:
    """For each cluster the lowest number of those that are one with it; empty for the index of each."""
    if cut.level is not None:
        groups = CenterTree.of(model.centers, model.sizes).cut(cut.level)
    elif cut.least_size is not None:
        groups = joined_below(model.centers, model.sizes, cut.least_size)
    else:
        return model.numbers
    numbers = np.array(model.numbers or range(len(model.centers)))
    return tuple(numbers[groups].tolist())


def _plan(run: Run[AssignConfig]) -> SavedModel:
    model, cut = load_model(run.settings.model), _cut(run)
    most = len(model.centers)
    if cut.level is not None and cut.level > most:
        raise ConfigError(
            f"--level (assign.level) must be at most the number of clusters of {model.folder}, {most}, got "
            f"{cut.level}; give a smaller one, or leave it out for all clusters."
        )
    if cut.least_size is not None and not np.isfinite(model.sizes).all():
        raise ConfigError(
            f"--least_size (assign.least_size) must be left out where no sizes were released, got {cut.least_size:g} "
            f"for {model.folder}; give --level instead."
        )
    _LOGGER.info("run %s: assigning rows, %s", run.options.run_id, NOT_PRIVATE["label"])
    return model


def _write(run: Run[AssignConfig], model: SavedModel, files: list[WrittenFile]) -> Outcome:
    for file in files:
        run.folder.record(f"{ASSIGNMENTS}/{file.name}", file.digest)
    cut = _cut(run).model_dump(include={"level", "least_size"})
    return Outcome(UNPROTECTED, model_manifest("assign", run.settings, model) | cut)


JOB = Job(
    "assign",
    load_assign_config,
    _plan,
    _work,
    _write,
    Zone.TRUSTED,
    shows=ASSIGNMENTS,
    flags=(*OUTPUT_FLAGS, "--level", "--least_size"),
    place=apart("assign"),
    resolve=with_features,
)
