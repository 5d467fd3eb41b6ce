"""Rows planted beside a target, so that its cluster is the attacker's but for the target (after Cliopatra).

The attacker knows two attributes of the target, plants rows with these and with a value of its own in the third, and
reads the third coordinate of the center that it planted.
"""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "planted rows around a target whose third attribute is secret"
_PLANTED = np.repeat([[0.8, 0.8, -1.0]], 8, axis=0) + np.random.default_rng(2).uniform(0.0, 0.02, (8, 3))
_CROWD = np.random.default_rng(3).uniform(-0.9, -0.3, (60, 3))
PAIRS = (neighbors.added("target among 8 planted rows", np.vstack([_CROWD, _PLANTED]), [0.8, 0.8, 1.0]),)


def asked(system, runs):
    return neighbors.asked_of_pairs(PAIRS, runs)


def scored(system, asked, fits):
    return neighbors.scored_pairs(system, PAIRS, fits, _scores)


def _scores(pair, fits):
    """The secret of the center nearest the plants, the largest one, and those of centers."""
    centers = np.nan_to_num(fits["centers"], nan=-9.0)
    gaps = np.linalg.norm(centers[:, :, :2] - 0.8, axis=2)
    nearest = centers[np.arange(len(centers)), gaps.argmin(axis=1), 2]
    return np.stack([nearest, centers[:, :, 2].max(axis=1), *neighbors.of_centers(pair, fits)])
