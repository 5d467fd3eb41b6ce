"""The `assign` job: writes the nearest center of every row, for the trusted zone."""

import logging

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind
from dapple_dp.pipelines.run.flags import OUTPUT_FLAGS
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.trusted_zone.trusted_folder import model_manifest, run_on_rows
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.trusted_zone.job_configs import AssignConfig, AssignOptions, load_assign_config
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE
from dapple_dp.transforms.files.file_bytes import LISTING_FILE, WrittenFile, written_files
from dapple_dp.transforms.files.saved_model import SavedModel, load_model
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.numerics.kmeans.center_tree import CenterTree, joined_below
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source
from dapple_dp.transforms.trusted_zone.assign_rows import AssignParams, AssignRows

ASSIGNMENTS = "assignments.parquet"
"""Folder of Parquet files, which readers treat as one table."""
_LOGGER = logging.getLogger(__name__)


def build(root: beam.Pipeline, source: Source, params: AssignParams, folder: str) -> None:
    """Adds the job to an empty pipeline; `folder` is private and contains a folder `ASSIGNMENTS`."""
    shards = root | "List" >> ListShards(source=source, contract=params.contract, others=params.id_columns)
    _ = shards | "CheckRows" >> CheckRows()
    paths = {"folder": join(folder, ASSIGNMENTS), "listing": join(folder, LISTING_FILE)}
    _ = shards | "AssignRows" >> AssignRows(params=params, **paths)


def _work(run: Run[AssignConfig], model: SavedModel) -> list[WrittenFile]:
    """Writes `ASSIGNMENTS` into the staging folder; returns its files, sorted by name."""
    config, folder = run.settings, run.folder.staging
    params = AssignParams(
        model=NearestCenters.of(model.centers),
        digest=model.digest,
        contract=model.contract(config.data),
        id_columns=config.id_columns,
        numbers=_groups(model, _cut(run)),
    )
    STORE.make_folder(join(folder, ASSIGNMENTS))
    run_on_rows(run, build, params=params)
    return written_files(folder)


def _cut(run: Run[AssignConfig]) -> AssignOptions:
    """Options for merging clusters; flags override settings."""
    flags = {"level": run.options.level, "least_size": run.options.least_size}
    given = {name: value for name, value in flags.items() if value is not None}
    return AssignOptions(**run.settings.assign.model_dump() | given)


def _groups(model: SavedModel, cut: AssignOptions) -> tuple[int, ...]:
    """Smallest cluster number in the group of each cluster; empty if each keeps its index."""
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
    place=OutputKind(mark=NOT_PRIVATE, allowed_by="assign").place,
    resolve=with_features,
)
