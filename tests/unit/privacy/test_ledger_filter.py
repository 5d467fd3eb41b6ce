"""Sums of charges, by hand, and which one more is refused."""

import dataclasses
import math
import re

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism

from dapple_dp.schemas.core.plan import Allocation, LatticeNoise, Mechanism, PrivacyUnit, ReleaseSpec, RoundSpec
from dapple_dp.schemas.errors import BudgetExceededError, LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Charge, Limit
from dapple_dp.schemas.privacy.statement import PrivacyStatement, describe
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.discretization import lattice_noise
from dapple_dp.transforms.privacy.ledger_filter import (
    MOST_RUNS,
    Spent,
    check,
    fits,
    how_many,
    largest_epsilon,
    most_spent,
    spent_epsilon,
    total,
)
from tests.scenes.ledgers import basic_limit, charge, gaussian

LIMIT = Limit(epsilon=1.0, delta=1e-6)


def planned(epsilon, delta, mechanism=Mechanism.DISCRETE_GAUSSIAN, allocation=Allocation.TUNED):
    spec = ReleaseSpec(name="sums", shape=(5, 4), mechanism=mechanism, sensitivity=1 << 20, share=1.0)
    rounds = (RoundSpec(path="test", releases=(spec, spec)),)
    plan = accounting.calibrate(PrivacyUnit.RECORD, rounds, epsilon, delta, allocation)
    statement = PrivacyStatement.from_plan(plan, describe(plan))
    return Charge.of(statement, dataset="census", job="fit", noise=lattice_noise(plan.rounds))


def test_gaussian_releases_add_up_like_one_of_less_noise():
    many = total(LIMIT, [gaussian(20.0) for _ in range(16)])
    one = total(LIMIT, [gaussian(5.0)])
    assert many.precision == pytest.approx(16 / 400) == one.precision
    assert spent_epsilon(LIMIT, many)[0] == pytest.approx(spent_epsilon(LIMIT, one)[0])
    # 1 / z = 0.2 at delta 1e-6: below what zero-concentrated privacy, rho = 0.02, says of it.
    assert 0.8 < spent_epsilon(LIMIT, one)[0] < 0.02 + 0.2 * math.sqrt(2 * math.log(1e6))


def test_the_curve_is_that_of_the_gaussian_mechanism():
    spent = total(LIMIT, [gaussian(5.0)])
    exact = gaussian_mechanism.get_epsilon_gaussian(5.0, 1e-6)
    assert spent_epsilon(LIMIT, spent) == (pytest.approx(exact, rel=2e-4), 1e-6)
    assert not fits(Limit(epsilon=exact, delta=1e-6), spent)
    assert fits(Limit(epsilon=1.0002 * exact, delta=1e-6), spent)


def test_other_runs_add_up_by_epsilon_and_delta():
    limit = basic_limit(3.0, 4e-7)
    held = [charge(1.0, 2e-7), charge(1.5, 1e-7)]
    assert spent_epsilon(limit, total(limit, held)) == (2.5, pytest.approx(3e-7))
    check(limit, held, charge(0.5, 1e-7))
    with pytest.raises(
        BudgetExceededError, match=r"the budget of census is too small for this run: .* of epsilon 3 at delta"
    ):
        check(limit, held, charge(0.6))
    with pytest.raises(BudgetExceededError, match=r"2\.5 of epsilon"):
        check(limit, held, charge(0.1, 1.1e-7))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5)])
def test_a_run_as_large_as_the_limit_fits_once(epsilon, delta):
    limit, run = Limit(epsilon=epsilon, delta=delta), planned(epsilon, delta)
    check(limit, [], run)
    with pytest.raises(BudgetExceededError):
        check(limit, [run], run)


def test_three_gaussian_runs_of_half_the_epsilon_fit():
    run = planned(0.5, 1e-6)
    check(LIMIT, [run, run], run)
    with pytest.raises(BudgetExceededError, match=r"0\.90\d* of epsilon"):
        check(LIMIT, [run, run, run], run)


def test_a_run_with_laplace_noise_needs_a_part_of_its_own():
    run = planned(1.0, 1e-6, Mechanism.DISCRETE_LAPLACE, Allocation.PAPER)
    with pytest.raises(BudgetExceededError, match="see --basic_epsilon and --basic_delta"):
        check(LIMIT, [], run)
    check(Limit(epsilon=2.0, delta=2e-6, basic_epsilon=1.0, basic_delta=1e-6), [], run)
    check(basic_limit(1.0), [], run)


