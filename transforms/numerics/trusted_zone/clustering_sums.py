"""Sums of an evaluation over rows: sufficient statistics that merge exactly, in any order."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters, NearestRows, squared_distances
from dapple_dp.transforms.numerics.tables.partition import mix
from dapple_dp.transforms.numerics.trusted_zone.exact_sum import ExactSum

MOST_CLASSES = 10_000
"""Most distinct values of a column of classes."""
_FINEST = -900
"""Exponent of the finest unit to which rows are rounded."""


class ModelCost(NamedTuple):
    """Rows per cluster and their cost.

    Attributes:
      sizes: int64, shape (n_clusters,).
      squared: the sum of squared distances to the nearest center, feature units squared; shape ().
    """

    sizes: NDArray[np.int64]
    squared: ExactSum

    @classmethod
    def zeros(cls, n_clusters: int) -> Self:
        """Creates the neutral element."""
        return cls(np.zeros(n_clusters, dtype=np.int64), ExactSum.zeros())

    @classmethod
    def of(cls, rows: NearestRows, n_clusters: int) -> Self:
        """Computes the cost of some rows."""
        return cls(np.bincount(rows.labels, minlength=n_clusters), ExactSum.of(rows.squared))

    def merge(self, other: "ModelCost") -> "ModelCost":
        """Returns the cost of both."""
        return ModelCost(self.sizes + other.sizes, self.squared.merge(other.squared))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.sizes.sum())

    @property
    def cost(self) -> float:
        """Mean squared distance, feature units squared; NaN without rows, infinite past float64's range."""
        return float(self.squared.over(self.n_rows))


def model_cost(points: NDArray[np.floating], model: NearestCenters) -> ModelCost:
    """Returns exact sizes and cost of some rows, as for `NearestCenters.rows`, under one model.

    The cost agrees with exact arithmetic to about seven digits per row; those of any split of the rows merge to the
    same value.
    """
    return ModelCost.of(model.rows(points), model.n_clusters)


class MeanSums(NamedTuple):
    """Sums from which the means of clusters are computed.

    Attributes:
      sizes: int64, shape (n_clusters,).
      offsets: sums of rows less the model's origin, shape (n_clusters, n_features), feature units.
    """

    sizes: NDArray[np.int64]
    offsets: ExactSum

    @classmethod
    def of(cls, points: NDArray[np.floating], model: NearestCenters) -> Self:
        """Computes sums of some rows, rounded to 2**-42 of the model's radius, which halves the time.

        Args:
          points: shape (n_rows, n_features), feature units, finite.
          model: of as many features.
        """
        labels, unit = model.labels(points), 2.0 ** max(model.exponent - 20, _FINEST)
        with np.errstate(over="ignore"):
            rounded = np.rint(_offsets(points, model) / unit) * unit
        sizes = np.bincount(labels, minlength=model.n_clusters)
        return cls(sizes, ExactSum.grouped(rounded, labels, model.n_clusters))

    def merge(self, other: "MeanSums") -> "MeanSums":
        """Returns the sums of both."""
        return MeanSums(self.sizes + other.sizes, self.offsets.merge(other.offsets))

    def means(self, model: NearestCenters) -> NDArray[np.float64]:
        """Returns the means, shape (n_clusters, n_features); an empty cluster keeps its center."""
        means = model.origin + self.offsets.over(self.sizes[:, None])
        return np.where(self.sizes[:, None] > 0, means, model.centers)


class Contingency(NamedTuple):
    """Rows per class and cluster.

    Attributes:
      counts: by class; int64, shape (n_clusters,) each.
    """

    counts: dict[str, NDArray[np.int64]]

    @classmethod
    def of(cls, classes: Sequence[str], codes: NDArray[np.int64], labels: NDArray[np.int64], n_clusters: int) -> Self:
        """Counts some rows.

        Args:
          classes: distinct names.
          codes: shape (n_rows,): index of each row's class, or negative for a row without one.
          labels: shape (n_rows,), in [0, n_clusters).
          n_clusters: at least 1.
        """
        known = codes >= 0
        cells = np.bincount(codes[known] * n_clusters + labels[known], minlength=len(classes) * n_clusters)
        return cls(dict(zip(classes, cells.reshape(len(classes), n_clusters), strict=True)))._checked()

    def merge(self, other: "Contingency") -> "Contingency":
        """Returns the counts of both."""
        counts = dict(self.counts)
        for name, row in other.counts.items():
            counts[name] = counts[name] + row if name in counts else row
        return Contingency(counts)._checked()

    def _checked(self) -> Self:
        """Returns itself; raises InputError if the column can't be one of classes."""
        if len(self.counts) > MOST_CLASSES:
            raise InputError(
                f"evaluate.label must name a column of at most {MOST_CLASSES} distinct values, got more; "
                "name a column of classes."
            )
        return self

    @property
    def table(self) -> NDArray[np.int64]:
        """Table of shape (n_classes, n_clusters); classes sorted by name."""
        return np.array([self.counts[name] for name in sorted(self.counts)], dtype=np.int64)


