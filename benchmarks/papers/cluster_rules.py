"""Rules that choose a number of clusters from what FedDP-KMeans has released before it clusters.

Each is post-processing: it reads the server points in the noisy subspace, their noisy weights and the stddev of that
noise, which is known. `cluster_counts` compares them.

Sources: Thorndike (1953) and Satopaa et al. (2011) for the elbow; Tibshirani, Walther, Hastie (2001) for the gap;
Rousseeuw (1987) for the silhouette; Pelleg, Moore (2000) for the BIC; Ben-Hur, Elisseeff, Guyon (2002) for stability.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.kmeans.starts import seeding

Array = NDArray[np.float64]
MOST = 20
"""The largest number of clusters."""
RESTARTS, FEW_RESTARTS = 8, 2
"""Of k-means: on the released weights, and on references and redrawn weights."""
REFERENCES = 3
STABLE = 0.9
"""Adjusted Rand index from which on two clusterings agree."""


class Released(NamedTuple):
    """What the server knows: `points` (q, n_dims), `noisy` and cleaned `weights` (q,), `stddev` of their noise."""

    points: Array
    noisy: Array
    weights: Array
    stddev: float


class Curve(NamedTuple):
    """Clusterings into 1, 2, ... clusters, and their `costs` (k_max,) per unit of weight, as they come."""

    clusterings: list[seeding.Clustering]
    costs: Array


def curve(points: Array, weights: Array, restarts: int, seed: int) -> Curve:
    """k-means of weighted points into each number of clusters."""
    found = [seeding.weighted_kmeans(points, weights, k, restarts, seed) for k in range(1, MOST + 1)]
    squared = [((points - each.centers[each.labels]) ** 2).sum(axis=1) for each in found]
    return Curve(found, np.array([float(weights @ each / weights.sum()) for each in squared]))


def elbow(of: Curve) -> int:
    """The rule of `choose: elbow`."""
    return seeding.elbow(np.minimum.accumulate(of.costs))


def elbow_of_logs(of: Curve) -> int:
    """The same on the logarithm of the costs: a fall counts in proportion to what is left."""
    return bend(of.costs)


def bend(falling: Array) -> int:
    """The elbow of the logarithm of a positive curve."""
    return seeding.elbow(np.log(np.maximum(np.minimum.accumulate(falling), 1e-300)))


def gap(of: Released, found: Curve, seed: int) -> int:
    """Where the costs lie farthest below those of one Gaussian with the same weights, noise included."""
    rng = np.random.default_rng([seed, 1])
    mean, covariance = np.average(of.points, axis=0, weights=of.weights), np.cov(of.points.T, aweights=of.weights)
    references = []
    for index in range(REFERENCES):
        points = rng.multivariate_normal(mean, covariance, len(of.points))
        references.append(np.log(curve(points, rng.permutation(of.weights), FEW_RESTARTS, index).costs))
    return int(np.argmax(np.mean(references, axis=0) - np.log(found.costs))) + 1


def silhouette(of: Released, found: Curve) -> int:
    """Where the weighted mean of the silhouettes of the points is largest; at least 2."""
    from scipy.spatial.distance import cdist

    distances, means = cdist(of.points, of.points), []
    for each in found.clusterings[1:]:
        member = np.eye(len(each.centers))[each.labels]
        totals = of.weights @ member
        sums = distances @ (of.weights[:, None] * member)
        others = totals[each.labels] - of.weights
        inside = sums[member > 0] / np.where(others > 0.0, others, np.inf)
        outside = np.where(member > 0, np.inf, sums / np.maximum(totals, 1e-12)).min(axis=1)
        width = np.where(others > 0.0, (outside - inside) / np.maximum(np.maximum(inside, outside), 1e-300), 0.0)
        means.append(float(of.weights @ width))
    return int(np.argmax(means)) + 2


def bic_of_points(of: Released, found: Curve) -> int:
    """Least BIC of spherical Gaussians of one variance; the weighted points count as Kish's effective number."""
    n_points, n_dims = float(of.weights.sum() ** 2 / (of.weights**2).sum()), of.points.shape[1]
    criteria = []
    for k, (each, cost) in enumerate(zip(found.clusterings, found.costs, strict=True), start=1):
        shares = np.bincount(each.labels, of.weights, k) / of.weights.sum()
        entropy = -float(np.log(shares[shares > 0]) @ shares[shares > 0])
        variance = cost / n_dims * n_points / max(n_points - k, 1e-9)
        fit = n_points * (0.5 * n_dims * np.log(max(variance, 1e-300)) + entropy)
        criteria.append(fit + 0.5 * np.log(n_points) * k * (n_dims + 1))
    return int(np.argmin(criteria)) + 1


def stability(of: Released, found: Curve, seed: int) -> int:
    """The largest number for which clusterings with points and noise drawn again agree; else the most stable."""
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng([seed, 2])
    agreement = np.zeros(MOST - 1)
    for index in range(REFERENCES):
        again = np.maximum(of.weights + rng.normal(0.0, of.stddev, len(of.points)), 0.0)
        other = curve(of.points, again * rng.poisson(1.0, len(again)), FEW_RESTARTS, index)
        for k in range(2, MOST + 1):
            centers = other.clusterings[k - 1].centers
            nearest = ((of.points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
            agreement[k - 2] += adjusted_rand_score(found.clusterings[k - 1].labels, nearest) / REFERENCES
    stable = np.flatnonzero(agreement >= STABLE)
    return int(stable[-1] if len(stable) else np.argmax(agreement)) + 2
