"""Whether server points cluster better in the subspace of their leading directions or in full space.

Both are tried on public points only, by cross-validation. With few points in many directions a subspace takes away
noise; where clusters differ in more directions than it has, it takes away what distinguishes them.
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
"""Points that are looked at, at most."""
MARGIN = 1.0
"""Standard errors by which full space must be better: the subspace is the published method."""


def prefers_full_space(points: NDArray[np.float64], n_clusters: int) -> bool:
    """Whether centers found in full space are nearer to held-out points than those found in the subspace.

    The subspace has as many dimensions as there are clusters. With no more features than that it is full space, and
    the answer is no: the outer product still says whether rows are clipped. With too few points for folds it is no.

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
    """Centered points, shape (q, d), in their leading directions, shape (q, n_dims), n_dims <= d."""
    centered = points - points.mean(axis=0)
    with one_thread():
        if n_dims < len(points) < points.shape[1]:
            # Of few points in many directions the products with each other say the same, and are fewer.
            values, vectors = np.linalg.eigh(centered @ centered.T)
            return vectors[:, -n_dims:] * np.sqrt(np.maximum(values[-n_dims:], 0.0))
        return np.asarray(centered @ np.linalg.eigh(centered.T @ centered)[1][:, -n_dims:])


@functools.lru_cache(maxsize=32)
def _prefers(raw: bytes, n_features: int, n_clusters: int) -> bool:
    """`prefers_full_space` of hashable arguments, since sweeps ask it of every cell."""
    points = np.frombuffer(raw).reshape(-1, n_features)
    rng = np.random.default_rng([0, 8])
    if len(points) > MOST_POINTS:
        points = points[rng.choice(len(points), MOST_POINTS, replace=False)]
    gains = np.zeros(len(points))
    with one_thread():
        for _ in range(REPEATS):
            fold = rng.permutation(len(points)) % FOLDS
            for each in range(FOLDS):
                held = fold == each
                gains[held] += _gains(points[~held], points[held], n_clusters)
            # Most data are clear after the first folds, and a small job waits for this.
            if _lead(gains) <= 0.0:
                return False
    return bool(_lead(gains) > MARGIN)


def _lead(gains: NDArray[np.float64]) -> float:
    """Mean of what full space gains per point, in standard errors; 0 where all gain the same nothing."""
    mean, error = float(gains.mean()), float(gains.std()) / np.sqrt(len(gains))
    return mean / error if error > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def _gains(points: NDArray[np.float64], held: NDArray[np.float64], n_clusters: int) -> NDArray[np.float64]:
    """By how much squared distances of held-out points, shape (n,), are smaller to centers found in full space."""
    found = [_held_out(points, view, held, n_clusters) for view in (leading_view(points, n_clusters), points)]
    return found[0] - found[1]


def _held_out(
    points: NDArray[np.float64], view: NDArray[np.float64], held: NDArray[np.float64], n_clusters: int
) -> NDArray[np.float64]:
    """Squared distances of held-out points to the means of clusters that k-means finds in a view of the others."""
    labels = seeding.weighted_kmeans(view, np.ones(len(view)), n_clusters, RESTARTS, 0).labels
    means = (points[labels == each].mean(axis=0) for each in np.unique(labels))
    return np.min([((held - mean) ** 2).sum(axis=1) for mean in means], axis=0)
