"""Clients that count in the windows of an epoch, and how far one client moves all releases together."""

import itertools

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from dapple_dp.schemas.kmeans.windows_config import coefficients
from dapple_dp.transforms.core.stated_sensitivity import worst_column
from dapple_dp.transforms.numerics.tables.participation import LONG_AGO, Counted, Rule

WINDOWS = 24
contracts = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))


def rule_of(contract, windows=WINDOWS):
    most, separation, reach = contract
    times = min(most, -(-windows // separation))
    return Rule(times, separation, reach, times < -(-windows // separation))


def digest(client):
    return b"%032x" % client


def presences(clients=8):
    return st.lists(st.lists(st.integers(0, clients - 1), max_size=2 * clients), min_size=WINDOWS, max_size=WINDOWS)


def counted_windows(present, rule):
    """Returns the windows in which each client counts, by the words of the contract."""
    found = {}
    for window, clients in enumerate(present):
        for client in set(clients):
            own = found.setdefault(client, [])
            close = any(window - rule.min_separation < each < window for each in own)
            if not close and len(own) < rule.max_windows:
                own.append(window)
    return found


@hypothesis.given(present=presences(), contract=contracts)
def test_a_client_list_counts_by_the_words_of_the_contract(present, contract):
    """A client that comes twice within a window is there once; all windows that are read again are known."""
    rule, counted = rule_of(contract), Counted.nobody()
    expected = counted_windows(present, rule)
    for window, clients in enumerate(present):
        counted = counted.with_window(np.array([digest(each) for each in clients], dtype="S32"), window, rule)
        for read in range(max(0, window - rule.reach + 1), window + 1):
            assert set(counted.of(read)) == {digest(each) for each, own in expected.items() if read in own}


@hypothesis.given(present=presences(), contract=contracts, gone=st.integers(0, 7))
def test_a_client_counts_by_its_own_history(present, contract, gone):
    """Other clients change nothing."""
    rule = rule_of(contract)
    without = [[each for each in clients if each != gone] for clients in present]
    rolls = []
    for days in (present, without):
        counted, own = Counted.nobody(), []
        for window, clients in enumerate(days):
            counted = counted.with_window(np.array([digest(each) for each in clients], dtype="S32"), window, rule)
            own.append(set(counted.of(window)) - {digest(gone)})
        rolls.append(own)
    assert rolls[0] == rolls[1]


@hypothesis.given(contract=contracts)
def test_a_client_whose_rows_are_erased_counts_no_more_often(contract):
    """It comes every day and has all days before erased: who counts from what is left counts it every day."""
    rule, counted, times, from_what_is_left = rule_of(contract), Counted.nobody(), 0, 0
    present = np.array([digest(0)], dtype="S32")
    for window in range(WINDOWS):
        counted = counted.with_window(present, window, rule)
        times += len(counted.of(window))
        left = [[] for _ in range(window)] + [[0]]
        from_what_is_left += window in counted_windows(left, rule)[0]
    assert (times, from_what_is_left) == (rule.max_windows, WINDOWS)


@hypothesis.given(contract=contracts)
def test_a_client_list_does_not_grow_with_windows(contract):
    rule, counted, sizes = rule_of(contract, 400), Counted.nobody(), []
    everybody = np.array([digest(each) for each in range(20)], dtype="S32")
    for window in range(60):
        counted = counted.with_window(everybody, window, rule)
        sizes.append(len(counted.digests))
    assert max(sizes) <= 20 * (1 + -(-max(rule.min_separation, rule.reach) // rule.min_separation))
    assert rule.binds or LONG_AGO not in counted.windows


def norm(weights, windows):
    """Squared norm of what a unit with aligned statistics in these windows moves."""
    column = np.zeros(max(windows) + len(weights), dtype=np.int64)
    for each in windows:
        column[each : each + len(weights)] += np.array(weights)
    return int((column**2).sum())


@pytest.mark.parametrize("band", [1, 2, 4, 7])
@pytest.mark.parametrize("length", [2, 5, 30])
@pytest.mark.parametrize(("times", "separation"), [(1, 1), (2, 1), (2, 3), (3, 2), (4, 1)])
def test_nothing_that_the_contract_allows_moves_more_than_the_worst_column(band, length, times, separation):
    """All choices of windows of ten, by brute force; the worst is as often and as close as may be."""
    weights = coefficients(band, length)
    stated = sum(each**2 for each in worst_column(weights, times, separation))
    found = []
    for number in range(1, times + 1):
        for windows in itertools.combinations(range(10), number):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(windows)):
                found.append(norm(weights, windows))
    assert max(found) == stated


def test_columns_that_do_not_meet_add_up_in_square():
    weights = coefficients(4, 30)
    assert sum(each**2 for each in worst_column(weights, 5, 4)) == 5 * sum(each**2 for each in weights)
    assert sum(each**2 for each in worst_column(weights, 5, 3)) > 5 * sum(each**2 for each in weights)
