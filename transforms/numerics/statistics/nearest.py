"""Nearest center of every row for a known model: exact integers, no clipping, any finite magnitude.

The frame depends on the centers alone, so a row's label depends on that row and the model only.
Nothing is released here, so there is no sensitivity to bound, and rows are rounded to the nearest lattice point.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice

CENTER_BITS = 22
"""Bits of the centered centers, which lie within 2**CENTER_BITS units, up to rounding."""
ROW_BITS = 26
"""Bits of rows: up to 2**ROW_BITS units from the origin they share the centers' lattice; others get separate units."""
_FINEST_EXPONENT = -900
_ROUNDING = 2.0 ** (ROW_BITS - 12)
"""Bound on the increase of a norm by rounding, units: sqrt(n_features) / 2, for up to 2**30 features."""


class NearestRows(NamedTuple):
    """Nearest centers of some rows.

    Attributes:
      labels: int64, shape (n_rows,): index of the nearest center; ties go to the lowest index.
      squared: float64, shape (n_rows,): squared distance to it, feature units squared; infinite past float64's range.
    """

    labels: NDArray[np.int64]
    squared: NDArray[np.float64]


class NearestCenters(NamedTuple):
    """A model on its own lattice; a lattice unit is 2**exponent feature units.

    With every |center| <= 2**22 units and |row| <= 2**26 units, plus rounding, each partial sum of a score
    2 <row, center> - |center|**2 stays below 2**50 and each squared norm below 2**53: all are exact in float64, for
    any number of features.

    Attributes:
      centers: shape (n_clusters, n_features), feature units, finite.
      origin: shape (n_features,), feature units: mean of the centers.
      exponent: int.
      doubled: integers, shape (n_clusters, n_features): twice the centered centers, lattice units.
      squared: integers, shape (n_clusters,): their squared norms, not doubled.
    """

    centers: NDArray[np.float64]
    origin: NDArray[np.float64]
    exponent: int
    doubled: NDArray[np.float64]
    squared: NDArray[np.float64]

    @classmethod
    def of(cls, centers: NDArray[np.float64]) -> Self:
        """Creates the frame of a model.

        Args:
          centers: shape (n_clusters, n_features), feature units, finite; both at least 1.

        Raises:
          LatticeOverflowError: if a score could reach 2**53; no model of less than 2**30 features can.
        """
        centers = np.array(centers, dtype=np.float64, order="C")
        origin = (centers / len(centers)).sum(axis=0)
        quarters = 0.25 * centers - 0.25 * origin
        integers, exponents = _scaled(quarters)
        norms, powers = np.frexp(np.sqrt(lattice.squared_norms(integers)))
        ends = np.where(norms > 0, powers + exponents + 2, _FINEST_EXPONENT + CENTER_BITS)
        # A model of one point has no scale; with the finest unit every row gets a separate unit.
        exponent = max(int(ends.max()) - CENTER_BITS, _FINEST_EXPONENT)
        units = np.rint(quarters * 2.0 ** (2 - exponent))
        squared = lattice.squared_norms(units)
        largest = float(np.sqrt(squared.max()))
        lattice.check_product(2.0 * (2.0**ROW_BITS + _ROUNDING) + largest, largest)
        lattice.check_product(2.0**ROW_BITS + _ROUNDING, 2.0**ROW_BITS + _ROUNDING)
        return cls(centers, origin, exponent, 2.0 * units, squared)

    @property
    def n_clusters(self) -> int:
        """Number of centers."""
        return len(self.centers)

    def labels(self, points: NDArray[np.floating]) -> NDArray[np.int64]:
        """Returns the index of the nearest center of each row, shape (n_rows,).

        Args:
          points: shape (n_rows, n_features), feature units, finite; any magnitude.
        """
        parts = [labels for _, labels, _ in self._blocks(points)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def rows(self, points: NDArray[np.floating]) -> NearestRows:
        """Returns labels and squared distances; right to about seven digits, or to 2**-48 of the largest center.

        Args:
          points: shape (n_rows, n_features), feature units, finite; any magnitude.
        """
        labels, squared = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for block, nearest, bound in self._blocks(points):
            labels.append(nearest)
            squared.append(squared_distances(block, self.centers, nearest, bound))
        return NearestRows(np.concatenate(labels), np.concatenate(squared))

    def distances(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Returns distances of rows to all centers, shape (n_rows, n_clusters), feature units, to about fifteen digits.

        Rows and centers are subtracted before anything is squared, so that no digits are lost far from zero.

        Args:
          points: shape (n_rows, n_features), feature units, finite; any magnitude.
        """
        found = np.empty((len(points), self.n_clusters))
        for start in range(0, len(points), lattice.BLOCK_ROWS):
            part = slice(start, start + lattice.BLOCK_ROWS)
            quarters = np.multiply(points[part], 0.25, dtype=np.float64)
            for index, center in enumerate(self.centers):
                found[part, index] = _lengths(quarters - 0.25 * center)
        with np.errstate(over="ignore"):
            return np.multiply(found, 4.0, out=found)

    def _blocks(
        self, points: NDArray[np.floating]
    ) -> Iterator[tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.int64]]]:
        """Yields blocks of rows, their labels, and exponents of powers of two that bound their distances."""
        slack = np.sqrt(points.shape[1]) + 1.0
        for block in lattice.row_blocks(points):
            rows, own = self._quantized(block)
            far = np.flatnonzero(~(own <= 4.0**ROW_BITS))
            rows[far], own[far] = 0.0, 0.0
            scores = rows @ self.doubled.T
            scores -= self.squared
            labels = scores.argmax(axis=1)
            own -= scores[np.arange(len(block)), labels]
            bound = np.frexp(np.sqrt(own) + slack)[1].astype(np.int64) + self.exponent
            if far.size:
                labels[far], bound[far] = self._far(block[far])
            yield block, labels, bound

    def _quantized(self, block: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns rounded centered rows in lattice units, and squared norms; both exact if these are <= 4**ROW_BITS.

        Every partial sum of a squared norm is at most the norm, so one beyond the limit is always detected.
        """
        with np.errstate(over="ignore"):
            rows = np.subtract(block, self.origin, dtype=np.float64)
            rows *= 2.0**-self.exponent
            np.rint(rows, out=rows)
            return rows, lattice.squared_norms(rows)

    def _far(self, points: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns labels and bounds of rows too far out for the lattice, each scaled by its own power of two."""
        rows, exponents = _scaled(np.multiply(points, 0.25, dtype=np.float64) - 0.25 * self.origin)
        exponents += 2
        shrink = np.ldexp(1.0, self.exponent - exponents)
        scores = rows @ self.doubled.T - self.squared * shrink[:, None]
        return scores.argmax(axis=1), exponents + ROW_BITS + 1


def _scaled(vectors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns each vector as integers of L2 norm at most 2**ROW_BITS, up to rounding, and the exponent of its unit."""
    exponents = np.maximum(_norm_exponents(vectors) - ROW_BITS, _FINEST_EXPONENT - 2)
    return np.rint(vectors * np.ldexp(1.0, -exponents)[:, None]), exponents


def _norm_exponents(vectors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns exponents of powers of two that bound L2 norms of finite vectors, up to sqrt(n_features) too large."""
    half_digits = (int(vectors.shape[1] - 1).bit_length() + 1) // 2
    return np.frexp(np.abs(vectors).max(axis=1))[1].astype(np.int64) + half_digits


def _lengths(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns L2 norms of finite vectors, shape (n,), each scaled by a power of two so that no square overflows."""
    exponents = np.frexp(np.abs(vectors).max(axis=1))[1]
    vectors = np.ldexp(vectors, -exponents[:, None])
    with np.errstate(over="ignore"):
        return np.ldexp(np.sqrt((vectors * vectors).sum(axis=1)), exponents)


def squared_distances(
    points: NDArray[np.floating],
    centers: NDArray[np.float64],
    labels: NDArray[np.int64],
    bound: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Returns squared distances of rows to given centers, the same for a row in any block.

    Differences are rounded to integers below 2**ROW_BITS, so their squares add up exactly.

    Args:
      points: shape (n_rows, n_features), feature units, finite.
      centers: shape (n_clusters, n_features), feature units, finite if a row refers to them.
      labels: shape (n_rows,), in [0, n_clusters).
      bound: shape (n_rows,): distances are at most 2**bound, feature units; None to find bounds.

    Returns:
      shape (n_rows,), feature units squared; infinite past float64's range.
    """
    with np.errstate(over="ignore"):
        differences = np.subtract(points, centers[labels], dtype=np.float64)
        if bound is None:
            bound = np.maximum(_norm_exponents(differences), _FINEST_EXPONENT)
        differences *= np.ldexp(1.0, ROW_BITS - bound)[:, None]
        np.rint(differences, out=differences)
        return np.ldexp(lattice.squared_norms(differences), 2 * (bound - ROW_BITS))
