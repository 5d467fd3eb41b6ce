"""Exact counts and sums per cluster for a profile, and samples of units.

Rows come with the index of their cluster and, if the client is the privacy unit, with that of their client.
"""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.tables.partition import mix


def clip(values: NDArray[np.floating], lower: float, upper: float) -> NDArray[np.float64]:
    """Clips values to public bounds, float64, shape (n_rows,); NaN must have been removed."""
    return np.clip(values.astype(np.float64), lower, upper)


def centered_units(
    values: NDArray[np.float64], lower: float, upper: float, units_per_half_range: int
) -> NDArray[np.float64]:
    """Returns the distances from the middle of the range as integers, truncated toward zero.

    Args:
      values: shape (n_rows,), inside [lower, upper].
      lower: public.
      upper: public, greater.
      units_per_half_range: the integer that (upper - lower) / 2 becomes.

    Returns:
      Integers in float64, shape (n_rows,), never beyond `units_per_half_range` in magnitude.

    Example:
      >>> centered_units(np.array([0.0, 5.0, 7.4, 10.0]), 0.0, 10.0, 10).tolist()
      [-10.0, 0.0, 4.0, 10.0]
    """
    half = upper / 2.0 - lower / 2.0
    units = np.trunc((values - (lower + half)) / half * units_per_half_range) + 0.0
    return np.clip(units, -units_per_half_range, units_per_half_range)


def cluster_sums(labels: NDArray[np.int64], units: NDArray[np.float64], n_clusters: int) -> NDArray[np.int64]:
    """Adds up integers per cluster, shape (n_clusters,), int64; exact below 2**53, which 2**32 rows don't reach."""
    return np.bincount(labels, weights=units, minlength=n_clusters).astype(np.int64)


def cell_counts(cells: NDArray[np.int64], n_cells: int, clients: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Counts rows or distinct clients per cell.

    Args:
      cells: shape (n_rows,), in [0, n_cells).
      n_cells: >= 1.
      clients: shape (n_rows,): index of each row's client; None to count rows.

    Returns:
      int64, shape (n_cells,).

    Example:
      >>> cell_counts(np.array([0, 0, 1]), 2, np.array([7, 7, 7])).tolist()
      [1, 1]
    """
    return np.bincount(_once_per_client(cells, n_cells, clients), minlength=n_cells)


def occupied_cells(
    cells: NDArray[np.int64], n_cells: int, clients: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns `cell_counts` of the cells that occur, for many cells of which few do; n_cells may be 0.

    Returns:
      The cells, ascending, and their counts.
    """
    return np.unique(_once_per_client(cells, n_cells, clients), return_counts=True)


def _once_per_client(cells: NDArray[np.int64], n_cells: int, clients: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Returns the cells, each once per client if there are clients."""
    return cells if clients is None or not len(cells) else np.unique(clients * n_cells + cells) % n_cells


def sampled_rows(stream: KeyStream, n_rows: int, rate: float) -> NDArray[np.bool_]:
    """Draws a Poisson sample of rows, a mask of shape (n_rows,): one coin per row, from the stream.

    Args:
      stream: of the shard, read from its start.
      n_rows: >= 0.
      rate: public, in (0, 1].
    """
    return _heads(stream.uint64(n_rows), rate)


def sampled_clients(digests: NDArray[np.uint64], secret: int, rate: float) -> NDArray[np.bool_]:
    """Draws a sample of clients, a mask of shape (n_clients,), by a keyed hash of the client's id alone.

    Args:
      digests: uint64, shape (n_clients,), of the ids.
      secret: 64 secret bits.
      rate: public, in (0, 1].
    """
    return _heads(mix(digests ^ np.uint64(secret)), rate)


def _heads(words: NDArray[np.uint64], rate: float) -> NDArray[np.bool_]:
    """Returns whether uniform words are below the rate."""
    if rate >= 1.0:
        return np.ones(len(words), dtype=np.bool_)
    return words < np.uint64(int(rate * 2.0**64))
