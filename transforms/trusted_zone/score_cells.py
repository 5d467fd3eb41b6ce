"""Scores of many models of the same rows, in two passes for all of them.

Input element: `ShardRef`. Output element: (key of a model, its `Metrics`). Guarantee: none, as of `evaluate_models`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict

from schemas.tables.shard import ShardRef
from schemas.trusted_zone.metrics import Metrics
from transforms.numerics.statistics.exact_sum import ExactSum
from transforms.numerics.statistics.nearest import NearestCenters
from transforms.numerics.trusted_zone.clustering_sums import ClusteringSums, scatter
from transforms.rounds.exact_sums import MergeFn
from transforms.rounds.small_blocks import SmallBlocksFn
from transforms.tables.shard_rows import prefetched_blocks
from transforms.trusted_zone.evaluate_models import ScoreParams, cluster_means, metrics_of, ranked_blocks

Models = Mapping[Any, NearestCenters]


def _on_lattice(model: tuple[Any, np.ndarray]) -> tuple[Any, NearestCenters]:
    key, centers = model
    return key, NearestCenters.of(centers)


class _AllSumsFn(SmallBlocksFn):
    """First pass: reads a shard once and adds up what every model needs of it."""

    def __init__(self, params: ScoreParams):
        self._params = params

    def process(self, shard: ShardRef, models: Models) -> Iterator[tuple[Any, ClusteringSums]]:
        size = self._params.sample_rows
        totals = {key: ClusteringSums.zeros(model, size) for key, model in models.items()}
        for points, ranks, classes in ranked_blocks(shard, self._params):
            for key, model in models.items():
                totals[key] = totals[key].merge(ClusteringSums.of(points, ranks, classes, model, size))
        yield from totals.items()


class _AllScattersFn(SmallBlocksFn):
    """Second pass: distances to the means of every model's clusters."""

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


def _keyed_means(keyed: tuple[Any, ClusteringSums], models: Models, params: ScoreParams) -> tuple[Any, np.ndarray]:
    key, sums = keyed
    return key, cluster_means(sums, dataclasses.replace(params, model=models[key]))


def _keyed_metrics(
    keyed: tuple[Any, ClusteringSums], models: Models, scattered: Mapping[Any, ExactSum], params: ScoreParams
) -> tuple[Any, Metrics]:
    key, sums = keyed
    return key, metrics_of(sums, scattered[key], dataclasses.replace(params, model=models[key]))


@dataclasses.dataclass(eq=False, kw_only=True)
class ScoreModels(beam.PTransform):
    """`ShardRef`s → one (key, `Metrics`) per model.

    Attributes:
      models: PCollection of (key, centers), centers float64 of shape (n_clusters, n_features), feature units; keys
        are distinct.
      params: how shards are read, and what is scored; the model in it stands for all of them.

    Windowing: global. Privacy: none, the output is as private as the input. Cost: two passes over the features for all
    models, two shuffles; a bundle sends a sample of rows per model.
    """

    models: beam.PCollection
    params: ScoreParams

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Sums, then distances to the means they give, then scores."""
        models = AsDict(self.models | "OnLattice" >> beam.Map(_on_lattice))
        sums = shards | "Sums" >> beam.ParDo(_AllSumsFn(self.params), models) | "Merge" >> beam.CombinePerKey(MergeFn())
        means = AsDict(sums | "Means" >> beam.Map(_keyed_means, models, self.params))
        scattered = (
            shards
            | "Scatter" >> beam.ParDo(_AllScattersFn(self.params), models, means)
            | "MergeScatter" >> beam.CombinePerKey(MergeFn())
        )
        return sums | "Scores" >> beam.Map(_keyed_metrics, models, AsDict(scattered), self.params)
