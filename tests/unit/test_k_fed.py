"""k-FED by hand: clients that see some clusters each, or have fewer rows than clusters, and the server's starts."""

import numpy as np
import pytest

from benchmarks.papers.k_fed import LocalCenters, local_centers, merged_centers

MEANS = 20.0 * np.eye(4, 6)


def rows_of(clusters, n_rows, seed=0):
    noise = np.random.default_rng(seed).normal(0.0, 0.3, (n_rows, 6))
    return MEANS[np.resize(clusters, n_rows)] + noise


def assert_matched(found, expected, atol):
    distances = np.linalg.norm(found[:, None] - expected[None], axis=2)
    assert sorted(distances.argmin(axis=1)) == list(range(len(expected)))
    np.testing.assert_array_less(distances.min(axis=0), atol)


def test_separated_clusters_are_the_means_of_their_rows():
    points = rows_of([0, 2], 60)
    found = local_centers(points, 2, 5, seed=0)
    np.testing.assert_allclose(
        found.centers[np.argsort(found.centers[:, 2])], [points[::2].mean(0), points[1::2].mean(0)]
    )
    assert found.sizes.tolist() == [30, 30]


def test_one_center_is_the_mean():
    points = rows_of([0, 1, 3], 31)
    found = local_centers(points, 1, 3, seed=1)
    np.testing.assert_allclose(found.centers, [points.mean(axis=0)])
    assert found.sizes.tolist() == [31]


@pytest.mark.parametrize(
    ("points", "distinct"),
    [
        (np.array([[3.0, 4.0]]), 1),
        (np.array([[3.0, 4.0]] * 7), 1),
        (np.array([[0.0, 0.0], [1.0, 1.0]]), 2),
        (np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), 2),
        (np.array([[0.0, 0.0], [1.0, 1.0]], dtype=np.float32), 2),
    ],
)
def test_clients_with_fewer_rows_than_clusters(points, distinct):
    found = local_centers(points, 5, 3, seed=0)
    assert found.centers.shape == (distinct, 2)
    assert found.sizes.sum() == len(points)
    np.testing.assert_allclose(np.unique(found.centers, axis=0), np.unique(points, axis=0), atol=1e-12)


def test_rows_that_differ_by_less_than_their_rounding_do_not_stop_a_client():
    points = 1e8 + np.array([[0.0, 0.0], [1e-8, 0.0], [2e-8, 0.0], [0.0, 1.5e-8]])
    found = local_centers(points, 4, 3, seed=0)
    assert np.isfinite(found.centers).all()
    assert found.sizes.sum() == 4


def test_the_server_finds_clusters_that_no_client_has_all_of():
    clients = [local_centers(rows_of([k, (k + 1) % 4], 30, seed=k), 2, 5, seed=0) for k in range(4)]
    assert_matched(merged_centers(clients, 4, seed=0), MEANS, 0.3)


def test_the_order_of_clients_does_not_matter():
    clients = [local_centers(rows_of([k, (k + 1) % 4], 30 + k, seed=k), 2, 5, seed=0) for k in range(4)]
    twins = [LocalCenters(clients[0].centers, clients[0].sizes + extra) for extra in (0, 9)]
    np.testing.assert_array_equal(
        merged_centers([*clients, *twins], 4, seed=3), merged_centers([*twins[::-1], *clients[::-1]], 4, seed=3)
    )


def test_centers_count_by_their_rows():
    clients = [LocalCenters(np.array([[0.0]]), np.array([9])), LocalCenters(np.array([[1.0]]), np.array([1]))]
    np.testing.assert_allclose(merged_centers(clients, 1, seed=0), [[0.1]])


def test_as_many_centers_as_clusters_come_back():
    centers = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    clients = [LocalCenters(centers[:1], np.array([2])), LocalCenters(centers[1:], np.array([1, 7]))]
    assert_matched(merged_centers(clients, 3, seed=0), centers, 1e-9)
