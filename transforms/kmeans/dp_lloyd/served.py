"""Public server rows in DP-Lloyd's start `candidates`: additional candidates, and an alternative to the result.

They join the first histogram, so that private counts weight them. k-means of the weighted ones gives candidates for
later histograms. With few rows, noise hides the counts. So one released number compares the cost of the centers
from the candidates with that of the centers from weighted server rows, and the cheaper ones start the Lloyd rounds.

Source: weights of server points and their means after Scott, Lampert, Saulpic (2025), FedDP-Init.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.kmeans.dp_lloyd.state import KMEANS_RESTARTS
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.numerics.kmeans import centers, server_points
from dapple_dp.transforms.numerics.kmeans.centers import Prior
from dapple_dp.transforms.numerics.kmeans.starts import seeding, spaces
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters

PER_CLUSTER = 30
"""Most server points for each cluster in the first histogram; more rows are replaced by as many means."""
SERVER_CENTERS = 2
"""Centers of weighted server points for each cluster that join the later histograms."""
_FOLDS = 4
_REACH = 0.95
_MOST_ROWS = 10_000
"""Most public rows that are read: a random part of more."""
_RESTARTS = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerStart:
    """Public rows, and values that follow from them alone.

    Attributes:
      points: shape (m, d), feature units, measured from the middle of the domain.
      masses: shape (m,): number of server rows that each point stands for.
      reach: feature units: distance within which most server rows lie from centers that were found without them.
      in_full_space: True if points cluster better in all directions than in those of the private subspace.
    """

    points: NDArray[np.float64]
    masses: NDArray[np.float64]
    reach: float
    in_full_space: bool

    @classmethod
    def of(cls, settings: LloydSettings, server: NDArray[np.float64]) -> "ServerStart | None":
        """Creates the start from public rows, shape (q, d), feature units; None if there are too few to be split."""
        k, seed = settings.n_clusters, settings.seed
        rows = np.clip(server, settings.box.low, settings.box.high) - settings.box.middle(server.shape[1])
        if len(rows) < max(2 * k, _FOLDS):
            return None
        rows = rows[np.random.default_rng([seed, 9]).permutation(len(rows))[:_MOST_ROWS]]
        points, masses = rows, np.ones(len(rows))
        if len(rows) > PER_CLUSTER * k:
            points, labels = seeding.weighted_kmeans(rows, masses, PER_CLUSTER * k, 1, seed)
            masses = np.bincount(labels, minlength=len(points)).astype(np.float64)
        return cls(
            points=points,
            masses=masses,
            reach=_reach(rows, k, seed),
            in_full_space=spaces.prefers_full_space(rows, k),
        )

    @property
    def rows(self) -> NDArray[np.float64]:
        """Points, each repeated for the rows that it stands for; shape (q, d)."""
        return np.repeat(self.points, self.masses.astype(np.int64), axis=0)

    def prior(
        self, counts: NDArray[np.float64], stddev: float, basis: NDArray[np.float64], n_centers: int, seed: int
    ) -> Prior:
        """Clusters the points by released counts; returns the means of their rows, and the expected errors of these.

        Args:
          counts: shape (m,), noisy: private rows nearest to each point.
          stddev: of their noise.
          basis: orthonormal, shape (d, n_dims): of the private subspace.
          n_centers: at most m.
          seed: public.
        """
        weights = server_points.shrunken_weights(counts, stddev)
        view = self.points if self.in_full_space else self.points @ basis
        found = seeding.weighted_kmeans(view, weights, n_centers, KMEANS_RESTARTS, seed)
        fallback = found.centers if self.in_full_space else found.centers @ basis.T
        return centers.public_prior(self.points, found.labels, weights, fallback)


def _reach(rows: NDArray[np.float64], k: int, seed: int) -> float:
    """Returns the distance from most rows to the nearest center that k-means finds without them."""
    fold = np.arange(len(rows)) % _FOLDS
    squared = np.zeros(len(rows))
    for index in range(_FOLDS):
        kept = rows[fold != index]
        centers = seeding.weighted_kmeans(kept, np.ones(len(kept)), k, _RESTARTS, seed).centers
        squared[fold == index] = NearestCenters.of(centers).rows(rows[fold == index]).squared
    return math.sqrt(float(np.quantile(squared, _REACH)))
