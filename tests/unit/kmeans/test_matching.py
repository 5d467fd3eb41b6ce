"""Cluster numbers that last, on centers matched by hand."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from dapple_dp.transforms.numerics.kmeans.recurring.matching import match_centers


def points(*values):
    return np.array(values, dtype=np.float64)[:, None]


def test_a_permutation_is_undone():
    found = match_centers(points(20.5, 0.5, 9.0), points(0.0, 10.0, 20.0), (0, 1, 2), 3)
    assert found.numbers == (0, 1, 2)
    assert found.rows.tolist() == [1, 2, 0]
    assert found.previous.tolist() == [0, 1, 2]
    assert found.next_number == 3


def test_the_least_sum_counts_not_the_nearest_pair():
    """Pairs (0, 4) and (3, 9) cost 16 + 36 = 52, pairs (3, 4) and (0, 9) cost 1 + 81 = 82."""
    found = match_centers(points(4.0, 9.0), points(0.0, 3.0), (0, 1), 2)
    assert found.rows.tolist() == [0, 1]


def test_more_centers_get_numbers_never_used():
    found = match_centers(points(11.0, 50.0, 1.0, 60.0), points(0.0, 10.0), (2, 5), 7)
    assert found.numbers == (2, 5, 7, 8)
    assert found.rows.tolist() == [2, 0, 1, 3]
    assert found.previous.tolist() == [0, 1, -1, -1]
    assert found.next_number == 9


def test_fewer_centers_leave_numbers_out_of_use():
    found = match_centers(points(19.0, 1.0), points(0.0, 10.0, 20.0), (0, 1, 2), 3)
    assert found.numbers == (0, 2)
    assert found.rows.tolist() == [1, 0]
    assert found.previous.tolist() == [0, 2]
    assert found.next_number == 3


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_any_scale_gives_the_same(scale):
    found = match_centers(scale * points(9.0, 1.0), scale * points(0.0, 8.0), (0, 1), 2)
    assert found.rows.tolist() == [1, 0]


@hypothesis.given(st.permutations(range(6)), st.integers(0, 1000))
def test_whatever_order_centers_come_in_their_numbers_stay(order, seed):
    old = np.random.default_rng(seed).normal(0.0, 10.0, (6, 3))
    found = match_centers(old[order] + 1e-6, old, tuple(range(6)), 6)
    np.testing.assert_allclose(old[order][found.rows], old)
    assert found.numbers == tuple(range(6))
