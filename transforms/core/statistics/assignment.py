"""Projection and nearest-center assignment on lattice integers: exact, ties to the lowest index."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import lattice

PROJECTION_BITS = 24
"""Entries of a projection matrix are in units of 2**-PROJECTION_BITS."""
ROW_NORM = float(lattice.SUM_UNITS)
"""Bound on the L2 norm of rows in full space."""
PROJECTED_NORM = 2.0 * lattice.SUM_UNITS
"""Bound on the L2 norm of rows whose projection is orthonormal up to rounding."""


class Projection(NamedTuple):
    """An orthonormal basis rounded to integers.

    Attributes:
      matrix: float64 integers, shape (n_features, n_dims), units of 2**-PROJECTION_BITS.
    """

    matrix: NDArray[np.float64]

    @classmethod
    def from_basis(cls, basis: NDArray[np.float64]) -> "Projection":
        """Rounds an orthonormal basis, shape (n_features, n_dims)."""
        return cls(np.rint(basis * 2.0**PROJECTION_BITS))

    @property
    def basis(self) -> NDArray[np.float64]:
        """The basis as fractions, shape (n_features, n_dims)."""
        return self.matrix * 2.0**-PROJECTION_BITS

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of projected rows; more than `PROJECTED_NORM` if columns are far from orthonormal."""
        # No eigenvalue of the Gram matrix is larger than its largest sum of a row.
        squared = np.abs(self.basis.T @ self.basis).sum(axis=1).max(initial=0.0) * (1.0 + 2.0**-20)
        return max(PROJECTED_NORM, ROW_NORM * float(np.sqrt(squared)) + float(np.sqrt(self.matrix.shape[1])))


def project(rows: NDArray[np.float64], projection: Projection) -> NDArray[np.float64]:
    """Computes coordinates of lattice rows in the projected space, shifted back to lattice units and floored.

    Args:
      rows: integers, shape (n_rows, n_features), L2 norm at most 2**SUM_BITS each.
      projection: columns of norm about one.

    Returns:
      Integers, shape (n_rows, n_dims); the L2 norm of each row is at most `projection.norm`.

    Raises:
      LatticeOverflowError: if a dot product could reach 2**53.
    """
    lattice.check_product(ROW_NORM, largest_norm(projection.matrix.T))
    coordinates = rows @ projection.matrix
    coordinates *= 2.0**-PROJECTION_BITS
    return np.floor(coordinates, out=coordinates)


def nearest(rows: NDArray[np.float64], centers: NDArray[np.float64], row_norm: float) -> NDArray[np.int64]:
    """Finds the nearest center of each row; ties go to the lowest index.

    Args:
      rows: integers, shape (n_rows, n_dims), L2 norm at most `row_norm`.
      centers: integers, shape (n_centers, n_dims), n_centers >= 1.
      row_norm: `ROW_NORM` or that of the projection.

    Returns:
      Indices, int64, shape (n_rows,).

    Raises:
      LatticeOverflowError: if a score could reach 2**53.
    """
    return _scores(rows, centers, row_norm).argmax(axis=1)


def nearest_squared(
    rows: NDArray[np.float64], centers: NDArray[np.float64], row_norm: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Nearest centers as in `nearest`, and the exact squared distances to them, shape (n_rows,)."""
    scores = _scores(rows, centers, row_norm)
    labels = scores.argmax(axis=1)
    return labels, lattice.squared_norms(rows) - scores[np.arange(len(rows)), labels]


def _scores(rows: NDArray[np.float64], centers: NDArray[np.float64], row_norm: float) -> NDArray[np.float64]:
    """2 <row, center> - |center|^2: exact; larger is nearer."""
    check_scores(centers, row_norm)
    scores = rows @ np.ascontiguousarray(2.0 * centers.T)
    scores -= lattice.squared_norms(centers)
    return scores


def check_scores(centers: NDArray[np.float64], row_norm: float) -> None:
    """Raises LatticeOverflowError if a center has a fraction, or a score, added up in any order, could reach 2**53.

    Labels follow from exact scores. With inexact ones, a row could decide on the label of another.
    """
    if not (np.rint(centers) == centers).all():
        raise LatticeOverflowError("centers must be lattice integers, got fractions; round them before the round.")
    largest = largest_norm(centers)
    lattice.check_product(2.0 * row_norm + largest, largest)


def largest_norm(vectors: NDArray[np.float64]) -> float:
    """Largest L2 norm, rounded up."""
    return float(np.sqrt(lattice.squared_norms(vectors).max(initial=0.0))) * (1.0 + 2.0**-20)


class RowLabels(Protocol):
    """Anything that sorts lattice rows into `size` bins; -1 leaves a row out."""

    @property
    def size(self) -> int:
        """Number of bins."""

    def labels(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Bin of each row, shape (n_rows,)."""


class Assigner(NamedTuple):
    """Maps lattice rows to the nearest of some public points.

    Attributes:
      centers: integers, shape (n, n_dims): points in the projected space, or in full space if no projection.
      projection: None to compare in full space.
    """

    centers: NDArray[np.float64]
    projection: Projection | None = None

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.centers)

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of the rows that are compared."""
        return ROW_NORM if self.projection is None else self.projection.norm

    def compared(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows (integers, shape (n_rows, n_features), at SUM_BITS) in the space of the centers."""
        return rows if self.projection is None else project(rows, self.projection)

    def labels(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Index of the point of each row (integers, shape (n_rows, n_features), at SUM_BITS)."""
        return nearest(self.compared(rows), self.centers, self.norm)
