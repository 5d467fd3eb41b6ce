"""The `fit` job without privacy: pooled k-means, for the trusted zone."""

import functools
import logging
from typing import Any

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.jobs.job import UNPROTECTED, Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind
from dapple_dp.pipelines.kmeans.plan.public_facts import feature_names, learned_encoder, server_files
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.pipelines.tables.client_staging import staged_by_client
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import JobRows, private_source
from dapple_dp.schemas.core.plan import TRUSTED_ZONE, Zone
from dapple_dp.schemas.kmeans.jobs.pooled_config import PooledFitConfig, validated_pooled
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.trusted_zone.metrics import NOT_PRIVATE, NOT_PRIVATE_METADATA
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.files.untrusted import TableForm
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source
from dapple_dp.transforms.trusted_zone.pooled_kmeans import ClusterPooledRows

_LOGGER = logging.getLogger(__name__)


def job_rows(config: PooledFitConfig, listed: Source | None = None) -> JobRows:
    """Rows of a job, for staging.

    Args:
      config: the job.
      listed: files of the job, if a larger job has listed them.

    Raises:
      DappleError: if the server data or the snapshot can't be used.
    """
    source = private_source(config, listed)
    server = server_files(config.server_data, config.data, source)
    encoder = learned_encoder(config.data, config.encode, server)
    contract = TableContract.from_config(config.data, encoder=encoder)
    return JobRows(data=config.data, source=source, contract=contract)


def centers(
    shards: beam.PCollection, config: PooledFitConfig, contract: TableContract, label: str = "Cluster"
) -> beam.PCollection:
    """Adds the algorithm to a pipeline; returns one element, centers of shape (n_clusters, n_features), not private."""
    return shards | label >> ClusterPooledRows(contract=contract, n_clusters=config.n_clusters, seed=config.seed)


def build(root: beam.Pipeline, config: PooledFitConfig, rows: JobRows, folder: str) -> None:
    """Adds the job to an empty pipeline; centers go to `folder`, an existing private folder."""
    shards = root | "List" >> ListShards(source=rows.source, contract=rows.contract)
    _ = shards | "CheckRows" >> CheckRows()
    sink = PrivateSink(write=_write_centers, places=(folder,))
    _ = centers(shards, config, rows.contract) | "Write" >> sink


def _write_centers(found: np.ndarray, folder: str) -> None:
    model = ClusterModel(centers=found, noisy_sizes=np.full(len(found), np.nan), releases=())
    table = model.centers_table().replace_schema_metadata(NOT_PRIVATE_METADATA)
    write_bytes(join(folder, CENTERS_FILE), table_bytes(table))


def _plan(run: Run[PooledFitConfig]) -> PooledFitConfig:
    _LOGGER.info("run %s: %s", run.options.run_id, NOT_PRIVATE["label"])
    return run.settings


def _work(run: Run[PooledFitConfig], config: PooledFitConfig) -> Encoder | None:
    """Writes `centers.parquet`, as private as the input, into the staging folder; returns the encoder of the rows."""
    folder, options, given = run.folder.staging, run.options.beam, job_rows(config)
    with own_key(folder) as key_uri, staged_by_client(given, options, key_uri, folder) as rows:
        run_graph(functools.partial(build, config=config, rows=rows, folder=folder), options, TRUSTED_ZONE)
    # Rows of a grouped copy are encoded already and have no encoder, so take the given one.
    return given.contract.encoder


def _write(run: Run[PooledFitConfig], config: PooledFitConfig, encoder: Encoder | None) -> Outcome:
    run.folder.adopt(CENTERS_FILE)
    path = run.folder.path(CENTERS_FILE)
    centers_table = untrusted.read_table(
        path, untrusted.staged_refusal(path), TableForm.by_size(n_rows=config.n_clusters)
    )
    return Outcome(UNPROTECTED, _manifest(config, encoder, centers_table.schema.field("center").type.list_size))


def _manifest(config: PooledFitConfig, encoder: Encoder | None, n_features: int) -> dict[str, Any]:
    return {
        "algorithm": str(config.algorithm),
        "features": list(feature_names(config.data.features, encoder, n_features)),
        "encoding": None if encoder is None else encoder.to_json(),
        "config_digest": config_digest(config),
    }


JOB = Job(
    name="fit",
    load=lambda text: validated_pooled(yaml_text.parse(text)),  # type: ignore[arg-type]
    plan=_plan,
    work=_work,
    write=_write,
    zone=Zone.TRUSTED,
    shows="",
    place=OutputKind(mark=NOT_PRIVATE).place,
    resolve=with_features,
)
