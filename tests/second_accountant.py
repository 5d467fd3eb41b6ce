"""A second accountant, written from docs/guarantee.md alone: laws, sensitivities and epsilon of a plan.

It imports nothing of Dapple and no library of privacy. Of a plan it takes the path, shape and noise multiplier of each
release, as `privacy.json` has them under `events`. It derives all else from the settings of the job.
"""

import collections
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

UNIT = 2**20
"""Lattice units of a count of one, and of the clipping norm (Table 1)."""
STRETCHED = 2**26
"""Of relative sums."""
SQUARED = 2**32
"""Of scatters."""
GAUSSIAN, LAPLACE = "discrete_gaussian", "discrete_laplace"


class Statistic(NamedTuple):
    """A row of Table 1.

    Attributes:
      sensitivity: in L2, lattice units.
      positive: whether two vectors of units have an inner product of at least 0 that sampled rows may count on.
      single: whether it is one number between 0 and its sensitivity.
    """

    sensitivity: int = UNIT
    positive: bool = True
    single: bool = False


SUMS = Statistic(positive=False)
RELATIVE_SUMS = Statistic(sensitivity=STRETCHED, positive=False)
STATISTICS = {
    "rows": Statistic(),
    "scatter": Statistic(sensitivity=SQUARED),
    "histogram": Statistic(),
    "cells": Statistic(),
    "candidates": Statistic(),
    "counts": Statistic(),
    "sizes": Statistic(),
    "cost": Statistic(single=True),
    "directions": SUMS,
    "terms": Statistic(positive=False),
}
"""By the name of a release, but for sums, and for the gain, which is a cost by name."""
LAPLACE_IN_PAPERS = {"histogram", "counts", "cost", "sizes"}
"""Names of releases with Laplace noise where the allocation is that of a paper."""


class Expected(NamedTuple):
    """Statement of the note on a release before any noise is calibrated.

    Attributes:
      mechanism: the law of its noise.
      geometry: vector or symmetric.
      sensitivity: lattice units, in L2 or, for Laplace noise, in L1.
      windows: how many releases of its kind one unit may move.
    """

    mechanism: str
    geometry: str
    sensitivity: int
    windows: int = 1


def expected(job: Mapping[str, Any], path: str, epoch: Mapping[str, Any] | None = None) -> Expected:
    """Law, geometry and sensitivity of one release of a job.

    Args:
      job: its settings, as plain data.
      path: algorithm, round and name of the release.
      epoch: of a window: `weights`, and at unit client `max_windows` and `min_separation`.
    """
    algorithm, round_name, name = path.split("/")
    if epoch is not None:
        return _over_windows(job, STATISTICS["counts"] if name == "weighted_counts" else RELATIVE_SUMS, epoch)
    lloyd = algorithm == "dp_lloyd" and round_name.startswith("lloyd_")
    statistic = _statistic(round_name, name, relative=lloyd or algorithm == "k_prototypes")
    if _of_paper(job) and name in LAPLACE_IN_PAPERS:
        return Expected(LAPLACE, "vector", _in_l1(job, statistic))
    unguarded = job.get("preset") == "published"
    geometry = "symmetric" if name == "scatter" and not unguarded else "vector"
    return Expected(GAUSSIAN, geometry, _in_l2(job, statistic))


def _statistic(round_name: str, name: str, *, relative: bool) -> Statistic:
    if name == "sums":
        return RELATIVE_SUMS if relative or round_name == "mean" or round_name.startswith("fine_") else SUMS
    if (round_name, name) == ("server", "cost"):
        return SUMS
    return STATISTICS[name]


def _of_paper(job: Mapping[str, Any]) -> bool:
    return job.get("preset") == "published" or job["privacy"].get("allocation") == "paper"


def _is_sampled(job: Mapping[str, Any]) -> bool:
    """Returns whether one more row may push out another one."""
    return job["privacy"]["unit"] == "record" and job["data"].get("max_rows_per_client") is not None


def _in_l2(job: Mapping[str, Any], statistic: Statistic) -> int:
    if not _is_sampled(job) or statistic.single:
        return statistic.sensitivity
    return math.isqrt(2 * statistic.sensitivity**2) + 1 if statistic.positive else 2 * statistic.sensitivity


def _in_l1(job: Mapping[str, Any], statistic: Statistic) -> int:
    return statistic.sensitivity * (1 if not _is_sampled(job) or statistic.single else 2)


def _over_windows(job: Mapping[str, Any], statistic: Statistic, epoch: Mapping[str, Any]) -> Expected:
    """Lemmas 11 and 12."""
    times, apart = (epoch["max_windows"], epoch["min_separation"]) if job["privacy"]["unit"] == "client" else (1, 1)
    moved: collections.Counter[int] = collections.Counter()
    for begun, (age, weight) in itertools.product(range(times), enumerate(epoch["weights"])):
        moved[begun * apart + age] += weight
    squared = sum(each**2 for each in moved.values()) * statistic.sensitivity**2
    return Expected(GAUSSIAN, "vector", math.isqrt(squared - 1) + 1, times * len(epoch["weights"]))


class Noise(NamedTuple):
    """Noise of one release, for which only its law, multiplier and coordinates count.

    Attributes:
      multiplier: stddev (Gaussian) or scale (Laplace) over sensitivity.
      variances: numbers of coordinates by the variance of their noise, in squared lattice units; none of Laplace noise.
    """

    multiplier: float
    variances: Mapping[float, int]


