"""Centers that depend on no data: spread over a cube, far from its sides and from each other.

Source: Su, Cao, Li, Bertino, Lyu, Jin (2017), "Differentially private k-means clustering and a hybrid approach to
private optimization", Section 4.1.
"""

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

ATTEMPTS = 1000
"""Random points tried for each center before a radius counts as too large."""
_STEPS = 30
_FEW = 16


@functools.lru_cache(maxsize=64)
def pack(n_centers: int, n_features: int, half_side: float, seed: int) -> NDArray[np.float64]:
    """Places centers in a cube with the largest radius for which random placement succeeds.

    A radius r is feasible if centers at least r from the sides and 2 r from each other are found within
    `ATTEMPTS` random points each; the largest one is found by bisection.

    Args:
      n_centers: >= 1.
      n_features: >= 1.
      half_side: > 0: the cube is [-half_side, half_side]^n_features.
      seed: public.

    Returns:
      Shape (n_centers, n_features), read-only; remembered for the next call.
    """
    low, high = 0.0, half_side
    found = _place(n_centers, n_features, half_side, low, seed)
    for _ in range(_STEPS):
        radius = 0.5 * (low + high)
        placed = _place(n_centers, n_features, half_side, radius, seed)
        if len(placed) == n_centers:
            low, found = radius, placed
        else:
            high = radius
    found.flags.writeable = False
    return found


def _place(n_centers: int, n_features: int, half_side: float, radius: float, seed: int) -> NDArray[np.float64]:
    """Places as many centers as possible with this radius, in the order in which they are found.

    Points are drawn from the smaller cube that keeps the distance from the sides, as if by rejection.
    """
    rng = np.random.default_rng([seed, 4])
    inner = half_side - radius
    placed = np.empty((n_centers, n_features))
    for index in range(n_centers):
        tried = rng.uniform(-inner, inner, (ATTEMPTS, n_features))
        chosen = _first_apart(tried, placed[:index], 4.0 * radius**2)
        if chosen is None:
            return placed[:index]
        placed[index] = tried[chosen]
    return placed


def _first_apart(tried: NDArray[np.float64], placed: NDArray[np.float64], squared: float) -> int | None:
    """Returns the index of the first point whose squared distances to all centers are large enough, or None.

    A few points are compared first, since one of them usually fits; a point that is too near one center is
    compared to no other.
    """
    for start, stop in itertools.pairwise((0, _FEW, len(tried))):
        left = np.arange(start, stop)
        for center in placed:
            left = left[((tried[left] - center) ** 2).sum(axis=1) >= squared]
            if not left.size:
                break
        if left.size:
            return int(left[0])
    return None
