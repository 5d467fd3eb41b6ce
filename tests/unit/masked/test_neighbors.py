"""The circle of neighbors: symmetric, of the stated degree, and with the stated probabilities of failing."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.transforms.numerics.masked.neighbors import CORRECTNESS_BITS, SECURITY_BITS, circle, parameters

SEED = bytes(range(16))


@pytest.mark.parametrize(("n", "k"), [(3, 2), (7, 4), (50, 10), (6, 5), (2, 1)])
def test_neighbors_are_symmetric_and_never_oneself(n, k):
    found = circle(n, k, SEED)
    pairs = {(i, int(j)) for i in range(n) for j in found[i]}
    assert len(pairs) == n * k
    assert all((j, i) in pairs for i, j in pairs)
    assert all(i != j for i, j in pairs)


def test_another_seed_gives_another_circle():
    assert (circle(50, 10, SEED) != circle(50, 10, SEED[::-1])).any()
    np.testing.assert_array_equal(circle(50, 10, SEED), circle(50, 10, SEED))


@pytest.mark.parametrize("k", [0, 3, 50, 51])
def test_a_degree_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="n_neighbors must be even and below 50"):
        circle(50, k, SEED)


@pytest.mark.parametrize("n", [100, 1000, 10_000])
def test_the_promise_holds(n):
    """The three tails, worked out one by one."""
    k, threshold = parameters(n, 0.05, 0.3)
    corrupt, gone = int(0.05 * n), int(np.ceil(0.3 * n))
    assert 2 * threshold > k
    assert n * stats.hypergeom(n - 1, corrupt, k).sf(threshold - 1) <= 2.0**-SECURITY_BITS
    assert n * stats.hypergeom(n - 1, gone, k).sf(k - threshold) <= 2.0**-CORRECTNESS_BITS
    if k < n - 1:
        assert n * ((corrupt + gone) / n) ** (k // 2) <= 2.0**-SECURITY_BITS


@pytest.mark.parametrize("n", [100, 130, 200])
def test_the_last_sender_of_keys_may_try_many(n):
    """A try is another circle; 2**40 of them together fail with probability 2**-40, in exact numbers."""
    k, threshold = parameters(n, 0.05, 0.3)
    corrupt, gone, tries = 5 * n // 100, -(-30 * n // 100), 2**40
    worse = sum(
        math.comb(corrupt, each) * math.comb(n - 1 - corrupt, k - each) for each in range(threshold, corrupt + 1)
    )
    assert tries * n * Fraction(worse, math.comb(n - 1, k)) <= Fraction(1, 2**40)
    if k < n - 1:
        assert tries * n * Fraction(corrupt + gone, n) ** (k // 2) <= Fraction(1, 2**40)


def test_neighbors_grow_with_the_logarithm():
    small, large = (parameters(n, 0.05, 0.3).n_neighbors for n in (10_000, 1_000_000))
    assert small < large < 1.3 * small < 500


def test_few_clients_are_all_neighbors():
    assert parameters(10, 0.05, 0.3) == (9, 5)
    assert parameters(3, 0.0, 0.0) == (2, 2)


@pytest.mark.parametrize(("n", "corrupt", "dropout"), [(10, 0.5, 0.5), (10, 0.0, 0.6), (3, 0.0, 0.3)])
def test_what_cannot_be_kept_is_refused(n, corrupt, dropout):
    with pytest.raises(ProtocolError, match="corrupt and dropout must leave room for a threshold"):
        parameters(n, corrupt, dropout)
