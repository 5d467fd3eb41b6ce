"""Pooled k-means without privacy, for comparison; its output is as private as the input.

Input element: `ShardRef`. Output element: centers, shape (n_clusters, n_features), feature units, exactly one.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.tables.row_sampling import order_of_rows
from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import MeanSums, RowSample, row_ranks
from dapple_dp.transforms.rounds.merge import MergeFn
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables.shard_rows import prefetched_blocks
from dapple_dp.transforms.trusted_zone.evaluate_models import EvaluateModels

Starts = tuple[np.ndarray, ...]
"""Centers of every start, feature units."""
SAMPLE_ROWS, RESTARTS, STARTS, STEPS = 20_000, 20, 4, 15
"""Pooled k-means: rows of the sample, k-means runs on it, and Lloyd rounds over all rows for the best of these."""


def _sample(shard: ShardRef, contract: TableContract, size: int) -> Iterator[RowSample]:
    place = hashlib.blake2b(f"{shard.path}\n{shard.row_group}".encode(), digest_size=8)
    digest, seen = int.from_bytes(place.digest(), "little"), 0
    for block in prefetched_blocks(shard, contract):
        ranks = row_ranks(digest, np.arange(seen, seen + len(block.points)))
        seen += len(block.points)
        if len(block.points):
            yield RowSample.of(size, ranks, block.points, np.zeros(len(block.points), dtype=np.int64))


def _start(sample: RowSample | None, n_clusters: int, seed: int) -> Starts:
    if sample is None or len(sample.points) < n_clusters:
        raise InputError(f"n_clusters must be at most the number of rows, got {n_clusters}; ask for fewer clusters.")
    points = sample.points[order_of_rows(sample.points)]
    return tuple(seeding.best_starts(points, n_clusters, RESTARTS, STARTS, seed))


class _Sums(NamedTuple):
    """Sums of all starts, in order."""

    each: tuple[MeanSums, ...]

    def merge(self, other: "_Sums") -> "_Sums":
        return _Sums(tuple(mine.merge(theirs) for mine, theirs in zip(self.each, other.each, strict=True)))


class _SumsFn(SmallBlocksFn):
    """Computes sizes and sums of the clusters of every start, by one pass over a shard."""

    def __init__(self, contract: TableContract):
        self._contract = contract

    def process(self, shard: ShardRef, starts: Starts) -> Iterator[_Sums]:
        models = [NearestCenters.of(centers) for centers in starts]
        for block in prefetched_blocks(shard, self._contract):
            if len(block.points):
                yield _Sums(tuple(MeanSums.of(block.points, model) for model in models))


def _means(sums: _Sums, starts: Starts) -> Starts:
    return tuple(each.means(NearestCenters.of(centers)) for each, centers in zip(sums.each, starts, strict=True))


def _numbered(starts: Starts) -> Iterator[tuple[int, np.ndarray]]:
    yield from enumerate(starts)


def _cheapest(costs: list, starts: Starts) -> np.ndarray:
    return starts[min(costs, key=lambda keyed: (keyed[1].cost, keyed[0]))[0]]


@dataclasses.dataclass(eq=False, kw_only=True)
class ClusterPooledRows(beam.PTransform):
    """Pooled k-means: `ShardRef`s → the centers of the cheapest of several starts.

    Starts are the best of many k-means runs on a sample of the rows (on all of them if they are few), each followed
    by Lloyd rounds over all rows. A sample depends on the files' paths; if it holds all rows, the centers are the
    same for all files and orders of rows.

    Attributes:
      contract: reads shards.
      n_clusters: >= 1.
      seed: public.

    Privacy: none. Cost: `STEPS` + 2 passes, for all starts together.
    """

    contract: TableContract
    n_clusters: int
    seed: int

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Draws a sample and starts, then runs Lloyd rounds and compares costs."""
        starts = (
            shards
            | "Sample" >> beam.FlatMap(_sample, self.contract, SAMPLE_ROWS)
            | "MergeSamples" >> beam.CombineGlobally(MergeFn())
            | "Start" >> beam.Map(_start, self.n_clusters, self.seed)
        )
        for step in range(STEPS):
            starts = (
                shards
                | f"Sums{step}" >> beam.ParDo(_SumsFn(self.contract), AsSingleton(starts))
                | f"Merge{step}" >> beam.CombineGlobally(MergeFn()).without_defaults()
                | f"Means{step}" >> beam.Map(_means, AsSingleton(starts))
            )
        costs = shards | "Costs" >> EvaluateModels(
            models=starts | "Number" >> beam.FlatMap(_numbered), contract=self.contract
        )
        return costs | "Gather" >> beam.combiners.ToList() | "Cheapest" >> beam.Map(_cheapest, AsSingleton(starts))
