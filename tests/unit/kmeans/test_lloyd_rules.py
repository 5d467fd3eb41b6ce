"""Radius, split of the budget and number of rounds against figures worked out by hand."""

import pytest

from dapple_dp.transforms.numerics.kmeans import lloyd_rules
from dapple_dp.transforms.numerics.kmeans.lloyd_rules import Problem


def test_the_radius_is_that_of_a_cube_with_one_kth_of_the_volume():
    # Diagonal 2 sqrt(4) = 4 in half sides, halved by two, 16^(1/4) = 2.
    assert lloyd_rules.radius(16, 4, 0.8) == pytest.approx(0.8 * 2.0 / 2.0)
    assert lloyd_rules.radius(1, 9, 1.0) == pytest.approx(3.0)


def test_the_split_minimizes_the_error_of_a_round():
    # sigma_C = (4 d)^(1/4) sigma_R; weights are 1 / sigma^2.
    assert lloyd_rules.sums_weight(4) == pytest.approx(4.0)


@pytest.mark.parametrize("n_features", [1, 2, 5, 40])
def test_no_other_split_has_a_smaller_error(n_features):
    """The error of a round up to a common factor, by the formula that the paper minimizes."""

    def error(sums, counts):
        return 1.0 / counts + 4.0 * n_features / sums

    weight = lloyd_rules.sums_weight(n_features)
    best = weight / (weight + 1.0)
    for other in (0.98 * best, best + 0.02 * (1.0 - best)):
        assert error(best, 1.0 - best) <= error(other, 1.0 - other)


def test_the_number_of_rounds_follows_the_error_analysis():
    problem = Problem(n_rows=2000, n_clusters=4, n_features=4, noise_multiplier=5.0)
    # 4 * 4e6 * 0.004 / (64 * 0.25 * 25 * 25) = 6.4
    assert lloyd_rules.n_rounds(problem, 0.5, 2) == 6


def test_the_number_of_rounds_stays_in_its_range_and_needs_public_rows():
    many = Problem(n_rows=10**8, n_clusters=2, n_features=2, noise_multiplier=1.0)
    assert lloyd_rules.n_rounds(many, 0.5, 2) == 7
    assert lloyd_rules.n_rounds(many._replace(n_rows=10), 0.5, 2) == 2
    assert lloyd_rules.n_rounds(many._replace(n_rows=10), 0.5, 1) == 1
    assert lloyd_rules.n_rounds(many._replace(n_rows=None), 0.5, 2) == 2


def test_more_noise_never_means_more_rounds():
    rounds = [lloyd_rules.n_rounds(Problem(5000, 5, 3, multiplier), 0.4, 2) for multiplier in range(1, 40)]
    assert rounds == sorted(rounds, reverse=True)
