"""Many runs on the same rows, each of which states its own epsilon: who keeps the account?

Dapple's runs name a ledger whose limit one run reaches. The claim is what the last run says: epsilon of one.
"""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "five runs on the same rows, each stating epsilon .5; the claim is that of one"
PAIR = neighbors.added("at a corner", neighbors.middle(), [1.0, 1.0])
TIMES = 5
_JOBS = 45
"""Blocks of runs of Dapple, which are whole jobs."""
_BLOCKS = 100
"""At most as many of the others."""


def asked(system, runs):
    """Blocks of runs; those of Dapple name a ledger for each block, which is one set of rows."""
    if system.TITLE != "dapple":
        return neighbors.asked_of_pairs([PAIR], min(runs, _BLOCKS) * TIMES)
    return [
        neighbors.Asked(PAIR.case, side, each.job._replace(seeds=[None] * 2, ledger=f"{side}-{index}.sqlite"))
        for side, each in enumerate(neighbors.asked_of_pairs([PAIR], 1, door="job"))
        for index in range(_JOBS)
    ]


def scored(system, asked, fits):
    """Means of the scores of all answers to a block."""
    found = []
    for side in (0, 1):
        mine = [each for one, each in zip(asked, fits, strict=True) if one.side == side]
        scores = np.concatenate([neighbors.of_centers(PAIR, each) for each in mine], axis=1)
        answered = np.concatenate([[not str(error) for error in each["error"]] for each in mine])
        block = TIMES if len(mine) == 1 else 2
        scores = np.where(answered, scores, 0.0).reshape(len(scores), -1, block).sum(axis=2)
        found.append(scores / np.maximum(answered.reshape(-1, block).sum(axis=1), 1))
    delta = neighbors.delta_of(system, len(PAIR.without))
    return [neighbors.Scored(PAIR.case, PAIR.epsilon, delta, *found)]
