"""The noise has the law that is stated: right laws are accepted, laws 10 % off are rejected. All keys are fixed."""

import numpy as np
import pytest
from scipy import stats

from dapple_dp.schemas.core.plan import Mechanism, ReleasePlan, ReleaseSpec, RoundPlan
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.core.noise import discrete_gaussian, discrete_laplace, draw_release

KEY = bytes(range(32))
ACCEPT = 1e-6
"""A right law is rejected once in 1e6 keys per test."""
REJECT = 1e-9
"""A wrong law must have a smaller p-value; the power is written at each use."""


def _stream(*label: bytes | str | int | float) -> KeyStream:
    return KeyStream(KEY, encode_label(*label))


def _gaussian_weights(values, stddev):
    return np.exp(-(values**2) / (2 * stddev**2))


def _laplace_weights(values, scale):
    return np.exp(-np.abs(values) / scale)


def _pmf_p_value(draws, weights, parameter):
    """Chi-square against the exact pmf; both tails are pooled so that every cell expects 10 or more."""
    support = np.arange(-2000, 2001)
    expected = weights(support, parameter)
    expected *= len(draws) / expected.sum()
    edge = int(np.max(support[expected >= 10]))
    while expected[support >= edge].sum() < 10:
        edge -= 1
    cells = np.clip(support, -edge, edge) + edge
    observed = np.bincount(np.clip(draws, -edge, edge) + edge, minlength=2 * edge + 1)
    return stats.chisquare(observed, np.bincount(cells, expected)).pvalue


@pytest.mark.parametrize("stddev", [0.5, 1.3, 4.7])
def test_gaussian_pmf(stddev):
    draws = discrete_gaussian(_stream("gaussian", stddev), stddev, 500_000)
    assert _pmf_p_value(draws, _gaussian_weights, stddev) > ACCEPT
    # Cell counts differ by tens of their standard deviations: power 1 - 1e-20 or better.
    assert _pmf_p_value(draws, _gaussian_weights, 1.1 * stddev) < REJECT
    assert _pmf_p_value(draws, _gaussian_weights, stddev / 1.1) < REJECT


@pytest.mark.parametrize("scale", [1, 3])
def test_laplace_pmf(scale):
    draws = discrete_laplace(_stream("laplace", scale), scale, 500_000)
    assert _pmf_p_value(draws, _laplace_weights, scale) > ACCEPT
    assert _pmf_p_value(draws, _laplace_weights, 1.1 * scale) < REJECT
    assert _pmf_p_value(draws, _laplace_weights, scale / 1.1) < REJECT


def test_zero_drawn_twice_would_be_seen():
    draws = discrete_laplace(_stream("zero"), 3, 500_000)
    doubled = np.concatenate([draws, draws[draws == 0]])
    assert _pmf_p_value(doubled, _laplace_weights, 3) < REJECT


@pytest.mark.parametrize("stddev", [5 * 2.0**20, 87 * 2.0**32])
def test_wide_gaussian(stddev):
    draws = discrete_gaussian(_stream("wide", stddev), stddev, 200_000) / stddev
    assert stats.kstest(draws, "norm").pvalue > ACCEPT
    # CDFs 10 % apart differ by 0.023, the rejection distance is 0.0075: power 1 - 1e-40 (Dvoretzky-Kiefer-Wolfowitz).
    assert stats.kstest(draws, "norm", (0, 1.1)).pvalue < REJECT
    assert stats.kstest(draws, "norm", (0, 1 / 1.1)).pvalue < REJECT
    # n * variance is chi-square: 5 standard errors are passed once in 1.7e6 keys, 10 % off is 63 of them.
    assert abs(draws.std() - 1.0) < 5 / np.sqrt(2 * len(draws))


@pytest.mark.parametrize("scale", [5 << 20, 87 << 32])
def test_wide_laplace(scale):
    draws = discrete_laplace(_stream("wide", scale), scale, 200_000) / scale
    assert stats.kstest(draws, "laplace").pvalue > ACCEPT
    # CDFs 10 % apart differ by 0.0175, the rejection distance is 0.0075: power 1 - 1e-17.
    assert stats.kstest(draws, "laplace", (0, 1.1)).pvalue < REJECT
    assert stats.kstest(draws, "laplace", (0, 1 / 1.1)).pvalue < REJECT


def test_laplace_is_not_taken_for_gaussian():
    draws = discrete_laplace(_stream("other"), 1 << 30, 200_000) / 2.0**30
    assert stats.kstest(draws, "norm", (0, np.sqrt(2))).pvalue < REJECT


def test_tails_are_not_truncated():
    draws = discrete_laplace(_stream("tail"), 1, 2_000_000)
    beyond = int((np.abs(draws) >= 10).sum())
    probability = 2 * np.exp(-10) / (1 + np.exp(-1))
    expected = probability * len(draws)
    assert abs(beyond - expected) < 6 * np.sqrt(expected)  # fails once in 5e8 keys
    assert np.abs(draws).max() >= 12  # 18 are expected there or beyond: fails once in 6e7 keys


def test_low_bits_are_uniform():
    draws = discrete_gaussian(_stream("low bits"), 87 * 2.0**32, 200_000)
    assert stats.chisquare(np.bincount(draws & 255, minlength=256)).pvalue > ACCEPT


def test_neighboring_draws_are_uncorrelated():
    draws = discrete_gaussian(_stream("lag"), 2.0**30, 200_000) / 2.0**30
    for lag in (1, 2, 7, 1024):
        # The lagged product's mean has stddev 1 / sqrt(n): fails once in 1.7e6 keys.
        assert abs(np.mean(draws[lag:] * draws[:-lag])) < 5 / np.sqrt(len(draws) - lag)


def _release_noise(key, path, multiplier, exact_sum):
    spec = ReleaseSpec(
        name="sums",
        shape=exact_sum.shape,
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=1 << 32,
        share=1.0,
    )
    plan = RoundPlan(path=path, releases=(ReleasePlan(spec=spec, noise_multiplier=multiplier),))
    (release,) = draw_release(key, plan, exact_sum)
    return (release.values - exact_sum) / release.plan.noise_scale


def test_releases_are_independent_of_each_other():
    size = 100_000
    zeros = np.zeros(size, dtype=np.int64)
    moved = zeros.copy()
    moved[-1] = 1
    draws = np.stack(
        [
            _release_noise(KEY, "round0", 87.0, zeros),
            _release_noise(KEY, "round1", 87.0, zeros),
            _release_noise(KEY[::-1], "round0", 87.0, zeros),
            _release_noise(KEY, "round0", 87.0, moved),
            _release_noise(KEY, "round0", 43.5, zeros),
        ]
    )
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < 6 / np.sqrt(size)  # 10 pairs: fails once in 5e7 keys
    # Two draws agree in a place with probability 1e-12: some place agrees in fewer than 2e-6 of all keys.
    assert all((np.diff(np.sort(draws, axis=0), axis=0) != 0).all(axis=0))
    for row in draws:
        assert stats.kstest(row, "norm").pvalue > ACCEPT


def test_noise_does_not_follow_the_sum():
    size = 100_000
    exact_sum = np.arange(size, dtype=np.int64) << 30
    draws = _release_noise(KEY, "round0", 87.0, exact_sum)
    slope = stats.pearsonr(draws, exact_sum.astype(np.float64))
    assert slope.pvalue > ACCEPT
