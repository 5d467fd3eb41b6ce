"""Scores of a clustering do not depend on the order of its rows."""

import numpy as np

from dapple_dp.transforms.numerics.trusted_zone import clustering_scores as scores
from tests.scenes import lake


def test_silhouette_is_the_same_number_in_any_order():
    """Rows come in an order that follows from the paths of their files; some are there twice, or but for a label."""
    rng = np.random.default_rng(5)
    points, labels = lake.mixture(360), rng.integers(0, 3, 360)
    points[300:330] = points[:30]
    orders = [rng.permutation(360) for _ in range(200)]
    assert len({scores.silhouette(points[order], labels[order]).hex() for order in orders}) == 1
