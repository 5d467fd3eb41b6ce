"""Weights of the server points, by hand."""

import math

import numpy as np
import pytest

from dapple_dp.transforms.numerics.kmeans import server_points


def test_printed_weights_are_not_negative():
    found = server_points.printed_weights(np.array([-3.0, 1.0, 2.5]), 2.0)
    np.testing.assert_array_equal(found, [0.0, 1.0, 2.5])


def test_weights_beyond_noise_leave_one_percent_to_empty_bins():
    rng = np.random.default_rng(3)
    noise = rng.normal(0.0, 10.0, 100_000)
    kept = server_points.weights_beyond_noise(noise, 10.0, 1e6, 10)
    # A normal number above t adds phi(t): t = 2.715 leaves 10,000 rows of 100,000 empty bins.
    assert kept.sum() == pytest.approx(0.01 * 1e6, rel=0.1)
    assert kept[kept > 0.0].min() == pytest.approx(27.15, abs=0.05)


@pytest.mark.parametrize(("n_rows", "least"), [(2_999.0, 10.0), (3_000.0, 35.0), (1e9, 10.0)])
def test_few_rows_have_the_threshold_of_one_stddev_and_no_threshold_is_above_three_and_a_half(n_rows, least):
    noisy = np.concatenate([np.linspace(0.0, 40.0, 401), np.zeros(10_000_000 if n_rows == 3_000.0 else 0)])
    kept = server_points.weights_beyond_noise(noisy, 10.0, n_rows, 10)
    assert kept[kept > 0.0].min() == pytest.approx(least, abs=0.11)


def test_significant_weights_are_above_one_stddev():
    found = server_points.significant_weights(np.array([-3.0, 1.0, 2.0, 2.5]), 2.0)
    np.testing.assert_array_equal(found, [0, 0, 0, 2.5])


def test_shrunken_weights_by_hand():
    # mean 2, variance 4, noise variance 2: half of the spread is signal
    found = server_points.shrunken_weights(np.array([0.0, 4.0]), math.sqrt(2.0))
    np.testing.assert_allclose(found, [1.0, 3.0])


def test_shrunken_weights_without_noise_are_the_weights():
    np.testing.assert_array_equal(server_points.shrunken_weights(np.array([0.0, 1.0, 5.0]), 0.0), [0, 1, 5])
    np.testing.assert_allclose(server_points.shrunken_weights(np.array([0.0, 1.0, 5.0]), 1e-9), [0, 1, 5])


def test_shrunken_weights_under_much_noise_are_equal():
    np.testing.assert_allclose(server_points.shrunken_weights(np.array([0.0, 1.0, 5.0]), 100.0), [2.0] * 3)


def test_shrunken_weights_are_never_negative_and_never_all_zero():
    found = server_points.shrunken_weights(np.array([-10.0, 0.0, 4.0]), 1.0)
    assert (found >= 0).all()
    assert found.any()
    negative = server_points.shrunken_weights(np.array([-10.0, -9.0]), 20.0)
    assert (negative > 0).all()
