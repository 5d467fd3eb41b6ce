"""Mixtures of spherical Gaussians for rows of which only a noisy histogram over their nearest points is known.

The server points are no sample of the rows: points that lie between clusters are nearest to many rows of each, and look
like one more cluster. So the mixture is one of rows. It predicts the histogram by public draws, EM compares that with
the released one, and what is left is judged by the noise that is known.

It starts with many components and merges the two nearest (Ward 1963) again and again.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.cluster_rules import Released
from transforms.numerics.kmeans.starts import seeding

Array = NDArray[np.float64]
DRAWS = 400
"""Public draws for each component."""
FIRST_STEPS, STEPS = 20, 4
"""Of EM, with all components and after each merge."""
STRETCH = 1.6
"""Centers go so many times as far as EM moves them, since EM is slow on bins."""
VARIANCES = (0.85, 1.0, 1.15, 1.3)
"""Factors tried for the variance, on which EM hardly moves."""


class Mixture(NamedTuple):
    """Components: `centers` (k, n_dims), `shares` (k,), one `variance` per dimension."""

    centers: Array
    shares: Array
    variance: float


class Histogram(NamedTuple):
    """A released histogram as shares of its total.

    `points` (q, n_dims), `shares` (q,), the `variance` of their noise, the `total`, and public standard normal `draws`
    (m, n_dims).
    """

    points: Array
    shares: Array
    variance: float
    total: float
    draws: Array

    @classmethod
    def of(cls, released: Released) -> "Histogram":
        """The histogram, and draws whose mean is zero and whose mean square is one."""
        total = max(float(released.noisy.sum()), 1.0)
        draws = np.random.default_rng(0).normal(size=(DRAWS // 2, released.points.shape[1]))
        draws /= np.sqrt((draws**2).mean())
        return cls(
            released.points,
            released.noisy / total,
            (released.stddev / total) ** 2 + 1e-14,
            total,
            np.concatenate([draws, -draws]),
        )

    def bins(self, mixture: Mixture) -> tuple[Array, NDArray[np.int64], Array]:
        """Draws of each component (k, m, n_dims), their nearest points (k, m), and each point's part of them (k, q)."""
        (k, n_dims), m, q = mixture.centers.shape, len(self.draws), len(self.points)
        rows = mixture.centers[:, None] + np.sqrt(mixture.variance) * self.draws
        points = self.points.astype(np.float32)
        products = rows.reshape(-1, n_dims).astype(np.float32) @ points.T
        nearest = ((points**2).sum(axis=1) - 2.0 * products).argmin(axis=1).reshape(k, m)
        parts = np.bincount((nearest + q * np.arange(k)[:, None]).ravel(), minlength=q * k).reshape(k, q) / m
        return rows, nearest, parts

    def misfit(self, mixture: Mixture) -> float:
        """Mean square of what is left, in stddevs of the noise, of the rows and of the draws: about 1 at best."""
        parts = self.bins(mixture)[2]
        expected = mixture.shares @ parts
        variance = self.variance + expected / self.total + mixture.shares**2 @ parts / len(self.draws)
        return float(((self.shares - expected) ** 2 / variance).mean())


def misfits(released: Released, start: seeding.Clustering) -> Array:
    """Misfit of mixtures of 1, 2, ... components, from as many as `start` has; shape (k_max,)."""
    histogram, k = Histogram.of(released), len(start.centers)
    weights = np.maximum(released.noisy, 0.0)
    shares = np.maximum(np.bincount(start.labels, weights, k) / weights.sum(), 1e-6)
    squared = ((released.points - start.centers[start.labels]) ** 2).mean()
    mixture = Mixture(start.centers, shares / shares.sum(), max(float(squared), 1e-12))
    mixture = fitted(histogram, mixture, FIRST_STEPS)
    found = [histogram.misfit(mixture)]
    while len(mixture.centers) > 1:
        mixture = fitted(histogram, merged(mixture), STEPS)
        found.append(histogram.misfit(mixture))
    return np.array(found[::-1])


def fitted(histogram: Histogram, mixture: Mixture, steps: int) -> Mixture:
    """After some steps of EM for centers and shares, and searches for the variance between them."""
    for index in range(steps):
        mixture = _step(histogram, mixture, np.maximum(histogram.shares, 0.0))
        if index % 5 == 4 or index == steps - 1:
            tried = [mixture._replace(variance=mixture.variance * factor) for factor in VARIANCES]
            mixture = min(tried, key=histogram.misfit)
    return mixture


def _step(histogram: Histogram, mixture: Mixture, shares: Array) -> Mixture:
    """Draws weigh what their bin holds over what it should hold."""
    rows, nearest, parts = histogram.bins(mixture)
    expected = mixture.shares @ parts
    ratio = np.where(expected > 0.0, shares / shares.sum() / np.maximum(expected, 1e-12), 0.0)[nearest]
    sums = ratio.sum(axis=1)
    means = (ratio[:, None] @ rows)[:, 0] / np.maximum(sums, 1e-9)[:, None]
    moves = np.where(sums[:, None] > 1e-9, means - mixture.centers, 0.0)
    grown = np.maximum(mixture.shares * sums, 1e-6 * len(histogram.draws))
    return mixture._replace(centers=mixture.centers + STRETCH * moves, shares=grown / grown.sum())


def merged(mixture: Mixture) -> Mixture:
    """The two components whose merger adds least to the cost become one at their mean."""
    centers, shares = mixture.centers, mixture.shares
    squared = ((centers[:, None] - centers) ** 2).sum(axis=2)
    added = shares[:, None] * shares / (shares[:, None] + shares) * squared
    np.fill_diagonal(added, np.inf)
    first, second = np.unravel_index(np.argmin(added), added.shape)
    share = shares[first] + shares[second]
    center = (shares[first] * centers[first] + shares[second] * centers[second]) / share
    kept = np.delete(np.arange(len(shares)), [first, second])
    return mixture._replace(centers=np.vstack([centers[kept], center]), shares=np.append(shares[kept], share))


def bic_of_rows(found: Array, n_points: int, n_dims: int) -> int:
    """Least BIC of the histogram, whose errors are never taken to be smaller than the known noise."""
    numbers = np.arange(1, len(found) + 1)
    criteria = n_points * np.log(np.maximum(found, 1.0)) + numbers * (n_dims + 1) * np.log(n_points)
    return int(np.argmin(criteria)) + 1
