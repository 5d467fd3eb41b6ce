"""Exact statistics of rows, privacy unit `record`: one row moves each by at most its stated bound.

Every function maps rows to int64 sums on the lattice; sums over any split of the rows add up to the same integers.
Counts are in units of 2**-SUM_BITS rows, so that counts and sums share one noise lattice. A row is its own mean, so
`relative`, which divides what a client adds by its rows, changes nothing here, and bounds must be those that every
row keeps.
"""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.core.statistics.assignment import RowLabels
from dapple_dp.transforms.core.statistics.client_chunks import bin_sums
from dapple_dp.transforms.core.statistics.differences import (
    DIRECTION_UNITS,
    RELATIVE_UNITS,
    row_direction_sums,
    row_relative_sums,
)
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.row_pass import add_outer
from dapple_dp.transforms.core.statistics.term_cells import TERM_UNITS, row_term_cells

OUTER_SENSITIVITY = lattice.OUTER_UNITS**2
"""Frobenius norm of one row's outer product, at most, in units of clipping_norm**2 / 2**(2 * OUTER_BITS)."""
SUM_SENSITIVITY = lattice.SUM_UNITS
"""L2 norm of what one row adds to sums, at most, in units of clipping_norm / 2**SUM_BITS."""
COUNT_SENSITIVITY = lattice.SUM_UNITS
"""The amount that one row adds to counts: exactly this many units, in one bin (both L1 and L2)."""
RELATIVE_SENSITIVITY = RELATIVE_UNITS
DIRECTION_SENSITIVITY = DIRECTION_UNITS
TERMS_SENSITIVITY = TERM_UNITS
QUALITY_SENSITIVITY = distances.SENSITIVITY
"""The functions of these four bounds explain them."""


def count(block: ClientBlock) -> NDArray[np.int64]:
    """Counts rows: shape (1,), units of 2**-SUM_BITS rows; one row moves it by `COUNT_SENSITIVITY`."""
    return np.array([len(block.points) * lattice.SUM_UNITS], dtype=np.int64)


def outer_product(block: ClientBlock, frame: Frame, bound: float, *, relative: bool) -> NDArray[np.int64]:
    """Adds up x x^T over the rows x, and returns the upper triangle (row by row, diagonal included).

    Args:
      block: rows.
      frame: public frame.
      bound: the squared clipping norm, which every row keeps.
      relative: ignored.

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
    """Counts rows by nearest public point, or by cell of a public partition.

    Args:
      block: rows.
      frame: public frame.
      assigner: the points or cells, one bin each.
      bound: 1, which every row keeps.
      relative: ignored.

    Returns:
      int64, shape (assigner.size,), units of 2**-SUM_BITS rows. One row moves one bin by `COUNT_SENSITIVITY`.

    Source: Scott et al. (2025), Equation 3.
    """
    lattice.check_whole((bound, 1.0))
    return bin_sums(block, frame, assigner, counts_only=True)[1] * lattice.SUM_UNITS


def sums_and_counts(
    block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float
) -> NDArray[np.int64]:
    """Adds up and counts rows by cluster.

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
    sums, counts = bin_sums(block, frame, assigner)
    return np.concatenate([sums, counts * lattice.SUM_UNITS], axis=None)


mean_sums_and_counts = means_of_means = clipped_sums_and_counts = sums_and_counts
"""The three ways to sum clients are one for rows."""
relative_sums = row_relative_sums
direction_sums = row_direction_sums
term_cells = row_term_cells
norm_histogram = distances.row_norm_histogram
quality = distances.row_quality
gain = distances.row_gain
