"""The empirical privacy audit: from many draws on two neighboring inputs to a lower bound on epsilon.

If a release is (epsilon, delta)-DP, no test can distinguish neighbors better than
P(hit) <= e^epsilon P(false alarm) + delta. The audit runs such tests and turns their outcomes into an epsilon that the
release certainly exceeds; a bound above the claimed epsilon is a broken promise.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dapple_dp.schemas.core.plan import Geometry, Mechanism, ReleasePlan, RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.core.statistics import lattice
from tests.scenes import other_auditor

EPSILON = 2.5
DELTA = 0.1
"""What audits are calibrated for: the events that decide at a usual delta are too rare for thousands of runs."""
FAILURE = 1e-3
"""A bound exceeds the true epsilon for at most this share of all sets of keys."""
RUNS = 3500
"""Draws for each of the two neighbors."""
_CHOICE_PART = 3
_QUANTILES = np.linspace(0.02, 0.98, 33)


def epsilon_lower_bounds(
    hits: NDArray[np.int64], false_alarms: NDArray[np.int64], n_runs: int, delta: float, failure: float = FAILURE
) -> NDArray[np.float64]:
    """Clopper-Pearson lower bounds on epsilon, one per test.

    Args:
      hits: shape (n,): runs with the canary that a test flags.
      false_alarms: shape (n,): runs without it that the same test flags.
      n_runs: runs of each kind.
      delta: in [0, 1); the delta of the claim.
      failure: in (0, 1); probability that a bound exceeds the true epsilon, for a test fixed beforehand.

    Returns:
      shape (n,), >= 0.
    """
    least = stats.beta.ppf(failure / 2, np.maximum(hits, 1), n_runs - hits + 1)
    most = stats.beta.ppf(1 - failure / 2, false_alarms + 1, np.maximum(n_runs - false_alarms, 1))
    certain = np.where(hits > 0, least, 0.0) - delta
    ratio = np.maximum(certain, 0.0) / np.where(false_alarms < n_runs, most, 1.0)
    return np.log(np.maximum(ratio, 1.0))


def audited_epsilon(
    without: NDArray[np.float64], with_canary: NDArray[np.float64], delta: float = DELTA, failure: float = FAILURE
) -> float:
    """Lower bound on epsilon from scores; the test is chosen on the first third of the runs, counted on the rest.

    A test is a score, a threshold and a direction: high scores say that the canary is there, or low ones that it is
    not, so that adding and removing are both audited.

    Args:
      without: shape (n_scores, n_runs): scores, fixed beforehand, of releases without the canary.
      with_canary: the same with it.
      delta: of the claim.
      failure: as of `epsilon_lower_bounds`.
    """
    n_choice = without.shape[1] // _CHOICE_PART
    pairs = [*zip(without, with_canary, strict=True), *zip(-with_canary, -without, strict=True)]
    promising = [_best_threshold(low[:n_choice], high[:n_choice], delta, failure) for low, high in pairs]
    index = int(np.argmax([bound for bound, _ in promising]))
    threshold = np.array([promising[index][1]])
    low, high = (scores[n_choice:] for scores in pairs[index])
    counts = (_at_least(high, threshold), _at_least(low, threshold))
    return float(epsilon_lower_bounds(*counts, len(low), delta, failure)[0])


class Bounds(NamedTuple):
    """Lower bounds on one epsilon that two auditors find in the same scores: ours, and that of `other_auditor`."""

    ours: float
    theirs: float


def both_bounds(without: NDArray[np.float64], with_canary: NDArray[np.float64], delta: float = DELTA) -> Bounds:
    """Returns what both auditors find; arguments as of `audited_epsilon`."""
    return Bounds(
        ours=audited_epsilon(without, with_canary, delta),
        theirs=other_auditor.audited_epsilon(without, with_canary, delta, FAILURE),
    )


def _best_threshold(
    low: NDArray[np.float64], high: NDArray[np.float64], delta: float, failure: float
) -> tuple[float, float]:
    """The largest lower bound that any quantile of the scores gives as a threshold, and that threshold."""
    thresholds = np.quantile(np.concatenate([low, high]), _QUANTILES, method="lower")
    bounds = epsilon_lower_bounds(_at_least(high, thresholds), _at_least(low, thresholds), len(low), delta, failure)
    return float(bounds.max()), float(thresholds[bounds.argmax()])


def _at_least(scores: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns how many scores reach each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


def draws(
    plans: Sequence[RoundPlan], exact_sums: Sequence[NDArray[np.int64]], n_runs: int, first_key: int
) -> NDArray[np.int64]:
    """Releases of rounds with given sums, drawn with a key of its own in each run, shape (n_runs, size)."""
    return np.stack([flat(_draw(plans, exact_sums, key_of(first_key + run))) for run in range(n_runs)])


def key_of(number: int) -> bytes:
    """A run key for tests."""
    return number.to_bytes(32, "big")


def _draw(plans: Sequence[RoundPlan], exact_sums: Sequence[NDArray[np.int64]], key: bytes) -> list[Release]:
    return [each for plan, exact in zip(plans, exact_sums, strict=True) for each in draw_release(key, plan, exact)]


def flat(releases: Sequence[Release]) -> NDArray[np.int64]:
    """Coordinates of releases, one behind the other."""
    return np.concatenate([each.values.ravel() for each in releases])


def scores(
    releases: Sequence[ReleasePlan],
    noisy: NDArray[np.int64],
    without: NDArray[np.int64],
    with_canary: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Scores that are high where the canary seems to be there, none of which depends on the draws.

    The first is the log-likelihood ratio of the planned noise; then that of each release alone; then signs of
    broken noise: coordinates that are a whole number of rows away from the exact sum, and pairs of releases whose
    noise is the same.

    Args:
      releases: plans, whose coordinates follow each other.
      noisy: shape (n_runs, size): what was released.
      without: shape (size,) or (n_runs, size): exact sums without the canary.
      with_canary: the same with it.

    Returns:
      shape (n_scores, n_runs).
    """
    cuts = np.cumsum([each.spec.size for each in releases])[:-1]
    absent, present = noisy - without, noisy - with_canary
    parts = list(zip(releases, np.split(absent, cuts, axis=1), np.split(present, cuts, axis=1), strict=True))
    ratios = np.stack([_loss(plan, low) - _loss(plan, high) for plan, low, high in parts])
    rows = [(each % lattice.SUM_UNITS == 0).mean(axis=1) for each in (present, absent)]
    same = [_same_noise(*pair) for pair in itertools.combinations(parts, 2)]
    return np.stack([ratios.sum(axis=0), *ratios, rows[0] - rows[1], *same])


