"""Clustering of public or released points on the server, with its public randomness.

All of it is post-processing: its seeds are public and reproduce a run, and never reach the noise. Functions
import scikit-learn when they run, after the first rounds, which would otherwise wait for the import, as would workers.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.one_thread import one_thread


class Clustering(NamedTuple):
    """Weighted k-means of points: `centers` (n_clusters, n_dims), `labels` (n_points,)."""

    centers: NDArray[np.float64]
    labels: NDArray[np.int64]


def weighted_kmeans(
    points: NDArray[np.float64], weights: NDArray[np.float64], n_clusters: int, restarts: int, seed: int
) -> Clustering:
    """Returns the best of `restarts` k-means runs, single-threaded.

    Args:
      points: shape (n_points, n_dims), n_points >= n_clusters.
      weights: shape (n_points,), >= 0; if fewer than n_clusters distinct points have a positive one, all are
        topped up with a tiny weight.
      n_clusters: >= 1.
      restarts: >= 1; a single one ends in a bad minimum in about a quarter of all runs.
      seed: public.

    Returns:
      `Clustering`, deterministic for a given CPU type.
    """
    from sklearn.cluster import KMeans

    if len(np.unique(points[weights > 0], axis=0)) < n_clusters:
        weights = weights + max(float(weights.max(initial=0.0)), 1.0) * 1e-9
    with one_thread():
        fitted = KMeans(n_clusters, n_init=restarts, random_state=seed % 2**32).fit(points, sample_weight=weights)
    return Clustering(fitted.cluster_centers_.astype(np.float64), fitted.labels_.astype(np.int64))


def best_starts(
    points: NDArray[np.float64], n_clusters: int, restarts: int, kept: int, seed: int
) -> list[NDArray[np.float64]]:
    """Returns the centers of the cheapest of many k-means runs, cheapest first.

    Starts are drawn by index: rows in another order give other centers.

    Args:
      points: shape (n_points, n_dims), n_points >= n_clusters.
      n_clusters: >= 1.
      restarts: runs, >= 1.
      kept: number of runs to return, from 1 to restarts.
      seed: public.
    """
    from sklearn.cluster import KMeans

    with one_thread():
        fits = [KMeans(n_clusters, n_init=1, random_state=(seed + run) % 2**32).fit(points) for run in range(restarts)]
    fits.sort(key=lambda fit: float(fit.inertia_))
    return [fit.cluster_centers_.astype(np.float64) for fit in fits[:kept]]


def clustering_costs(
    points: NDArray[np.float64], weights: NDArray[np.float64], most: int, restarts: int, seed: int
) -> NDArray[np.float64]:
    """Returns the weighted k-means cost per unit of weight for 1, 2, ..., `most` clusters; shape (most,), never rising.

    Args:
      points: shape (n_points, n_dims), n_points >= most.
      weights: shape (n_points,), >= 0; if all are zero, as noise may leave them, every point weighs the same.
      most: >= 1.
      restarts: of k-means, >= 1.
      seed: public.
    """
    weights, costs = weights if weights.any() else np.ones(len(weights)), []
    for n_clusters in range(1, most + 1):
        clustering = weighted_kmeans(points, weights, n_clusters, restarts, seed)
        squared = ((points - clustering.centers[clustering.labels]) ** 2).sum(axis=1)
        costs.append(float((weights * squared).sum() / weights.sum()))
    return np.minimum.accumulate(np.array(costs))


def elbow(costs: NDArray[np.float64]) -> int:
    """Returns the number of clusters at the elbow, where the curve is farthest below its chord.

    Args:
      costs: shape (k_max,), k_max >= 1: for 1, 2, ... clusters, never rising.

    Source: Thorndike (1953) for the elbow; Satopaa et al. (2011), "Finding a 'Kneedle' in a haystack", for the chord.

    Example:
      >>> import numpy as np
      >>> elbow(np.array([9.0, 5.0, 1.0, 0.9, 0.8, 0.7]))
      3
    """
    if len(costs) < 3 or costs[0] <= costs[-1]:
        return 1 if costs[0] <= costs[-1] else len(costs)
    fallen = (costs[0] - costs) / (costs[0] - costs[-1])
    return int(np.argmax(fallen - np.linspace(0.0, 1.0, len(costs)))) + 1


def pseudo_clients(n_points: int, client_rows: int, n_clients: int, seed: int) -> NDArray[np.int64]:
    """Draws indices of bootstrapped pseudo-clients, shape (n_clients, client_rows), each row in [0, n_points)."""
    return np.random.default_rng([seed, 1]).integers(0, n_points, (n_clients, client_rows))


def weighted_clients(weights: NDArray[np.float64], client_rows: int, n_clients: int, seed: int) -> NDArray[np.int64]:
    """Draws indices of pseudo-clients, shape (n_clients, client_rows), each row by `weights`, shape (n,), >= 0."""
    if n_clients == 0:
        return np.zeros((0, client_rows), dtype=np.int64)
    rng = np.random.default_rng([seed, 1])
    return rng.choice(len(weights), (n_clients, client_rows), p=weights / weights.sum())


def points_in_ball(n_points: int, n_features: int, radius: float, seed: int) -> NDArray[np.float64]:
    """Draws public points uniformly in the ball around the origin; shape (n_points, n_features), feature units.

    They replace missing server data, and carry no information about any data.
    """
    rng = np.random.default_rng([seed, 3])
    directions = rng.normal(size=(n_points, n_features))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * radius * rng.random((n_points, 1)) ** (1.0 / n_features)
