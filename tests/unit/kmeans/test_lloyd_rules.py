"""Radius, split of the budget and number of rounds against figures worked out by hand."""

import math

import pytest

from dapple_dp.schemas.choices import LloydVariant
from dapple_dp.transforms.numerics.kmeans import lloyd_rules
from dapple_dp.transforms.numerics.kmeans.lloyd_rules import Problem

FAST, G, SU = LloydVariant.FAST, LloydVariant.G, LloydVariant.SU


def test_the_radius_is_that_of_a_cube_with_one_kth_of_the_volume():
    # Diagonal 2 sqrt(4) = 4 in half sides, halved by two, 16^(1/4) = 2.
    assert lloyd_rules.radius(16, 4, 0.8) == pytest.approx(0.8 * 2.0 / 2.0)
    assert lloyd_rules.radius(1, 9, 1.0) == pytest.approx(3.0)


def test_the_split_minimizes_the_error_of_a_round():
    # fast: sigma_C = (4 d)^(1/4) sigma_R; weights are 1 / sigma^2.
    assert lloyd_rules.sums_weight(FAST, 4) == pytest.approx(4.0)
    # g: sigma_C^2 = sqrt(d) / (2 rho) sigma_S^2.
    assert lloyd_rules.sums_weight(G, 9) == pytest.approx(3.0 / 0.45)
    # su: epsilons d for the sums against (4 d rho^2)^(1/3).
    assert lloyd_rules.sums_weight(SU, 2) == pytest.approx(2.0 / 0.405 ** (1.0 / 3.0))


@pytest.mark.parametrize("n_features", [1, 2, 5, 40])
def test_no_other_split_has_a_smaller_error(n_features):
    """Errors per round up to a common factor, by the formulas that the papers minimize."""
    errors = {
        FAST: lambda sums, counts: 1.0 / counts + 4.0 * n_features / sums,
        G: lambda sums, counts: 4.0 * lloyd_rules.RHO**2 / counts + n_features / sums,
        SU: lambda sums, counts: 4.0 * n_features * lloyd_rules.RHO**2 / counts**2 + n_features**3 / sums**2,
    }
    for variant, error in errors.items():
        weight = lloyd_rules.sums_weight(variant, n_features)
        best = weight / (weight + 1.0)
        for other in (0.98 * best, best + 0.02 * (1.0 - best)):
            assert error(best, 1.0 - best) <= error(other, 1.0 - other)


def test_the_number_of_rounds_follows_the_error_analysis():
    problem = Problem(n_rows=2000, n_clusters=4, n_features=4, noise_multiplier=5.0, epsilon=1.0)
    # 4 * 4e6 * 0.004 / (64 * 0.25 * 25 * 25) = 6.4
    assert lloyd_rules.n_rounds(FAST, problem, 0.5, 2) == 6
    # 4e6 * 0.004 / (64 * 4 * 25 * 2.45^2) = 0.4165
    assert lloyd_rules.n_rounds(G, problem, 0.5, 2) == 2
    assert lloyd_rules.n_rounds(G, problem._replace(n_rows=8000), 0.5, 2) == int(0.41649 * 16)
    # 1 / sqrt(500 * 64 / 4e6 * (4 + 0.81^(1/3))^3) = 1 / sqrt(0.008 * 119.4) = 1.02
    assert lloyd_rules.n_rounds(SU, problem, 0.5, 2) == 2
    assert lloyd_rules.n_rounds(SU, problem._replace(epsilon=3.5), 0.5, 2) == 3


@pytest.mark.parametrize("variant", [FAST, G, SU])
def test_the_number_of_rounds_stays_in_its_range_and_needs_public_rows(variant):
    many = Problem(n_rows=10**8, n_clusters=2, n_features=2, noise_multiplier=1.0, epsilon=1.0)
    assert lloyd_rules.n_rounds(variant, many, 0.5, 2) == 7
    assert lloyd_rules.n_rounds(variant, many._replace(n_rows=10), 0.5, 2) == 2
    assert lloyd_rules.n_rounds(variant, many._replace(n_rows=10), 0.5, 1) == 1
    assert lloyd_rules.n_rounds(variant, many._replace(n_rows=None), 0.5, 2) == 2


def test_more_noise_never_means_more_rounds():
    rounds = [
        lloyd_rules.n_rounds(FAST, Problem(5000, 5, 3, multiplier, math.nan), 0.4, 2) for multiplier in range(1, 40)
    ]
    assert rounds == sorted(rounds, reverse=True)
