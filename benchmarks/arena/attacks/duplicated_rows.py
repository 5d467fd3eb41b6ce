"""Rows that repeat each other: noise that is measured on the rows has nothing to measure."""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "a row more, where all others are copies"
_COPIES = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 20, axis=0)
PAIRS = (
    neighbors.added("one beside two heaps of copies", _COPIES, [0.9, -0.9]),
    neighbors.added("one copy more", _COPIES, [0.5, 0.5]),
)


def asked(system, runs):
    return neighbors.asked_of_pairs(PAIRS, runs)


def scored(system, asked, fits):
    return neighbors.scored_pairs(system, PAIRS, fits, _scores)


def _scores(pair, fits):
    """Returns scores of the centers, and how far centers lie from the heaps."""
    gaps = np.abs(fits["centers"][:, :, None] - np.unique(_COPIES, axis=0)).sum(axis=3).min(axis=2)
    return np.stack([*neighbors.of_centers(pair, fits), -np.nan_to_num(gaps, nan=9.0).min(axis=1)])
