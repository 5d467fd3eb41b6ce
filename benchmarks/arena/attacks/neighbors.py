"""Code that attacks share: pairs of neighbors, the runs on them, and scores of centers."""

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena.environments import Job

Rows = NDArray[np.float64]
Fits = dict[str, NDArray[Any]]
DELTA = 1e-6
BOX = (-1.0, 1.0)
ERROR = 4.0
"""The score of a fit that ends with an error where the attack counts this as an answer."""


class Asked(NamedTuple):
    """A job of an attack: its case, and which neighbor it is (0 without the canary, 1 with it)."""

    case: str
    side: int
    job: Job


class Scored(NamedTuple):
    """Scores of one comparison, shape (n_scores, n_runs) each, and what was claimed of all that a run publishes."""

    case: str
    claim: float
    delta: float
    without: NDArray[np.float64]
    with_canary: NDArray[np.float64]


class Pair(NamedTuple):
    """Two data sets that differ by the last row of the second."""

    case: str
    without: Rows
    with_canary: Rows
    k: int = 2
    epsilon: float = 0.5

    @property
    def canary(self) -> Rows:
        """The last row, inside the box."""
        return np.clip(np.nan_to_num(self.with_canary[-1]), *BOX)


def added(case: str, rows: Rows, row: Sequence[float], **settings: Any) -> Pair:
    """A pair in which one has a row more."""
    return Pair(case, rows, np.concatenate([rows, [row]]), **settings)


def middle(n_rows: int = 24, n_features: int = 2) -> Rows:
    """Rows about the middle of the box."""
    return np.random.default_rng(0).uniform(-0.2, 0.2, (n_rows, n_features))


def delta_of(system: ModuleType, n_rows: int) -> float:
    """Delta of the claim: FastLloyd's code takes 1 / (n log n), whatever it is given; the others are given 1e-6."""
    if system.CLAIM.startswith("pure"):
        return 0.0
    return 1.0 / (n_rows * np.log(n_rows)) if system.TITLE == "fastlloyd" else DELTA


def asked_of_pairs(pairs: Sequence[Pair], runs: int, seeded: bool = True, **settings: Any) -> list[Asked]:
    """Two jobs a pair; no seed is used twice."""
    found = []
    for index, pair in enumerate(pairs):
        for side, rows in enumerate((pair.without, pair.with_canary)):
            first = (2 * index + side) * runs + 1
            seeds = list(range(first, first + runs)) if seeded else [None] * runs
            found.append(Asked(pair.case, side, Job(rows, pair.k, pair.epsilon, DELTA, seeds, **settings)))
    return found


def scored_pairs(
    system: ModuleType, pairs: Sequence[Pair], fits: Sequence[Fits], scores: Callable[[Pair, Fits], NDArray[np.float64]]
) -> Iterator[Scored]:
    """A comparison a pair; fits that ended with an error score lowest, on both sides alike."""
    for pair, low, high in zip(pairs, fits[::2], fits[1::2], strict=True):
        found = [np.nan_to_num(scores(pair, each), nan=-1e9, posinf=1e9, neginf=-1e9) for each in (low, high)]
        yield Scored(pair.case, pair.epsilon, delta_of(system, len(pair.without)), *found)


def of_centers(pair: Pair, fits: Fits) -> NDArray[np.float64]:
    """Scores of centers: near the canary or not, far out, apart, average position; shape (6, n_fits)."""
    centers = fits["centers"]
    to_canary = np.linalg.norm(centers - pair.canary, axis=2)
    outward = np.abs(centers).max(axis=2)
    apart = np.linalg.norm(centers[:, 0] - centers[:, -1], axis=1)
    average = np.nan_to_num(centers).sum(axis=(1, 2))
    near, far = (np.where(np.isnan(to_canary), fill, to_canary) for fill in (1e9, -1e9))
    ends = [np.where(np.isnan(outward), fill, outward) for fill in (-1e9, 1e9)]
    found = [-near.min(axis=1), -far.max(axis=1), ends[0].max(axis=1), ends[1].min(axis=1), apart, average]
    return np.stack(found)
