"""Scores of released models on private rows.

Input element: `ShardRef`. Output elements: costs or `Metrics` by model. Guarantee: none. All results are
computed from exact rows and stay in the trusted zone; none may be broadcast in a private job or published.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsDict, AsList

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables import columns
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.schemas.trusted_zone.metrics import METRICS_FILE, ClassAgreement, Metrics, ReferenceMatch, Separation
from dapple_dp.transforms.files.file_bytes import write_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.trusted_zone import clustering_scores as scores
from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import (
    ClusteringSums,
    ModelCost,
    model_cost,
    row_ranks,
    scatter,
)
from dapple_dp.transforms.numerics.trusted_zone.exact_sum import ExactSum
from dapple_dp.transforms.rounds.merge import MergeFn
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables.shard_rows import ValidRows, prefetched_blocks, read_valid_rows, shard_name

Models = Mapping[Any, NearestCenters]


def _on_lattice(model: tuple[Any, np.ndarray]) -> tuple[Any, NearestCenters]:
    key, centers = model
    return key, NearestCenters.of(centers)


class _CostsFn(SmallBlocksFn):
    """Reads a shard once and computes its cost under every model; blocks are small, so BLAS gets one thread."""

    def __init__(self, contract: TableContract):
        self._contract = contract

    def process(self, shard: ShardRef, models: list) -> Iterator[tuple[Any, ModelCost]]:
        totals = {key: ModelCost.zeros(model.n_clusters) for key, model in models}
        for block in prefetched_blocks(shard, self._contract):
            for key, model in models:
                totals[key] = totals[key].merge(model_cost(block.points, model))
        yield from totals.items()


@dataclasses.dataclass(eq=False, kw_only=True)
class EvaluateModels(beam.PTransform):
    """`ShardRef`s → one (key, `ModelCost`) per model.

    A model's cost depends on the rows and on that model only: not on bundles, on the order of rows, or on the models
    beside it.

    Attributes:
      models: PCollection of (key, centers), centers float64 of shape (n_clusters, n_features), feature units; keys
        are distinct strings, integers or tuples of them.
      contract: reads shards.

    Windowing: global. Privacy: none, the output is as private as the input. Cost: one pass over the features for all
    models, one shuffle of a few hundred bytes per model and bundle.
    """

    models: beam.PCollection
    contract: TableContract

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Computes costs per shard and merges them per model."""
        models = AsList(self.models | "OnLattice" >> beam.Map(_on_lattice))
        return (
            shards | "Costs" >> beam.ParDo(_CostsFn(self.contract), models) | "Merge" >> beam.CombinePerKey(MergeFn())
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreParams:
    """Scores that an evaluation computes besides the cost.

    Attributes:
      contract: reads shards; not by client.
      label: column of classes, or None.
      sample_rows: number of rows for the silhouette.
      reference: centers to compare with, shape (n, n_features), or None.
    """

    contract: TableContract
    label: str | None = None
    sample_rows: int = 0
    reference: np.ndarray | None = None


class _SumsFn(SmallBlocksFn):
    """First pass: reads a shard once and adds up the sums that every model needs."""

    def __init__(self, params: ScoreParams):
        self._params = params

    def process(self, shard: ShardRef, models: Models) -> Iterator[tuple[Any, ClusteringSums]]:
        size = self._params.sample_rows
        totals = {key: ClusteringSums.zeros(model, size) for key, model in models.items()}
        for points, ranks, classes in _ranked_blocks(shard, self._params):
            for key, model in models.items():
                totals[key] = totals[key].merge(ClusteringSums.of(points, ranks, classes, model, size))
        yield from totals.items()


class _ScattersFn(SmallBlocksFn):
    """Second pass: computes distances to the means of every model's clusters."""

    def __init__(self, params: ScoreParams):
        self._params = params

    def process(
        self, shard: ShardRef, models: Models, means: Mapping[Any, np.ndarray]
    ) -> Iterator[tuple[Any, ExactSum]]:
        totals = {key: ExactSum.zeros((model.n_clusters, 2)) for key, model in models.items()}
        for block in prefetched_blocks(shard, self._params.contract):
            for key, model in models.items():
                totals[key] = totals[key].merge(scatter(block.points, model, means[key]))
        yield from totals.items()


def _ranked_blocks(
    shard: ShardRef, params: ScoreParams
) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[list, np.ndarray]]]:
    """Yields points (n, d) of valid rows in blocks, their ranks (n,) and classes, as for `ClusteringSums.of`."""
    digest = int.from_bytes(hashlib.blake2b(shard.path.encode(), digest_size=8).digest(), "little")
    others = {} if params.label is None else {params.label: pa.string()}
    for rows in read_valid_rows(shard, params.contract, others):
        yield rows.points, row_ranks(digest, rows.places), _classes(rows, params.label, shard)


