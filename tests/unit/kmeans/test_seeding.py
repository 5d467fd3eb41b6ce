"""Clustering of weighted public points, the elbow, packed points, and public randomness."""

import numpy as np
import pytest
from scipy.stats import kstest

from dapple_dp.transforms.numerics.kmeans.starts import seeding, sphere_packing
from tests.scenes import lake

LINE = np.array([[0.0], [1.0], [10.0], [11.0]])


def sorted_centers(points, weights, n_clusters, seed=0) -> np.ndarray:
    found = seeding.weighted_kmeans(np.asarray(points, float), np.asarray(weights, float), n_clusters, 20, seed)
    return np.sort(found.centers.ravel())


def test_weighted_centers_by_hand():
    np.testing.assert_allclose(sorted_centers(LINE, [3, 1, 1, 1], 2), [0.25, 10.5])


def test_labels_name_the_center_of_each_point():
    found = seeding.weighted_kmeans(LINE, np.ones(4), 2, 20, 0)
    assert found.labels.dtype == np.int64
    np.testing.assert_allclose(found.centers[found.labels].ravel(), [0.5, 0.5, 10.5, 10.5])


def test_points_without_weight_do_not_move_centers():
    np.testing.assert_allclose(sorted_centers([[0.0], [1.0], [10.0], [500.0]], [1, 1, 1, 0], 2), [0.5, 10.0])


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([0, 0, 1, 0], [0.5, 10.5]),
        ([0, 0, 0, 0], [0.5, 10.5]),
    ],
)
def test_fewer_positive_weights_than_clusters_still_give_all_clusters(weights, expected):
    found = sorted_centers(LINE, weights, 2)
    assert found[0] == pytest.approx(expected[0])
    assert 10.0 <= found[1] <= expected[1] + 1e-9


def test_weight_on_too_few_distinct_points_still_gives_all_clusters():
    np.testing.assert_allclose(sorted_centers([[0.0], [0.0], [5.0]], [1, 1, 0], 2), [0, 5], atol=1e-6)


def test_duplicates_of_enough_distinct_points_are_clustered_exactly():
    np.testing.assert_allclose(sorted_centers([[0.0], [0.0], [5.0], [9.0], [9.0]], [1, 1, 1, 2, 2], 3), [0, 5, 9])


def test_as_many_clusters_as_points_gives_the_points():
    np.testing.assert_allclose(sorted_centers(LINE, np.ones(4), 4), LINE.ravel(), atol=1e-9)


def test_clustering_is_a_function_of_its_seed():
    rng = np.random.default_rng(3)
    points, weights = rng.normal(size=(60, 3)), rng.random(60)
    first, second = (seeding.weighted_kmeans(points, weights, 5, 2, 7) for _ in range(2))
    np.testing.assert_array_equal(first.centers, second.centers)
    np.testing.assert_array_equal(first.labels, second.labels)
    other = seeding.weighted_kmeans(points, weights, 5, 2, 8 + 2**32)
    assert not np.array_equal(first.centers, other.centers)


def test_pseudo_clients_are_rows_of_the_server():
    found = seeding.pseudo_clients(5, 7, 200, 0)
    assert found.shape == (200, 7)
    assert set(found.ravel().tolist()) == set(range(5))
    np.testing.assert_array_equal(found, seeding.pseudo_clients(5, 7, 200, 0))
    assert not np.array_equal(found, seeding.pseudo_clients(5, 7, 200, 1))


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_points_in_ball_are_uniform_in_it(n_features):
    points = seeding.points_in_ball(4000, n_features, 3.0, 0)
    norms = np.linalg.norm(points, axis=1)
    assert points.shape == (4000, n_features)
    assert norms.max() <= 3.0 * (1 + 1e-12)
    # (r / R)^d is uniform; the seed is fixed, a right law would fail for one seed in a thousand
    assert kstest((norms / 3.0) ** n_features, "uniform").pvalue > 1e-3
    assert np.linalg.norm(points.mean(axis=0)) < 0.25


def test_points_in_ball_are_a_function_of_the_seed():
    points = seeding.points_in_ball(10, 2, 1.0, 5)
    np.testing.assert_array_equal(points, seeding.points_in_ball(10, 2, 1.0, 5))
    assert not np.array_equal(points, seeding.points_in_ball(10, 2, 1.0, 6))


@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_costs_of_points_that_noise_left_no_weight_are_those_of_equal_weights(weight):
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    costs = seeding.clustering_costs(points, np.full(4, weight), 3, 2, 0)
    np.testing.assert_allclose(costs, [25.25, 0.25, 0.125])


def test_packed_centers_keep_their_distances_and_find_the_best_placement_on_a_line():
    packed = sphere_packing.pack(2, 1, 1.0, seed=0)
    assert 0.9 < abs(packed[0, 0] - packed[1, 0]) <= 2.0
    wide = sphere_packing.pack(8, 30, 2.0, seed=1)
    distances = np.linalg.norm(wide[:, None] - wide[None], axis=2)[np.triu_indices(8, 1)]
    radius = 0.5 * distances.min()
    assert (np.abs(wide) <= 2.0 - radius * (1 - 1e-6)).mean() > 0.99
    assert radius > 1.0
    np.testing.assert_array_equal(wide, sphere_packing.pack(8, 30, 2.0, seed=1))


def test_points_are_taken_in_the_order_in_which_they_were_tried():
    random = np.random.default_rng(0)
    for n_features, n_placed, squared in ((2, 3, 0.5), (3, 0, 1.0), (2, 6, 0.9), (40, 5, 20.0)):
        tried = random.uniform(-1.0, 1.0, (300, n_features))
        placed = random.uniform(-1.0, 1.0, (n_placed, n_features))
        apart = ((tried[:, None] - placed[None]) ** 2).sum(axis=2) >= squared
        expected = np.flatnonzero(apart.all(axis=1))
        assert sphere_packing._first_apart(tried, placed, squared) == (expected[0] if expected.size else None)


@pytest.mark.parametrize(("costs", "chosen"), [([9, 5, 1, 0.9, 0.8], 3), ([4.0], 1), ([3, 3, 3], 1), ([5, 1], 2)])
def test_elbow(costs, chosen):
    assert seeding.elbow(np.array(costs, dtype=float)) == chosen


def test_costs_of_the_proxy_fall_and_bend_at_the_true_number():
    points = lake.mixture(90, seed=1)
    costs = seeding.clustering_costs(points, np.ones(90), 7, 20, 0)
    assert (np.diff(costs) <= 0).all()
    assert costs[0] == pytest.approx(points.var(axis=0).sum())
    assert seeding.elbow(costs) == 3
