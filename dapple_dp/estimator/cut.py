"""Merging of released clusters into fewer, by the tree of their centers; post-processing only."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.settings.section import is_number, python_scalar
from dapple_dp.transforms.numerics.kmeans.center_tree import CenterTree, weights_of
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters


class GroupedCenters(NamedTuple):
    """Released centers in groups: a row belongs to the group of its nearest center, as in `dapple assign --level`.

    Attributes:
      nearest: lookup of the nearest center.
      groups: shape (n_centers,): group of each center, from 0.
      sizes: shape (n_centers,): noisy size of each center's cluster.
    """

    nearest: NearestCenters
    groups: NDArray[np.int64]
    sizes: NDArray[np.float64]

    @property
    def n_clusters(self) -> int:
        """Number of groups."""
        return int(self.groups.max()) + 1

    def labels(self, points: NDArray[np.floating]) -> NDArray[np.int64]:
        """Returns the group of each row, shape (n_rows,)."""
        return self.groups[self.nearest.labels(points)]

    def distances(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """Returns the distance of each row to the nearest center of each group, shape (n_rows, n_clusters)."""
        distances = self.nearest.distances(points)
        return np.stack([distances[:, self.groups == group].min(axis=1) for group in range(self.n_clusters)], axis=1)

    @property
    def noisy_sizes(self) -> NDArray[np.float64]:
        """Sum of the noisy sizes in each group, shape (n_clusters,)."""
        return np.asarray(np.bincount(self.groups, weights=self.sizes), dtype=np.float64)

    def means(self, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the mean of each group's centers, weighted as in the tree, shape (n_clusters, n_features)."""
        weights, members = weights_of(self.sizes), [self.groups == group for group in range(self.n_clusters)]
        return np.stack([np.average(centers[those], axis=0, weights=weights[those]) for those in members])

    def names(self, names: Sequence[Sequence[str]]) -> list[list[str]]:
        """Returns the distinct names of each group's centers, those of the largest center first."""
        merged: list[dict[str, None]] = [{} for _ in range(self.n_clusters)]
        for center in np.argsort(-self.sizes, kind="stable"):
            merged[self.groups[center]].update(dict.fromkeys(names[center]))
        return [list(group) for group in merged]


def grouped(model: ClusterModel, n_clusters: Any) -> GroupedCenters:
    """Merges the centers of a fit into `n_clusters` groups, ordered by their first centers; raises ConfigError."""
    number, most = python_scalar(n_clusters), len(model.centers)
    if not isinstance(number, int) or not is_number(number, 1, most):
        raise ConfigError(
            f"n_clusters must be a whole number from 1 to {most}, the clusters of the fit, got {n_clusters!r}; fit "
            "again if you need more."
        )
    firsts = CenterTree.of(model.centers, model.noisy_sizes).cut(number)
    groups = np.unique(firsts, return_inverse=True)[1].astype(np.int64)
    return GroupedCenters(NearestCenters.of(model.centers), groups, model.noisy_sizes)
