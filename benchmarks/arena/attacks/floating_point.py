"""Neighbors in floating point (Mironov 2012): which floats a release can be depends on what the noise was added to."""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "the last bits of released numbers"
_ZEROS = np.zeros((32, 2))
PAIRS = (
    neighbors.added("zeros, and a one", _ZEROS, [1.0, 1.0], k=1),
    neighbors.added("zeros, and 2**-30", _ZEROS, [2.0**-30, 2.0**-30], k=1),
)


def asked(system, runs):
    return neighbors.asked_of_pairs(PAIRS, runs)


def scored(system, asked, fits):
    return neighbors.scored_pairs(system, PAIRS, fits, _scores)


def _scores(pair, fits):
    """Exponent of the lowest bit that is set: least, most, on average; and how many bits a number has."""
    centers = np.nan_to_num(fits["centers"].reshape(len(fits["centers"]), -1))
    lowest, highest = lowest_bit(centers), np.frexp(centers)[1].astype(np.float64)
    return np.stack([lowest.min(axis=1), lowest.max(axis=1), lowest.mean(axis=1), (highest - lowest).mean(axis=1)])


def lowest_bit(values):
    """Exponent of the lowest set bit of each number, 0 for a number that is 0."""
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64)
    least = (whole & -whole).astype(np.float64)
    return np.where(whole == 0, 0.0, exponents - 53.0 + np.log2(np.maximum(least, 1.0)))
