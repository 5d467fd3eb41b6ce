"""The bounds on what discrete noise costs, against exact laws: none may be passed, and none is far above."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

from dapple_dp.schemas.core.plan import Geometry
from dapple_dp.transforms.core.discretization import lattice_noise, upper_ratio
from tests.scenes.plans import planned

STDDEVS = (0.6, 1.0, 3.0, 40.0)


def noise_of(stddev, size=1):
    return lattice_noise(planned(stddev, shape=(size,), sensitivity=1, geometry=Geometry.VECTOR))


def log_ratio(stddev, value):
    """log p(value) / q(value): discrete Gaussian against the rounded continuous one, without their normal density."""
    support = np.arange(-int(40 * stddev) - 40, int(40 * stddev) + 41)
    total = math.fsum(np.exp(-(support**2) / (2.0 * stddev**2))) / (stddev * math.sqrt(2.0 * math.pi))
    inside, _ = quad(
        lambda u: math.exp(-(u**2) / (2.0 * stddev**2)) * math.cosh(value * u / stddev**2), -0.5, 0.5, epsabs=1e-14
    )
    return -math.log(total) - math.log(inside)


@pytest.mark.parametrize("stddev", STDDEVS)
def test_the_lower_bound_holds_everywhere_and_is_reached_in_the_middle(stddev):
    bound = noise_of(stddev).lower
    ratios = [log_ratio(stddev, value) for value in range(int(5 * stddev) + 2)]
    assert max(ratios) <= bound * (1.0 + 1e-6)
    if stddev >= 3.0:
        assert ratios[0] == pytest.approx(bound, rel=0.02)


@pytest.mark.parametrize("exponent", [1.0, 15.0, 40.0])
@pytest.mark.parametrize("size", [1, 10, 1000, 100_000])
@pytest.mark.parametrize("stddev", [1.0, 30.0])
def test_the_upper_bound_is_passed_as_seldom_as_it_says(stddev, size, exponent):
    """Without the constants, the sum of all ratios is a chi-square variable over twice the variance."""
    noise = noise_of(stddev, size)
    constants = size * 3.0 * math.exp(-2.0 * math.pi**2 * stddev**2)
    beyond = (upper_ratio(noise, exponent) - constants) * 2.0 * stddev**2
    assert chi2.logsf(beyond, size) <= -exponent
    # A quarter of the way is passed more often, so the bound is not far above what is needed.
    assert exponent == 1.0 or chi2.logsf(size + (beyond - size) / 4.0, size) > -exponent


@pytest.mark.parametrize("stddev", STDDEVS)
def test_no_value_of_the_discrete_law_is_less_likely_than_the_upper_bound_says(stddev):
    """Step 2 of the proof: q(z) <= p(z) S exp(z^2 / (8 s^4))."""
    total = 3.0 * math.exp(-2.0 * math.pi**2 * stddev**2)
    for value in range(int(8 * stddev) + 2):
        assert -log_ratio(stddev, value) <= total + value**2 / (8.0 * stddev**4) + 1e-9


def test_windows_that_one_unit_moves_count_as_that_many_releases():
    (round_plan,) = planned(1.0, shape=(7,), sensitivity=1, geometry=Geometry.VECTOR)
    (release,) = round_plan.releases
    windows = dataclasses.replace(release, spec=dataclasses.replace(release.spec, windows=16))
    once = lattice_noise([dataclasses.replace(round_plan, releases=(windows,))])
    assert once == lattice_noise([round_plan] * 16)
    assert once.mean > lattice_noise([round_plan]).mean
