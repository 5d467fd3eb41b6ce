"""A row more, far from all others: at a corner of the box, beyond the box, or opposite all others."""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "a row more, far from the others"
FEWEST = 60
"""Fits of each neighbor where there are many rows, or a quarter of the others if that is more."""


def heaps():
    """1,200 rows in two heaps; some systems answer only where every cluster has some hundred rows."""
    around = np.random.default_rng(4).normal(0.0, 0.05, (1200, 2))
    return np.repeat([[-0.5, -0.5], [0.5, 0.5]], 600, axis=0) + around


def fewer(asked):
    """The same runs, but fewer of those on many rows."""

    def less(job):
        many = len(job.rows) > 1000
        return job._replace(seeds=job.seeds[: max(FEWEST, len(job.seeds) // 4)]) if many else job

    return [each._replace(job=less(each.job)) for each in asked]


PAIRS = (
    neighbors.added("at a corner, the others in the middle", neighbors.middle(), [1.0, 1.0]),
    neighbors.added("beyond the box, the others in the middle", neighbors.middle(), [80.0, 80.0]),
    neighbors.added("at a corner, the others at the opposite one", np.full((200, 2), -1.0), [1.0, 1.0]),
    neighbors.added("at a corner, the others in two heaps", heaps(), [1.0, 1.0]),
    neighbors.added("at another corner, the others in two heaps", heaps(), [1.0, -1.0]),
)


def asked(system, runs):
    return fewer(neighbors.asked_of_pairs(PAIRS, runs))


def scored(system, asked, fits):
    return neighbors.scored_pairs(system, PAIRS, fits, neighbors.of_centers)
