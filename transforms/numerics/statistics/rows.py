"""Exact statistics of rows, privacy unit `record`: one row moves each by at most its stated bound.

Every function maps rows to int64 sums on the lattice; sums of any split of the rows add up to the same
integers. Counts are in units of 2**-SUM_BITS rows, so that counts and sums share one noise lattice.
"""

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.kernel.row_pass import RowPass, Tally, add_outer
from transforms.numerics.statistics import center_quality, lattice, norms
from transforms.numerics.statistics.assignment import Assigner, RowLabels, members_of, row_pass_of
from transforms.numerics.statistics.directions import DIRECTION_UNITS, row_direction_sums
from transforms.numerics.statistics.frame import Frame
from transforms.numerics.statistics.relative_sums import RELATIVE_UNITS, row_relative_sums
from transforms.numerics.statistics.term_cells import TERM_UNITS, row_term_cells

OUTER_SENSITIVITY = lattice.OUTER_UNITS**2
"""Frobenius norm of one row's outer product, at most, in units of clipping_norm**2 / 2**(2 * OUTER_BITS)."""
SUM_SENSITIVITY = lattice.SUM_UNITS
"""L2 norm of what one row adds to sums, at most, in units of clipping_norm / 2**SUM_BITS."""
COUNT_SENSITIVITY = lattice.SUM_UNITS
"""What one row adds to counts: one bin by exactly this many units (both L1 and L2)."""
RELATIVE_SENSITIVITY = RELATIVE_UNITS
"""L2 norm of what one row adds to relative sums, at most."""
DIRECTION_SENSITIVITY = DIRECTION_UNITS
"""L2 norm of what one row adds to sums of directions, at most."""
TERMS_SENSITIVITY = TERM_UNITS
"""L2 norm of what one row adds to cells of clusters and terms, at most."""
QUALITY_SENSITIVITY = center_quality.SENSITIVITY
"""What one row adds to the cost and, in L1, to the sizes, at most."""
_MATRIX_CLUSTERS = 16


def triangle_size(n_features: int) -> int:
    """Entries of the upper triangle, diagonal included."""
    return n_features * (n_features + 1) // 2


def count(block: ClientBlock) -> NDArray[np.int64]:
    """Number of rows, shape (1,), units of 2**-SUM_BITS rows; one row moves it by `COUNT_SENSITIVITY`."""
    return np.array([len(block.points) * lattice.SUM_UNITS], dtype=np.int64)


def outer_product(block: ClientBlock, frame: Frame, bound: float, *, relative: bool) -> NDArray[np.int64]:
    """Upper triangle (row by row, diagonal included) of the sum of x x^T.

    Args:
      block: rows.
      frame: public frame.
      bound: the squared clipping norm, which every row keeps.
      relative: means nothing: a row is its own mean.

    Returns:
      int64, shape (n_features * (n_features + 1) / 2,). One row moves the matrix by at most
      `OUTER_SENSITIVITY` in Frobenius norm.

    Source: Scott et al. (2025), Algorithm 1, step 1.
    """
    lattice.check_whole((bound, frame.lattice.clipping_norm**2))
    n_features = block.points.shape[1]
    total = np.zeros((n_features, n_features), dtype=np.int64)
    for integers in frame.integer_blocks(block.points, lattice.OUTER_BITS):
        add_outer(total, integers, float(lattice.OUTER_UNITS))
    return lattice.upper_triangle(total)


def histogram(
    block: ClientBlock, frame: Frame, assigner: RowLabels, bound: float, *, relative: bool
) -> NDArray[np.int64]:
    """Rows per nearest public point, or per cell of a public partition.

    Args:
      block: rows.
      frame: public frame.
      assigner: the points or cells, one bin each.
      bound: 1, which every row keeps.
      relative: means nothing: a row is its own mean.

    Returns:
      int64, shape (assigner.size,), units of 2**-SUM_BITS rows. One row moves one bin by `COUNT_SENSITIVITY`.

    Source: Scott et al. (2025), Equation 3.
    """
    lattice.check_whole((bound, 1.0))
    compiled = row_pass_of(assigner)
    if compiled is not None:
        return _added(compiled, block, frame, sums=False).inside * lattice.SUM_UNITS
    if isinstance(assigner, Assigner) and (projected := assigner.projected_pass()) is not None:
        return _counted(projected, block, frame, assigner) * lattice.SUM_UNITS
    total = np.zeros(assigner.size, dtype=np.int64)
    for part in lattice.row_blocks(block.points):
        labels = assigner.labels(frame.quantize(part, lattice.SUM_BITS))
        total += np.bincount(labels[labels >= 0], minlength=assigner.size)
    return total * lattice.SUM_UNITS


def sums_and_counts(
    block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float
) -> NDArray[np.int64]:
    """Sum of rows and number of rows per cluster.

    Args:
      block: rows.
      frame: public frame.
      assigner: the current centers.
      sums_bound: the clipping norm, which every row keeps.
      counts_bound: 1, which every row keeps.

    Returns:
      int64, shape (n_clusters * n_features + n_clusters,): sums row by row, then counts. One row moves the
      sums by at most `SUM_SENSITIVITY` in L2 and one count by `COUNT_SENSITIVITY`.

    Source: Scott et al. (2025), Algorithm 1, step 3, and Algorithm 2.
    """
    lattice.check_whole((sums_bound, frame.lattice.clipping_norm), (counts_bound, 1.0))
    compiled = row_pass_of(assigner)
    if compiled is not None:
        tally = _added(compiled, block, frame, sums=True)
        return np.concatenate([tally.sums, tally.inside * lattice.SUM_UNITS], axis=None)
    sums = np.zeros((assigner.size, block.points.shape[1]), dtype=np.int64)
    counts = np.zeros(assigner.size, dtype=np.int64)
    add = _add_by_matrix if assigner.size <= _MATRIX_CLUSTERS else _add_by_order
    for part in lattice.row_blocks(block.points):
        add(sums, counts, assigner, frame.quantize(part, lattice.SUM_BITS))
    return np.concatenate([sums.ravel(), counts * lattice.SUM_UNITS])


def _added(compiled: RowPass, block: ClientBlock, frame: Frame, *, sums: bool) -> Tally:
    """Rows added up by the compiled pass, or only counted."""
    tally = Tally.zeros(len(compiled.centers), block.points.shape[1] if sums else 0)
    for integers in frame.integer_blocks(block.points, lattice.SUM_BITS):
        compiled.add(tally, integers)
    return tally


def _counted(compiled: RowPass, block: ClientBlock, frame: Frame, assigner: Assigner) -> NDArray[np.int64]:
    """Rows counted by the compiled pass after their projection, whose integers fit into 32 bits."""
    tally = Tally.zeros(assigner.size, 0)
    for part in lattice.row_blocks(block.points):
        compiled.add(tally, assigner.compared(frame.quantize(part, lattice.SUM_BITS)).astype(np.int32))
    return tally.inside


mean_sums_and_counts = means_of_means = clipped_sums_and_counts = sums_and_counts
"""The three ways to sum clients are one for rows."""


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


relative_sums = row_relative_sums
direction_sums = row_direction_sums
term_cells = row_term_cells
norm_histogram = norms.row_norm_histogram
quality = center_quality.row_quality
gain = center_quality.row_gain
