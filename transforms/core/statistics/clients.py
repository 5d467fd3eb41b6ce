"""Exact statistics of clients, privacy unit `client`: one client moves each by at most its stated bound.

Rows are clipped to the public radius first. Each client's statistic is then scaled so that its public bound
equals a fixed number of lattice units, clipped to it, truncated, and the bound is checked on the integers that
are summed. Norms are exact integers, so what a client adds does not depend on the order of its rows or on the
other clients. Source: Scott et al. (2025), Appendix G.5.
"""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.core.statistics.assignment import RowLabels
from dapple_dp.transforms.core.statistics.client_chunks import (
    CLIENT_BLOCK_ROWS,
    Clip,
    bin_sums,
    client_chunks,
    client_histograms,
    client_sums,
    owners,
)
from dapple_dp.transforms.core.statistics.differences import (
    DIRECTION_UNITS,
    RELATIVE_UNITS,
    Pair,
    client_direction_sums,
    client_relative_sums,
)
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.term_cells import TERM_UNITS, client_term_cells

OUTER_SENSITIVITY = lattice.OUTER_UNITS**2
"""Frobenius norm of one client's clipped scatter, at most, in units of its bound / 2**(2 * OUTER_BITS)."""
SUM_SENSITIVITY = lattice.SUM_UNITS
"""L2 norm of one client's clipped sums, at most, in units of its bound / 2**SUM_BITS."""
COUNT_SENSITIVITY = lattice.SUM_UNITS
"""Norm of one client's clipped counts or histogram, at most, in units of its bound / 2**SUM_BITS."""
RELATIVE_SENSITIVITY = RELATIVE_UNITS
DIRECTION_SENSITIVITY = DIRECTION_UNITS
TERMS_SENSITIVITY = TERM_UNITS
QUALITY_SENSITIVITY = distances.SENSITIVITY
"""The functions of these four bounds explain them."""


def count(block: ClientBlock) -> NDArray[np.int64]:
    """Counts clients: shape (1,), units of 2**-SUM_BITS clients; one client moves it by `COUNT_SENSITIVITY`."""
    return np.array([block.n_clients * lattice.SUM_UNITS], dtype=np.int64)


def outer_product(block: ClientBlock, frame: Frame, bound: float, *, relative: bool) -> NDArray[np.int64]:
    """Adds up over clients their scatter Y^T Y, each clipped to `bound` in Frobenius norm; upper triangle.

    Args:
      block: rows grouped by client.
      frame: public frame.
      bound: > 0, feature units squared; public.
      relative: divides each client's scatter by its number of rows.

    Returns:
      int64, shape (n_features * (n_features + 1) / 2,), units of bound / 2**(2 * OUTER_BITS). One client moves
      the matrix by at most `OUTER_SENSITIVITY` in Frobenius norm.
    """
    lattice.check_bounds(bound)
    n_features = block.points.shape[1]
    stretch = float(frame.lattice.clipping_norm / np.sqrt(bound))
    total = np.zeros((n_features, n_features), dtype=np.int64)
    for chunk in client_chunks(block):
        stretches = stretch / np.sqrt(np.diff(chunk.client_offsets)) if relative else np.full(chunk.n_clients, stretch)
        if len(chunk.points) > CLIENT_BLOCK_ROWS:
            total += _large_scatter(chunk.points, frame, float(stretches[0]))
        else:
            rows = _clipped_rows(chunk, frame, stretches)
            total += (rows.T @ rows).astype(np.int64)
    return lattice.upper_triangle(total)


