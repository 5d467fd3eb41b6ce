"""The curves of a sweep: bands around means, areas under curves, Pareto fronts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats


class Band(NamedTuple):
    """A mean and its confidence interval: `mean`, `low`, `high`, each a float."""

    mean: float
    low: float
    high: float


def confidence_band(values: NDArray[np.float64], confidence: float = 0.95) -> Band:
    """Returns Student's interval of the mean.

    Args:
      values: shape (n,), n >= 1; of one value the interval is unbounded.
      confidence: in (0, 1).

    Example:
      >>> import numpy as np
      >>> [round(each, 3) for each in confidence_band(np.array([1.0, 2.0, 3.0]))]
      [2.0, -0.484, 4.484]
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return Band(mean, -np.inf, np.inf)
    half = float(stats.t.ppf(0.5 + confidence / 2.0, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Band(mean, mean - half, mean + half)


def area_under(epsilons: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the area under cost against epsilon by the trapezoid rule.

    Args:
      epsilons: shape (n,), ascending.
      costs: shape (..., n).

    Returns:
      shape (...).
    """
    return np.asarray(np.trapezoid(costs, epsilons, axis=-1))


def on_front(epsilons: NDArray[np.float64], costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Marks points that no other one beats: none has both a lower-or-equal epsilon and cost, one of them lower.

    Args:
      epsilons: shape (n,).
      costs: shape (n,).

    Returns:
      shape (n,).

    Example:
      >>> import numpy as np
      >>> on_front(np.array([1.0, 1.0, 2.0]), np.array([3.0, 4.0, 3.5])).tolist()
      [True, False, False]
    """
    no_worse = (epsilons[None] <= epsilons[:, None]) & (costs[None] <= costs[:, None])
    better = (epsilons[None] < epsilons[:, None]) | (costs[None] < costs[:, None])
    return np.asarray(~(no_worse & better).any(axis=1))
