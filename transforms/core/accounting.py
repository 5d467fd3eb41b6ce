"""The privacy accountant: composes a plan's releases and finds the least noise that meets a budget.

It reads no data. Neighbors differ by one added or removed unit. Releases are composed as privacy loss distributions by
`dp_accounting`, as if Gaussian noise were continuous; `discretization.py` bounds what drawing it on the lattice costs.
`dp_accounting` and `scipy` load slowly, so they are imported only to compose something.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from dapple_dp.schemas.core.plan import (
    Allocation,
    Geometry,
    Mechanism,
    PrivacyPlan,
    PrivacyUnit,
    ReleasePlan,
    ReleaseSpec,
    RoundPlan,
    RoundSpec,
)
from dapple_dp.schemas.errors import ConfigError, UnsupportedEventError
from dapple_dp.transforms.core.discretization import discretization_slack, log_delta
from dapple_dp.transforms.core.noise import check_release_noise

MIN_DELTA = 1e-12
"""Smallest delta that the float64 convolutions resolve."""
_FLOAT_MARGIN = 1e-14
"""Subtracted from delta for the rounding of convolutions, which measured about 1e-16 each."""
_AIM = 1.0 - 6e-4
_LOG_LEVEL_TOLERANCE = 2e-4
_CACHED_PART = 0.99
_SMALLEST_LEVEL = 1e-12
_MAX_STEPS = 40
_MAX_COMPOSITIONS = 90
"""Limit for one search: a bracket of `_MAX_STEPS`, and twice what bisection needs inside it."""
_MAX_REFINEMENT = 10
_MIDDLE_SCALE = 2.0**27
_LARGEST_EPSILON = 100.0
_LEAST_MULTIPLIER = 1e-3
_ABSOLUTE_MARGIN, _RELATIVE_MARGIN = 1e-14, 1e-9
"""Subtracted from delta for the rounding of the closed form, which is far smaller."""
_TIGHT = 0.998
_MOST_COMPOSED = 256
_composed: dict[tuple[object, ...], float] = {}
"""Epsilons that this process has composed or confirmed, by releases and target."""


class LevelCache(Hashable, Protocol):
    """A store of levels that other processes found. A level is a hint, and is checked before it is used."""

    def load(self, request: dict[str, Any]) -> tuple[float, float] | None:
        """Returns a level and the epsilon that it spends, finite numbers > 0, or None if the request is unknown."""

    def store(self, request: dict[str, Any], level: float, epsilon: float) -> None:
        """Stores a level, or does nothing."""


_Scaling = Callable[[float], tuple[RoundPlan, ...]]


def compose_epsilon(rounds: Sequence[RoundPlan], delta: float, target_epsilon: float) -> float:
    """Returns epsilon of adaptively composed rounds at `delta`, as if Gaussian noise were continuous.

    Gaussian releases compose exactly into one with multiplier (sum of 1 / z^2)^(-1/2), so they are merged first. A
    Laplace release bounds its L1 sensitivity, so it is pure epsilon-DP with epsilon = 1 / noise_multiplier (its scale
    is rounded up to an integer, which only lowers epsilon). It is composed as the discrete Laplace mechanism with
    sensitivity 1, whose privacy loss is always +epsilon or -epsilon: the pair of randomized response, which dominates
    every pure epsilon-DP mechanism, so this also holds for a vector that changes in several coordinates.

    Args:
      rounds: calibrated rounds.
      delta: in (0, 1).
      target_epsilon: > 0; sets the resolution. The result is an upper bound at any resolution.

    Returns:
      Infinity if `delta` is too small for float64.

    Source: Kairouz, Oh, Viswanath (2015), "The Composition Theorem for Differential Privacy", for the domination.
    """
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.pld import PLDAccountant

    laplace = collections.Counter(
        1.0 / release.noise_multiplier for release in _releases(rounds) if _is_laplace(release.spec)
    )
    multiplier = merged_multiplier(rounds)
    interval = _discretization_interval(target_epsilon, multiplier, laplace.total())
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, interval)
    # exp(epsilon) overflows from 710 on; its inverse, the probability of the smaller loss, is then correctly 0.
    with np.errstate(over="ignore"):
        for pure_epsilon, count in sorted(laplace.items()):
            accountant.compose(dp_event.DiscreteLaplaceDpEvent(pure_epsilon, 1), count)
    if multiplier < math.inf:
        accountant.compose(dp_event.GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(delta - _FLOAT_MARGIN)) if delta > _FLOAT_MARGIN else math.inf


def stated_epsilon(rounds: Sequence[RoundPlan], delta: float) -> float:
    """Returns epsilon of calibrated rounds at `delta`, with the slack for discrete noise."""
    target = _single_epsilon(tuple(rounds), delta)
    assumed = 2.0 * target
    while True:
        slack = discretization_slack(rounds, assumed, delta)
        epsilon = compose_epsilon(rounds, delta - slack.delta, target) + slack.epsilon
        if not assumed < epsilon < math.inf:
            return epsilon
        # The slack holds for claims up to the assumed epsilon; many Laplace releases compose to more than one of them.
        assumed = 2.0 * epsilon


def calibrate(
    unit: PrivacyUnit,
    rounds: Sequence[RoundSpec],
    epsilon: float,
    delta: float,
    allocation: Allocation,
    cache: LevelCache | None = None,
) -> PrivacyPlan:
    """Returns the plan with the least noise that keeps all rounds together within (epsilon, delta).

    One number, the level, scales the noise of all releases until the composed epsilon, with the slack for discrete
    noise, is at most the target and (unless delta is of the order of epsilon) within 0.2% of it.
    Allocation `tuned`: the noise multiplier of a release is 1 / (level * sqrt(share / sum of shares)).
    Allocation `paper`: its nominal epsilon is level * share, and the multiplier is sqrt(2 log(1.25 / delta)) /
    nominal epsilon (Gaussian) or 1 / nominal epsilon (Laplace). Composing the releases gives what that spends.

    Args:
      unit: the privacy unit.
      rounds: every release of the run, in order; at least one.
      epsilon: > 0, finite; for the whole run.
      delta: in [1e-12, 1); for the whole run.
      allocation: rule that turns shares into noise.
      cache: levels of earlier searches; None to search.

    Raises:
      ConfigError: if epsilon, delta or a release is out of range, or the noise would not fit the lattice.
      UnsupportedEventError: if the allocation or the accountant has no rule for a release.

    Source: Dong, Roth, Su (2022), "Gaussian Differential Privacy", Corollary 3.3, for `tuned`; Scott, Lampert,
      Saulpic (2025), "Differentially private federated k-means clustering with server-side data", Section 2 and
      Dwork, Roth (2014), Theorem A.1, for `paper`.
    """
    specs, allocation = tuple(rounds), Allocation(allocation)
    _check_budget(epsilon, delta)
    _check_specs(specs, allocation)
    plan = _calibrate(unit, specs, float(epsilon), float(delta), allocation, cache)
    return dataclasses.replace(plan, rounds=tuple(map(_described, plan.rounds, rounds)))


def _described(plan: RoundPlan, spec: RoundSpec) -> RoundPlan:
    """Restores the meanings of releases: specs that differ only there are equal, and share a plan in memory."""
    pairs = zip(plan.releases, spec.releases, strict=True)
    releases = (dataclasses.replace(release, spec=described) for release, described in pairs)
    return dataclasses.replace(plan, releases=tuple(releases))


def spent_epsilon(rounds: tuple[RoundPlan, ...], epsilon: float, delta: float) -> float:
    """Returns the composed epsilon of a run's rounds, with the slack for discrete noise, as `calibrate` computes it.

    Args:
      rounds: calibrated rounds, in order.
      epsilon: > 0; the run's target, which sets the resolution.
      delta: the run's target.
    """
    known = _composed.get(_known_by(rounds, epsilon, delta))
    if known is None:
        known = _spent(rounds, epsilon, delta)
        _remember(rounds, epsilon, delta, known)
    return known


@functools.lru_cache(maxsize=64)
def _calibrate(
    unit: PrivacyUnit,
    specs: tuple[RoundSpec, ...],
    epsilon: float,
    delta: float,
    allocation: Allocation,
    cache: LevelCache | None,
) -> PrivacyPlan:
    at_level = _tuned(specs) if allocation is Allocation.TUNED else _paper(specs, delta)
    guess = functools.partial(_first_level, specs, epsilon, delta, allocation)
    request = {
        "unit": unit,
        "rounds": [{"path": spec.path, "releases": [release.law for release in spec.releases]} for spec in specs],
        "epsilon": epsilon,
        "delta": delta,
        "allocation": allocation,
    }
    solution = None if cache is None else _recheck(cache.load(request), at_level, guess, epsilon, delta)
    if solution is None:
        solution = _search(at_level, guess(), epsilon, delta)
        if cache is not None:
            cache.store(request, *solution)
    level, spent = solution
    rounds = at_level(level)
    _remember(rounds, epsilon, delta, spent)
    _check_lattice(rounds, epsilon)
    slack = discretization_slack(rounds, epsilon, delta).delta
    return PrivacyPlan(unit=unit, epsilon=spent, delta=delta, discretization_slack=slack, rounds=rounds)


def _check_budget(epsilon: float, delta: float) -> None:
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"epsilon must be a finite number > 0, got {epsilon}; set the total for the run.")
    if not MIN_DELTA <= delta < 1.0:
        raise ConfigError(
            f"delta must be at least {MIN_DELTA:g} and less than 1, got {delta}; use about 1 / the squared number of "
            "units."
        )


def _check_specs(specs: tuple[RoundSpec, ...], allocation: Allocation) -> None:
    releases = [release for spec in specs for release in spec.releases]
    if not releases:
        raise ConfigError("rounds must have at least one release, got none; a plan without releases needs no budget.")
    for spec in releases:
        if not spec.is_enumerated:
            raise ConfigError(f"{spec.name} must have a Mechanism and a Geometry, got text; use the enumerations.")
        if not (0.0 < spec.share < math.inf and spec.sensitivity >= 1):
            raise ConfigError(
                f"{spec.name} must have a finite share > 0 and a sensitivity >= 1 lattice unit, got {spec.share} and "
                f"{spec.sensitivity}; leave out releases that need no noise."
            )
        if _is_laplace(spec):
            _check_laplace(spec, allocation)
        if spec.geometry is Geometry.SYMMETRIC and math.isqrt(8 * spec.size + 1) ** 2 != 8 * spec.size + 1:
            raise ConfigError(
                f"{spec.name} must have d * (d + 1) / 2 coordinates for geometry {spec.geometry}, got {spec.size}; "
                f"release the upper triangle or use geometry {Geometry.VECTOR}."
            )


def _check_laplace(spec: ReleaseSpec, allocation: Allocation) -> None:
    if allocation is Allocation.TUNED:
        raise UnsupportedEventError(
            f"the mechanism of {spec.name} must be {Mechanism.DISCRETE_GAUSSIAN} for allocation tuned, "
            f"got {spec.mechanism}; use Gaussian noise or allocation paper."
        )
    if spec.geometry is not Geometry.VECTOR:
        raise UnsupportedEventError(
            f"the geometry of {spec.name} must be {Geometry.VECTOR} for Laplace noise, got {spec.geometry}; "
            "use Gaussian noise."
        )


def _check_lattice(rounds: tuple[RoundPlan, ...], epsilon: float) -> None:
    for release in _releases(rounds):
        try:
            check_release_noise(release)
        except ValueError as error:
            too_little = release.noise_scale < _MIDDLE_SCALE
            rule, remedy = ("small", "lower") if too_little else ("large", "raise")
            limit = "at least 2**10 lattice units" if too_little else "below 2**44 lattice units"
            raise ConfigError(
                f"epsilon must be {rule} enough for the noise of {release.spec.name} to be {limit} in every "
                f"coordinate, got {epsilon} and a noise scale of {release.noise_scale:.4g}; "
                f"{remedy} epsilon or the share of this release."
            ) from error


def _tuned(specs: tuple[RoundSpec, ...]) -> _Scaling:
    """Scales by Gaussian weights; the level is 1 / (noise multiplier of the whole run)."""
    total = math.fsum(release.share for spec in specs for release in spec.releases)
    return lambda level: _scaled(specs, lambda spec: math.sqrt(total / spec.share) / level)


def _paper(specs: tuple[RoundSpec, ...], delta: float) -> _Scaling:
    """Scales nominal epsilons; the level is nominal epsilon / share."""
    gaussian = math.sqrt(2.0 * math.log(1.25 / delta))
    return lambda level: _scaled(specs, lambda spec: (1.0 if _is_laplace(spec) else gaussian) / (level * spec.share))


def _scaled(specs: tuple[RoundSpec, ...], multiplier: Callable[[ReleaseSpec], float]) -> tuple[RoundPlan, ...]:
    def planned(spec: ReleaseSpec) -> ReleasePlan:
        return ReleasePlan(spec=spec, noise_multiplier=multiplier(spec))

    return tuple(RoundPlan(path=spec.path, releases=tuple(map(planned, spec.releases))) for spec in specs)


def _first_level(specs: tuple[RoundSpec, ...], epsilon: float, delta: float, allocation: Allocation) -> float:
    """Returns a start for the search: exact but for slack and resolution if tuned, within a small factor if paper."""
    if allocation is Allocation.TUNED:
        from dp_accounting import gaussian_mechanism

        with np.errstate(divide="ignore"):
            return 1.0 / float(gaussian_mechanism.get_sigma_gaussian(_AIM * epsilon, delta))
    return 1.4 * epsilon / math.fsum(release.share for spec in specs for release in spec.releases)


def _search(at_level: _Scaling, guess: float, epsilon: float, delta: float) -> tuple[float, float]:
    """Returns the highest level tried that meets the budget, and the epsilon that it spends."""
    spent: dict[float, float] = {}

    def excess(log_level: float) -> float:
        if log_level not in spent:
            if len(spent) >= _MAX_COMPOSITIONS:
                raise _no_level(epsilon, delta)
            spent[log_level] = _spent(at_level(math.exp(log_level)), epsilon, delta)
            if math.isnan(spent[log_level]):
                raise _no_level(epsilon, delta)
        return math.log(min(max(spent[log_level] / (_AIM * epsilon), 1e-3), 1e3))

    bracket = _bracket(excess, math.log(guess))
    if bracket is None:
        raise _no_level(epsilon, delta)
    from scipy.optimize import brentq

    brentq(excess, *bracket, xtol=_LOG_LEVEL_TOLERANCE)
    best = max((log_level for log_level, value in spent.items() if value <= epsilon), default=None)
    if best is None:
        raise _no_level(epsilon, delta)
    return math.exp(best), spent[best]


def _no_level(epsilon: float, delta: float) -> ConfigError:
    return ConfigError(
        f"no amount of noise reaches epsilon {epsilon:g} at delta {delta:g}; raise epsilon, or lower delta if it is "
        "close to epsilon."
    )


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float] | None:
    """Returns two points around the zero of `excess`, which grows about as fast as its argument or faster, or None."""
    low = high = start
    for _ in range(_MAX_STEPS):
        if excess(high) < 0.0:
            low, high = high, high + 0.002 - 1.05 * excess(high)
        elif excess(low) > 0.0:
            low, high = low - 0.002 - 1.05 * excess(low), low
        else:
            return low, high
    return None


def _recheck(
    stored: tuple[float, float] | None,
    at_level: _Scaling,
    guess: Callable[[], float],
    epsilon: float,
    delta: float,
) -> tuple[float, float] | None:
    """Returns a stored level and the epsilon that it spends, or None unless that is true and just within the budget."""
    if stored is None or not _SMALLEST_LEVEL < stored[0] < 1.0 / _SMALLEST_LEVEL:
        return None
    level, spent = stored
    rounds = at_level(level)
    if not is_tight(rounds, spent, epsilon, delta):
        first = guess()
        if not first / 100.0 < level < first * 100.0:
            return None
        spent = _spent(rounds, epsilon, delta)
    return (level, spent) if _CACHED_PART * epsilon <= spent <= epsilon else None


def _spent(rounds: tuple[RoundPlan, ...], epsilon: float, delta: float) -> float:
    """Returns the composed epsilon with its slack, but only a lower bound if that is beyond twice `epsilon`.

    The lower bound, of single events, keeps distributions small while the search is far from the target.
    """
    slack = discretization_slack(rounds, epsilon, delta)
    at_least = _single_epsilon(rounds, delta) + slack.epsilon
    if at_least > 2.0 * epsilon:
        return at_least
    return compose_epsilon(rounds, delta - slack.delta, epsilon) + slack.epsilon


def _remember(rounds: tuple[RoundPlan, ...], epsilon: float, delta: float, spent: float) -> None:
    if len(_composed) >= _MOST_COMPOSED:
        _composed.clear()
    _composed[_known_by(rounds, epsilon, delta)] = spent


def _known_by(rounds: tuple[RoundPlan, ...], epsilon: float, delta: float) -> tuple[object, ...]:
    return tuple(plan.releases for plan in rounds), epsilon, delta


def is_tight(rounds: Sequence[RoundPlan], spent: float, target: float, delta: float) -> bool:
    """Returns whether `spent` is a tight upper bound on the epsilon of rounds, with the slack for discrete noise.

    Args:
      rounds: calibrated, adaptively composed.
      spent: > 0; the epsilon to confirm.
      target: > 0; the run's target, which sets the slack.
      delta: the run's target.

    Returns:
      False also if the formula can't tell, for example with Laplace releases.
    """
    if any(release.spec.mechanism is not Mechanism.DISCRETE_GAUSSIAN for release in _releases(rounds)):
        return False
    multiplier, slack = merged_multiplier(rounds), discretization_slack(rounds, target, delta)
    continuous = spent - slack.epsilon
    if not (0.0 < continuous < _LARGEST_EPSILON and _LEAST_MULTIPLIER < multiplier < 1.0 / _LEAST_MULTIPLIER):
        return False
    allowed = delta - slack.delta
    bounds = math.exp(log_delta(multiplier, continuous)) * (1.0 + _RELATIVE_MARGIN) + _ABSOLUTE_MARGIN <= allowed
    return bounds and math.exp(log_delta(multiplier, continuous * _TIGHT)) > allowed


def merged_multiplier(rounds: Sequence[RoundPlan]) -> float:
    """Returns the noise multiplier of all Gaussian releases together; infinity without any."""
    gaussian = (release for release in _releases(rounds) if not _is_laplace(release.spec))
    precision = math.fsum(release.noise_multiplier**-2 for release in gaussian)
    return 1.0 / math.sqrt(precision) if precision > 0.0 else math.inf


def _single_epsilon(rounds: tuple[RoundPlan, ...], delta: float) -> float:
    """Returns the exact epsilon of the merged Gaussian releases or the worst Laplace release, whichever is larger."""
    from dp_accounting import gaussian_mechanism

    pure = (1.0 / release.noise_multiplier for release in _releases(rounds) if _is_laplace(release.spec))
    laplace = max(pure, default=0.0)
    randomized_response = laplace + math.log(max(1.0 - delta * (1.0 + math.exp(-laplace)), math.ulp(0.0)))
    with np.errstate(divide="ignore"):
        gaussian = gaussian_mechanism.get_epsilon_gaussian(merged_multiplier(rounds), delta)
    return max(float(gaussian), randomized_response)


def _discretization_interval(epsilon: float, multiplier: float, n_laplace: int) -> float:
    """Returns the width of a bin of losses; wider if more than a few 100,000 would be needed.

    The loss of the Gaussian releases has stddev 1 / multiplier and hardly depends on the width; that of every
    Laplace release is rounded up by as much as one bin.
    """
    width = max(min(1e-3, epsilon / 1e3), epsilon / 2e4, 1e-4 / multiplier)
    return width / min(max(n_laplace, 1), _MAX_REFINEMENT)


def _is_laplace(spec: ReleaseSpec) -> bool:
    return spec.mechanism is Mechanism.DISCRETE_LAPLACE


def _releases(rounds: Sequence[RoundPlan]) -> Iterator[ReleasePlan]:
    return (release for plan in rounds for release in plan.releases)
