"""The `prepare` job: groups data in any order into files sharded by client, in the trusted zone."""

import contextlib
import dataclasses
import functools
import logging

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind
from dapple_dp.pipelines.run.failures import reported
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.options import runs_in_process, spilling
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import private_source, staged_listing
from dapple_dp.pipelines.tables.resources import check_room
from dapple_dp.schemas.core.plan import TRUSTED_ZONE, Zone
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.jobs.model_job import PrepareConfig, load_prepare_config
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.prepared_layout import MANIFEST_FILE, PreparedManifest
from dapple_dp.transforms.rounds.local_rows import LocalRows
from dapple_dp.transforms.tables.group_clients import (
    GroupClients,
    SamplingParams,
    Windows,
    WriteManifest,
    group_clients,
    write_manifest,
)
from dapple_dp.transforms.tables.prepared_files import read_manifest
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Options for grouping rows by client.

    Attributes:
      contract: contract of the rows, by client.
      folder: existing private folder.
      n_shards: largest number of files; None to choose it by the size of the data.
      max_rows: largest number of rows to keep per client; None for all.
      key_uri: place where workers read the key that selects rows; needed with `max_rows`.
      windows: windows of an epoch, grouped separately and without a manifest.
      spill: whether rows go through files in the folder instead of the runner.
    """

    contract: TableContract
    folder: str
    n_shards: int | None = None
    max_rows: int | None = None
    key_uri: str | None = None
    windows: Windows | None = None
    spill: bool = False

    @property
    def sampling(self) -> SamplingParams | None:
        """Parameters to sample each client's rows; None to keep all."""
        if self.max_rows is None or self.key_uri is None:
            return None
        return SamplingParams(max_rows=self.max_rows, key_uri=self.key_uri)


def build(root: beam.Pipeline, source: Source, grouping: Grouping) -> None:
    """Adds the job to an empty pipeline."""
    max_rows = grouping.max_rows
    contract, folder = grouping.contract, grouping.folder
    shards = root | "List" >> ListShards(source=source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    files = shards | "GroupClients" >> GroupClients(
        contract=contract,
        folder=folder,
        n_shards=grouping.n_shards,
        sampling=grouping.sampling,
        windows=grouping.windows,
        spill=grouping.spill,
    )
    if grouping.windows is not None:
        return
    _ = files | "Manifest" >> WriteManifest(
        contract=contract.encoded(), folder=folder, max_rows=max_rows, snapshot=source.snapshot
    )


def group(source: Source, options: PipelineOptions, grouping: Grouping) -> None:
    """Groups rows by client; local runners pass rows through files, so that memory stays flat.

    Raises:
      DappleError: if the run fails.
    """
    if runs_in_process(options):
        with reported():
            _group_in_process(source, grouping)
        return
    with spilling(grouping.folder, options) as spill:
        grouping = dataclasses.replace(grouping, spill=spill is not None)
        run_graph(functools.partial(build, source=source, grouping=grouping), options, TRUSTED_ZONE)


def _group_in_process(source: Source, grouping: Grouping) -> None:
    """Writes the same files as `build`, without Beam."""
    contract, folder, max_rows = grouping.contract, grouping.folder, grouping.max_rows
    shards = LocalRows(source).shards(contract)
    files = group_clients(shards, contract, folder, grouping.n_shards, grouping.sampling)
    write_manifest(files, folder, contract.encoded(), max_rows, source.snapshot)


def _work(run: Run[PrepareConfig], config: PrepareConfig) -> PreparedManifest:
    """Groups the rows; files and manifest are in the staging folder afterwards."""
    folder = run.folder.staging
    data = config.data
    kept = frozenset(data.missing)
    contract = dataclasses.replace(TableContract.from_config(data, by_client=True), may_miss=kept)
    hold = contextlib.nullcontext() if data.max_rows_per_client is None else own_key(folder)
    private = private_source(config)
    with hold as key_uri, staged_listing(private, folder) as source:
        check_room(private.listed, folder)
        grouping = Grouping(
            contract=contract,
            folder=folder,
            n_shards=config.prepare.n_shards,
            max_rows=data.max_rows_per_client,
            key_uri=key_uri,
        )
        group(source, run.options.beam, grouping)
    manifest = read_manifest(folder)
    if manifest is None:
        raise ConfigError(
            f"--output must be a folder that workers and launcher share, got {folder}; choose another place."
        )
    return manifest


def _plan(run: Run[PrepareConfig]) -> PrepareConfig:
    _LOGGER.info("run %s: grouping rows by client", run.options.run_id)
    return run.settings


def _write(run: Run[PrepareConfig], config: PrepareConfig, manifest: PreparedManifest) -> Outcome:
    return Outcome(UNPROTECTED, {"files": [file.name for file in manifest.files]})


JOB = Job(
    "prepare",
    load_prepare_config,
    _plan,
    _work,
    _write,
    Zone.TRUSTED,
    shows="",
    place=OutputKind(manifest=MANIFEST_FILE).place,
    resolve=with_features,
)
