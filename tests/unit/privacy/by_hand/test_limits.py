"""The filter of the ledger by second formulas: what is left, what fits, what windows add, at both sides of each end."""

import dataclasses
import math

import numpy as np
import pytest

from dapple_dp.schemas.core.plan import LatticeNoise
from dapple_dp.schemas.errors import BudgetExceededError, LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Limit
from dapple_dp.transforms.core.discretization import log_delta, upper_ratio
from dapple_dp.transforms.privacy import ledger_filter
from dapple_dp.transforms.privacy.ledger_filter import (
    Spent,
    check,
    fits,
    largest_epsilon,
    most_spent,
    spent_epsilon,
    total,
)
from tests.scenes.ledgers import basic_limit, charge, gaussian

LIMIT = Limit(epsilon=3.0, delta=4e-6, basic_epsilon=1.0, basic_delta=1e-6)
CONTINUOUS = (1.0 - 4e-4) * 3e-6 * math.exp(-2e-5 * 2.0)
"""Delta that is left for continuous noise under it."""


def test_the_spending_is_the_curve_at_the_delta_that_is_left():
    spent = Spent(precision=0.04, ratio=0.125, n_gaussian=1, basic_epsilon=0.5, basic_delta=2e-7)
    epsilon, delta = spent_epsilon(LIMIT, spent)
    assert delta == pytest.approx(3e-6 + 2e-7, rel=1e-12)
    curve = epsilon - 0.125 - 0.5
    assert math.exp(log_delta(5.0, curve)) == pytest.approx(CONTINUOUS, rel=1e-9)
    assert spent_epsilon(LIMIT, Spent(basic_epsilon=0.5, basic_delta=2e-7)) == (0.5, 2e-7)


def test_the_gaussian_part_is_full_where_its_curve_meets_what_is_left():
    def most(precision):
        return fits(LIMIT, Spent(precision=precision, n_gaussian=1))

    low, high = 1e-3, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if most(middle) else (low, middle)
    assert math.exp(log_delta(low**-0.5, (1.0 - 2e-5) * 2.0)) == pytest.approx(CONTINUOUS, rel=1e-9)


@pytest.mark.parametrize(
    ("spent", "holds"),
    [
        (Spent(precision=1e-9, n_gaussian=10_000), True),
        (Spent(precision=1e-9, n_gaussian=10_001), False),
        (Spent(precision=1e-9, n_gaussian=1, ratio=2e-5 * 2.0), True),
        (Spent(precision=1e-9, n_gaussian=1, ratio=2e-5 * 2.0 * (1 + 1e-12)), False),
        (Spent(basic_epsilon=1.0, basic_delta=1e-6), True),
        (Spent(basic_epsilon=1.0 + 1e-9), False),
        (Spent(basic_delta=1.0001e-6), False),
        (Spent(precision=1e-9, n_gaussian=1, basic_epsilon=1.0, basic_delta=1e-6), True),
        (Spent(precision=1e-9, n_gaussian=1, basic_epsilon=1.1), False),
    ],
)
def test_both_parts_end_where_they_say(spent, holds):
    assert fits(LIMIT, spent) is holds


@pytest.mark.parametrize(
    ("limit", "spent", "holds"),
    [
        (basic_limit(3.0, 1e-6), Spent(basic_epsilon=3.0, basic_delta=1e-6), True),
        (basic_limit(3.0, 1e-6), Spent(basic_epsilon=3.1), False),
        (Limit(epsilon=3.0, delta=1e-6, basic_epsilon=3.0), Spent(basic_epsilon=3.0, basic_delta=1e-6), True),
        (Limit(epsilon=3.0, delta=1e-6, basic_epsilon=1.0, basic_delta=1e-6), Spent(basic_epsilon=3.0), True),
    ],
)
def test_where_nothing_is_left_for_gaussian_noise_all_is_for_the_others(limit, spent, holds):
    assert fits(limit, spent) is holds


def test_sums_keep_both_kinds_apart():
    noise = LatticeNoise(0.25, 0.0, 0.0, 0.0)
    found = total(LIMIT, [gaussian(2.0, noise=noise), gaussian(4.0), charge(0.5, 1e-7), charge(0.25, 1e-7)])
    assert found == (pytest.approx(0.25 + 0.0625), pytest.approx(0.25), 2, 0.75, pytest.approx(2e-7))
    found = total(basic_limit(3.0), [gaussian(2.0, epsilon=0.5), charge(0.25)])
    assert found == (0.0, 0.0, 0, 0.75, 0.0)


def test_a_run_pays_for_its_portion_of_the_tails():
    noise = LatticeNoise(0.25, 1.0, 4.0, 0.5)
    portion = 4e-4 / 10_000 * 3e-6
    found = total(LIMIT, [gaussian(2.0, noise=noise)]).ratio
    assert found == pytest.approx(0.25 + upper_ratio(noise, 2.0 + 1.0 - math.log(portion)), rel=1e-12)


@pytest.mark.parametrize(
    ("left", "largest"), [(1.7656, 1.76), (0.17656, 0.176), (0.017656, 0.0176), (1.105e-6, 1.1e-6), (0.9e-6, 0.0)]
)
def test_what_fits_is_rounded_down_to_three_digits(left, largest):
    found = largest_epsilon(basic_limit(2.0), [charge(2.0 - left)], charge(0.5))
    assert found == pytest.approx(largest, rel=1e-3)
    assert found <= left


