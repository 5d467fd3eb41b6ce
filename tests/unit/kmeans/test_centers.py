"""Centers from noisy sums and counts: guards, shrinkage and the public prior, all by hand."""

import numpy as np
import pytest

from dapple_dp.transforms.numerics.kmeans import centers
from dapple_dp.transforms.numerics.kmeans.centers import PRIOR_BIAS, NoisyMeans, Prior

FALLBACK = np.array([[7.0, 7.0], [8.0, 8.0]])


def noisy(counts, sums=((8.0, 4.0), (3.0, 0.0)), sums_stddev=0.5, counts_stddev=1.0) -> NoisyMeans:
    return NoisyMeans(np.array(sums), np.array(counts, dtype=float), sums_stddev, counts_stddev)


def test_safe_counts_are_at_least_one_noise_stddev():
    np.testing.assert_array_equal(noisy([4, -3]).safe_counts, [4.0, 1.0])
    np.testing.assert_array_equal(noisy([4, -3], counts_stddev=0.0).safe_counts, [4.0, 1e-9])


def test_means_and_variances_by_hand():
    found = noisy([4, 0])
    np.testing.assert_array_equal(found.means, [[2.0, 1.0], [3.0, 0.0]])
    # sums: two coordinates, (0.5 / 4)^2 = 1 / 64 and 0.5^2 = 1 / 4; counts: squared means 5 and 9 times (1 / 4)^2 and 1
    np.testing.assert_allclose(found.variances, [1 / 32 + 5 / 16, 1 / 2 + 9])
    np.testing.assert_allclose(noisy([4, 0], counts_stddev=0.0).variances[0], 1 / 32)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([4, 3], [[2, 1], [1, 0]]),
        ([4, 2], [[2, 1], [8, 8]]),
        ([4, -50], [[2, 1], [8, 8]]),
        ([0, 0], FALLBACK),
    ],
)
def test_guarded_means_fall_back_at_two_noise_stddevs_or_less(counts, expected):
    np.testing.assert_allclose(centers.guarded_means(noisy(counts), Prior(FALLBACK, np.full(2, np.inf))), expected)


def test_guarded_means_without_noise_keep_every_cluster_that_has_rows():
    found = centers.guarded_means(
        noisy([4, 0], sums_stddev=0.0, counts_stddev=0.0), Prior(FALLBACK, np.full(2, np.inf))
    )
    np.testing.assert_array_equal(found, [[2, 1], [8, 8]])


def test_printed_means_divide_by_whatever_count_there_is():
    prior = Prior(FALLBACK, np.full(2, np.inf))
    np.testing.assert_array_equal(centers.printed_means(noisy([4, -3]), prior), [[2, 1], [-1, 0]])
    np.testing.assert_array_equal(centers.printed_means(noisy([4, 0]), prior), [[2, 1], FALLBACK[1]])


def test_shrunken_means_by_hand():
    # noise variances 11 / 32 and 19 / 2, prior variances 33 / 32 and 19 / 2: lambda 3 / 4 and 1 / 2
    found = centers.shrunken_means(noisy([4, 0]), Prior(FALLBACK, np.array([33 / 32, 19 / 2])))
    np.testing.assert_allclose(found, [[0.75 * 2 + 0.25 * 7, 0.75 * 1 + 0.25 * 7], [5.5, 4.0]])


def test_shrunken_means_go_to_the_private_means_as_the_noise_vanishes():
    found = centers.shrunken_means(noisy([4, 3], sums_stddev=1e-9, counts_stddev=1e-9), Prior(FALLBACK, np.ones(2)))
    np.testing.assert_allclose(found, [[2, 1], [1, 0]], atol=1e-12)


def test_shrunken_means_go_to_the_prior_as_the_noise_grows():
    found = centers.shrunken_means(noisy([4, 3], sums_stddev=1e9), Prior(FALLBACK, np.ones(2)))
    np.testing.assert_allclose(found, FALLBACK, atol=1e-6)


def test_a_prior_is_widened_where_means_lie_farther_than_noise_explains():
    # d = 2: one of the noisy means is 10 off with noise variance 2 * 0.5^2 / 10^2 = 1 / 200 (counts exact)
    close = NoisyMeans(np.array([[70.0, 70.0], [80.0, 180.0]]), np.array([10.0, 10.0]), 0.5, 0.0)
    found = Prior(FALLBACK, np.array([0.25, 0.25])).widened(close)
    np.testing.assert_allclose(found.variances, [0.25, 100.0 - 3.0 / 200])
    np.testing.assert_array_equal(found.means, FALLBACK)


def test_a_fallback_stays_uninformative():
    assert not Prior(FALLBACK, np.full(2, np.inf)).widened(noisy([4, 3])).informative


def test_public_prior_by_hand():
    rows = np.array([[0.0], [2.0], [10.0]])
    found = centers.public_prior(rows, np.array([0, 0, 1]), np.ones(3), np.array([[7.0], [8.0], [9.0]]))
    np.testing.assert_array_equal(found.means, [[1], [10], [9]])
    # squared errors 1, 1, 0 over 3 - 2 degrees of freedom: 2; effective rows 2 and 1, and 1 where there are none
    np.testing.assert_allclose(found.variances, [2 * (1 / 2 + PRIOR_BIAS), 2 * (1 + PRIOR_BIAS), 2 * (1 + PRIOR_BIAS)])
    assert found.bias == pytest.approx(2 * PRIOR_BIAS)
    assert found.informative


def test_public_prior_counts_rows_by_their_weights():
    rows = np.array([[0.0], [4.0], [99.0]])
    found = centers.public_prior(rows, np.zeros(3, dtype=np.int64), np.array([3.0, 1.0, 0.0]), np.array([[7.0]]))
    np.testing.assert_array_equal(found.means, [[1.0]])
    # weights 3, 1 are worth 16 / 10 rows; weighted squared error (3 * 1 + 1 * 9) / 4 over 0.6 / 1.6
    scatter = 3.0 / 0.375
    np.testing.assert_allclose(found.variances, [scatter * (1 / 1.6 + PRIOR_BIAS)])


def test_public_prior_without_any_weight_is_the_fallback():
    fallback = np.array([[7.0], [8.0]])
    found = centers.public_prior(np.array([[1.0]]), np.array([0]), np.zeros(1), fallback)
    np.testing.assert_array_equal(found.means, fallback)
    assert np.isfinite(found.variances).all()
    assert (found.variances > 0).all()


def test_public_prior_of_one_row_per_cluster_stays_finite():
    found = centers.public_prior(np.array([[1.0], [5.0]]), np.array([0, 1]), np.ones(2), np.zeros((2, 1)))
    np.testing.assert_array_equal(found.means, [[1], [5]])
    assert (found.variances > 0).all()


def test_an_updated_prior_adds_precisions_and_keeps_its_bias():
    prior = Prior(FALLBACK, np.array([11 / 32, 19 / 2]), bias=0.25)
    found = prior.updated(np.zeros((2, 2)), noisy([4, 0]))
    np.testing.assert_array_equal(found.means, np.zeros((2, 2)))
    np.testing.assert_allclose(found.variances, [11 / 64 + 0.25, 19 / 4 + 0.25])
    assert found.bias == 0.25


def test_a_prior_that_knows_nothing_learns_only_the_fallback():
    prior = Prior(FALLBACK, np.array([np.inf, np.inf]))
    assert not prior.informative
    found = prior.updated(np.ones((2, 2)), noisy([4, 0]))
    np.testing.assert_array_equal(found.means, np.ones((2, 2)))
    assert not found.informative
