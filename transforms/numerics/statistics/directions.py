"""Sums of directions from the nearest center to rows, and counts: what k-medians needs, in lattice integers.

A row adds (x - c) / |x - c| to the sum of its nearest center c, a vector of length 1 wherever the row is, and one
count; a row nearer to c than a public radius adds no direction. The difference is one of integers, so its length is
exact; the direction is truncated toward zero, and its norm is checked on the integers that are summed: this is where
the sensitivity comes from, here and nowhere else. It does not depend on the size of the domain.
"""

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics import assignment, lattice
from transforms.numerics.statistics.client_chunks import client_chunks, client_totals
from transforms.numerics.statistics.frame import Frame

DIRECTION_UNITS = lattice.SUM_UNITS
"""Norm of what one row (one client's mean) adds to sums of directions, at most, in lattice units."""


def directions(
    rows: NDArray[np.float64], centers: NDArray[np.float64], least_radius: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Directions of rows from their nearest centers, ties to the lowest index, and the indices of these centers.

    Args:
      rows: integers, shape (n_rows, n_features), L2 norm at most 2**SUM_BITS.
      centers: integers, shape (n_clusters, n_features).
      least_radius: lattice units, >= 1: rows nearer than this have direction zero.

    Returns:
      Integers, shape (n_rows, n_features), L2 norm at most DIRECTION_UNITS, checked; and shape (n_rows,).

    Raises:
      LatticeOverflowError: if centers are too far out for exact distances, or a row is not a number.
    """
    labels, squared = assignment.nearest_squared(rows, centers, assignment.ROW_NORM)
    lengths = np.where(squared >= least_radius**2, np.inf, 0.0)
    return lattice.clip_l2(rows - centers[labels], DIRECTION_UNITS, rescale=lengths), labels


def row_direction_sums(
    block: ClientBlock, frame: Frame, centers: NDArray[np.float64], least_radius: int, bound: float
) -> NDArray[np.int64]:
    """Sum of the directions of rows from their nearest center, and number of rows, per center.

    Args:
      block: rows.
      frame: public frame.
      centers: integers, shape (n_clusters, n_features), lattice units at SUM_BITS.
      least_radius: lattice units, an integer >= 1; public.
      bound: 1, which every row keeps.

    Returns:
      int64, shape (n_clusters * n_features + n_clusters,): sums row by row, then counts in units of 2**-SUM_BITS
      rows. One row moves the sums by at most `DIRECTION_UNITS` in L2, all of it at one center, and that center's count
      by 2**SUM_BITS.
    """
    lattice.check_whole((bound, 1.0))
    lattice.check_bounds(least_radius)
    sums = np.zeros(centers.shape, dtype=np.int64)
    counts = np.zeros(len(centers), dtype=np.int64)
    for part in lattice.row_blocks(block.points):
        found, labels = directions(frame.quantize(part, lattice.SUM_BITS), centers, least_radius)
        lattice.add_by_group(sums, found, labels)
        counts += np.bincount(labels, minlength=len(counts))
    return np.concatenate([sums.ravel(), counts * lattice.SUM_UNITS])


def client_direction_sums(
    block: ClientBlock, frame: Frame, centers: NDArray[np.float64], least_radius: int, bound: float
) -> NDArray[np.int64]:
    """Sum over clients of their direction sums and counts, both divided by the client's rows and clipped in L2.

    Args:
      block: rows grouped by client.
      frame: public frame.
      centers: as of `row_direction_sums`.
      least_radius: likewise.
      bound: in (0, 1]: the largest norm of a client's stacked mean directions; public.

    Returns:
      As `row_direction_sums`, the sums stretched from `bound` to DIRECTION_UNITS, counts as sums of fractions of
      clients. One client moves the stacked sums by at most `DIRECTION_UNITS` and the stacked counts by at most
      2**SUM_BITS in L2. A client over its bound is scaled in sums and counts alike, so that its direction stays.
    """
    lattice.check_bounds(least_radius, bound)
    sums, counts = np.zeros(centers.size, dtype=np.int64), np.zeros(len(centers), dtype=np.int64)
    for chunk in client_chunks(block, max(1, (1 << 21) // len(sums))):
        totals, rows = client_totals(
            chunk,
            len(centers),
            lambda points: directions(frame.quantize(points, lattice.SUM_BITS), centers, least_radius),
        )
        client_rows = np.diff(chunk.client_offsets)[:, None]
        means = np.trunc(totals / client_rows)
        norms = np.maximum(np.sqrt(lattice.squared_norms(means)), 1.0)
        common = np.minimum(1.0, bound * DIRECTION_UNITS / norms)
        shares = np.trunc(rows * (lattice.SUM_UNITS / client_rows))
        sums += lattice.clip_l2(means, DIRECTION_UNITS, rescale=common / bound).sum(axis=0).astype(np.int64)
        counts += lattice.clip_l2(shares, lattice.SUM_UNITS, rescale=common).sum(axis=0).astype(np.int64)
    return np.concatenate([sums, counts])
