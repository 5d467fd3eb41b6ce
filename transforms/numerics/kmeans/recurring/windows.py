"""Windows with correlated noise: weighted sums over earlier windows, and how to solve for single windows.

A window releases a weighted sum of its own exact statistic and those of the windows before it, with fresh noise.
Anyone with all releases so far can solve for the single windows: their noise is correlated so that it cancels in
sums over many windows. Weights are integers, so that the weighted sum is exact.

Source: Fichtenberger, Henzinger, Upadhyay (2022), "Constant matters: Fine-grained complexity of differentially private
continual observation", for the square root of the matrix of prefix sums; here with decay, rounded and banded.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def epoch_sensitivity(column: Sequence[int], units: int) -> int:
    """Returns the most by which one privacy unit moves all releases of an epoch together, in L2.

    It moves each release by an integer times its statistic. So the squares add up.

    Args:
      column: of these integers, see `stated_sensitivity.worst_column`; the weights of the ages for a
        unit that counts in one window.
      units: the most by which it moves the statistic of a window, lattice units.

    Returns:
      Lattice units, rounded up.
    """
    return math.isqrt(units**2 * sum(each**2 for each in column) - 1) + 1


def own_part(noisy: NDArray[np.float64], earlier: NDArray[np.float64], weights: Sequence[int]) -> NDArray[np.float64]:
    """Solves for a window's own noisy statistic.

    Args:
      noisy: release of the window, any shape.
      earlier: shape (n, *noisy.shape): own parts of the windows before it, the youngest first; those that are missing
        began before the epoch.
      weights: by age.
    """
    rest = sum((weight * part for weight, part in zip(weights[1:], earlier, strict=False)), start=np.zeros_like(noisy))
    return np.asarray((noisy - rest) / weights[0])


def _series(weights: Sequence[int], n_windows: int) -> NDArray[np.float64]:
    """Returns the weights of a window's and earlier windows' noise in its own part, by age, shape (n,)."""
    series = np.zeros(n_windows)
    for age in range(n_windows):
        seen = min(len(weights) - 1, age)
        rest = sum(weights[back] * series[age - back] for back in range(1, seen + 1))
        series[age] = 1.0 if age == 0 else -rest / weights[0]
    return series


def remembered_noise(weights: Sequence[int], column: Sequence[int], length: int, n_windows: int) -> float:
    """Returns the noise of a remembered count over the amount that a unit in every window would add to it.

    Args:
      weights: by age; (1,) for independent windows.
      column: moves that the noise covers, see `epoch_sensitivity`.
      length: of the memory, in windows.
      n_windows: of the epoch.

    Returns:
      For noise of stddev 1 for a sensitivity of 1.

    Example:
      >>> round(remembered_noise((1,), (1,) * 365, 30, 365), 2)
      2.49
    """
    decay, taken = 1.0 - 1.0 / length, np.zeros(n_windows)
    for age, part in enumerate(_series(weights, n_windows)):
        taken[age] = part + (decay * taken[age - 1] if age else 0.0)
    total = (decay ** np.arange(n_windows)).sum()
    return float(math.hypot(*column) / weights[0] * np.sqrt((taken**2).sum()) / total)


def mixing(weights: Sequence[int], n_windows: int) -> NDArray[np.float64]:
    """Returns the matrix that makes own parts of successive windows from their noises.

    Returns:
      Shape (n, n), lower triangular: row t has the weight of each window's noise in own part t, in units of its weight
      for independent windows.
    """
    series = _series(weights, n_windows)
    rows = np.arange(n_windows)
    distance = rows[:, None] - rows[None, :]
    return np.where(distance >= 0, series[np.maximum(distance, 0)], 0.0)


def own_noise(weights: Sequence[int], n_windows: int) -> NDArray[np.float64]:
    """Returns the noise stddev of the own part of successive windows: norms of the rows of `mixing`, computed directly.

    Returns:
      Shape (n,), ascending from 1, in units of the noise of independent windows.

    Example:
      >>> own_noise((4, 2), 3).round(3).tolist()
      [1.0, 1.118, 1.146]
    """
    return np.asarray(np.sqrt(np.cumsum(_series(weights, n_windows) ** 2)))