def noise(release: Expected, shape: Sequence[int], multiplier: float) -> Noise:
    """Noise of one release of a plan (Algorithm 2).

    Args:
      release: its law, geometry and sensitivity.
      shape: of its numbers.
      multiplier: as the plan records it.
    """
    count, variance = math.prod(shape), (multiplier * release.sensitivity) ** 2
    if release.mechanism == LAPLACE:
        return Noise(multiplier, {})
    if release.geometry == "vector":
        return Noise(multiplier, {variance: count * release.windows})
    width = (math.isqrt(8 * count + 1) - 1) // 2
    assert width * (width + 1) // 2 == count
    return Noise(multiplier, {variance: width, variance / 2.0: count - width})


def slack(releases: Sequence[Noise], epsilon: float, delta: float) -> tuple[float, float, float]:
    """A, B and what is left of delta after Lemma 8.

    Args:
      releases: of the whole run.
      epsilon: that the job may spend.
      delta: that the job may spend.
    """
    counts: collections.Counter[float] = collections.Counter()
    for release in releases:
        counts.update(release.variances)
    if not counts:
        return 0.0, 0.0, delta
    share = delta / 2000.0
    x = epsilon - math.log(share)
    above = -sum(n * math.log1p(-1.0 / (24.0 * v)) for v, n in counts.items())
    below = sum(n * (0.5 / v + 3.0 * math.exp(-2.0 * math.pi**2 * v)) for v, n in counts.items())
    below += math.sqrt(x * sum(n / v**2 for v, n in counts.items())) + x / min(counts)
    return above, below, (delta - share) * math.exp(-above)


class Losses(NamedTuple):
    """The privacy loss of a run with continuous Gaussian noise.

    Attributes:
      inverse: one over the multiplier of all Gaussian releases together, 0 without any.
      values: losses of the randomized responses that dominate all Laplace releases together.
      weights: their probabilities.
      width: of the bins, 0 for the exact law.
    """

    inverse: float
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    width: float

    def delta(self, epsilon: float) -> float:
        """The divergence of a dominating pair: a mixture, over the responses, of curves that they shift."""
        left = epsilon - self.values
        if not self.width:
            return float(self.weights @ self._curve(left))
        # Connect the dots: right at multiples of the width, linear in exp(epsilon) between them.
        lower = np.floor(left / self.width + 1e-9) * self.width
        part = np.expm1(left - lower) / math.expm1(self.width)
        return float(self.weights @ ((1.0 - part) * self._curve(lower) + part * self._curve(lower + self.width)))

    def _curve(self, epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
        """The divergence of the Gaussian releases (Balle, Wang 2018), of any real epsilon."""
        if not self.inverse:
            return np.maximum(0.0, -np.expm1(epsilon))
        upper = log_ndtr(0.5 * self.inverse - epsilon / self.inverse)
        lower = log_ndtr(-0.5 * self.inverse - epsilon / self.inverse)
        return np.exp(upper) * -np.expm1(np.minimum(0.0, epsilon + lower - upper))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at a delta, 0 or more."""
        if self.delta(0.0) <= delta:
            return 0.0
        top = next(each for each in (2.0**power for power in itertools.count(-10)) if self.delta(each) <= delta)
        return float(brentq(lambda each: self.delta(each) - delta, 0.0, top, xtol=1e-14, rtol=1e-14))


def losses(releases: Sequence[Noise], width: float = 0.0) -> Losses:
    """The loss of all releases together, in which equal Laplace releases have a binomial law.

    Args:
      releases: of the whole run.
      width: to whose multiples the losses of responses are rounded up; 0 for the exact law.
    """
    gaussians = [1.0 / each.multiplier for each in releases if each.variances]
    laplace = collections.Counter(1.0 / each.multiplier for each in releases if not each.variances)
    drawn = list(itertools.product(*(list(_responses(*each, width)) for each in laplace.items())))
    values = [math.fsum(value for value, _ in each) for each in drawn]
    weights = [math.prod(weight for _, weight in each) for each in drawn]
    return Losses(math.hypot(*gaussians), np.array(values), np.array(weights), width)


def _responses(loss: float, count: int, width: float) -> Iterator[tuple[float, float]]:
    """Sums of losses of equal randomized responses with their probabilities, by how many tell the truth."""
    truth = 1.0 / (1.0 + math.exp(-loss))
    high, low = (math.ceil(each / width) * width if width else each for each in (loss, -loss))
    for true in range(count + 1):
        lies = count - true
        yield true * high + lies * low, math.comb(count, true) * truth**true * (truth * math.exp(-loss)) ** lies


class Spent(NamedTuple):
    """Budget that a run spends at a delta.

    Attributes:
      exact: with the exact law of the loss.
      binned: as Algorithm 4 bounds it, in bins.
    """

    exact: float
    binned: float


def spent(releases: Sequence[Noise], epsilon: float, delta: float) -> Spent:
    """Algorithm 4, with and without its bins.

    Args:
      releases: of the whole run.
      epsilon: that the job may spend, which the slack and the bins depend on.
      delta: that the job may spend.
    """
    above, below, left = slack(releases, epsilon, delta)
    exact = losses(releases)
    laplace = sum(not each.variances for each in releases)
    width = max(min(1e-3, epsilon / 1e3), epsilon / 2e4, 1e-4 * exact.inverse) / min(max(laplace, 1), 10)
    found = (each.epsilon(left - 1e-14) + above + below for each in (exact, losses(releases, width)))
    return Spent(*found)