def test_both_parts_add_up_to_the_limit():
    limit = Limit(epsilon=3.0, delta=3e-6, basic_epsilon=2.0, basic_delta=2e-6)
    held = [planned(1.0, 1e-6), charge(2.0, 2e-6)]
    assert fits(limit, total(limit, held))
    epsilon, delta = spent_epsilon(limit, total(limit, held))
    assert (epsilon, delta) == (pytest.approx(3.0, rel=1e-3), pytest.approx(3e-6))
    with pytest.raises(BudgetExceededError):
        check(limit, held, charge(1e-9))


def test_without_a_gaussian_part_gaussian_runs_add_up_like_the_others():
    limit = basic_limit(2.0)
    held = [planned(1.0, 5e-7)]
    check(limit, held, planned(1.0, 5e-7))
    with pytest.raises(BudgetExceededError):
        check(limit, held, planned(1.1, 5e-7))


def test_coarse_lattices_are_not_free():
    fine, coarse = (gaussian(5.0, noise=LatticeNoise(0.0, each, 0.0, 0.0)) for each in (1e-9, 1e-3))
    limit = Limit(epsilon=1.2, delta=1e-6)
    assert fits(limit, total(limit, [fine]))
    assert not fits(limit, total(limit, [coarse]))


def test_declared_partitions_compose_in_parallel():
    limit = basic_limit(2.0)
    monday, tuesday = (charge(1.0, scope=f'{{"dt": "{day}"}}') for day in ("mon", "tue"))
    held = [monday, monday, tuesday]
    assert most_spent(limit, held).basic_epsilon == 2.0
    check(limit, held, tuesday)
    with pytest.raises(BudgetExceededError):
        check(limit, held, monday)


def test_an_undeclared_run_is_charged_to_every_partition():
    limit = basic_limit(2.0)
    monday, tuesday = (charge(1.0, scope=f'{{"dt": "{day}"}}') for day in ("mon", "tue"))
    with pytest.raises(BudgetExceededError):
        check(limit, [monday, monday, tuesday], charge(1.0))
    check(limit, [monday, charge(1.0)], tuesday)
    with pytest.raises(BudgetExceededError):
        check(limit, [monday, charge(1.0)], monday)


def test_declared_partitions_of_other_columns_are_refused():
    held = [charge(0.1, scope='{"dt": "mon"}')]
    with pytest.raises(LedgerRefusedError, match=r"must name the same columns in data.partitions"):
        check(basic_limit(2.0), held, charge(0.1, scope='{"dt": "mon", "site": "a"}'))


def test_units_and_neighbors_are_not_mixed():
    limit = basic_limit(2.0)
    with pytest.raises(LedgerRefusedError, match=r"privacy.unit must be record for data set census, got client"):
        check(limit, [charge(0.1)], charge(0.1, unit=PrivacyUnit.CLIENT))
    with pytest.raises(LedgerRefusedError, match=r"privacy.unit must be client"):
        check(Limit(epsilon=1.0, delta=1e-6, unit=PrivacyUnit.CLIENT), [], gaussian(50.0))
    with pytest.raises(LedgerRefusedError, match="must protect against add_or_remove_one, got replace_one"):
        check(limit, [charge(0.1)], charge(0.1, neighboring_relation="replace_one"))


def test_charges_survive_the_way_through_json():
    for each in (planned(1.0, 1e-6), charge(1.0, scope='{"dt": "mon"}', reason="one row per day")):
        assert Charge.from_json(each.to_json()) == each


def test_a_charge_is_the_same_on_another_processor():
    """The last bits of calibrated noise depend on it; all else, and more than them, makes another plan."""
    found = planned(1.0, 1e-6)
    content = found.to_json()
    event = content["events"][0]

    def having(**changed):
        return content | {"events": [event | changed, *content["events"][1:]]}

    multiplier = event["noise_multiplier"]
    assert found.equals(having(noise_multiplier=multiplier * (1.0 + 1e-15)))
    assert not found.equals(having(noise_multiplier=multiplier * (1.0 + 1e-9)))
    assert not found.equals(having(sensitivity_lattice=event["sensitivity_lattice"] + 1))
    assert not found.equals(content | {"events": content["events"][:1]})
    assert not found.equals(content | {"dataset": "other"})


