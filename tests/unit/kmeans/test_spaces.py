"""Which space server points cluster in, the mixture that stands in for rows, and weights that neighbors share."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.kmeans import server_points
from dapple_dp.transforms.numerics.kmeans.starts import spaces, stand_in
from tests.scenes import lake
from tests.scenes.directions import in_few_directions, in_many_directions


def test_a_subspace_that_misses_clusters_is_left():
    assert spaces.prefers_full_space(in_many_directions(), 4)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_do_not_matter(scale):
    assert spaces.prefers_full_space(scale * in_many_directions(), 4)


def test_equal_points_keep_the_subspace():
    assert not spaces.prefers_full_space(np.zeros((60, 8)), 4)


def test_few_points_in_many_directions_keep_the_subspace():
    assert not spaces.prefers_full_space(in_few_directions(), 3)


@pytest.mark.parametrize(("n_rows", "n_clusters"), [(400, 20), (12, 4)], ids=["no_more_features", "too_few_points"])
def test_where_there_is_nothing_to_choose_the_subspace_stays(n_rows, n_clusters):
    assert not spaces.prefers_full_space(in_many_directions(n_rows), n_clusters)


def test_many_points_are_looked_at_in_part(monkeypatch):
    looked_at, gains = [], spaces._gains
    monkeypatch.setattr(spaces, "MOST_POINTS", 300)
    monkeypatch.setattr(
        spaces, "_gains", lambda points, held, k: looked_at.append(len(points) + len(held)) or gains(points, held, k)
    )
    spaces.prefers_full_space(in_many_directions(1000), 4)
    assert set(looked_at) == {300}


@pytest.mark.parametrize("full", [True, False])
def test_the_stand_in_has_the_means_weights_and_width_of_the_points(full):
    points = lake.mixture(3000)
    found = stand_in.fitted(points, 3, full=full)
    order = np.argmax(found.means, axis=1)
    np.testing.assert_allclose(found.means[np.argsort(order)], lake.MEANS, atol=0.1)
    np.testing.assert_allclose(found.weights, 1 / 3, atol=1e-3)
    np.testing.assert_allclose(found.stddevs, 0.5, atol=0.05)


def test_the_stand_in_of_pure_noise_has_clusters_nearer_than_k_means_finds_them():
    """Means of few points in many directions are far apart by their own noise, which is taken off."""
    points = np.random.default_rng(0).normal(size=(60, 50))
    found = stand_in.fitted(points, 10, full=True)
    assert ((found.means - points.mean(axis=0)) ** 2).sum(axis=1).mean() < 50 * 10 / 60


def test_draws_of_the_stand_in_have_its_mean_and_variance():
    found = stand_in.StandIn(np.array([[0.0], [10.0]]), np.array([2.0]), np.array([0.25, 0.75]))
    rows = found.draw(np.random.default_rng(0), 40_000)
    # Of 40,000 rows the mean has a stddev of 0.024; six of them, at a fixed seed.
    assert rows.mean() == pytest.approx(7.5, abs=0.15)
    assert rows.var() == pytest.approx(4.0 + 100 * 0.25 * 0.75, rel=0.05)


def test_neighbors_share_their_weights():
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    found = server_points.smoothed_weights(np.array([2.0, 4.0, 10.0, 20.0]), 0.0, points, 2)
    np.testing.assert_allclose(found, [3.0, 3.0, 15.0, 15.0])


def test_weights_of_noise_alone_become_nearly_equal():
    points = np.random.default_rng(0).normal(size=(300, 5))
    noisy = 100.0 + np.random.default_rng(1).normal(0.0, 50.0, 300)
    alone, shared = (
        server_points.shrunken_weights(noisy, 50.0),
        server_points.smoothed_weights(noisy, 50.0, points, 10),
    )
    assert shared.std() < 20.0
    assert min(alone.min(), shared.min()) >= 0.0
