"""The `fit` job without privacy: k-FED, pooled k-means or Lloyd's rounds without noise, for the trusted zone."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.client_staging import JobRows, staged_by_client
from pipelines.graph import run_graph
from pipelines.options import JobOptions
from pipelines.prepared_fit import feature_count, feature_names, learned_encoder
from pipelines.run_folder import KEY_FILE, RunFolder
from pipelines.trusted_output import check_apart
from pipelines.versions import versions
from schemas.choices import LloydStart, PooledAlgorithm
from schemas.config import config_digest
from schemas.model import ClusterModel
from schemas.model_job import NOT_PRIVATE, NOT_PRIVATE_METADATA
from schemas.pooled_config import PooledFitConfig, pooled
from schemas.table import TableContract
from transforms import plain_lloyd
from transforms.dp_lloyd_state import LloydState
from transforms.keys import create_key, delete_key
from transforms.plain_lloyd import RunPlainLloyd
from transforms.pooled_kmeans import ClusterByClient, ClusterPooledRows
from transforms.publish import CENTERS_FILE, read_bytes, table_bytes, table_from_bytes, write_bytes
from transforms.read import CheckRows, ListShards, read_server_points
from transforms.table_snapshots import resolve

_LOGGER = logging.getLogger(__name__)


def job_rows(config: PooledFitConfig) -> JobRows:
    """The rows of a job, for staging; k-FED and client weights need clients whole.

    Raises:
      DappleError: if the server data or the snapshot cannot be used.
    """
    source, encoder = resolve(config.data), learned_encoder(config)
    width = feature_count(config.data, source, encoder) if config.algorithm is PooledAlgorithm.DP_LLOYD else None
    contract = TableContract.from_config(config.data, n_features=width, by_client=config.by_client, encoder=encoder)
    return JobRows(data=config.data, source=source, contract=contract, prepare=config.prepare)


def centers(
    shards: beam.PCollection, config: PooledFitConfig, contract: TableContract, label: str = "Cluster"
) -> beam.PCollection:
    """Adds the algorithm to a pipeline; one element, centers of shape (n_clusters, n_features), not private."""
    cluster: beam.PTransform
    if config.algorithm is PooledAlgorithm.K_FED:
        cluster = ClusterByClient(
            contract=contract, n_clusters=config.n_clusters, options=config.k_fed, seed=config.seed
        )
    elif config.algorithm is PooledAlgorithm.DP_LLOYD:
        cluster = RunPlainLloyd(contract=contract, initial=_lloyd_start(config, contract))
    else:
        cluster = ClusterPooledRows(
            contract=contract, n_clusters=config.n_clusters, options=config.optimal, seed=config.seed
        )
    return shards | label >> cluster


def _lloyd_start(config: PooledFitConfig, contract: TableContract) -> LloydState:
    """State before the rounds of Lloyd's algorithm, from public data."""
    server = np.zeros((0, contract.n_features or 0))
    if config.lloyd_options.start is LloydStart.SERVER_KMEANSPP and config.server_data is not None:
        public = TableContract.from_config(config.data, encoder=learned_encoder(config)).features_only()
        server = read_server_points(config.server_data.path, public)
    return plain_lloyd.initial_state(config, server)


def build(root: beam.Pipeline, config: PooledFitConfig, rows: JobRows, folder: str) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      config: the job.
      rows: its rows as they can be read.
      folder: private; exists; the centers go there.
    """
    shards = root | "List" >> ListShards(source=rows.source, contract=rows.contract)
    _ = shards | "CheckRows" >> CheckRows()
    _ = centers(shards, config, rows.contract) | "Write" >> beam.Map(_write_centers, folder)


def _write_centers(found: np.ndarray, folder: str) -> None:
    model = ClusterModel(centers=found, noisy_sizes=np.full(len(found), np.nan), releases=())
    table = model.centers_table().replace_schema_metadata(NOT_PRIVATE_METADATA)
    write_bytes(FileSystems.join(folder, CENTERS_FILE), table_bytes(table))


def execute(config: PooledFitConfig, options: PipelineOptions, folder: str) -> None:
    """Runs a job to its end; `centers.parquet` lies in the folder afterwards, as private as the input.

    Raises:
      DappleError: what stopped the run, in one sentence.
    """
    key_uri = FileSystems.join(folder, KEY_FILE)
    create_key(key_uri)
    try:
        with staged_by_client(job_rows(config), options, key_uri, folder) as rows:
            run_graph(functools.partial(build, config=config, rows=rows, folder=folder), options)
    finally:
        delete_key(key_uri)


def run(options: JobOptions, settings: Mapping[str, object]) -> dict[str, Any]:
    """The command: clusters, writes, and returns the summary that is printed last.

    Raises:
      DappleError: nothing has been written then.
    """
    config = pooled(settings)
    folder = RunFolder(options.output, options.run_id)
    check_apart(options.output)
    folder.check()
    _LOGGER.info("run %s: %s", options.run_id, NOT_PRIVATE["label"])
    with folder.opened():
        execute(config, options.beam, folder.staging)
        folder.adopt(CENTERS_FILE)
        width = table_from_bytes(read_bytes(folder.path(CENTERS_FILE))).schema.field("center").type.list_size
        folder.publish(_manifest(config, options.run_id, width))
    _LOGGER.info("done: %s; it is as private as the input", options.output)
    return {"run_id": options.run_id, "output": options.output, "epsilon": None, "delta": None}


def _manifest(config: PooledFitConfig, run_id: str, n_features: int) -> dict[str, Any]:
    """Content of `run.json`, without the list of files."""
    encoder = learned_encoder(config)
    return NOT_PRIVATE | {
        "run_id": run_id,
        "algorithm": str(config.algorithm),
        "features": list(feature_names(config.data.features, encoder, n_features)),
        "encoding": None if encoder is None else encoder.to_json(),
        "config_digest": config_digest(config),
        "versions": versions(),
    }
