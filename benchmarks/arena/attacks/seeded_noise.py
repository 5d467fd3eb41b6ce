"""Noise of a seed that the attacker knows: the one a system has if its user gives none.

The attacker runs the system on both neighbors, and compares bit by bit.
"""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "noise of the seed that a system has by default"
PAIRS = (neighbors.added("at a corner, no seed given", neighbors.middle(), [1.0, 1.0]),)


def asked(system, runs):
    """No seeds; and the attacker's own runs, likewise."""
    found = neighbors.asked_of_pairs(PAIRS, runs, seeded=False)
    own = [each._replace(case="attacker", job=each.job._replace(seeds=[None, None])) for each in found]
    return [*found, *own]


def scored(system, asked, fits):
    def scores(pair, each):
        same = [(each["centers"] == other["centers"][0]).all(axis=(1, 2)).astype(float) for other in fits[2:]]
        return np.stack([same[1] - same[0]])

    return neighbors.scored_pairs(system, PAIRS, fits[:2], scores)
