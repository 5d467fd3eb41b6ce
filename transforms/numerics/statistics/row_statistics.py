"""Exact statistics of rows, privacy unit `record`: one row moves each by at most its stated bound.

Every function maps rows to int64 sums on the lattice; sums of any split of the rows add up to the same
integers. Counts are in units of 2**-SUM_BITS rows, so that counts and sums share one noise lattice.
"""

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.assignment import Assigner, RowLabels, members_of
from transforms.numerics.statistics.frame import Frame

OUTER_SENSITIVITY = lattice.OUTER_UNITS**2
"""Frobenius norm of one row's outer product, at most, in units of clipping_norm**2 / 2**(2 * OUTER_BITS)."""
SUM_SENSITIVITY = lattice.SUM_UNITS
"""L2 norm of what one row adds to sums, at most, in units of clipping_norm / 2**SUM_BITS."""
COUNT_SENSITIVITY = lattice.SUM_UNITS
"""What one row adds to counts: one bin by exactly this many units (both L1 and L2)."""
_MATRIX_CLUSTERS = 16


def triangle_size(n_features: int) -> int:
    """Entries of the upper triangle, diagonal included."""
    return n_features * (n_features + 1) // 2


def outer_product(points: NDArray[np.floating], frame: Frame) -> NDArray[np.int64]:
    """Upper triangle (row by row, diagonal included) of the sum of x x^T.

    Args:
      points: shape (n_rows, n_features), feature units, finite.
      frame: public frame.

    Returns:
      int64, shape (n_features * (n_features + 1) / 2,). One row moves the matrix by at most
      `OUTER_SENSITIVITY` in Frobenius norm.

    Source: Scott et al. (2025), Algorithm 1, step 1.
    """
    n_features = points.shape[1]
    total = np.zeros((n_features, n_features), dtype=np.int64)
    for block in lattice.row_blocks(points):
        rows = frame.quantize(block, lattice.OUTER_BITS)
        total += (rows.T @ rows).astype(np.int64)
    return total[np.triu_indices(n_features)]


def histogram(points: NDArray[np.floating], frame: Frame, assigner: RowLabels) -> NDArray[np.int64]:
    """Rows per nearest public point, or per cell of a public partition.

    Args:
      points: shape (n_rows, n_features), feature units, finite.
      frame: public frame.
      assigner: the points or cells, one bin each.

    Returns:
      int64, shape (assigner.size,), units of 2**-SUM_BITS rows. One row moves one bin by `COUNT_SENSITIVITY`.

    Source: Scott et al. (2025), Equation 3.
    """
    total = np.zeros(assigner.size, dtype=np.int64)
    for block in lattice.row_blocks(points):
        labels = assigner.labels(frame.quantize(block, lattice.SUM_BITS))
        total += np.bincount(labels[labels >= 0], minlength=assigner.size)
    return total * lattice.SUM_UNITS


def sums_and_counts(points: NDArray[np.floating], frame: Frame, assigner: RowLabels) -> NDArray[np.int64]:
    """Sum of rows and number of rows per cluster.

    Args:
      points: shape (n_rows, n_features), feature units, finite.
      frame: public frame.
      assigner: the current centers.

    Returns:
      int64, shape (n_clusters * n_features + n_clusters,): sums row by row, then counts. One row moves the
      sums by at most `SUM_SENSITIVITY` in L2 and one count by `COUNT_SENSITIVITY`.

    Source: Scott et al. (2025), Algorithm 1, step 3, and Algorithm 2.
    """
    sums = np.zeros((assigner.size, points.shape[1]), dtype=np.int64)
    counts = np.zeros(assigner.size, dtype=np.int64)
    add = _add_by_matrix if assigner.size <= _MATRIX_CLUSTERS else _add_by_order
    for block in lattice.row_blocks(points):
        add(sums, counts, assigner, frame.quantize(block, lattice.SUM_BITS))
    return np.concatenate([sums.ravel(), counts * lattice.SUM_UNITS])


def _add_by_matrix(
    sums: NDArray[np.int64], counts: NDArray[np.int64], assigner: RowLabels, rows: NDArray[np.float64]
) -> None:
    """Adds each row to the sum and the count of its bin, by a matrix product; best for few bins."""
    if isinstance(assigner, Assigner):
        members = assigner.members(rows)
    else:
        members = members_of(assigner.labels(rows), assigner.size)
    sums += (members @ rows).astype(np.int64)
    counts += members.sum(axis=1).astype(np.int64)


def _add_by_order(
    sums: NDArray[np.int64], counts: NDArray[np.int64], assigner: RowLabels, rows: NDArray[np.float64]
) -> None:
    """The same integers, by sorting; best for many bins."""
    labels = assigner.labels(rows)
    kept = np.flatnonzero(labels >= 0)
    counts += np.bincount(labels[kept], minlength=assigner.size)
    lattice.add_by_group(sums, rows[kept], labels[kept])


def row_count(points: NDArray[np.floating]) -> NDArray[np.int64]:
    """Number of rows, shape (1,), units of 2**-SUM_BITS rows; one row moves it by `COUNT_SENSITIVITY`."""
    return np.array([len(points) * lattice.SUM_UNITS], dtype=np.int64)