def _classes(rows: ValidRows, label: str | None, shard: ShardRef) -> tuple[list, np.ndarray]:
    """Returns the names of the classes and the index of each row's; negative for a row without one."""
    if label is None:
        return [], np.full(len(rows.points), -1)
    column = rows.others.column(label)
    if not (columns.is_text(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        rule, remedy = "hold strings, integers or booleans", "cast it or name another column in evaluate.label"
        raise columns.mismatch(label, shard_name(shard), rule, str(column.type), remedy)
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    return encoded.dictionary.to_pylist(), pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy()


def _means(keyed: tuple[Any, ClusteringSums], models: Models) -> tuple[Any, np.ndarray]:
    key, sums = keyed
    if not sums.cost.n_rows:
        raise InputError("The data have no valid row; check data.path and partitions.")
    return key, sums.means(models[key])


def _metrics(
    keyed: tuple[Any, ClusteringSums], models: Models, scattered: Mapping[Any, ExactSum], params: ScoreParams
) -> tuple[Any, Metrics]:
    key, sums = keyed
    model, sizes = models[key], sums.cost.sizes
    metrics = Metrics(
        n_rows=sums.cost.n_rows,
        cost=scores.finite(sums.cost.cost),
        cluster_sizes=tuple(sizes.tolist()),
        separation=_separation(sums, scattered[key], model),
        classes=None if params.label is None else _agreement(sums),
        reference=None if params.reference is None else _match(model.centers, params.reference),
    )
    return key, metrics


def _separation(sums: ClusteringSums, scattered: ExactSum, model: NearestCenters) -> Separation:
    sizes, means, sample = sums.cost.sizes, sums.means(model), sums.sample
    widths = scattered.over(sizes[:, None])[:, 0]
    return Separation(
        davies_bouldin=scores.davies_bouldin(sizes, means, widths),
        calinski_harabasz=scores.calinski_harabasz(sizes, means, sums.mean(model), scattered.value[:, 1]),
        silhouette=scores.silhouette(sample.points, sample.labels) if len(sample.labels) else None,
        silhouette_rows=len(sample.labels),
    )


def _agreement(sums: ClusteringSums) -> ClassAgreement:
    table = sums.contingency.table
    if not table.size:
        raise InputError("evaluate.label names a column that is null in all rows; name another.")
    return ClassAgreement(
        adjusted_rand=scores.adjusted_rand(table),
        fowlkes_mallows=scores.fowlkes_mallows(table),
        labelled_rows=int(table.sum()),
    )


def _match(centers: np.ndarray, reference: np.ndarray) -> ReferenceMatch:
    error, n_pairs = scores.matched_error(centers, reference)
    return ReferenceMatch(centroid_mse=scores.finite(error), matched_centers=n_pairs)


@dataclasses.dataclass(eq=False, kw_only=True)
class ScoreModels(beam.PTransform):
    """`ShardRef`s → one (key, `Metrics`) per model.

    Attributes:
      models: PCollection of (key, centers), centers float64 of shape (n_clusters, n_features), feature units; keys
        are distinct.
      params: contract of the shards, and the scores to compute.

    Windowing: global. Privacy: none, the output is as private as the input. Cost: two passes over the features for all
    models, two shuffles; a bundle sends a sample of rows per model.
    """

    models: beam.PCollection
    params: ScoreParams

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Computes sums, then distances to their means, then scores."""
        models = AsDict(self.models | "OnLattice" >> beam.Map(_on_lattice))
        sums = shards | "Sums" >> beam.ParDo(_SumsFn(self.params), models) | "Merge" >> beam.CombinePerKey(MergeFn())
        means = AsDict(sums | "Means" >> beam.Map(_means, models))
        scattered = (
            shards
            | "Scatter" >> beam.ParDo(_ScattersFn(self.params), models, means)
            | "MergeScatter" >> beam.CombinePerKey(MergeFn())
        )
        return sums | "Scores" >> beam.Map(_metrics, models, AsDict(scattered), self.params)


def _write_metrics(keyed: tuple[Any, Metrics], folder: str) -> None:
    write_bytes(join(folder, METRICS_FILE), keyed[1].to_json().encode())


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteMetrics(beam.PTransform):
    """(key, `Metrics`) of one model → `metrics.json` in a folder of the trusted zone; a retried bundle writes it again.

    Attributes:
      folder: private; exists.
    """

    folder: str

    def expand(self, metrics: beam.PCollection) -> beam.PCollection:
        """Writes the file."""
        return metrics | "Write" >> PrivateSink(write=_write_metrics, places=(self.folder,))
