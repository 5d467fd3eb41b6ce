"""Exact cost and cluster sizes of given centers, at both privacy levels: one unit moves each by at most its bound.

A squared distance is counted in units of its public bound / 2**SUM_BITS, rounded to the nearest and capped on the
integers that are summed.
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
        # Rounded to the nearest, a mean of costs of at most SENSITIVITY is at most that; fractions are truncated.
        total[0] += ((2 * costs + sizes) // (2 * sizes)).sum()
        total[1:] += (counts.reshape(len(sizes), -1) * SENSITIVITY // sizes[:, None]).sum(axis=0)
    return total


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
