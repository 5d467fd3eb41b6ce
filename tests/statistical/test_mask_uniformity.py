"""Messages are uniform on Z_2^64 for the aggregator; others would be distinguished. Keys are fixed."""

import numpy as np
import pytest
from scipy import stats

from dapple_dp.transforms.numerics.masked.shared_masks import RoundMasks

SECRET = bytes(range(32))
ACCEPT = 1e-6
"""Uniform words are rejected once in 1e6 secrets per test."""
FRESH = 1e-10
"""Uniform words whose masks are bound to the folders of a run, and so differ in every run."""
REJECT = 1e-9
"""Planted words must have a smaller p-value; the power is written at each use."""
N_CLIENTS, SIZE = 400, 1010


def byte_p_value(words):
    """Chi-square of all bytes against the uniform law."""
    counts = np.bincount(words.astype("<i8").ravel().view(np.uint8), minlength=256)
    return stats.chisquare(counts).pvalue


def place_p_values(words):
    """Chi-square of the bytes in each of the eight places of a word."""
    raw = words.astype("<i8").ravel().view(np.uint8).reshape(-1, 8)
    return [stats.chisquare(np.bincount(place, minlength=256)).pvalue for place in raw.T]


def ks_p_value(words):
    """Kolmogorov-Smirnov of the words as fractions of 2**64."""
    return stats.kstest(words.ravel().view(np.uint64) * 2.0**-64, "uniform").pvalue


def looks_uniform(words, accept=ACCEPT):
    """True if no test of uniform words rejects these; those that are new in every run need a smaller `accept`."""
    p_values = [byte_p_value(words), ks_p_value(words), *place_p_values(words)]
    return min(p_values) > accept / len(p_values)


DATA = {
    "zeros": np.zeros((N_CLIENTS, SIZE), dtype=np.int64),
    "ones": np.ones((N_CLIENTS, SIZE), dtype=np.int64),
    "counts": np.random.default_rng(1).integers(0, 50, (N_CLIENTS, SIZE)) << 20,
    "sums": np.random.default_rng(2).normal(0.0, 2.0**30, (N_CLIENTS, SIZE)).astype(np.int64),
}


def masked(statistics, first=0):
    names = [b"%d" % (first + index) for index in range(len(statistics))]
    return RoundMasks(SECRET, b"context").mask(names, statistics).values


@pytest.mark.parametrize("name", DATA)
def test_messages_are_uniform(name):
    assert looks_uniform(masked(DATA[name]))


@pytest.mark.parametrize("name", DATA)
def test_masked_sums_are_uniform(name):
    sums = [masked(DATA[name][:5], first=5 * index).sum(axis=0) for index in range(200)]
    assert looks_uniform(np.stack(sums))


def test_messages_are_independent_of_what_they_hide():
    statistics = DATA["sums"]
    words = masked(statistics).view(np.uint64) * 2.0**-64
    assert stats.pearsonr(words.ravel(), statistics.ravel()).pvalue > ACCEPT
    # Adjacent messages, too, have nothing in common: products of fractions have mean 1/4, variance 7/144.
    products = words[1:] * words[:-1]
    assert abs(products.mean() - 0.25) < 5 * np.sqrt(7 / 144 / products.size)  # fails once in 1.7e6 secrets


def test_planted_messages_without_masks_are_caught():
    for name, statistics in DATA.items():
        assert byte_p_value(statistics) < REJECT, name
        assert ks_p_value(statistics) < REJECT, name


def test_planted_narrow_masks_are_caught():
    """Masks of 63 bits, or with one byte whose highest bit is set a little too often."""
    words = masked(DATA["zeros"])
    assert not looks_uniform(words & np.int64(2**63 - 1))
    lucky = np.random.default_rng(3).random(words.shape) < 0.05
    # One place of eight holds 128 values by 5% too often: chi-square shifts by 400,000 * 0.05**2 = 1,000, power 1.
    assert not looks_uniform(np.where(lucky, words | 128, words))


def test_a_planted_mask_used_twice_is_caught():
    """Two messages under one mask: their difference is the difference of the data, far from uniform."""
    statistics = DATA["sums"][:2]
    one = RoundMasks(SECRET, b"context").mask([b"a"], statistics[:1])
    reused = one.values - statistics[:1] + statistics[1:]
    assert ks_p_value(one.values - reused) < REJECT
    other = RoundMasks(SECRET, b"context").mask([b"a"], statistics[1:])
    assert looks_uniform(np.concatenate([one.values - other.values, masked(DATA["sums"][2:4])]))