class RowSample(NamedTuple):
    """The rows of lowest rank among those seen so far.

    Attributes:
      size: largest size of the sample.
      ranks: uint64, shape (n,), ascending.
      points: float64, shape (n, n_features), feature units.
      labels: int64, shape (n,): clusters.
    """

    size: int
    ranks: NDArray[np.uint64]
    points: NDArray[np.float64]
    labels: NDArray[np.int64]

    @classmethod
    def zeros(cls, size: int, n_features: int) -> Self:
        """Creates the neutral element."""
        return cls(size, np.zeros(0, dtype=np.uint64), np.zeros((0, n_features)), np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, size: int, ranks: NDArray[np.uint64], points: NDArray[np.floating], labels: NDArray[np.int64]) -> Self:
        """Samples some rows."""
        lowest = np.argsort(ranks, kind="stable")[:size]
        return cls(size, ranks[lowest], points[lowest].astype(np.float64), labels[lowest])

    def merge(self, other: "RowSample") -> "RowSample":
        """Returns the sample of both."""
        ranks = np.concatenate([self.ranks, other.ranks])
        points = np.concatenate([self.points, other.points])
        return RowSample.of(self.size, ranks, points, np.concatenate([self.labels, other.labels]))


def row_ranks(file_digest: int, places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns ranks of rows of a file, uint64, shape (n_rows,): scattered evenly, and all different within a file.

    Args:
      file_digest: in [0, 2**64).
      places: shape (n_rows,): positions in the file, from 0.
    """
    return mix(mix(places.astype(np.uint64)) ^ np.uint64(file_digest))


class ClusteringSums(NamedTuple):
    """First pass of an evaluation.

    Attributes:
      cost: sizes and cost.
      offsets: sums of rows less the model's origin, per cluster, shape (n_clusters, n_features), feature units.
      contingency: of a column of classes; empty if there is none.
      sample: for scores that compare rows with each other.
    """

    cost: ModelCost
    offsets: ExactSum
    contingency: Contingency
    sample: RowSample

    @classmethod
    def zeros(cls, model: NearestCenters, sample_rows: int) -> Self:
        """Creates the neutral element."""
        shape = model.centers.shape
        sample = RowSample.zeros(sample_rows, shape[1])
        return cls(ModelCost.zeros(shape[0]), ExactSum.zeros(shape), Contingency({}), sample)

    @classmethod
    def of(
        cls,
        points: NDArray[np.floating],
        ranks: NDArray[np.uint64],
        classes: tuple[Sequence[str], NDArray[np.int64]],
        model: NearestCenters,
        sample_rows: int,
    ) -> Self:
        """Computes the sums of some rows.

        Args:
          points: shape (n_rows, n_features), feature units, finite.
          ranks: shape (n_rows,), see `row_ranks`.
          classes: names, and the index of each row's, shape (n_rows,), negative for none.
          model: of as many features.
          sample_rows: size of the sample.
        """
        rows, n_clusters = model.rows(points), model.n_clusters
        return cls(
            ModelCost.of(rows, n_clusters),
            ExactSum.grouped(_offsets(points, model), rows.labels, n_clusters),
            Contingency.of(*classes, rows.labels, n_clusters),
            RowSample.of(sample_rows, ranks, points, rows.labels),
        )

    def merge(self, other: "ClusteringSums") -> "ClusteringSums":
        """Returns the sums of both."""
        return ClusteringSums(
            self.cost.merge(other.cost),
            self.offsets.merge(other.offsets),
            self.contingency.merge(other.contingency),
            self.sample.merge(other.sample),
        )

    def means(self, model: NearestCenters) -> NDArray[np.float64]:
        """Returns the mean of the rows of each cluster, shape (n_clusters, n_features); NaN for an empty one."""
        return model.origin + self.offsets.over(self.cost.sizes[:, None])

    def mean(self, model: NearestCenters) -> NDArray[np.float64]:
        """Returns the mean of all rows, shape (n_features,)."""
        return model.origin + self.offsets.total().over(self.cost.n_rows)


def _offsets(points: NDArray[np.floating], model: NearestCenters) -> NDArray[np.float64]:
    """Subtracts the model's origin from rows."""
    with np.errstate(over="ignore"):
        return np.subtract(points, model.origin, dtype=np.float64)


def scatter(points: NDArray[np.floating], model: NearestCenters, means: NDArray[np.float64]) -> ExactSum:
    """Second pass of an evaluation: distances to the means of the clusters.

    Args:
      points: shape (n_rows, n_features), feature units, finite.
      model: assigns rows to clusters.
      means: shape (n_clusters, n_features): of all rows of each cluster.

    Returns:
      Sums per cluster of distances and of squared distances, shape (n_clusters, 2).
    """
    total = ExactSum.zeros((model.n_clusters, 2))
    for block in lattice.row_blocks(points):
        labels = model.labels(block)
        squared = squared_distances(block, means, labels)
        total = total.merge(ExactSum.grouped(np.stack([np.sqrt(squared), squared], axis=1), labels, len(means)))
    return total
