"""Sums of differences between rows and their nearest centers, and of directions: one row moves them little.

A row adds to the sum of its nearest center c either x - c, an integer vector no longer than a public radius, or its
direction (x - c) / |x - c|, an integer vector no longer than `DIRECTION_UNITS`; and it adds one to the count of c. Rows
beyond the radius are left out or shortened to it; rows nearer than a least radius have no direction. Distances of
integers are exact, and both bounds hold on the integers that are summed: this is where the sensitivity comes from,
here and nowhere else. It does not depend on the size of the domain.

Differences are stretched by an integer, so that any radius becomes `RELATIVE_UNITS`. The sensitivity is then known
before the radius is, which may follow from earlier releases.

Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", Section 5.1 and Theorem 5.1. Directions are for k-medians.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import assignment, lattice
from dapple_dp.transforms.core.statistics.client_chunks import Vectors, client_sums, group_sums, pass_sums
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.row_pass import kernel

RELATIVE_BITS = 26
RELATIVE_UNITS = 1 << RELATIVE_BITS
"""Norm of what one row (one client's mean) adds to relative sums, at most, in their stretched lattice units."""
DIRECTION_UNITS = lattice.SUM_UNITS
"""Norm of what one row (one client's mean) adds to sums of directions, at most, in lattice units."""
MAX_CENTER_NORM = float(1 << 24)
"""Lattice units: centers this far from the middle still meet rows in exact arithmetic."""

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def stretch(bound: int) -> int:
    """Integer factor that brings sums of norm at most `bound` lattice units to at most RELATIVE_UNITS."""
    if not 1 <= bound <= RELATIVE_UNITS or bound != int(bound):
        raise LatticeOverflowError(f"a radius must be an integer from 1 to 2**26 lattice units, got {bound}; round it.")
    return RELATIVE_UNITS // bound


class Neighborhoods(NamedTuple):
    """Centers with the radius in which their rows count.

    Attributes:
      centers: integers, shape (n_clusters, n_features), L2 norm at most MAX_CENTER_NORM, lattice units at SUM_BITS.
      radius: lattice units at SUM_BITS, an integer in [1, 2**(SUM_BITS + 1)].
      shortens: shortens rows beyond the radius to it; otherwise they are left out.
    """

    centers: NDArray[np.float64]
    radius: int
    shortens: bool = False

    @property
    def size(self) -> int:
        """Number of centers."""
        return len(self.centers)

    @property
    def factor(self) -> int:
        """Integer that stretches differences of rows; see `stretch`."""
        return stretch(self.radius)


def _check_exact(centers: NDArray[np.float64]) -> None:
    """Refuses centers so far out that a score, or the squared distance of a row, could reach 2**53."""
    assignment.check_scores(centers, assignment.ROW_NORM)
    farthest = assignment.ROW_NORM + assignment.largest_norm(centers)
    lattice.check_product(farthest, farthest)


def _difference_sums(
    block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, *, by_client: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sums of differences, each no longer than the radius, and counts, by cell as in `group_sums`."""
    centers, radius, shortens = neighborhoods
    _check_exact(centers)
    width = block.points.shape[1]
    compiled = kernel().row_pass(centers, assignment.ROW_NORM)
    if compiled is not None:
        blocks = frame.integer_blocks(block.points, lattice.SUM_BITS)
        tally = pass_sums(block, blocks, compiled, width, by_client=by_client, radius=radius, shortens=shortens)
        used = np.flatnonzero(tally.inside)
        tally.sums[used] -= tally.inside[used, None] * centers.astype(np.int64)[used % len(centers)]
        return tally.sums, tally.inside + tally.outside

    def differences(points: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        rows = frame.quantize(points, lattice.SUM_BITS)
        labels, squared = assignment.nearest_squared(rows, centers, assignment.ROW_NORM)
        moved = rows - centers[labels]
        outside = np.flatnonzero(~(squared <= float(radius) ** 2))
        if shortens:
            moved[outside] = lattice.clip_l2(moved[outside], radius)
        else:
            labels[outside] = -1
        return moved, labels

    return group_sums(block, len(centers), width, differences, by_client=by_client)


def row_relative_sums(
    block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, bound: int, count_bound: float = 1.0
) -> NDArray[np.int64]:
    """Adds up the differences between rows and their nearest centers, and counts the rows, by cluster.

    Args:
      block: rows.
      frame: public frame.
      neighborhoods: the current centers.
      bound: the radius, which every row keeps.
      count_bound: 1, which every row keeps.

    Returns:
      int64, shape (n_clusters * n_features + n_clusters,): sums row by row, then counts in units of 2**-SUM_BITS
      rows. One row moves the sums by at most `RELATIVE_UNITS` in L2, all of it in one cluster, and that cluster's
      count by 2**SUM_BITS.
    """
    lattice.check_whole((bound, neighborhoods.radius), (count_bound, 1.0))
    sums, counts = _difference_sums(block, frame, neighborhoods, by_client=False)
    return np.concatenate([sums * neighborhoods.factor, counts * lattice.SUM_UNITS], axis=None)


def row_split_sums(
    block: ClientBlock, frame: Frame, centers: NDArray[np.float64], inner: int, outer: int
) -> NDArray[np.int64]:
    """`row_relative_sums` with two cells for each center: rows within an inner radius, and all others.

    Args:
      block: rows.
      frame: public frame.
      centers: integers, shape (n_clusters, n_features), as in `Neighborhoods`.
      inner: lattice units: the radius of the inner cells, from 1 to `outer`.
      outer: lattice units: the differences of all other rows are shortened to it.

    Returns:
      int64, shape (2 * n_clusters * n_features + 2 * n_clusters,): sums of the inner cells stretched from `inner`, of
      the outer cells stretched from `outer`, then counts in the same order. A row is in one cell, so it moves the sums
      by at most `RELATIVE_UNITS` in L2, and one count by 2**SUM_BITS.
    """
    if not 1 <= inner <= outer:
        raise ValueError(f"inner must be a radius from 1 to the radius of outer cells, got {inner} and {outer}.")
    near, every = Neighborhoods(centers, inner), Neighborhoods(centers, outer, shortens=True)
    results = [row_relative_sums(block, frame, around, around.radius) for around in (near, every)]
    # No row is shortened that is in an inner cell, so both passes add the same integers there.
    (within, inside), (total, counts) = (np.split(result, [centers.size]) for result in results)
    return np.concatenate([within, total - within // near.factor * every.factor, inside, counts - inside])


def client_relative_sums(
    block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, bound: int, count_bound: float = 1.0
) -> NDArray[np.int64]:
    """Adds up over clients their relative sums and counts, both divided by the client's rows and clipped in L2.

    Args:
      block: rows grouped by client.
      frame: public frame.
      neighborhoods: the current centers.
      bound: lattice units at SUM_BITS, an integer in [1, radius]: the largest norm of a client's stacked sums.
      count_bound: in (0, 1]: the largest norm of a client's stacked counts, as fractions of its rows; public.

    Returns:
      As from `row_relative_sums`, with sums stretched from `bound` to RELATIVE_UNITS and counts as sums of fractions
      of clients in units of count_bound / 2**SUM_BITS. One client moves the stacked sums by at most `RELATIVE_UNITS`
      and the stacked counts by at most 2**SUM_BITS in L2. A client over its bound is scaled in sums and counts alike,
      so that its direction stays.
    """
    lattice.check_bounds(bound, count_bound)

    def clip(sums: NDArray[np.int64], counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Pair:
        means, shares = _means_and_shares(sums, counts, sizes)
        common = np.minimum(1.0, bound / np.maximum(np.sqrt(lattice.squared_norms(means)), 1.0))
        most = count_bound * lattice.SUM_UNITS / np.maximum(np.sqrt(lattice.squared_norms(shares)), 1.0)
        common = np.minimum(common, most) if count_bound < 1.0 else common
        return (
            lattice.clip_l2(means, RELATIVE_UNITS, rescale=common * stretch(bound)),
            lattice.clip_l2(shares, lattice.SUM_UNITS, rescale=common / count_bound),
        )

    size = neighborhoods.centers.size + neighborhoods.size
    return client_sums(block, size, lambda chunk: _difference_sums(chunk, frame, neighborhoods, by_client=True), clip)


def _means_and_shares(sums: NDArray[np.int64], counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Pair:
    """Sums over the rows of each client, and fractions of its rows in units of 2**-SUM_BITS; truncated."""
    means = lattice.scaled(sums, sizes.astype(np.float64), divided=True)
    return means, lattice.scaled(counts, lattice.SUM_UNITS / sizes)


def directions(
    rows: NDArray[np.float64], centers: NDArray[np.float64], least_radius: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Computes directions of rows from their nearest centers, and the indices of these centers.

    Args:
      rows: integers, shape (n_rows, n_features), L2 norm at most 2**SUM_BITS.
      centers: integers, shape (n_clusters, n_features).
      least_radius: lattice units, >= 1: rows nearer than this have direction zero.

    Returns:
      Integers, shape (n_rows, n_features), L2 norm at most DIRECTION_UNITS, checked; and shape (n_rows,).

    Raises:
      LatticeOverflowError: if centers are too far out for exact distances, or a row is not a number.
    """
    _check_exact(centers)
    labels, squared = assignment.nearest_squared(rows, centers, assignment.ROW_NORM)
    lengths = np.where(squared >= least_radius**2, np.inf, 0.0)
    return lattice.clip_l2(rows - centers[labels], DIRECTION_UNITS, rescale=lengths), labels


def _vectors(frame: Frame, centers: NDArray[np.float64], least_radius: int) -> Vectors:
    return lambda points: directions(frame.quantize(points, lattice.SUM_BITS), centers, least_radius)


def row_direction_sums(
    block: ClientBlock, frame: Frame, centers: NDArray[np.float64], least_radius: int, bound: float
) -> NDArray[np.int64]:
    """Adds up the directions of rows from their nearest centers, and counts the rows, by center.

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
    sums, counts = group_sums(block, len(centers), centers.shape[1], _vectors(frame, centers, least_radius))
    return np.concatenate([sums, counts * lattice.SUM_UNITS], axis=None)


def client_direction_sums(
    block: ClientBlock, frame: Frame, centers: NDArray[np.float64], least_radius: int, bound: float
) -> NDArray[np.int64]:
    """Adds up over clients their direction sums and counts, both divided by the client's rows and clipped in L2.

    Args:
      block: rows grouped by client.
      frame: public frame.
      centers: as in `row_direction_sums`.
      least_radius: likewise.
      bound: in (0, 1]: the largest norm of a client's stacked mean directions; public.

    Returns:
      As from `row_direction_sums`, with sums stretched from `bound` to DIRECTION_UNITS and counts as sums of fractions
      of clients. One client moves the stacked sums by at most `DIRECTION_UNITS` and the stacked counts by at most
      2**SUM_BITS in L2. A client over its bound is scaled in sums and counts alike, so that its direction stays.
    """
    lattice.check_bounds(least_radius, bound)

    def clip(sums: NDArray[np.int64], counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Pair:
        means, shares = _means_and_shares(sums, counts, sizes)
        norms = np.maximum(np.sqrt(lattice.squared_norms(means)), 1.0)
        common = np.minimum(1.0, bound * DIRECTION_UNITS / norms)
        return (
            lattice.clip_l2(means, DIRECTION_UNITS, rescale=common / bound),
            lattice.clip_l2(shares, lattice.SUM_UNITS, rescale=common),
        )

    (k, d), vectors = centers.shape, _vectors(frame, centers, least_radius)
    return client_sums(block, k * (d + 1), lambda chunk: group_sums(chunk, k, d, vectors, by_client=True), clip)
