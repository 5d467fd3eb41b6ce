"""The cost of k-FED's local centers if clusters overlap."""

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.papers.k_fed import local_centers


def test_the_core_of_a_cluster_decides_where_it_starts():
    """Local centers cost at most a few percent over k-means itself if clusters overlap."""
    points = np.random.default_rng(4).normal(size=(400, 3)) + 2.0 * np.resize(np.eye(3), (400, 3))
    found = local_centers(points, 3, 10, seed=0)
    cost = ((points[:, None] - found.centers[None]) ** 2).sum(axis=2).min(axis=1).sum()
    assert cost < 1.05 * KMeans(3, n_init=20, random_state=0).fit(points).inertia_
