"""One row of huge values, which a bound must hold."""

import numpy as np

from benchmarks.arena.attacks import neighbors
from benchmarks.arena.attacks.far_neighbors import fewer, heaps

WHAT = "a row more, of 1e6 or of 1e300"
PAIRS = (
    neighbors.added("of 1e6", neighbors.middle(), [1e6, 1e6]),
    neighbors.added("of 1e300", neighbors.middle(), [1e300, -1e300]),
    neighbors.added("of 1e6, the others in two heaps", heaps(), [1e6, 1e6]),
)


def asked(system, runs):
    return fewer(neighbors.asked_of_pairs(PAIRS, runs))


def scored(system, asked, fits):
    return neighbors.scored_pairs(system, PAIRS, fits, _scores)


def _scores(pair, fits):
    """Returns scores of the centers, and whether there are any: an error on only one neighbor distinguishes them."""
    return np.stack([*neighbors.of_centers(pair, fits), np.isnan(fits["centers"]).any(axis=(1, 2))])
