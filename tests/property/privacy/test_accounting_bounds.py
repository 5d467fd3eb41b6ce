"""Bounds of the accountant are above those of exact composition and of another accountant."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from dapple_dp.schemas.core.plan import Allocation
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.discretization import discretization_slack
from tests.scenes.plans import LAPLACE, PAPER, calibrate, exact_delta, gaussian_delta, init_specs, planned

STDDEVS = (1.0, 2.0, 5.0, 30.0)


def events(rounds):
    """One event per release, for another composition than the accountant's."""
    releases = [release for plan in rounds for release in plan.releases]
    return dp_event.ComposedDpEvent(
        [
            dp_event.DiscreteLaplaceDpEvent(1.0 / release.noise_multiplier, 1)
            if release.spec.mechanism is LAPLACE
            else dp_event.GaussianDpEvent(release.noise_multiplier)
            for release in releases
        ]
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9, 1e-12])
def test_plans_keep_their_promise_in_exact_composition(epsilon, delta):
    plan = calibrate(init_specs(PAPER), epsilon, delta, PAPER)
    with mpmath.workdps(40):
        exact = exact_delta(plan.rounds, mpmath.mpf(plan.epsilon)) / delta
    assert 0.9 < exact <= 1.0 - plan.discretization_slack / delta


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    allocation=st.sampled_from(Allocation),
    epsilon=st.floats(0.1, 8.0),
    log_delta=st.floats(-11.0, -3.0),
    shares=st.tuples(*[st.floats(0.01, 1.0)] * 4),
)
def test_dp_accounting_never_finds_more_than_the_target(allocation, epsilon, log_delta, shares):
    delta = 10.0**log_delta
    try:
        plan = calibrate(init_specs(allocation, shares), epsilon, delta, allocation)
    except ConfigError as refusal:
        assume("lattice units" not in str(refusal))
        raise
    assert 0.997 * epsilon < plan.epsilon <= epsilon
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, epsilon / 4000.0)
    accountant.compose(events(plan.rounds))
    assert accountant.get_epsilon(delta - plan.discretization_slack) <= epsilon


@pytest.mark.parametrize("pure_epsilon", [0.05, 0.3, 1.0, 4.0])
def test_laplace_event_dominates_the_scalar_laplace_mechanism(pure_epsilon):
    release = planned(1.0 / pure_epsilon, mechanism=LAPLACE)
    ours = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4).compose(events(release))
    scalar = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    scalar.compose(dp_event.LaplaceDpEvent(1.0 / pure_epsilon))
    for epsilon in np.linspace(0.0, pure_epsilon, 7):
        response = (math.exp(pure_epsilon) - math.exp(epsilon)) / (1.0 + math.exp(pure_epsilon))
        assert ours.get_delta(epsilon) >= scalar.get_delta(epsilon) - 1e-4 * pure_epsilon
        assert ours.get_delta(epsilon) == pytest.approx(response, abs=2e-4)
    assert scalar.get_epsilon(1e-6) <= ours.get_epsilon(1e-6) <= pure_epsilon + 1e-4


def test_rounding_errors_of_tiny_deltas_do_not_leak():
    rounds = [*planned(0.12), *planned(0.1, mechanism=LAPLACE), *planned(0.2, mechanism=LAPLACE)]
    for delta in (1e-9, 1e-11, 1e-12):
        with mpmath.workdps(40):
            assert exact_delta(rounds, mpmath.mpf(accounting.compose_epsilon(rounds, delta, 50.0))) <= delta
    assert accounting.compose_epsilon(rounds, 1e-15, 50.0) == math.inf


def _rounded_and_discrete(stddev: float, size: int):
    """Integers in [-size, size], the law of rounded and of discrete Gaussian noise on them, and S."""
    integers = np.arange(-size, size + 1)
    low, high = (np.abs(integers) - 0.5) / stddev, (np.abs(integers) + 0.5) / stddev
    rounded = norm.sf(low) - norm.sf(high)
    density = norm.pdf(integers, scale=stddev)
    return integers, rounded, density / density.sum(), density.sum()


@pytest.mark.parametrize("stddev", STDDEVS)
def test_discrete_noise_is_close_to_rounded_noise_as_stated(stddev):
    integers, rounded, discrete, total = _rounded_and_discrete(stddev, round(8 * stddev))
    bound = 1.0 / (24.0 * stddev**2)
    assert 1.0 <= total + 1e-12 <= 1.0 + 3.0 * math.exp(-2.0 * math.pi**2 * stddev**2) + 2e-12
    assert 0.35 * bound < 0.5 * np.abs(rounded - discrete).sum() <= bound
    assert (discrete <= rounded / (1.0 - bound) * (1.0 + 1e-12)).all()
    assert (rounded <= discrete * total * np.exp(integers**2 / (8.0 * stddev**4)) * (1.0 + 1e-12)).all()


@pytest.mark.parametrize("stddev", STDDEVS)
@pytest.mark.parametrize("shift", [(1,), (2,), (5,), (3, 4)])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6])
def test_discrete_mechanisms_keep_what_the_slack_pays_for(stddev, shift, delta):
    rounds = planned(stddev / math.hypot(*shift), shape=(len(shift),), sensitivity=round(math.hypot(*shift)))
    lower, upper = 1e-9, 400.0
    while upper - lower > 1e-9 * upper:
        middle = (lower + upper) / 2.0
        slack = discretization_slack(rounds, middle, delta)
        kept = gaussian_delta(rounds[0].releases[0].noise_multiplier, middle - slack.epsilon) > delta - slack.delta
        lower, upper = (middle, upper) if kept else (lower, middle)
    laws = [_rounded_and_discrete(stddev, round(12 * stddev) + 5)[2] for _ in shift]
    here, there = laws[0], np.roll(laws[0], shift[0])
    if len(shift) == 2:
        here, there = np.multiply.outer(here, laws[1]), np.multiply.outer(there, np.roll(laws[1], shift[1]))
    assert np.maximum(here - np.exp(upper) * there, 0.0).sum() <= delta


def test_a_continuous_figure_alone_would_claim_too_much():
    law = _rounded_and_discrete(1.0, 20)[2]
    epsilon = brentq(lambda exact: float(gaussian_delta(1.0, exact)) - 1e-3, 0.0, 10.0)
    assert np.maximum(law - math.exp(epsilon) * np.roll(law, 1), 0.0).sum() > 1.3e-3
