"""Generations of candidates: public draws, of which those near many rows have offspring.

All of it is post-processing of released histograms; its seeds are public.
Source: after Humphries, Lin, Yekhanin (2026), "PE-means" (arXiv 2606.00342).
"""

import math

import numpy as np
from numpy.typing import NDArray

SPREAD = math.sqrt(1.5)
"""Deviations of the first generation, in those of the rows, which are shortened before they are measured."""
KEPT = 0.8
"""Part of a candidate's distance from the middle that offspring inherit; otherwise they would drift outwards."""
MUTATION = 0.3
"""Deviations of the first mutations, in those of the rows."""
COOLING = 0.6
"""Factor for the deviation of mutations from one generation to the next."""


def first(deviations: NDArray[np.float64], n_points: int, seed: int) -> NDArray[np.float64]:
    """Draws the first generation, shape (n_points, n_dims).

    Args:
      deviations: shape (n_dims,), of the rows along each direction, any unit.
      n_points: >= 1.
      seed: public.
    """
    return np.random.default_rng([seed, 5]).normal(size=(n_points, len(deviations))) * (SPREAD * deviations)


def anywhere(half_side: float, n_features: int, n_points: int, seed: int) -> NDArray[np.float64]:
    """Draws points uniformly in a box around the origin, shape (n_points, n_features), for clusters far off.

    Args:
      half_side: of the box, any unit.
      n_features: d.
      n_points: >= 0.
      seed: public.
    """
    return np.random.default_rng([seed, 7]).uniform(-half_side, half_side, (n_points, n_features))


def following(
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    deviations: NDArray[np.float64],
    seed: int,
    step: int,
    n_points: int,
    *,
    elite: bool = False,
) -> NDArray[np.float64]:
    """Draws the next generation: parents by their weights, moved at random; shape (n_points, n_dims).

    Args:
      points: shape (n, n_dims), measured from the middle of the rows.
      weights: shape (n,), >= 0, released; equal weights are used if none is positive.
      deviations: shape (n_dims,), of the rows along each direction.
      seed: public.
      step: of this generation, from 1.
      n_points: >= 1.
      elite: True to keep the heaviest candidates unchanged, at most half of all, and to draw parents by the roots
        of their weights, so that small clusters have offspring, too.
    """
    rng = np.random.default_rng([seed, 6, step])
    drawn = np.sqrt(weights) if elite else weights
    total = float(drawn.sum())
    chances = drawn / total if total > 0.0 else np.full(len(points), 1.0 / len(points))
    parents = points[rng.choice(len(points), n_points, p=chances)]
    moved = rng.normal(size=parents.shape) * deviations * (MUTATION * COOLING ** (step - 1))
    young = np.asarray(KEPT * parents + moved)
    if not elite:
        return young
    alive = np.flatnonzero(weights > 0.0)
    kept = points[alive[np.argsort(-weights[alive], kind="stable")[: n_points // 2]]]
    return np.concatenate([kept, young[: n_points - len(kept)]])
