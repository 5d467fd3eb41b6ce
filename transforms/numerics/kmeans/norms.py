"""A clipping norm from the noisy histogram of row norms."""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics.distances import NORM_GRID

_SIGNIFICANT_STDDEVS = 2.0


def noisy_quantile(counts: NDArray[np.float64], stddev: float, quantile: float) -> float:
    """Returns the grid edge below which a share of the noisy counts lies.

    Args:
      counts: shape (NORM_BINS,), released.
      stddev: noise stddev of one count; bins below two of it count as empty.
      quantile: in (0, 1).

    Returns:
      Feature units; the edge of the heaviest bin if all bins look empty.
    """
    mass = np.where(counts > _SIGNIFICANT_STDDEVS * stddev, counts, 0.0)
    if not mass.any():
        return float(NORM_GRID[min(int(counts.argmax()), len(NORM_GRID) - 1)])
    first = int(np.searchsorted(np.cumsum(mass), quantile * mass.sum(), side="left"))
    return float(NORM_GRID[min(first, len(NORM_GRID) - 1)])
