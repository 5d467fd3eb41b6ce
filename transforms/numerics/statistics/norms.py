"""A private clipping norm: a histogram of row norms over a public grid, and a quantile of its noisy counts."""

import numpy as np
from numpy.typing import NDArray

from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.client_chunks import client_chunks, owners

NORM_GRID = 2.0 ** (np.arange(-80, 81) / 4.0)
"""Upper edges of the bins, feature units: four per octave from 2**-20 to 2**20; the last bin is open."""
NORM_BINS = len(NORM_GRID) + 1
_SIGNIFICANT_STDDEVS = 2.0


def row_norm_histogram(block: ClientBlock, center: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows per bin of their norm.

    Args:
      block: rows.
      center: public, shape (n_features,).

    Returns:
      int64, shape (NORM_BINS,), units of 2**-SUM_BITS rows. One row moves one bin by 2**SUM_BITS.
    """
    total = np.zeros(NORM_BINS, dtype=np.int64)
    for part in lattice.row_blocks(block.points):
        total += np.bincount(_bins(part, center), minlength=NORM_BINS)
    return total * lattice.SUM_UNITS


def client_norm_histogram(block: ClientBlock, center: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sum over clients of the fractions of their rows per bin.

    Returns:
      int64, shape (NORM_BINS,), units of 2**-SUM_BITS clients. One client moves it by at most 2**SUM_BITS in L1, so in
      L2 too: its fractions sum to at most one.
    """
    total = np.zeros(NORM_BINS, dtype=np.int64)
    for chunk in client_chunks(block):
        sizes, owner = owners(chunk)
        cells = owner * NORM_BINS + _bins(chunk.points, center)
        counts = np.bincount(cells, minlength=len(sizes) * NORM_BINS).reshape(len(sizes), NORM_BINS)
        total += (counts * lattice.SUM_UNITS // sizes[:, None]).sum(axis=0)
    return total


def _bins(points: NDArray[np.floating], center: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.searchsorted(NORM_GRID, lattice.row_norms(points, center), side="left")


def noisy_quantile(counts: NDArray[np.float64], stddev: float, quantile: float) -> float:
    """Grid edge below which a share of the noisy counts is.

    Args:
      counts: shape (NORM_BINS,), released.
      stddev: noise stddev of one count; bins under two of it are taken as empty.
      quantile: in (0, 1).

    Returns:
      Feature units; the edge of the heaviest bin if all bins look empty.
    """
    mass = np.where(counts > _SIGNIFICANT_STDDEVS * stddev, counts, 0.0)
    if not mass.any():
        return float(NORM_GRID[min(int(counts.argmax()), len(NORM_GRID) - 1)])
    first = int(np.searchsorted(np.cumsum(mass), quantile * mass.sum(), side="left"))
    return float(NORM_GRID[min(first, len(NORM_GRID) - 1)])