def _clipped_rows(chunk: ClientBlock, frame: Frame, stretches: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integer rows of several small clients, scaled so that each client's scatter keeps its bound.

    `stretches` (n_clients,) lead from rows whose clipping norm is 2**OUTER_BITS to rows whose scatter bound is
    2**(2 * OUTER_BITS).
    """
    rows = frame.quantize(chunk.points, lattice.OUTER_BITS)
    sizes, owner = owners(chunk)
    place = np.arange(len(rows)) - chunk.client_offsets[owner]
    padded = np.zeros((len(sizes), int(sizes.max(initial=1)), rows.shape[1]))
    padded[owner, place] = rows

    def squared(clients: NDArray[np.float64]) -> NDArray[np.int64]:
        return _squared_scatter_norms(clients.reshape(len(clients), *padded.shape[1:]))

    clients = padded.reshape(len(sizes), -1)
    factors = np.minimum(stretches, _scatter_factors(_as_float(squared(clients))))
    scaled = lattice.scale_until(clients, factors, lambda some: squared(some)[:, 0] < 1 << 32)
    return scaled.reshape(padded.shape)[owner, place]


def _scatter_factors(squared_norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Row factors that bring scatters of these squared Frobenius norms to OUTER_SENSITIVITY."""
    return np.sqrt(OUTER_SENSITIVITY / np.maximum(np.sqrt(squared_norms), 1.0))


def _squared_scatter_norms(padded: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact squared Frobenius norm of each client's scatter (equal to that of its Gram matrix), split in three.

    Args:
      padded: integers, shape (n_clients, n_rows, n_features), zero rows as padding, n_rows at most 2048.

    Returns:
      int64, shape (n_clients, 3): h, m, l with norm^2 = h 2^32 + m 2^17 + l, 0 <= m < 2^15, 0 <= l < 2^17; the
      split is unique, so h < 2^32 means that the norm is below OUTER_SENSITIVITY = 2^32.
    """
    transposed = padded.transpose(0, 2, 1)
    small = padded @ transposed if padded.shape[1] <= padded.shape[2] else transposed @ padded
    gram = small.astype(np.int64).reshape(len(padded), -1)
    high, low = gram >> 16, gram & 0xFFFF
    squares = [np.einsum("ij,ij->i", *pair) for pair in ((high, high), (high, low), (low, low))]
    cross = squares[1] + (squares[2] >> 17)
    return np.stack([squares[0] + (cross >> 15), cross & 0x7FFF, squares[2] & 0x1FFFF], axis=1)


def _as_float(split: NDArray[np.int64]) -> NDArray[np.float64]:
    return split[:, 0] * 2.0**32 + split[:, 1] * 2.0**17 + split[:, 2]


def _large_scatter(points: NDArray[np.floating], frame: Frame, stretch: float) -> NDArray[np.int64]:
    """Clipped scatter of one large client, in blocks: its rows are never held as integers all at once."""

    def scatter(factor: float) -> NDArray[np.int64]:
        total = np.zeros((points.shape[1], points.shape[1]), dtype=np.int64)
        for part in lattice.row_blocks(points):
            rows = np.trunc(frame.quantize(part, lattice.OUTER_BITS) * factor)
            total += (rows.T @ rows).astype(np.int64)
        return total

    def squared(matrix: NDArray[np.int64]) -> int:
        return sum(entry * entry for entry in matrix.ravel().tolist())

    factor = min(stretch, float(_scatter_factors(np.array([float(squared(scatter(1.0)))]))[0]))
    shrink = 1.0 - 2.0**-lattice.SUM_BITS
    while squared(clipped := scatter(factor)) > OUTER_SENSITIVITY**2:
        lattice.check_shrinking(shrink, pending=True)
        factor *= shrink
        shrink *= shrink
    return clipped


def histogram(
    block: ClientBlock, frame: Frame, assigner: RowLabels, bound: float, *, relative: bool
) -> NDArray[np.int64]:
    """Adds up over clients their clipped histograms of nearest public points.

    Args:
      block: rows grouped by client.
      frame: public frame.
      assigner: the points, one bin each.
      bound: > 0, public: a fraction of the client's rows if `relative`, else rows.
      relative: True divides each client's histogram by its number of rows and clips its L2 norm to `bound`;
        False clips the L1 norm of the counts.

    Returns:
      int64, shape (assigner.size,), units of bound / 2**SUM_BITS. One client moves it by at most
      `COUNT_SENSITIVITY`, in L2 or L1.
    """
    lattice.check_bounds(bound)

    def clip(counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        if relative:
            shares = lattice.scaled(counts, COUNT_SENSITIVITY / sizes)
            return lattice.clip_l2(shares, COUNT_SENSITIVITY, rescale=1.0 / bound)
        return lattice.clip_l1(counts, COUNT_SENSITIVITY, rescale=COUNT_SENSITIVITY / bound)

    return client_histograms(block, frame, assigner, clip)


def mean_sums_and_counts(
    block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float
) -> NDArray[np.int64]:
    """Adds up over clients (sums, counts) / rows of the client, both clipped in L2 by one common factor.

    Args:
      block: rows grouped by client.
      frame: public frame.
      assigner: the current centers.
      sums_bound: > 0, feature units: bound on the stacked sums of a client; public.
      counts_bound: > 0: bound on the stacked counts of a client, as fractions of its rows; public.

    Returns:
      int64, shape (n_clusters * n_features + n_clusters,): sums in units of sums_bound / 2**SUM_BITS, counts in
      units of counts_bound / 2**SUM_BITS. One client moves them by at most `SUM_SENSITIVITY` and
      `COUNT_SENSITIVITY` in L2.
    """
    lattice.check_bounds(sums_bound, counts_bound)

    def clip(totals: NDArray[np.int64], rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> Pair:
        sums, counts = lattice.scaled(totals, 1.0 / sizes), lattice.scaled(rows, COUNT_SENSITIVITY / sizes)
        stretch = frame.lattice.clipping_norm / sums_bound, 1.0 / counts_bound
        common = np.minimum(
            np.minimum(1.0, SUM_SENSITIVITY / np.maximum(np.sqrt(lattice.squared_norms(sums)) * stretch[0], 1.0)),
            COUNT_SENSITIVITY / np.maximum(np.sqrt(lattice.squared_norms(counts)) * stretch[1], 1.0),
        )
        return (
            lattice.clip_l2(sums, SUM_SENSITIVITY, rescale=common * stretch[0]),
            lattice.clip_l2(counts, COUNT_SENSITIVITY, rescale=common * stretch[1]),
        )

    return _clipped_totals(block, frame, assigner, clip)


def means_of_means(
    block: ClientBlock, frame: Frame, assigner: RowLabels, means_bound: float, presence_bound: float
) -> NDArray[np.int64]:
    """Adds up over clients the mean row per cluster (L2-clipped) and the non-empty clusters (L1-clipped).

    Arguments and result are those of `mean_sums_and_counts`, but for `means_bound` (> 0, feature units, public), which
    bounds a client's stacked means, and `presence_bound` (> 0, public), which bounds the number of its clusters.
    """
    lattice.check_bounds(means_bound, presence_bound)

    def clip(sums: NDArray[np.int64], counts: NDArray[np.int64], _: NDArray[np.int64]) -> Pair:
        n_features = sums.shape[1] // counts.shape[1]
        means = np.trunc(sums / np.repeat(np.maximum(counts, 1.0), n_features, axis=1))
        present = (counts > 0).astype(np.float64)
        return (
            lattice.clip_l2(means, SUM_SENSITIVITY, rescale=frame.lattice.clipping_norm / means_bound),
            lattice.clip_l1(present, COUNT_SENSITIVITY, rescale=COUNT_SENSITIVITY / presence_bound),
        )

    return _clipped_totals(block, frame, assigner, clip)


def clipped_sums_and_counts(
    block: ClientBlock, frame: Frame, assigner: RowLabels, sums_bound: float, counts_bound: float
) -> NDArray[np.int64]:
    """Adds up over clients their sums (L2-clipped) and counts (L1-clipped), clipped separately.

    Arguments and result are those of `mean_sums_and_counts`, but for the bounds, which are on sums and counts that are
    not divided by the client's rows: feature units and rows.
    """
    lattice.check_bounds(sums_bound, counts_bound)

    def clip(sums: NDArray[np.int64], counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Pair:
        averages = lattice.scaled(sums, 1.0 / sizes)
        stretch = sizes * (frame.lattice.clipping_norm / sums_bound)
        return (
            lattice.clip_l2(averages, SUM_SENSITIVITY, rescale=stretch.astype(np.float64)),
            lattice.clip_l1(counts, COUNT_SENSITIVITY, rescale=COUNT_SENSITIVITY / counts_bound),
        )

    return _clipped_totals(block, frame, assigner, clip)


def _clipped_totals(block: ClientBlock, frame: Frame, assigner: RowLabels, clip: Clip) -> NDArray[np.int64]:
    """Adds up each client's stacked sums and counts by cluster, after `clip`."""
    size = assigner.size * block.points.shape[1] + assigner.size
    return client_sums(block, size, lambda chunk: bin_sums(chunk, frame, assigner, by_client=True), clip)


relative_sums = client_relative_sums
direction_sums = client_direction_sums
term_cells = client_term_cells
norm_histogram = distances.client_norm_histogram
quality = distances.client_quality
gain = distances.client_gain
