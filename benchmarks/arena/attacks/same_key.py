"""A run that is started again under the same key or seed, after a row may have come: equal noise cancels.

The claim for the pair of releases is that of two runs. Systems get a seed from their user; Dapple's jobs have none to
give, so its users start the job again.
"""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "two runs under one seed, the second with a row more or not; claimed is twice epsilon"
PAIR = neighbors.added("at a corner", neighbors.middle(), [1.0, 1.0], epsilon=0.25)
_JOBS = 40
"""Runs of Dapple, which are whole jobs."""


def asked(system, runs):
    """First runs and second runs of both sides, with equal seeds."""
    n_runs = _JOBS if system.TITLE == "dapple" else runs
    first = neighbors.asked_of_pairs([PAIR], n_runs, door="job")
    again = [neighbors.Asked("again", side, each.job) for side, each in enumerate(first)]
    same = [neighbors.Asked("first", side, first[0].job._replace(seeds=first[side].job.seeds)) for side in (0, 1)]
    return [*same, *again]


def scored(system, asked, fits):
    found = []
    for first, second in ((fits[0], fits[2]), (fits[1], fits[3])):
        moves = np.nan_to_num(np.abs(first["centers"] - second["centers"]).sum(axis=(1, 2)), nan=9.0)
        found.append(np.stack([moves, moves > 0.0]))
    delta = 2 * neighbors.delta_of(system, len(PAIR.without))
    return [neighbors.Scored(PAIR.case, 2 * PAIR.epsilon, delta, *found)]
