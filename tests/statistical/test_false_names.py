"""Names by noise alone are as few as is said, under the noise stage's own law; noise that is understated is noticed.

8,000 runs of 0.05 names are 400 at most. Where the bound on cells is met exactly, 320 are expected with a stddev of 18:
less than 240 or more than 400 have odds below 1e-4, and keys are fixed.
"""

import numpy as np
import pytest

from benchmarks.false_names import ROWS, UNITS, WORLDS, Rows, in_all_clusters, topics, upper
from dapple_dp.transforms.core.statistics import clients
from dapple_dp.transforms.kmeans.spherical import names

RUNS = 8000
MOST, LEAST = 400, 240
SHARP = "ten alike, sharp sizes"


def given(title, multiplier=1.0):
    return int(WORLDS[title].names(RUNS, 0, multiplier).sum())


@pytest.mark.slow
@pytest.mark.parametrize("title", WORLDS)
def test_noise_alone_gives_no_more_names_than_is_said(title):
    assert given(title) <= MOST


@pytest.mark.slow
def test_the_rule_is_no_stricter_than_it_must_be_and_another_noise_is_detected():
    assert given(SHARP) >= LEAST
    assert given(SHARP, 1.1) > 2 * MOST
    assert given(SHARP, 0.9) < LEAST / 2


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("title", ROWS)
def test_rows_of_which_no_term_is_more_frequent_anywhere_give_few_names(title, unit):
    """200 runs of 0.05 names are 10; more than 26 have odds below 1e-5, and a bias gives hundreds."""
    assert ROWS[title]().names(unit, 200)[:, 0].sum() <= 26


@pytest.mark.parametrize("unit", UNITS)
def test_names_that_are_there_are_found(unit):
    found = topics(6000, 1 if unit == "record" else 10, 8).names(unit, 20, 2.0)
    assert found[:, 1].mean() > 49.0
    assert found[:, 0].sum() <= 8


def test_clients_that_count_whole_in_all_their_clusters_are_noticed(monkeypatch):
    """The rule of 0.2.0: any row of a client in a cluster gives it the term."""
    world = in_all_clusters()
    apart = np.unique(np.column_stack([world.owner, world.labels]), axis=0)
    has = np.zeros((len(apart), world.n_terms + 1), dtype=bool)
    place = {tuple(each): index for index, each in enumerate(apart.tolist())}
    rows = np.array([place[each] for each in zip(world.owner.tolist(), world.labels.tolist(), strict=True)])
    np.logical_or.at(has, (rows[:, None], world.codes), True)
    whole = np.zeros((world.n_clusters, world.n_terms))
    np.add.at(whole, apart[:, 1], has[:, :-1])
    monkeypatch.setattr(
        clients, "term_cells", lambda block, frame, assigner, limits: whole.astype(int).ravel() * limits.cell_units
    )
    assert world.names("client", 20)[:, 0].mean() > 5.0


def test_a_false_name_is_one_by_the_units_own_weight():
    """One client of ten rows with the term, in cluster 0; ten of one row, of which one has it, in cluster 1."""
    rows = Rows(np.repeat([0, 1], 10), np.where(np.arange(20) < 11, 0, -1)[:, None], np.r_[np.zeros(10), 1:11], 1)
    rows = rows._replace(owner=rows.owner.astype(int))
    np.testing.assert_array_equal(rows.is_false("record"), [[False], [True]])
    np.testing.assert_array_equal(rows.is_false("client"), [[False], [True]])
    np.testing.assert_array_equal(rows._replace(codes=np.zeros((20, 1), dtype=int)).is_false("client"), True)


def test_upper_bounds_are_those_of_a_poisson_law():
    assert upper(np.zeros(100, dtype=int)) == pytest.approx(-np.log(0.01) / 100)
    assert upper(np.repeat([0, 5], [80, 20])) > upper(np.repeat([0, 1], [0, 100]))


@pytest.mark.parametrize("title", ["one of ten has nine in ten", "two of twenty, the others empty"])
def test_sizes_that_are_taken_for_exact_give_false_names(title, monkeypatch):
    monkeypatch.setattr(names, "largest_shares", lambda sizes, _: np.maximum(sizes, 0.0) / np.maximum(sizes, 0.0).sum())
    assert WORLDS[title].names(500, 0).sum() > MOST / 4


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.05, 0.9, 0.0])
def test_a_share_is_larger_than_the_largest_as_rarely_as_is_said(share):
    """Two clusters and 100,000 draws: 100 for each are expected; more than 150 or less than 60 have odds of 1e-4."""
    rng, sizes = np.random.default_rng(0), np.array([share, 1.0 - share]) * 1000.0
    drawn = sizes + rng.normal(0.0, 20.0, (100_000, 2))
    above = sum(share > names.largest_shares(each, 20.0)[0] for each in drawn)
    expected = len(drawn) * names.OF_SHARES * names.FALSE_NAMES / (2 * names.MOST_NAMES)
    assert expected == pytest.approx(100.0)
    assert share == 0.0 or 60 < above < 150
    assert share > 0.0 or above == 0


def test_sizes_that_say_nothing_leave_every_share_possible():
    np.testing.assert_array_equal(names.largest_shares(np.array([3.0, -2.0, 1.0]), 50.0), 1.0)
    np.testing.assert_array_equal(names.largest_shares(np.array([-3.0, -2.0]), 1e-9), 1.0)
    np.testing.assert_allclose(names.largest_shares(np.array([30.0, 10.0, 0.0]), 1e-9), [0.75, 0.25, 0.0], atol=1e-9)
    np.testing.assert_allclose(names.largest_shares(np.array([100.0]), 1.0), 1.0)
