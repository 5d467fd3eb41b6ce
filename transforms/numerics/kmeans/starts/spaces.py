"""Decides by cross-validation if server points cluster better in their leading subspace or in full space.

Both are tried on public points only. With few points in many directions a subspace removes
noise; if clusters differ in more directions than it has, it removes some of their differences.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.numerics.one_thread import one_thread

FOLDS = 5
REPEATS = 3
RESTARTS = 4
MOST_POINTS = 2000
"""Most points that are used."""
MARGIN = 1.0
"""Standard errors by which full space must be better, since the subspace is the published method."""


def prefers_full_space(points: NDArray[np.float64], n_clusters: int) -> bool:
    """Returns whether centers found in full space are nearer to held-out points than those found in the subspace.

    The subspace has as many dimensions as there are clusters. With no more features than that it equals full space,
    and the answer is no: the outer product still shows if rows are clipped. With too few points for folds it is no.

    Args:
      points: shape (q, d), public, feature units.
      n_clusters: >= 1.
    """
    if points.shape[1] <= n_clusters or len(points) < 2 * n_clusters + FOLDS:
        return False
    # Squares of huge coordinates would be infinite.
    largest = float(np.abs(points).max()) or 1.0
    return _prefers((points / largest).astype(np.float64).tobytes(), points.shape[1], n_clusters)


def leading_view(points: NDArray[np.float64], n_dims: int) -> NDArray[np.float64]:
    """Projects centered points, shape (q, d), onto their leading directions, shape (q, n_dims), n_dims <= d."""
    centered = points - points.mean(axis=0)
    with one_thread():
        if n_dims < len(points) < points.shape[1]:
            # For few points in many directions, their Gram matrix gives the same and is smaller.
            values, vectors = np.linalg.eigh(centered @ centered.T)
            return vectors[:, -n_dims:] * np.sqrt(np.maximum(values[-n_dims:], 0.0))
        return np.asarray(centered @ np.linalg.eigh(centered.T @ centered)[1][:, -n_dims:])


@functools.lru_cache(maxsize=32)
def _prefers(raw: bytes, n_features: int, n_clusters: int) -> bool:
    """Computes `prefers_full_space` for hashable arguments, since sweeps ask for it in every cell."""
    points = np.frombuffer(raw).reshape(-1, n_features)
    rng = np.random.default_rng([0, 8])
    if len(points) > MOST_POINTS:
        points = points[rng.choice(len(points), MOST_POINTS, replace=False)]
    gains = np.zeros(len(points))
    with one_thread():
        for _ in range(REPEATS):
            fold = rng.permutation(len(points)) % FOLDS
            for index in range(FOLDS):
                held = fold == index
                gains[held] += _gains(points[~held], points[held], n_clusters)
            # Most data are clear after the first folds, and a small job waits for the result.
            if _lead(gains) <= 0.0:
                return False
    return bool(_lead(gains) > MARGIN)


def _lead(gains: NDArray[np.float64]) -> float:
    """Returns the mean gain of full space per point, in standard errors; 0 if no point gains anything."""
    mean, error = float(gains.mean()), float(gains.std()) / np.sqrt(len(gains))
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def _gains(points: NDArray[np.float64], held: NDArray[np.float64], n_clusters: int) -> NDArray[np.float64]:
    """Returns the decrease of squared distances of held-out points to the centers in full space, shape (n,)."""
    found = [_held_out(points, view, held, n_clusters) for view in (leading_view(points, n_clusters), points)]
    return found[0] - found[1]


def _held_out(
    points: NDArray[np.float64], view: NDArray[np.float64], held: NDArray[np.float64], n_clusters: int
) -> NDArray[np.float64]:
    """Returns squared distances of held-out points to means of clusters that k-means finds in a view of the others."""
    labels = seeding.weighted_kmeans(view, np.ones(len(view)), n_clusters, RESTARTS, 0).labels
    means = (points[labels == label].mean(axis=0) for label in np.unique(labels))
    return np.min([((held - mean) ** 2).sum(axis=1) for mean in means], axis=0)
