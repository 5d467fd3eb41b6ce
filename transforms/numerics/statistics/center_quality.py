"""Exact cost and cluster sizes of given centers, and by how much others cost less, at both privacy levels.

One unit moves each by at most its bound. A squared distance, or the difference of two, is counted in units of its
public bound / 2**SUM_BITS, rounded to the nearest and capped on the integers that are summed.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics import assignment, lattice
from transforms.numerics.statistics.client_chunks import CLIENT_BLOCK_ROWS, client_chunks, owners
from transforms.numerics.statistics.frame import Frame

SENSITIVITY = lattice.SUM_UNITS
"""How far one row (client) moves the cost, and the sizes in L1 and so in L2, at most."""


def squared_bound(centers: NDArray[np.float64], max_distance: float = math.inf) -> int:
    """Squared distance at which costs are capped.

    No row of the clipping ball is farther from its nearest center than from the innermost one, and that is at most the
    clipping norm and this center's norm away: a cap there cuts nothing off.

    Args:
      centers: integers, shape (n_clusters, n_features), at SUM_BITS, in the clipping ball; public.
      max_distance: > 0, lattice units; a lower cap, public.

    Returns:
      Squared lattice units, from 1 to a little more than 4 * 4**SUM_BITS.
    """
    innermost = math.isqrt(int(lattice.squared_norms(centers).min())) + 1
    within_ball = (lattice.SUM_UNITS + innermost) ** 2
    return max(int(min(within_ball, max_distance * max_distance)), 1)


def row_quality(block: ClientBlock, frame: Frame, centers: NDArray[np.float64], bound: int) -> NDArray[np.int64]:
    """Cost, then rows per nearest center.

    Args:
      block: rows.
      frame: public frame.
      centers: integers, shape (n_clusters, n_features), at SUM_BITS, in the clipping ball; public.
      bound: `squared_bound` of the centers.

    Returns:
      int64, shape (1 + n_clusters,): cost in units of bound / 2**SUM_BITS, sizes in units of 2**-SUM_BITS
      rows. One row moves the cost by at most `SENSITIVITY`, and one size by exactly that.
    """
    cost, sizes = 0, np.zeros(len(centers), dtype=np.int64)
    for labels, costs in _costs(block.points, frame, centers, bound, lattice.BLOCK_ROWS):
        cost += int(costs.sum())
        sizes += np.bincount(labels, minlength=len(centers))
    return np.concatenate([[cost], sizes * lattice.SUM_UNITS])


def client_quality(block: ClientBlock, frame: Frame, centers: NDArray[np.float64], bound: int) -> NDArray[np.int64]:
    """Sum over clients of their mean cost, then of the fractions of their rows per nearest center.

    Args:
      block: rows grouped by client.
      frame: public frame.
      centers: as of `row_quality`.
      bound: `squared_bound` of the centers.

    Returns:
      int64, shape (1 + n_clusters,): cost in units of bound / 2**SUM_BITS, sizes in units of 2**-SUM_BITS
      clients. One client moves the cost by at most `SENSITIVITY`, and the sizes by at most that in L1.
    """
    total = np.zeros(1 + len(centers), dtype=np.int64)
    for chunk in client_chunks(block):
        sizes, owner = owners(chunk)
        costs, counts = np.zeros(len(sizes), dtype=np.int64), np.zeros(len(sizes) * len(centers), dtype=np.int64)
        start = 0
        for labels, costs_of_rows in _costs(chunk.points, frame, centers, bound, CLIENT_BLOCK_ROWS):
            clients = owner[start : start + len(labels)]
            np.add.at(costs, clients, costs_of_rows)
            counts += np.bincount(clients * len(centers) + labels, minlength=len(counts))
            start += len(labels)
        total[0] += _rounded_means(costs, sizes).sum()
        # Fractions are truncated.
        total[1:] += (counts.reshape(len(sizes), -1) * SENSITIVITY // sizes[:, None]).sum(axis=0)
    return total


def row_gain(
    block: ClientBlock, frame: Frame, before: NDArray[np.float64], after: NDArray[np.float64], bound: int
) -> NDArray[np.int64]:
    """By how much nearer rows are to some centers than to others: differences of squared distances, each capped.

    The cap is on the difference, not on either side: rows that are as far from both say nothing, whatever they cost.

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
    total = sum(int(gains.sum()) for gains in _gains(block.points, frame, before, after, bound, lattice.BLOCK_ROWS))
    return np.array([total], dtype=np.int64)


def client_gain(
    block: ClientBlock, frame: Frame, before: NDArray[np.float64], after: NDArray[np.float64], bound: int
) -> NDArray[np.int64]:
    """Sum over clients of the mean of `row_gain` over their rows, which takes the same arguments."""
    total = 0
    for chunk in client_chunks(block):
        sizes, owner = owners(chunk)
        sums, start = np.zeros(len(sizes), dtype=np.int64), 0
        for gains in _gains(chunk.points, frame, before, after, bound, CLIENT_BLOCK_ROWS):
            np.add.at(sums, owner[start : start + len(gains)], gains)
            start += len(gains)
        total += int(_rounded_means(sums, sizes).sum())
    return np.array([total], dtype=np.int64)


def _rounded_means(sums: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Means of numbers from -SENSITIVITY to SENSITIVITY, rounded to the nearest: so they are no larger than these."""
    return (2 * sums + sizes) // (2 * sizes)


def _gains(
    points: NDArray[np.floating],
    frame: Frame,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    bound: int,
    size: int,
) -> Iterator[NDArray[np.int64]]:
    """By how much nearer each row of a block is to `after` than to `before`, from -`SENSITIVITY` to that, exactly."""
    for block in lattice.row_blocks(points, size):
        rows = frame.quantize(block, lattice.SUM_BITS)
        first, second = (assignment.nearest_squared(rows, each, assignment.ROW_NORM)[1] for each in (before, after))
        # As of costs, the product is exact.
        units = np.rint((first - second) * float(SENSITIVITY) / float(bound))
        yield np.clip(units, -SENSITIVITY, SENSITIVITY).astype(np.int64)


def _costs(
    points: NDArray[np.floating], frame: Frame, centers: NDArray[np.float64], bound: int, size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Nearest centers and costs of blocks of rows; each cost is from 0 to `SENSITIVITY`, exactly."""
    for block in lattice.row_blocks(points, size):
        rows = frame.quantize(block, lattice.SUM_BITS)
        labels, squared = assignment.nearest_squared(rows, centers, assignment.ROW_NORM)
        # The product is exact, so that the same distance is the same number of units everywhere.
        units = np.rint(squared * float(SENSITIVITY) / float(bound))
        yield labels, np.minimum(units, SENSITIVITY).astype(np.int64)
