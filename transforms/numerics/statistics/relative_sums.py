"""Exact sums of rows relative to their centers inside a radius, at record and client level: small sensitivities.

A row contributes its difference to the nearest center, an integer vector of L2 norm at most the radius, and one
count; a row farther off contributes nothing, or is shortened to the radius. Differences of integers are exact, so
the radius holds on what is summed: this is where the sensitivity comes from, here and nowhere else.

Every radius is stretched to the same number of lattice units, `RELATIVE_UNITS`, by an integer factor. So the
sensitivity is known before the radius is, which may follow from earlier releases.
Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", Section 5.1 and Theorem 5.1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.kernel.row_pass import RowPass, Tally
from transforms.numerics.statistics import assignment, lattice
from transforms.numerics.statistics.client_chunks import as_totals, client_chunks, client_tally, client_totals
from transforms.numerics.statistics.frame import Frame

RELATIVE_BITS = 26
RELATIVE_UNITS = 1 << RELATIVE_BITS
"""Norm of what one row (one client's mean) adds to relative sums, at most, in their stretched lattice units."""
MAX_CENTER_NORM = float(1 << 24)
"""Lattice units: centers this far from the middle still meet rows in exact arithmetic."""
_BLOCK_VALUES = 1 << 15
_MOST_BLOCK_ROWS = 1 << 13


def stretch(bound: int) -> int:
    """Integer factor that brings sums of norm at most `bound` lattice units to at most RELATIVE_UNITS."""
    return RELATIVE_UNITS // bound


class Neighborhoods(NamedTuple):
    """Centers with the radius in which their rows count.

    Attributes:
      centers: integers, shape (n_clusters, n_features), L2 norm at most MAX_CENTER_NORM, lattice units at SUM_BITS.
      radius: lattice units at SUM_BITS, an integer in [1, 2**(SUM_BITS + 1)].
      shortens: whether rows beyond the radius are shortened to it; otherwise they are left out.
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


class _Assigned(NamedTuple):
    """Rows of a block with their centers.

    Attributes:
      rows: integers, shape (n_rows, n_features).
      nearest: shape (n_clusters, n_rows): exactly one true in each column.
      inside: shape (n_rows,): whether the distance is at most the radius.
    """

    rows: NDArray[np.float64]
    nearest: NDArray[np.bool_]
    inside: NDArray[np.bool_]


def _assign(rows: NDArray[np.float64], neighborhoods: Neighborhoods) -> _Assigned:
    """Nearest centers, ties to the lowest index, and distances; every comparison is of exact integers."""
    centers = neighborhoods.centers
    # scores: (n_clusters, n_rows), so that maxima run along memory.
    scores = (2.0 * centers) @ rows.T
    scores -= lattice.squared_norms(centers)[:, None]
    best = scores.max(axis=0)
    nearest = scores == best
    if np.count_nonzero(nearest) > len(rows):
        nearest = nearest & (np.cumsum(nearest, axis=0) == 1)
    squared = lattice.squared_norms(rows)
    squared -= best
    return _Assigned(rows, nearest, squared <= float(neighborhoods.radius) ** 2)


def _check_exact(centers: NDArray[np.float64]) -> None:
    """Refuses centers so far out that a score, or the squared distance of a row, could reach 2**53."""
    assignment.check_scores(centers, assignment.ROW_NORM)
    farthest = assignment.ROW_NORM + assignment.largest_norm(centers)
    lattice.check_product(farthest, farthest)


def row_relative_sums(
    block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, bound: int, count_bound: float = 1.0
) -> NDArray[np.int64]:
    """Sum of the differences of rows to their center, and number of rows, per cluster.

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
    _check_exact(neighborhoods.centers)
    n_features = block.points.shape[1]
    compiled = RowPass.of(neighborhoods.centers, assignment.ROW_NORM)
    if compiled is not None:
        return _compiled_sums(compiled, block, frame, neighborhoods)
    sums = np.zeros((neighborhoods.size, n_features), dtype=np.int64)
    counts = np.zeros(neighborhoods.size, dtype=np.int64)
    integers = neighborhoods.centers.astype(np.int64)
    for part in lattice.row_blocks(block.points, _block_rows(n_features)):
        assigned = _assign(frame.quantize(part, lattice.SUM_BITS), neighborhoods)
        members = assigned.nearest & assigned.inside
        inside = np.count_nonzero(members, axis=1)
        sums += (members.astype(np.float64) @ assigned.rows).astype(np.int64) - inside[:, None] * integers
        counts += inside
        if neighborhoods.shortens and not assigned.inside.all():
            outside = np.flatnonzero(~assigned.inside)
            labels = assigned.nearest[:, outside].argmax(axis=0)
            differences = lattice.clip_l2(assigned.rows[outside] - neighborhoods.centers[labels], neighborhoods.radius)
            np.add.at(sums, labels, differences.astype(np.int64))
            counts += np.bincount(labels, minlength=len(counts))
    return np.concatenate([(sums * neighborhoods.factor).ravel(), counts * lattice.SUM_UNITS])


def row_split_sums(
    block: ClientBlock, frame: Frame, centers: NDArray[np.float64], inner: int, outer: int
) -> NDArray[np.int64]:
    """`row_relative_sums` with two cells for each center: of the rows within a radius of it, and of those beyond it.

    Args:
      block: rows.
      frame: public frame.
      centers: integers, shape (n_clusters, n_features), as of `Neighborhoods`.
      inner: lattice units: the radius of the inner cells, from 1 to `outer`.
      outer: lattice units: to which the differences of all other rows are shortened.

    Returns:
      int64, shape (2 * n_clusters * n_features + 2 * n_clusters,): sums of the inner cells stretched from `inner`, of
      the outer cells stretched from `outer`, then counts in the same order. A row is in one cell, so it moves the sums
      by at most `RELATIVE_UNITS` in L2, and one count by 2**SUM_BITS.
    """
    if not 1 <= inner <= outer:
        raise ValueError(f"inner must be a radius from 1 to that of the outer cells, got {inner} and {outer}.")
    near, every = Neighborhoods(centers, inner), Neighborhoods(centers, outer, shortens=True)
    found = [row_relative_sums(block, frame, each, each.radius) for each in (near, every)]
    # No row is shortened that is in an inner cell, so both passes add the same integers there.
    (within, inside), (total, counts) = (np.split(each, [centers.size]) for each in found)
    return np.concatenate([within, total - within // near.factor * every.factor, inside, counts - inside])


def _compiled_sums(
    compiled: RowPass, block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods
) -> NDArray[np.int64]:
    """`row_relative_sums` by the compiled pass."""
    tally = Tally.zeros(neighborhoods.size, block.points.shape[1])
    for integers in frame.integer_blocks(block.points, lattice.SUM_BITS):
        compiled.add(tally, integers, radius=neighborhoods.radius, shortens=neighborhoods.shortens)
    counts = (tally.inside + tally.outside) * lattice.SUM_UNITS
    return np.concatenate([_differences(tally, neighborhoods) * neighborhoods.factor, counts], axis=None)


def _differences(tally: Tally, neighborhoods: Neighborhoods) -> NDArray[np.int64]:
    """Sums of the differences of rows from their centers, by cell, in the place of `tally.sums`."""
    used = np.flatnonzero(tally.inside)
    centers = neighborhoods.centers.astype(np.int64)
    tally.sums[used] -= tally.inside[used, None] * centers[used % len(centers)]
    return tally.sums


def _block_rows(n_features: int) -> int:
    """Rows worked on at a time: few features leave room for more of them in the cache."""
    return min(max(_BLOCK_VALUES // n_features, lattice.BLOCK_ROWS), _MOST_BLOCK_ROWS)


def client_relative_sums(
    block: ClientBlock, frame: Frame, neighborhoods: Neighborhoods, bound: int, count_bound: float = 1.0
) -> NDArray[np.int64]:
    """Sum over clients of their relative sums and counts, both divided by the client's rows and clipped in L2.

    Args:
      block: rows grouped by client.
      frame: public frame.
      neighborhoods: the current centers.
      bound: lattice units at SUM_BITS, an integer in [1, radius]: the largest norm of a client's stacked sums.
      count_bound: in (0, 1]: the largest norm of a client's stacked counts, as fractions of its rows; public.

    Returns:
      As `row_relative_sums`, the sums stretched from `bound` to RELATIVE_UNITS, counts as sums of fractions of
      clients, in units of count_bound / 2**SUM_BITS.
      One client moves the stacked sums by at most `RELATIVE_UNITS` and the stacked counts by at most 2**SUM_BITS in
      L2. A client over its bound is scaled in sums and counts alike, so that its direction stays.
    """
    lattice.check_bounds(bound, count_bound)
    _check_exact(neighborhoods.centers)
    centers = neighborhoods.centers

    def differences(points: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        assigned = _assign(frame.quantize(points, lattice.SUM_BITS), neighborhoods)
        labels = assigned.nearest.argmax(axis=0)
        moved = assigned.rows - centers[labels]
        outside = np.flatnonzero(~assigned.inside)
        if neighborhoods.shortens:
            moved[outside] = lattice.clip_l2(moved[outside], neighborhoods.radius)
        else:
            labels[outside] = -1
        return moved, labels

    sums, counts = np.zeros(centers.size, dtype=np.int64), np.zeros(len(centers), dtype=np.int64)
    compiled = RowPass.of(centers, assignment.ROW_NORM)
    for chunk in client_chunks(block, max(1, (1 << 21) // len(sums))):
        if compiled is None:
            totals, rows = client_totals(chunk, len(centers), differences)
        else:
            tally = client_tally(chunk, frame, compiled, radius=neighborhoods.radius, shortens=neighborhoods.shortens)
            found = _differences(tally, neighborhoods), tally.inside + tally.outside
            totals, rows = as_totals(*found, chunk.n_clients)
        client_rows = np.diff(chunk.client_offsets)[:, None]
        means = np.trunc(totals / client_rows)
        shares = np.trunc(rows * (lattice.SUM_UNITS / client_rows))
        common = np.minimum(1.0, bound / np.maximum(np.sqrt(lattice.squared_norms(means)), 1.0))
        most = count_bound * lattice.SUM_UNITS / np.maximum(np.sqrt(lattice.squared_norms(shares)), 1.0)
        common = np.minimum(common, most) if count_bound < 1.0 else common
        sums += lattice.clip_l2(means, RELATIVE_UNITS, rescale=common * stretch(bound)).sum(axis=0).astype(np.int64)
        counts += lattice.clip_l2(shares, lattice.SUM_UNITS, rescale=common / count_bound).sum(axis=0).astype(np.int64)
    return np.concatenate([sums, counts])
