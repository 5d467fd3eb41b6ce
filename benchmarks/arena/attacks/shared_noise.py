"""Differences of a center's coordinates: noise that all of them share is not in them."""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "a row more, by the ratio of two differences of the only center's coordinates"
_ROWS = neighbors.middle(40, 40)
PAIRS = (neighbors.added("one cluster", _ROWS, np.linspace(-0.9, 0.9, 40) ** 3, k=1),)


def asked(system, runs):
    return neighbors.asked_of_pairs(PAIRS, runs)


def scored(system, asked, fits):
    return neighbors.scored_pairs(system, PAIRS, fits, _scores)


def _ratio(points):
    return (points[..., 0] - points[..., 1]) / (points[..., 2] - points[..., 3])


def _scores(pair, fits):
    """Returns how near the ratio is to that of all rows with the canary."""
    return -np.abs(_ratio(fits["centers"][:, 0]) - _ratio(pair.with_canary.sum(axis=0)))[None]
