"""Centers that know no data: spread over a cube, far from its sides and from each other.

Source: Su, Cao, Li, Bertino, Lyu, Jin (2017), "Differentially private k-means clustering and a hybrid approach to
private optimization", Section 4.1.
"""

import functools

import numpy as np
from numpy.typing import NDArray

ATTEMPTS = 1000
"""Random points tried for each center before a radius counts as too large."""
_STEPS = 30


@functools.lru_cache(maxsize=64)
def pack(n_centers: int, n_features: int, half_side: float, seed: int) -> NDArray[np.float64]:
    """Centers in a cube with the largest radius for which random placement succeeds.

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
    """As many centers as can be placed with this radius, in the order in which they are found.

    Points are drawn from the cube that keeps its distance from the sides: what rejection would leave.
    """
    rng = np.random.default_rng([seed, 4])
    inner = half_side - radius
    placed = np.zeros((0, n_features))
    while len(placed) < n_centers:
        tried = rng.uniform(-inner, inner, (ATTEMPTS, n_features))
        squared = ((tried[:, None, :] - placed[None, :, :]) ** 2).sum(axis=2)
        apart = np.flatnonzero((squared >= 4.0 * radius**2).all(axis=1))
        if not apart.size:
            return placed
        placed = np.vstack([placed, tried[apart[0]]])
    return placed
