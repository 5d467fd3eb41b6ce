"""Clusterings without privacy, for comparison: k-FED and pooled k-means. Their output is as private as the input.

Input element: `ShardRef`. Output element: centers, shape (n_clusters, n_features), feature units, exactly one.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from threadpoolctl import threadpool_limits

from schemas.errors import InputError
from schemas.pooled_config import KFedOptions, OptimalOptions
from schemas.shard import ShardRef
from schemas.table import TableContract
from transforms.aggregation import MergeFn, SumPresentVectorsFn
from transforms.evaluate_models import EvaluateModels
from transforms.numerics import lattice, seeding, statistics
from transforms.numerics.assignment import Assigner
from transforms.numerics.clustering_sums import RowSample, row_ranks
from transforms.numerics.federated_kmeans import LocalCenters, local_centers, merged_centers
from transforms.numerics.frame import Frame, SharedFrame
from transforms.numerics.lattice import Lattice
from transforms.read import prefetched_blocks, read_blocks


class _LocalCentersFn(beam.DoFn):
    """Clusters every client of a shard by itself."""

    def __init__(self, contract: TableContract, n_clusters: int, options: KFedOptions, seed: int):
        self._contract = contract
        self._n_clusters = options.local_clusters or n_clusters
        self._restarts = options.restarts
        self._seed = seed

    def process(self, shard: ShardRef) -> Iterator[LocalCenters]:
        """One element per client."""
        for block in read_blocks(shard, self._contract):
            for start, stop in zip(block.client_offsets[:-1], block.client_offsets[1:], strict=True):
                if stop > start:
                    yield local_centers(block.points[start:stop], self._n_clusters, self._restarts, self._seed)


def _merged(clients: list, n_clusters: int, seed: int) -> np.ndarray:
    found = sum(len(each.centers) for each in clients)
    if found < n_clusters:
        raise InputError(
            f"n_clusters must be at most the number of centers that clients find, got {n_clusters}; "
            "ask for fewer clusters or more k_fed.local_clusters."
        )
    return merged_centers(clients, n_clusters, seed)


@dataclasses.dataclass(eq=False, kw_only=True)
class ClusterByClient(beam.PTransform):
    """k-FED: `ShardRef`s → centers.

    Attributes:
      contract: how shards are read; by client, clients whole in their shards.
      n_clusters: >= 1.
      options: of the algorithm.
      seed: public.

    Privacy: none. Cost: one pass; all clients' centers meet on one worker.
    """

    contract: TableContract
    n_clusters: int
    options: KFedOptions
    seed: int

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Clusters clients, then their centers."""
        local = _LocalCentersFn(self.contract, self.n_clusters, self.options, self.seed)
        return (
            shards
            | "Local" >> beam.ParDo(local)
            | "Collect" >> beam.combiners.ToList()
            | "Server" >> beam.Map(_merged, self.n_clusters, self.seed)
        )


class _Reach(NamedTuple):
    """A sample of rows, and the largest norm of all rows."""

    sample: RowSample
    largest: float

    def merge(self, other: "_Reach") -> "_Reach":
        """That of both."""
        return _Reach(self.sample.merge(other.sample), max(self.largest, other.largest))


def _reach(shard: ShardRef, contract: TableContract, size: int) -> Iterator[_Reach]:
    place = hashlib.blake2b(f"{shard.path}\n{shard.row_group}".encode(), digest_size=8)
    digest, seen = int.from_bytes(place.digest(), "little"), 0
    for block in prefetched_blocks(shard, contract):
        points = block.points
        ranks = row_ranks(digest, np.arange(seen, seen + len(points)))
        seen += len(points)
        sample = RowSample.of(size, ranks, points, np.zeros(len(points), dtype=np.int64))
        norms = lattice.row_norms(points, np.zeros(points.shape[1])) if len(points) else np.zeros(1)
        yield _Reach(sample, float(norms.max()))


class _Lloyd(NamedTuple):
    """Pooled k-means on its way: `centers`, lattice integers, one matrix per start."""

    frame: Frame
    centers: tuple[np.ndarray, ...]