def test_what_fits_is_found_to_its_last_digit():
    """Thirty halvings of 2 leave 2e-9."""
    assert largest_epsilon(basic_limit(2.0), [charge(2.0 - 1.2345678e-4)], charge(0.5)) == pytest.approx(
        1.23e-4, rel=1e-9
    )
    assert largest_epsilon(basic_limit(2.0), [], charge(0.5)) == 2.0
    assert largest_epsilon(basic_limit(2.0), [], charge(0.5), 2) == pytest.approx(1.0, abs=2e-3)
    assert largest_epsilon(basic_limit(2.0), [], charge(0.5), 2) <= 1.0


def _window(index, multiplier=2.0, window="mon", name="week", **more):
    epoch = {"name": name, "window": window, "index": index, "windows": 7}
    return gaussian(multiplier, epoch=epoch | more.pop("epoch", {}), **more)


def test_windows_of_an_epoch_count_once_with_the_least_noise():
    held = [_window(0, 4.0), _window(1, 2.0, "tue"), _window(2, 3.0, "wed"), gaussian(4.0)]
    found = total(LIMIT, held)
    assert (found.precision, found.n_gaussian) == (pytest.approx(0.25 + 0.0625), 2)
    assert total(LIMIT, [*held, _window(0, 4.0, name="other")]).n_gaussian == 3


def test_the_least_of_two_windows():
    def window(noises, epsilon, delta, lower):
        events = tuple({"path": path, "mechanism": "discrete_gaussian", "noise_multiplier": z} for path, z in noises)
        noise = LatticeNoise(lower, 2.0 * lower, 3.0 * lower, 4.0 * lower)
        return charge(epsilon, delta, events=events, noise=noise)

    one, less = window([("a", 2.0), ("b", 3.0)], 1.0, 1e-7, 0.1), window([("a", 1.0), ("b", 3.0)], 1.5, 2e-7, 0.05)
    for pair in ((one, less), (less, one)):
        found = ledger_filter._least_noise(*pair)
        assert (found.events, found.epsilon, found.delta, found.noise) == (less.events, 1.5, 2e-7, one.noise)
    mixed = ledger_filter._least_noise(window([("a", 2.0), ("b", 1.0)], 1.0, 1e-7, 0.1), less)
    assert [each["noise_multiplier"] for each in mixed.events] == [1.0, 1.0]
    assert (mixed.epsilon, mixed.delta) == (2.5, pytest.approx(3e-7))
    same = ledger_filter._least_noise(one, dataclasses.replace(one, epsilon=1.25))
    assert same.epsilon == 1.25
    further = ledger_filter._least_noise(one, window([("c", 5.0)], 0.5, 1e-7, 0.1))
    assert [each["path"] for each in further.events] == ["a", "b", "c"]


def test_a_window_is_released_once_and_like_the_others():
    limit = Limit(epsilon=30.0, delta=1e-5, basic_epsilon=1.0, basic_delta=1e-6)
    held = [_window(0), _window(1, window="tue"), charge(0.1)]
    check(limit, held, _window(2, window="wed"))
    with pytest.raises(LedgerRefusedError, match="the window of wed of epoch week was charged already"):
        check(limit, held, _window(1, window="wed"))
    with pytest.raises(LedgerRefusedError, match="all windows of epoch week must have the same job"):
        check(limit, held, _window(2, epoch={"windows": 8}))
    check(limit, held, _window(0, name="another", epoch={"windows": 8}))
    check(Limit(epsilon=9.0, delta=1e-5), held[:2], gaussian(2.0))


def test_the_partition_that_was_charged_most():
    charges = [charge(each, scope=f'{{"dt": "{day}"}}') for each, day in ((0.5, "a"), (0.7, "b"), (0.25, "c"))]
    assert most_spent(basic_limit(3.0), [*charges, charge(0.125)]).basic_epsilon == pytest.approx(0.825)
    assert most_spent(basic_limit(3.0), []) == Spent()
    assert ledger_filter._scopes(charges) == ['{"dt":"a"}', '{"dt":"b"}', '{"dt":"c"}']
    assert ledger_filter._scopes([charge(1.0)]) == [None]
    assert ledger_filter._columns('{"b": "1", "a": "2"}') == "a,b"


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_run_of_another_epsilon_has_the_noise_of_one_gaussian(epsilon):
    found = ledger_filter.with_epsilon(gaussian(9.0, delta=1e-7), epsilon)
    (event,) = found.events
    assert math.exp(log_delta(event["noise_multiplier"], epsilon)) == pytest.approx(1e-7, rel=1e-6)
    assert found.epsilon == epsilon
    assert np.isfinite(event["noise_multiplier"])


def test_a_refusal_names_what_fits_however_little_it_is():
    for left, said in [(0.5, "0.5"), (2e-6, "2e-06")]:
        with pytest.raises(BudgetExceededError, match=f"fits up to epsilon {said}, so lower privacy.epsilon"):
            check(basic_limit(1.0), [charge(1.0 - left * 1.001)], charge(0.9))
