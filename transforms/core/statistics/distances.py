"""Histograms of row norms, and the exact cost, sizes and gain of given centers, for rows and for clients.

One unit moves each by at most its bound. A squared distance, or the difference of two, is counted in units of its
public bound / 2**SUM_BITS, rounded to the nearest and capped on the integers that are summed. The product before the
rounding is exact, so equal distances are equal numbers of units everywhere.
"""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import assignment, lattice
from dapple_dp.transforms.core.statistics.client_chunks import Vectors, client_sums, group_sums
from dapple_dp.transforms.core.statistics.frame import Frame

NORM_GRID = 2.0 ** (np.arange(-80, 81) / 4.0)
"""Upper edges of the bins, feature units: four per octave from 2**-20 to 2**20; the last bin is open."""
NORM_BINS = len(NORM_GRID) + 1
SENSITIVITY = lattice.SUM_UNITS
"""The most by which one row (client) moves the cost, and the sizes in L1 and so in L2."""


def row_norm_histogram(block: ClientBlock, center: NDArray[np.float64]) -> NDArray[np.int64]:
    """Counts rows by their norm around a public center, shape (n_features,).

    Returns:
      int64, shape (NORM_BINS,), units of 2**-SUM_BITS rows. One row moves one bin by 2**SUM_BITS.
    """
    return group_sums(block, NORM_BINS, 0, _bins(center))[1] * lattice.SUM_UNITS


def client_norm_histogram(block: ClientBlock, center: NDArray[np.float64]) -> NDArray[np.int64]:
    """Adds up over clients the fractions of their rows in each bin.

    Returns:
      int64, shape (NORM_BINS,), units of 2**-SUM_BITS clients. One client moves it by at most 2**SUM_BITS in L1, so in
      L2 too: its fractions sum to at most one.
    """
    return client_sums(
        block,
        NORM_BINS,
        lambda chunk: group_sums(chunk, NORM_BINS, 0, _bins(center), by_client=True),
        lambda _, counts, sizes: (counts * lattice.SUM_UNITS // sizes[:, None],),
    )


def _bins(center: NDArray[np.float64]) -> Vectors:
    """The bins of norms; rows add no vectors."""
    return lambda points: (points[:, :0], np.searchsorted(NORM_GRID, lattice.row_norms(points, center), side="left"))


def row_quality(block: ClientBlock, frame: Frame, centers: NDArray[np.float64], bound: int) -> NDArray[np.int64]:
    """Computes the cost of centers, and counts rows by nearest center.

    Args:
      block: rows.
      frame: public frame.
      centers: integers, shape (n_clusters, n_features), at SUM_BITS, in the clipping ball; public.
      bound: squared lattice units, >= 1, at which the cost of a row is capped; public.

    Returns:
      int64, shape (1 + n_clusters,): cost in units of bound / 2**SUM_BITS, sizes in units of 2**-SUM_BITS
      rows. One row moves the cost by at most `SENSITIVITY`, and one size by exactly that.
    """
    costs, counts = group_sums(block, len(centers), 1, _costs(frame, centers, bound))
    return np.concatenate([[costs.sum()], counts * lattice.SUM_UNITS])


def client_quality(block: ClientBlock, frame: Frame, centers: NDArray[np.float64], bound: int) -> NDArray[np.int64]:
    """Adds up over clients their mean cost, then the fractions of their rows by nearest center.

    Args:
      block: rows grouped by client.
      frame: public frame.
      centers: as in `row_quality`.
      bound: likewise.

    Returns:
      int64, shape (1 + n_clusters,): cost in units of bound / 2**SUM_BITS, sizes in units of 2**-SUM_BITS
      clients, truncated. One client moves the cost by at most `SENSITIVITY`, and the sizes by at most that in L1.
    """
    return client_sums(
        block,
        1 + len(centers),
        lambda chunk: group_sums(chunk, len(centers), 1, _costs(frame, centers, bound), by_client=True),
        lambda costs, counts, sizes: (_rounded_means(costs, sizes), counts * SENSITIVITY // sizes[:, None]),
    )


def _costs(frame: Frame, centers: NDArray[np.float64], bound: int) -> Vectors:
    """Costs of rows, each from 0 to `SENSITIVITY` exactly, and their nearest centers."""
    lattice.check_bounds(bound)

    def costs(points: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = frame.quantize(points, lattice.SUM_BITS)
        labels, squared = assignment.nearest_squared(rows, centers, assignment.ROW_NORM)
        units = np.rint(squared * float(SENSITIVITY) / float(bound))
        return np.minimum(units, SENSITIVITY).astype(np.int64)[:, None], labels

    return costs


def row_gain(
    block: ClientBlock, frame: Frame, before: NDArray[np.float64], after: NDArray[np.float64], bound: int
) -> NDArray[np.int64]:
    """Adds up how much nearer rows are to `after` than to `before`, in squared distances.

    The cap is on the difference, not on either side: rows that are as far from both add nothing, at any cost.

    Args:
      block: rows.
      frame: public frame.
      before: integers, shape (n_clusters, n_features), at SUM_BITS, in the clipping ball; public.
      after: as `before`, of any number of clusters.
      bound: squared lattice units, >= 1; public: the largest difference that counts.

    Returns:
      int64, shape (1,): sum of squared distances to `before` less those to `after`, in units of bound / 2**SUM_BITS.
      One row moves it by at most `SENSITIVITY`, either way.
    """
    return group_sums(block, 1, 1, _gains(frame, before, after, bound))[0].ravel()


def client_gain(
    block: ClientBlock, frame: Frame, before: NDArray[np.float64], after: NDArray[np.float64], bound: int
) -> NDArray[np.int64]:
    """Adds up over clients the mean of `row_gain` over their rows, which takes the same arguments."""
    return client_sums(
        block,
        1,
        lambda chunk: group_sums(chunk, 1, 1, _gains(frame, before, after, bound), by_client=True),
        lambda gains, _, sizes: (_rounded_means(gains, sizes),),
    )


def _gains(frame: Frame, before: NDArray[np.float64], after: NDArray[np.float64], bound: int) -> Vectors:
    """Gains of rows, each from -`SENSITIVITY` to `SENSITIVITY` exactly, all of one group."""
    lattice.check_bounds(bound)

    def gains(points: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows = frame.quantize(points, lattice.SUM_BITS)
        first, second = (assignment.nearest_squared(rows, each, assignment.ROW_NORM)[1] for each in (before, after))
        units = np.rint((first - second) * float(SENSITIVITY) / float(bound))
        clipped = np.clip(units, -SENSITIVITY, SENSITIVITY).astype(np.int64)
        return clipped[:, None], np.zeros(len(rows), dtype=np.int64)

    return gains


def _rounded_means(sums: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Means, shape (n_clients, 1), rounded to the nearest: rows from -SENSITIVITY to SENSITIVITY have no larger one."""
    return (2 * sums.sum(axis=1, keepdims=True) + sizes[:, None]) // (2 * sizes[:, None])
