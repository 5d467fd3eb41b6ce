"""The audit's arithmetic on mechanisms whose epsilon is known."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.scenes.audit import EPSILON, audited_epsilon, both_bounds, epsilon_lower_bounds


def test_bound_without_false_alarms_by_hand():
    # All of 100 runs hit, none alarms falsely: least hit rate is f^(1/100), most false alarms 1 - f^(1/100), f = 0.005.
    edge = 0.005**0.01
    (found,) = epsilon_lower_bounds(np.array([100]), np.array([0]), 100, 0.0, failure=0.01)
    assert found == pytest.approx(math.log(edge / (1.0 - edge)))
    (found,) = epsilon_lower_bounds(np.array([100]), np.array([0]), 100, 0.2, failure=0.01)
    assert found == pytest.approx(math.log((edge - 0.2) / (1.0 - edge)))


def test_an_uninformative_test_bounds_nothing():
    hits, false_alarms = np.array([0, 0, 50, 100, 3]), np.array([0, 9, 50, 100, 0])
    np.testing.assert_array_equal(epsilon_lower_bounds(hits, false_alarms, 100, 0.1), np.zeros(5))


def test_bounds_fail_as_seldom_as_they_say():
    # Randomized response with epsilon log 9; 2,000 audits at failure 0.1: more than 245 excesses once in 1e6 seeds.
    rng = np.random.default_rng(0)
    hits, false_alarms = rng.binomial(500, 0.9, 2000), rng.binomial(500, 0.1, 2000)
    found = epsilon_lower_bounds(hits, false_alarms, 500, 0.0, failure=0.1)
    assert (found > math.log(9.0)).sum() <= 245
    assert np.median(found) > 0.8 * math.log(9.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_best_score_and_both_directions_are_found(sign):
    rng = np.random.default_rng(1)
    without, with_canary = rng.random((2, 3, 6000))
    without[1] = sign * (without[1] > 0.5)
    with_canary[1] = np.where(rng.random(6000) < 0.2, 2.0 * sign, sign * (with_canary[1] > 0.5))
    # The value 2 occurs with the canary only, in a fifth of the runs: no epsilon holds at delta 0.1.
    found = audited_epsilon(without, with_canary, 0.1)
    assert (found > EPSILON) == (sign > 0)
    assert (audited_epsilon(with_canary, without, 0.1) > EPSILON) == (sign < 0)


def test_gaussian_noise_keeps_its_epsilon_and_half_of_it_does_not():
    rng = np.random.default_rng(2)
    draws, shift, delta = rng.normal(size=(2, 1, 6000)), 1.0, 0.05
    # By Balle and Wang (2018), Theorem 8, noise of stddev 1 on a shift of 1 is (1.57, 0.05)-DP.
    assert stats.norm.cdf(0.5 - 1.57) - math.exp(1.57) * stats.norm.cdf(-0.5 - 1.57) == pytest.approx(delta, abs=1e-3)
    found = both_bounds(draws[0], draws[1] + shift, delta)
    assert 0.5 * 1.57 < min(found) < max(found) < 1.57
    assert min(both_bounds(draws[0], draws[1] + 2.0 * shift, delta)) > 1.57


def test_the_other_auditor_pays_for_every_score_and_looks_both_ways():
    rng = np.random.default_rng(3)
    nothing, draws = rng.normal(size=(2, 200, 3000)), rng.normal(size=(2, 1, 3000))
    assert both_bounds(*nothing, 0.0).theirs < 0.2
    among = [np.concatenate([draws[0], nothing[0]]), np.concatenate([draws[1] + 1.5, nothing[1]])]
    alone = both_bounds(*(each[:1] for each in among), 0.05).theirs
    assert 1.0 < both_bounds(*among, 0.05).theirs < alone
    # Only runs without the canary have the value -9.
    draws[0, 0, :900] = -9.0
    assert both_bounds(draws[0], draws[1], 0.1).theirs > EPSILON
