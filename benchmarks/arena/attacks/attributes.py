"""Attributes published beside the centers: inertia, rounds, exact counts, the centers before the noise."""

import numpy as np

from benchmarks.arena.attacks import neighbors

WHAT = "a row more; attributes beside the centers (`inertia_`, `n_iter_`, counts)"
PAIRS = (
    neighbors.added("at a corner", neighbors.middle(), [1.0, 1.0]),
    neighbors.added("the 87th row", np.random.default_rng(1).uniform(-1.0, 1.0, (86, 2)), [1.0, 1.0]),
)


def asked(system, runs):
    return neighbors.asked_of_pairs(PAIRS, runs)


def scored(system, asked, fits):
    """Attributes that one neighbor alone has, since all fits of the other ended with an error, have no score."""
    common = []
    for low, high in zip(fits[::2], fits[1::2], strict=True):
        common += [{name: each[name] for name in sorted(low.keys() & high.keys())} for each in (low, high)]
    return neighbors.scored_pairs(system, PAIRS, common, _scores)


def _scores(pair, fits):
    """Returns scores of the centers, of the inertia at the published centers, and of each other attribute's sum."""
    found = [*neighbors.of_centers(pair, fits)]
    for name, values in fits.items():
        if name not in ("centers", "error", "seconds"):
            found.append(np.asarray(values, dtype=np.float64).reshape(len(values), -1).sum(axis=1))
    if "inertia" in fits:
        found.append(of_inertia(pair, fits))
    return np.stack(found)


def of_inertia(pair, fits):
    """Returns how much nearer the inertia is to that of the rows with the canary, given the published centers."""
    gaps = []
    for rows in (pair.without, pair.with_canary):
        inside = np.clip(rows, *neighbors.BOX)
        squared = ((inside[None, :, None] - fits["centers"][:, None]) ** 2).sum(axis=3)
        gaps.append(np.abs(fits["inertia"] - squared.min(axis=2).sum(axis=1)))
    return gaps[0] - gaps[1]