def _loss(plan: ReleasePlan, noise: NDArray[np.int64]) -> NDArray[np.float64]:
    """Minus the log-likelihood of noise, up to a constant, shape (n_runs,)."""
    if plan.spec.mechanism is Mechanism.DISCRETE_LAPLACE:
        return np.abs(_standardized(plan, noise)).sum(axis=1)
    return 0.5 * (_standardized(plan, noise) ** 2).sum(axis=1)


def _standardized(plan: ReleasePlan, noise: NDArray[np.int64]) -> NDArray[np.float64]:
    """Noise divided by the stddev (Gaussian) or the scale (Laplace) of each coordinate."""
    scale = np.full(plan.spec.size, plan.noise_scale)
    if plan.spec.geometry is Geometry.SYMMETRIC:
        order = int(np.sqrt(2 * plan.spec.size))
        rows, columns = np.triu_indices(order)
        scale[rows != columns] /= np.sqrt(2.0)
    return noise / scale


def _same_noise(first: tuple, second: tuple) -> NDArray[np.float64]:
    """Returns how much more alike the noise of two releases is with the canary than without it."""
    size = min(first[0].spec.size, second[0].spec.size)
    apart = [
        np.linalg.norm(
            _standardized(first[0], first[side])[:, :size] - _standardized(second[0], second[side])[:, :size], axis=1
        )
        for side in (1, 2)
    ]
    return np.log(apart[0] + 1e-9) - np.log(apart[1] + 1e-9)
