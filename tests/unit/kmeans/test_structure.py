"""Tests that tell clusters from one cloud, names from noise, and halves of a cluster from clusters; by hand."""

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary
from dapple_dp.transforms.numerics.kmeans import structure

CORNERS = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
SIZES = np.full(4, 100.0)
NO_NOISE = np.zeros((4, 2))


def test_the_share_between_centers_is_that_of_a_square():
    # Corners are 50 apart from the middle, squared; rows around them add 2 in all.
    assert structure.explained(CORNERS, SIZES, NO_NOISE, 52.0) == 50.0 / 52.0
    assert structure.explained(CORNERS, SIZES, NO_NOISE + 1.0, 52.0) == 48.0 / 52.0


def test_a_uniform_cloud_explains_what_halves_of_a_uniform_do():
    # Two halves of a uniform interval explain 3/4 of its variance; a Gaussian 2 / pi.
    found = structure._explained_of_clouds(np.array([1.0, 0.0]), 2, 0)
    np.testing.assert_allclose(found, 0.75, atol=0.03)


def test_clusters_are_found_and_one_cloud_is_one():
    between = np.diag([25.0, 25.0])
    assert structure.n_found(CORNERS, SIZES, NO_NOISE, between + np.eye(2), 0) == 4
    halves = np.array([[-0.8, 0.8], [0.8, 0.8], [-0.8, -0.8], [0.8, -0.8]])
    assert structure.n_found(halves, SIZES, NO_NOISE, np.eye(2), 0) == 1


def test_two_clusters_in_four_parts_are_two():
    # Halves lie at -5 and 5, which explains 25 of 34; a uniform cloud explains 27 of 34 by three parts, 22 by two.
    centers = np.array([[-5.0, -0.1], [-5.0, 0.1], [5.0, -0.1], [5.0, 0.1]])
    assert structure.n_found(centers, SIZES, NO_NOISE, np.diag([30.0, 4.0]), 0) == 2
    assert structure.cut_pairs(centers, SIZES, NO_NOISE, np.diag([30.0, 4.0])) == [(0, 1), (2, 3)]


def test_halves_of_one_cluster_are_distinguished_from_clusters():
    centers = np.array([[-0.8, 0.0], [0.8, 0.0], [10.0, 0.0], [0.0, 10.0]])
    offsets = centers - centers.mean(axis=0)
    covariance = offsets.T @ offsets / 4.0 + np.diag([0.7, 1.0])
    assert structure.cut_pairs(centers, SIZES, NO_NOISE, covariance) == [(0, 1)]
    assert structure.cut_pairs(CORNERS, SIZES, NO_NOISE, np.diag([26.0, 26.0])) == []


def summary(noise):
    centers = np.array([[0.0, 5.0], [1.0, 5.5], [2.0, 4.5]])
    return CenterSummary.of(centers, np.ones(3), (), noise=np.full((3, 2), noise))


def test_a_feature_stands_out_only_beyond_noise():
    assert summary(0.0).outstanding(0, 3) == [(0, -1)]
    assert summary(0.0).outstanding(1, 3) == [(1, 1)]
    # Of centers 1 apart, an offset errs by .82 of a center's noise; six claims ask for 2.64 stddevs.
    assert summary(0.4).outstanding(0, 3) == [(0, -1)]
    assert summary(0.5).outstanding(0, 3) == []


def test_values_that_noise_may_swap_are_named_together():
    centers = np.array([[0.5, 0.45, 0.05], [0.1, 0.1, 0.8]])
    noisy = CenterSummary.of(centers, np.ones(2), (), noise=np.full((2, 3), 0.02))
    assert noisy.largest_of(0, slice(0, 3)) == [0, 1]
    assert noisy.largest_of(1, slice(0, 3)) == [2]
    exact = CenterSummary.of(centers, np.ones(2), (), noise=np.zeros((2, 3)))
    assert exact.largest_of(0, slice(0, 3)) == [0]


@pytest.mark.parametrize("noise", [None, np.full((3, 2), np.nan), np.array([[0.0, 0.0], [np.nan, 0.0], [0.0, 0.0]])])
def test_unknown_noise_is_not_no_noise(noise):
    centers = np.array([[0.0, 5.0], [1.0, 5.5], [2.0, 4.5]])
    found = CenterSummary.of(centers, np.ones(3), (), noise=noise)
    assert not found.knows_noise
    assert all(feature != 0 for index in range(3) for feature, _ in found.outstanding(index, 3))
    assert found.largest_of(1, slice(0, 2)) == [1, 0]


def test_unknown_noise_of_a_cluster_that_may_be_empty_hides_nothing():
    centers, noise = np.array([[0.0, 0.0], [9.0, 0.0], [5.0, 5.0]]), np.zeros((3, 2))
    noise[2] = np.nan
    found = CenterSummary.of(centers, np.array([9.0, 9.0, 0.0]), (), least=1.0, noise=noise)
    assert found.outstanding(0, 3) == [(0, -1)]
