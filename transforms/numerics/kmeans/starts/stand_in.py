"""A mixture that stands in for private rows: fitted to public points, and drawn from for simulations."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kmeans.starts import seeding, spaces

_RESTARTS = 10


class StandIn(NamedTuple):
    """Gaussian clusters of one diagonal covariance.

    Attributes:
      means: shape (k, d).
      stddevs: shape (d,).
      weights: shape (k,), sum 1.
    """

    means: NDArray[np.float64]
    stddevs: NDArray[np.float64]
    weights: NDArray[np.float64]

    def draw(self, rng: np.random.Generator, n_rows: int) -> NDArray[np.float64]:
        """Draws rows, shape (n_rows, d)."""
        labels = rng.choice(len(self.means), n_rows, p=self.weights)
        return self.means[labels] + rng.normal(size=(n_rows, len(self.stddevs))) * self.stddevs


def fitted(points: NDArray[np.float64], n_clusters: int, *, full: bool) -> StandIn:
    """Fits the mixture of the clusters that k-means finds in public points.

    Means of few points are too far apart due to their own noise, which is subtracted from their distance to the middle.

    Args:
      points: shape (q, d), q >= n_clusters, feature units.
      n_clusters: >= 1.
      full: True to cluster in full space, False in the subspace of as many leading directions.

    Source: James, Stein (1961), for the shrinkage of means.
    """
    middle = points.mean(axis=0)
    centered = points - middle
    projects = not full and points.shape[1] > n_clusters
    view = spaces.leading_view(points, n_clusters) if projects else centered
    labels = seeding.weighted_kmeans(view, np.ones(len(view)), n_clusters, _RESTARTS, 0).labels
    sizes = np.maximum(np.bincount(labels, minlength=n_clusters), 1)
    members = (labels[:, None] == np.arange(n_clusters)).astype(np.float64)
    means = members.T @ centered / sizes[:, None]
    freedom = max(len(points) - n_clusters, 1)
    variances = ((centered - means[labels]) ** 2).sum(axis=0) / freedom
    noise = float(variances.sum()) / sizes
    kept = np.maximum(1.0 - noise / np.maximum((means**2).sum(axis=1), 1e-300), 0.0)
    return StandIn(middle + kept[:, None] * means, np.sqrt(variances), sizes / sizes.sum())
