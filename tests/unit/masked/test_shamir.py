"""Secret sharing: a case worked out by hand, any shares of a threshold give the secret, fewer say nothing."""

import itertools
import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.masked import shamir
from dapple_dp.transforms.numerics.masked.shamir import N_LIMBS, PRIME, combine, split

KEY = bytes(range(32))


def raw(*texts):
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), 32)


class Fixed:
    """A stream whose residues are given."""

    def __init__(self, *values):
        self._values = values

    def residues(self, bound, n):
        assert bound == PRIME
        return np.resize(np.array(self._values, dtype=np.int64), n)


def test_by_hand():
    """Secret 5 with line 5 + 3 x: shares 8, 11, 14 at 1, 2, 3; weights at zero of 1 and 2 are 2 and -1."""
    secret = raw((5).to_bytes(32, "little"))
    shares = split(secret, np.array([[1, 2, 3]]), 2, Fixed(3))
    np.testing.assert_array_equal(shares[0, :, 0], [8, 11, 14])
    np.testing.assert_array_equal(shares[0, :, 1:], np.tile([[3], [6], [9]], N_LIMBS - 1))
    np.testing.assert_array_equal(shamir._weights_at_zero(np.array([[1, 2]])), [[2, PRIME - 1]])
    np.testing.assert_array_equal(combine(np.array([[1, 2]]), shares[:, :2]), secret)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**32))
def test_any_shares_of_a_threshold_give_the_secret(secret, threshold, more, seed):
    points = np.random.default_rng(seed).choice(PRIME - 1, (1, threshold + more), replace=False) + 1
    shares = split(raw(secret), points, threshold, KeyStream(KEY, b"%d" % seed))
    for chosen in itertools.combinations(range(threshold + more), threshold):
        found = combine(points[:, chosen], shares[:, chosen])
        assert found.tobytes() == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_the_ends_of_the_range(secret):
    points = np.array([[PRIME - 1, 1, 2]])
    shares = split(raw(secret), points, 3, KeyStream(KEY, b"ends"))
    assert combine(points, shares).tobytes() == secret


def test_many_at_once_are_each_alone():
    given_secrets = raw(*(secrets.token_bytes(32) for _ in range(20)))
    points = np.stack([np.random.default_rng(row).permutation(9)[:5] + 1 for row in range(20)])
    shares = split(given_secrets, points, 4, KeyStream(KEY, b"many"))
    np.testing.assert_array_equal(combine(points[:, 1:], shares[:, 1:]), given_secrets)
    np.testing.assert_array_equal(combine(points[3:4, :4], shares[3:4, :4]), given_secrets[3:4])


def test_fewer_shares_are_uniform_whatever_the_secret():
    n = 4000
    for secret in (bytes(32), b"\xff" * 32):
        shares = split(raw(*[secret] * n), np.tile([1, 2], (n, 1)), 2, KeyStream(KEY, b"few"))
        # Uniform words are rejected once in 1e6 keys.
        assert stats.kstest(shares[:, 0].ravel() / PRIME, "uniform").pvalue > 1e-6
    assert stats.kstest(np.zeros(n) + shares[0, 0, 0] / PRIME, "uniform").pvalue < 1e-9


def test_shares_that_do_not_fit_are_noticed():
    points = np.array([[1, 2, 3]])
    shares = split(raw(b"s" * 32), points, 2, KeyStream(KEY, b"fit"))
    # The last limb of a secret has 16 bits; this moves it by 2 * 2**20.
    shares[0, 0] = (shares[0, 0] + (1 << 20)) % PRIME
    with pytest.raises(ValueError, match="some shares are not of the same secret"):
        combine(points[:, :2], shares[:, :2])


@pytest.mark.parametrize(
    ("points", "threshold"), [([[1, 1]], 2), ([[0, 1]], 2), ([[1, PRIME]], 2), ([[1, 2]], 3), ([[1, 2]], 0)]
)
def test_points_and_thresholds_out_of_range_are_refused(points, threshold):
    with pytest.raises(ValueError, match="must be"):
        split(raw(bytes(32)), np.array(points), threshold, KeyStream(KEY, b"x"))
