"""The delta of a Gaussian mechanism against 60 digits and another library, far into both tails."""

import math

import mpmath
import pytest
from dp_accounting import gaussian_mechanism

from dapple_dp.transforms.core.discretization import log_delta
from tests.scenes.plans import gaussian_delta

MULTIPLIERS = (1e-3, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0, 1000.0)
EPSILONS = (0.0, 1e-6, 1e-3, 0.1, 1.0, 8.0, 50.0, 1000.0)
LAST_PLACE = 2.0**-52


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("multiplier", MULTIPLIERS)
def test_the_logarithm_is_exact_at_every_size(multiplier, epsilon):
    with mpmath.workdps(60):
        exact = mpmath.log(gaussian_delta(multiplier, mpmath.mpf(epsilon)))
        error = float(log_delta(multiplier, epsilon) - exact)
    assert abs(error) <= 8.0 * LAST_PLACE * (1.0 + multiplier + abs(float(exact)))


# Where the formula takes another branch, and where exp and erfc reach the ends of float64.
@pytest.mark.parametrize("near", [-40.0, -1e-9, 0.0, 1e-9, 4.242, 4.243, 37.5, 38.6, 40.0])
def test_no_branch_is_seen_from_outside(near):
    multiplier = 0.01
    epsilon = (near + 0.5 / multiplier) / multiplier
    with mpmath.workdps(60):
        exact = float(mpmath.log(gaussian_delta(multiplier, mpmath.mpf(epsilon))))
    assert log_delta(multiplier, epsilon) == pytest.approx(exact, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-12, 1e-100, 1e-300])
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 7.0])
def test_another_library_finds_the_same_curve(multiplier, delta):
    epsilon = gaussian_mechanism.get_epsilon_gaussian(multiplier, delta)
    assert log_delta(multiplier, epsilon) == pytest.approx(math.log(delta), rel=1e-12)


def test_at_epsilon_zero_it_is_the_distance_of_two_normal_laws():
    # Phi(1/2) - Phi(-1/2), from a table.
    assert math.exp(log_delta(1.0, 0.0)) == pytest.approx(0.6914624612740131 - 0.3085375387259869, rel=1e-15)


def test_a_delta_of_next_to_nothing_has_no_logarithm():
    assert log_delta(1e200, 1.0) == -math.inf


def test_without_noise_nothing_is_promised():
    with pytest.raises(ZeroDivisionError):
        log_delta(0.0, 1.0)
