import math
from fractions import Fraction

import numpy as np
import pytest

from dapple_dp.transforms.numerics.trusted_zone.exact_sum import ExactSum


def test_large_terms_cancel():
    assert ExactSum.of(np.array([1e300, 1.0, 2.0**-60, -1e300])).value == 1.0
    halves = ExactSum.of(np.array([1e300, 1.0])).merge(ExactSum.of(np.array([2.0**-60, -1e300])))
    assert halves.over(1) - 1.0 == 0.0
    assert halves.merge(ExactSum.of(np.array([-1.0]))).value == 2.0**-60


@pytest.mark.parametrize("scale", [1e-250, 1e-5, 1.0, 1e9, 1e290])
def test_rounds_once_like_fsum(scale):
    values = np.random.default_rng(0).normal(size=3000) * scale
    assert float(ExactSum.of(values).value) == math.fsum(values)


def test_groups_by_hand():
    values = np.array([[1.0, 0.5], [2.0, 0.25], [-4.0, 0.0]])
    sums = ExactSum.grouped(values, np.array([2, 0, 2]), 4)
    np.testing.assert_array_equal(sums.value, [[2.0, 0.25], [0.0, 0.0], [-3.0, 0.5], [0.0, 0.0]])
    np.testing.assert_array_equal(sums.total().value, [-1.0, 0.75])


def test_groups_over_many_blocks():
    rng = np.random.default_rng(1)
    values, labels = rng.normal(size=(5000, 3)) * 10.0 ** rng.integers(-9, 9, (5000, 1)), rng.integers(0, 5, 5000)
    found = ExactSum.grouped(values, labels, 5).value
    expected = [[math.fsum(column) for column in values[labels == group].T] for group in range(5)]
    np.testing.assert_array_equal(found, expected)


def test_quotients_are_rounded_once():
    total = ExactSum.of(np.array([0.1, 0.2, 0.3]))
    assert float(total.over(3)) == float(sum(map(Fraction, (0.1, 0.2, 0.3))) / 3)
    sums = ExactSum.grouped(np.ones((3, 1)), np.array([0, 0, 1]), 3)
    np.testing.assert_array_equal(sums.over(np.array([[2], [4], [0]])), [[1.0], [0.25], [np.nan]])


def test_infinite_terms_and_sums():
    total = ExactSum.of(np.array([1.0, np.inf]))
    assert total.merge(ExactSum.of(np.array([1.0]))).value == np.inf
    assert ExactSum.of(np.full(4, 1.7e308)).value == np.inf
    assert ExactSum.of(np.full(4, 1.5e308)).over(4) == 1.5e308


def test_nothing_is_zero():
    assert ExactSum.zeros().value == 0.0
    assert ExactSum.of(np.zeros(0)).merge(ExactSum.zeros()).value == 0.0
    assert np.isnan(ExactSum.zeros().over(0))
    np.testing.assert_array_equal(ExactSum.grouped(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), 3).value, 0.0)