def _start(reach: _Reach, n_clusters: int, options: OptimalOptions, seed: int) -> _Lloyd:
    rows = reach.sample.points
    if len(rows) < n_clusters:
        raise InputError(f"n_clusters must be at most the number of rows, got {n_clusters}; ask for fewer clusters.")
    frame = Frame(Lattice(np.zeros(rows.shape[1]), max(reach.largest, 1e-100) * (1.0 + 1e-5)))
    best = seeding.best_starts(rows, n_clusters, options.restarts, min(options.starts, options.restarts), seed)
    return _Lloyd(frame, tuple(frame.quantize(each, lattice.SUM_BITS) for each in best))


class _MeansFn(beam.DoFn):
    """Sums and counts of every start, and its cost, by one pass over a shard."""

    def __init__(self, contract: TableContract):
        self._contract = contract

    def setup(self) -> None:
        """Keeps BLAS from starting threads for small blocks."""
        threadpool_limits(limits=1)

    def process(self, shard: ShardRef, lloyd: _Lloyd) -> Iterator[np.ndarray]:
        """One vector, the starts one after the other."""
        frame = SharedFrame(*lloyd.frame)
        total = np.zeros(sum(each.size + len(each) for each in lloyd.centers), dtype=np.int64)
        for block in prefetched_blocks(shard, self._contract):
            found = [statistics.sums_and_counts(block.points, frame, Assigner(each)) for each in lloyd.centers]
            total += np.concatenate(found)
            frame.forget()
        yield total


def _next(total: np.ndarray, lloyd: _Lloyd) -> _Lloyd:
    """Means of the clusters; an empty one stays where it is."""
    centers, done = [], 0
    for each in lloyd.centers:
        sums = total[done : done + each.size].reshape(each.shape)
        counts = total[done + each.size : done + each.size + len(each)] / lattice.SUM_UNITS
        means = np.rint(sums / np.maximum(counts, 1.0)[:, None])
        centers.append(np.where(counts[:, None] > 0, means, each))
        done += each.size + len(each)
    return lloyd._replace(centers=tuple(centers))


def _named(lloyd: _Lloyd) -> Iterator[tuple[int, np.ndarray]]:
    unit = lloyd.frame.lattice.unit(lattice.SUM_BITS)
    yield from ((number, each * unit) for number, each in enumerate(lloyd.centers))


def _cheapest(costs: list, lloyd: _Lloyd) -> np.ndarray:
    number = min(costs, key=lambda keyed: (keyed[1].cost, keyed[0]))[0]
    return dict(_named(lloyd))[number]


@dataclasses.dataclass(eq=False, kw_only=True)
class ClusterPooledRows(beam.PTransform):
    """Pooled k-means: `ShardRef`s → the centers of the cheapest of several starts.

    Starts are the best of many k-means runs on a sample of the rows (on all of them if they are few), each followed
    by Lloyd rounds over all rows.

    Attributes:
      contract: how shards are read.
      n_clusters: >= 1.
      options: of the algorithm.
      seed: public.

    Privacy: none. Cost: `options.steps` + 2 passes, for all starts together.
    """

    contract: TableContract
    n_clusters: int
    options: OptimalOptions
    seed: int

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Sample, starts, Lloyd rounds, costs."""
        lloyd = (
            shards
            | "Sample" >> beam.FlatMap(_reach, self.contract, self.options.sample_rows)
            | "MergeSamples" >> beam.CombineGlobally(MergeFn()).without_defaults()
            | "Start" >> beam.Map(_start, self.n_clusters, self.options, self.seed)
        )
        for step in range(self.options.steps):
            lloyd = (
                shards
                | f"Means{step}" >> beam.ParDo(_MeansFn(self.contract), AsSingleton(lloyd))
                | f"Sum{step}" >> beam.CombineGlobally(SumPresentVectorsFn()).without_defaults()
                | f"Next{step}" >> beam.Map(_next, AsSingleton(lloyd))
            )
        costs = shards | "Costs" >> EvaluateModels(
            models=lloyd | "Named" >> beam.FlatMap(_named), contract=self.contract
        )
        return costs | "Gather" >> beam.combiners.ToList() | "Cheapest" >> beam.Map(_cheapest, AsSingleton(lloyd))
