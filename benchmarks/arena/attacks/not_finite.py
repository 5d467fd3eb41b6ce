"""One row with NaN or infinity. A system that refuses such input releases nothing, and nothing is claimed of that."""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "a row more, with NaN or infinity; a refusal counts as no release"
PAIRS = (
    neighbors.added("NaN", neighbors.middle(), [np.nan, 0.0]),
    neighbors.added("infinity", neighbors.middle(), [np.inf, 0.0]),
)
_JOBS = 6
"""Runs of Dapple, which are whole jobs."""


def asked(system, runs):
    """Through the door that users take, where input is looked at."""
    n_runs = _JOBS if system.TITLE == "dapple" else runs
    return neighbors.asked_of_pairs(PAIRS, n_runs, door="job")


def scored(system, asked, fits):
    """Comparisons of what was released; none where the row is refused in every fit."""
    for index, pair in enumerate(PAIRS):
        low, high = fits[2 * index : 2 * index + 2]
        if not all(str(error) for error in high["error"]):
            yield from neighbors.scored_pairs(system, [pair], [low, high], _scores)


def _scores(pair, fits):
    """Returns scores of the centers, and whether a number is missing."""
    return np.stack([*neighbors.of_centers(pair, fits), np.isnan(fits["centers"]).any(axis=(1, 2))])
