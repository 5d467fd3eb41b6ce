"""Projection and nearest-center assignment on lattice integers: exact, ties to the lowest index."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.kernel.row_pass import RowPass
from transforms.numerics.statistics import lattice

PROJECTION_BITS = 24
"""A projection matrix holds its entries in units of 2**-PROJECTION_BITS."""
ROW_NORM = float(lattice.SUM_UNITS)
"""Bound on the L2 norm of rows in full space."""
PROJECTED_NORM = 2.0 * lattice.SUM_UNITS
"""Bound on the L2 norm of projected rows: the projection is orthonormal up to rounding, see `Projection`."""
_FEW_CENTERS = 32
_ROWS_AT_ONCE = 256


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


def project(rows: NDArray[np.float64], projection: Projection) -> NDArray[np.float64]:
    """Coordinates of lattice rows in the projected space, shifted back to lattice units and floored.

    Args:
      rows: integers, shape (n_rows, n_features), L2 norm at most 2**SUM_BITS each.
      projection: columns of norm about one.

    Returns:
      Integers, shape (n_rows, n_dims); the L2 norm of each row is at most `PROJECTED_NORM`.

    Raises:
      LatticeOverflowError: if a dot product could reach 2**53.
    """
    lattice.check_product(ROW_NORM, largest_norm(projection.matrix.T))
    coordinates = rows @ projection.matrix
    coordinates *= 2.0**-PROJECTION_BITS
    return np.floor(coordinates, out=coordinates)


def nearest(rows: NDArray[np.float64], centers: NDArray[np.float64], row_norm: float) -> NDArray[np.int64]:
    """Index of the nearest center of each row; ties go to the lowest index.

    Args:
      rows: integers, shape (n_rows, n_dims), L2 norm at most `row_norm`.
      centers: integers, shape (n_centers, n_dims), n_centers >= 1.
      row_norm: `ROW_NORM` or `PROJECTED_NORM`.

    Returns:
      shape (n_rows,), int64.

    Raises:
      LatticeOverflowError: if a score could reach 2**53.
    """
    if len(centers) <= _FEW_CENTERS:
        return _scores(rows, centers, row_norm).argmax(axis=1)
    check_scores(centers, row_norm)
    # With a column of ones the product is the score, and a part of the rows at a time stays in the cache.
    factors = np.ascontiguousarray(np.vstack([2.0 * centers.T, -lattice.squared_norms(centers)]))
    extended = np.ones((len(rows), len(factors)))
    extended[:, :-1] = rows
    labels = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        (extended[part] @ factors).argmax(axis=1, out=labels[part])
    return labels


def nearest_squared(
    rows: NDArray[np.float64], centers: NDArray[np.float64], row_norm: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Nearest center of each row as `nearest` finds it, and the squared distance to it, shape (n_rows,): exact."""
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
    """Refuses what could reach 2**53 in any order of adding up, the squared norm of the center included."""
    largest = largest_norm(centers)
    lattice.check_product(2.0 * row_norm + largest, largest)


def nearest_within_third(
    rows: NDArray[np.float64], centers: NDArray[np.float64], row_norm: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Nearest center of each row as `nearest` finds it, and whether its distance is at most a third of any other's.

    With one center every row keeps the rule; the mask has shape (n_rows,).

    Source: Awasthi and Sheffet (2012), Part 2; Scott et al. (2025), Algorithm 5, Part 2.
    """
    scores = _scores(rows, centers, row_norm)
    labels = scores.argmax(axis=1)
    if len(centers) == 1:
        return labels, np.ones(len(rows), dtype=np.bool_)
    index = np.arange(len(rows))
    best = scores[index, labels]
    scores[index, labels] = -np.inf
    own = lattice.squared_norms(rows)
    return labels, 9.0 * (own - best) <= own - scores.max(axis=1)


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
      one_third: leave a row out unless its distance is at most a third of that to every other point.
    """

    centers: NDArray[np.float64]
    projection: Projection | None = None
    one_third: bool = False

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.centers)

    def labels(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Index of the point of each row, -1 for rows left out.

        Args:
          rows: integers, shape (n_rows, n_features), at SUM_BITS.
        """
        rows, norm = self._compared(rows)
        if not self.one_third:
            return nearest(rows, self.centers, norm)
        labels, kept = nearest_within_third(rows, self.centers, norm)
        return np.where(kept, labels, -1)

    def members(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """`labels` as a matrix: 1 where a row belongs to a point, else 0; shape (size, n_rows). For few points.

        It is where a score is the largest of its row: scores are exact, so only a tie asks for an index.
        """
        if self.one_third:
            return members_of(self.labels(rows), self.size)
        compared, norm = self._compared(rows)
        check_scores(self.centers, norm)
        scores = (2.0 * self.centers) @ compared.T
        scores -= lattice.squared_norms(self.centers)[:, None]
        largest = scores == scores.max(axis=0)
        if np.count_nonzero(largest) != len(rows):
            return members_of(scores.argmax(axis=0), self.size)
        return largest.astype(np.float64)

    def row_pass(self) -> RowPass | None:
        """The compiled pass that finds the same labels; None where there is none, as for projected rows."""
        if self.projection is not None or self.one_third:
            return None
        return RowPass.of(self.centers, ROW_NORM)

    def projected_pass(self) -> RowPass | None:
        """The compiled pass over rows that are projected before; None where there is none, or no projection."""
        if self.projection is None or self.one_third:
            return None
        return RowPass.of(self.centers, PROJECTED_NORM)

    def compared(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows (integers, shape (n_rows, n_features), at SUM_BITS) in the space of the centers."""
        return self._compared(rows)[0]

    def _compared(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Rows in the space of the centers, and a bound on their norms."""
        if self.projection is None:
            return rows, ROW_NORM
        return project(rows, self.projection), PROJECTED_NORM


def row_pass_of(assigner: RowLabels) -> RowPass | None:
    """The compiled pass of an assigner; None where NumPy does the work."""
    return assigner.row_pass() if isinstance(assigner, Assigner) else None


def members_of(labels: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Labels of rows, -1 of those left out, as a matrix of 0 and 1, shape (size, n_rows)."""
    return (np.arange(size)[:, None] == labels).astype(np.float64)
