"""Numbers that a report computes of centers, on cases worked out by hand."""

import numpy as np
import pytest

from dapple_dp.pipelines.kmeans.report.center_summary import CenterSummary, scaled_stddev


def summary(centers, sizes=None, names=()):
    centers = np.asarray(centers, dtype=np.float64)
    known = np.zeros(np.shape(centers))
    return CenterSummary.of(centers, np.ones(len(centers)) if sizes is None else np.asarray(sizes), names, noise=known)


def test_features_are_ordered_by_their_spread():
    found = summary([[0, 0, 5], [2, 10, 5]])
    np.testing.assert_array_equal(found.spread, [1, 5, 0])
    np.testing.assert_array_equal(found.top_features(2), [1, 0])
    np.testing.assert_array_equal(found.standardized, [[-1, -1, 0], [1, 1, 0]])


def test_missing_names_are_numbers():
    assert summary([[1, 2, 3]], names=("a", "b")).names == ("a", "b", "feature 2")


def test_largest_clusters_keep_their_order():
    np.testing.assert_array_equal(summary(np.eye(4), sizes=[5, -1, 7, 6]).largest_clusters(2), [2, 3])


def test_the_plane_of_centers_on_a_line():
    places, shares = summary([[0, 0], [3, 4], [6, 8]]).plane()
    np.testing.assert_allclose(places, [[-5, 0], [0, 0], [5, 0]], atol=1e-12)
    np.testing.assert_allclose(shares, [1, 0], atol=1e-12)


@pytest.mark.parametrize("centers", [[[1.0]], [[2.0, 3.0]], [[1.0], [1.0]], [[0.0, 0.0], [0.0, 0.0]]])
def test_the_plane_of_one_place(centers):
    places, shares = summary(centers).plane()
    np.testing.assert_array_equal(places, np.zeros((len(centers), 2)))
    np.testing.assert_array_equal(shares, [0, 0])


def test_centers_that_nearly_coincide():
    assert summary([[0, 0], [10, 0], [0, 10], [0.1, 0]]).coincident() == [(0, 3)]
    assert summary([[0, 0], [10, 0]]).coincident() == []
    assert summary([[7, 7], [7, 7]]).coincident() == [(0, 1)]
    assert summary([[1, 2]]).coincident() == []


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_any_magnitude(scale):
    found = summary(np.array([[0.0, 0.0], [3.0, 4.0], [0.01, 0.0]]) * scale)
    assert found.coincident() == [(0, 2)]
    assert np.isfinite(found.plane()[0]).all()
    np.testing.assert_allclose(scaled_stddev(np.array([[0.0], [2.0]]) * scale), [scale])


def test_non_finite_centers_become_finite():
    found = summary([[np.nan, np.inf], [1.0, 2.0]], sizes=[np.nan, 1.0])
    assert np.isfinite(found.centers).all()
    assert np.isfinite(found.sizes).all()