def test_no_adaptive_strategy_passes_the_limit_of_the_gaussian_filter():
    """Doubling after bad luck, stopping after good: hockey-stick divergences stay below the filter's delta.

    Under the filter, the total precision is 1. At epsilon 1, delta is 0.127 for one Gaussian with z = 1; the mean of
    200,000 strategies has a standard error of 0.0006, and four of them are allowed: odds of failing are 3e-5. A filter
    that let the strategy spend a fifth more would be caught.
    """
    epsilon, rng = 1.0, np.random.default_rng(7)
    for allowed, holds in ((1.0, True), (1.4, False)):
        loss, left = np.zeros(200_000), np.full(200_000, allowed)
        for _ in range(12):
            eager = np.where(loss < epsilon, 0.3, 0.05)
            step = np.minimum(left, eager)
            loss += step / 2 + np.sqrt(step) * rng.standard_normal(len(loss))
            left -= step
        loss += left / 2 + np.sqrt(left) * rng.standard_normal(len(loss))
        delta = np.maximum(0.0, 1.0 - np.exp(epsilon - loss)).mean()
        assert bool(delta < 0.1269 + 4 * 0.0006) is holds


@pytest.mark.parametrize("mechanism", [Mechanism.DISCRETE_GAUSSIAN, Mechanism.DISCRETE_LAPLACE])
def test_a_refusal_says_what_fits(mechanism):
    """A run that is calibrated to the largest epsilon fits, and one of five percent more does not."""
    gaussian_only = mechanism is Mechanism.DISCRETE_GAUSSIAN
    allocation = Allocation.TUNED if gaussian_only else Allocation.PAPER
    limit = Limit(epsilon=3.0, delta=1e-5) if gaussian_only else basic_limit(3.0, 1e-5)
    held = [gaussian(2.0, epsilon=1.0, delta=1e-7)]
    largest = largest_epsilon(limit, held, planned(2.0, 1e-6, mechanism, allocation))
    assert 0.5 < largest < 3.0
    check(limit, held, planned(largest, 1e-6, mechanism, allocation))
    with pytest.raises(BudgetExceededError, match=re.escape(f"fits up to epsilon {largest:g}, so")):
        check(limit, held, planned(1.05 * largest, 1e-6, mechanism, allocation))


def test_nothing_fits_a_spent_budget():
    assert largest_epsilon(basic_limit(1.0), [charge(1.0)], charge(0.5)) == 0.0
    with pytest.raises(BudgetExceededError, match="raise the limit or lower privacy"):
        check(basic_limit(1.0), [charge(1.0)], charge(0.5))


@pytest.mark.parametrize(
    ("limit", "held", "one", "runs"),
    [
        (basic_limit(3.0), [], charge(0.7), 4),
        (basic_limit(3.0), [charge(1.0)], charge(0.7), 2),
        (basic_limit(3.0), [charge(1.0)], charge(2.5), 0),
        (basic_limit(3.0, 0.5), [], charge(1e-5), MOST_RUNS),
    ],
)
def test_as_many_runs_fit_as_the_filter_says(limit, held, one, runs):
    assert how_many(limit, held, one) == runs


def test_one_more_gaussian_run_than_said_is_refused():
    limit, one = Limit(epsilon=2.0, delta=1e-5), gaussian(8.0, epsilon=0.5, delta=1e-6)
    runs = how_many(limit, [one], one)
    assert runs > 2
    check(limit, [one] * runs, one)
    with pytest.raises(BudgetExceededError):
        check(limit, [one] * (runs + 1), one)


def test_a_charge_that_is_there_many_times_counts_each_time():
    limit = Limit(epsilon=2.0, delta=1e-5, basic_epsilon=1.0, basic_delta=5e-6)
    same = [gaussian(8.0, epsilon=0.5, delta=1e-6)] * 7 + [charge(0.1)] * 3
    copies = [dataclasses.replace(each) for each in same]
    assert total(limit, same) == total(limit, copies)
    assert total(limit, same).n_gaussian == 7
    assert total(limit, same).basic_epsilon == pytest.approx(0.3)


def test_many_runs_are_planned_together():
    each = largest_epsilon(basic_limit(3.0), [], charge(1.0), 10)
    assert each == pytest.approx(0.3, rel=0.01)
    together = [charge(each)] * 9
    check(basic_limit(3.0), together, charge(each))


def test_what_the_lattice_adds_is_paid_for_as_many_runs_and_as_much_as_the_pages_say():
    """Two hundred-thousandths of epsilon, and tails of 10,000 runs; no noise is small enough beyond."""
    tiny = Spent(precision=1e-12, ratio=2e-5 * LIMIT.epsilon, n_gaussian=10_000)
    assert fits(LIMIT, tiny)
    assert not fits(LIMIT, tiny._replace(n_gaussian=10_001))
    assert not fits(LIMIT, tiny._replace(ratio=2.001e-5 * LIMIT.epsilon))
