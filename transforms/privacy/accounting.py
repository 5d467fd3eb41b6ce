"""The privacy accountant: what a plan costs, and the least noise that keeps a job inside its budget.

Public settings in, `PrivacyPlan` out; no data are read. All releases are composed as privacy loss distributions
(dp_accounting), neighbors add or remove one unit. `transforms.privacy.discretization` pays for noise on the lattice.
dp_accounting and scipy are imported where something is composed, since that takes longer than most jobs plan.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.choices import Allocation
from schemas.errors import ConfigError
from schemas.privacy.plan import Mechanism, PrivacyPlan, PrivacyUnit, ReleasePlan, ReleaseSpec, RoundPlan, RoundSpec
from transforms.numerics.privacy.noise import check_release_noise
from transforms.numerics.privacy.noise_shares import closeness_epsilon
from transforms.privacy import known_epsilons, plan_cache
from transforms.privacy.discretization import discretization_slack
from transforms.privacy.known_epsilons import merged_multiplier
from transforms.privacy.plan_limits import check_budget, check_specs

if TYPE_CHECKING:
    from dp_accounting import dp_event

_FLOAT_MARGIN = 1e-14
"""Taken off delta for the rounding of convolutions: about 1e-16 each, measured against exact compositions."""
_AIM = 1.0 - 6e-4
_LOG_LEVEL_TOLERANCE = 2e-4
_CACHED_PART = 0.99
_SMALLEST_LEVEL = 1e-12
_MAX_STEPS = 40
_MAX_COMPOSITIONS = 90
"""Levels that one search composes, at most: a bracket of `_MAX_STEPS`, and twice what bisection needs inside it."""
_MAX_REFINEMENT = 10
_MIDDLE_SCALE = 2.0**27

_Scaling = Callable[[float], tuple[RoundPlan, ...]]


def events(rounds: Sequence[RoundPlan]) -> "dp_event.DpEvent":
    """One event per release, in order.

    A Laplace release bounds its L1 sensitivity, so it is pure epsilon-DP with epsilon = 1 / noise_multiplier (its
    scale is rounded up to an integer, which only lowers epsilon). Its event is the discrete Laplace mechanism with
    sensitivity 1, whose privacy loss is always +epsilon or -epsilon: the pair of randomized response, which
    dominates every pure epsilon-DP mechanism, so it also holds for a vector that changes in several coordinates.

    Args:
      rounds: calibrated rounds.

    Source: Kairouz, Oh, Viswanath (2015), "The Composition Theorem for Differential Privacy", for the domination.
    """
    from dp_accounting import dp_event

    return dp_event.ComposedDpEvent([_event(release) for release in _releases(rounds)])


def compose_epsilon(rounds: Sequence[RoundPlan], delta: float, target_epsilon: float) -> float:
    """Epsilon of all rounds at `delta`, as if Gaussian noise were continuous.

    Gaussian releases compose exactly into one with multiplier (sum of 1 / z^2)^(-1/2), so that is done first.

    Args:
      rounds: calibrated rounds, adaptively composed.
      delta: in (0, 1).
      target_epsilon: > 0; sets the resolution, in which the figure is an upper bound.

    Returns:
      Infinity where `delta` is too small for float64.
    """
    from dp_accounting import NeighboringRelation, dp_event
    from dp_accounting.pld import PLDAccountant

    laplace = collections.Counter(1.0 / each.noise_multiplier for each in _releases(rounds) if _is_laplace(each.spec))
    multiplier = merged_multiplier(rounds)
    interval = _discretization_interval(target_epsilon, multiplier, laplace.total())
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, interval)
    # From an epsilon of 710 its exponential is infinite, and the inverse, the chance of the smaller loss, the right 0.
    with np.errstate(over="ignore"):
        for pure_epsilon, count in sorted(laplace.items()):
            accountant.compose(dp_event.DiscreteLaplaceDpEvent(pure_epsilon, 1), count)
    if multiplier < math.inf:
        accountant.compose(dp_event.GaussianDpEvent(multiplier))
    return float(accountant.get_epsilon(delta - _FLOAT_MARGIN)) if delta > _FLOAT_MARGIN else math.inf


def stated_epsilon(rounds: Sequence[RoundPlan], delta: float) -> float:
    """Epsilon of calibrated rounds at `delta`, the slack for discrete noise included."""
    target = _single_epsilon(tuple(rounds), delta)
    slack = discretization_slack(rounds, 2.0 * target, delta)
    return compose_epsilon(rounds, delta - slack.delta, target) + slack.epsilon


def calibrate(
    unit: PrivacyUnit, rounds: Sequence[RoundSpec], epsilon: float, delta: float, allocation: Allocation
) -> PrivacyPlan:
    """The least noise with which all rounds together stay within (epsilon, delta).

    One number, the level, scales all shares together until the composed epsilon, the slack for discrete noise
    included, is at most the target and, unless delta is of the order of epsilon, within 0.2% of it.
    Allocation `tuned`: the noise multiplier of a release is 1 / (level * sqrt(share / sum of shares)).
    Allocation `paper`: its nominal epsilon is level * share, and the multiplier is sqrt(2 log(1.25 / delta)) /
    nominal epsilon (Gaussian) or 1 / nominal epsilon (Laplace); what that spends is for the composition to say.
    Levels found before are kept in memory and on disk, with what they spend; both are checked before they are used.

    Args:
      unit: what one neighbor adds or removes.
      rounds: every release of the run, in order; at least one.
      epsilon: > 0, finite; the total of the run.
      delta: in [1e-12, 1); the total of the run.
      allocation: how shares become noise.

    Returns:
      A plan with `epsilon` at most the target.

    Raises:
      ConfigError: if epsilon, delta or a release is out of range, or the noise would not fit the lattice.
      UnsupportedEventError: if the allocation or the accountant has no rule for a release.

    Source: Dong, Roth, Su (2022), "Gaussian Differential Privacy", Corollary 3.3, for `tuned`; Scott, Lampert,
      Saulpic (2025), "Differentially private federated k-means clustering with server-side data", Section 2 and
      Dwork, Roth (2014), Theorem A.1, for `paper`.
    """
    found = _calibrate(unit, tuple(rounds), float(epsilon), float(delta), Allocation(allocation))
    known = [release.spec.meaning for each in found.rounds for release in each.releases]
    return found if known == [spec.meaning for each in rounds for spec in each.releases] else _meant(found, rounds)


def _meant(plan: PrivacyPlan, specs: Sequence[RoundSpec]) -> PrivacyPlan:
    """The plan with the meanings of these releases: one that was found before is equal in law alone."""

    def of_round(found: RoundPlan, spec: RoundSpec) -> RoundPlan:
        pairs = zip(found.releases, spec.releases, strict=True)
        return dataclasses.replace(found, releases=tuple(dataclasses.replace(each, spec=own) for each, own in pairs))

    return dataclasses.replace(plan, rounds=tuple(map(of_round, plan.rounds, specs)))


def nearly_calibrated(unit: PrivacyUnit, rounds: Sequence[RoundSpec], epsilon: float, delta: float) -> PrivacyPlan:
    """The plan of `calibrate`, allocation `tuned`, but for the slack of discrete noise; to simulate, never to spend.

    Gaussian noise composes in closed form, so that many plans can be compared without a search for each.

    Args:
      unit: what one neighbor adds or removes.
      rounds: every release of a run, in order; Gaussian.
      epsilon: > 0, finite.
      delta: in [1e-12, 1).

    Returns:
      A plan whose epsilon is infinite, so that nothing takes it for a guarantee.

    Raises:
      ConfigError: as `calibrate` does.
    """
    specs = tuple(rounds)
    check_budget(epsilon, delta)
    check_specs(specs, Allocation.TUNED)
    found = _tuned(specs)(_first_level(specs, epsilon, delta, Allocation.TUNED))
    _check_lattice(found, epsilon)
    return PrivacyPlan(unit=unit, epsilon=math.inf, delta=delta, discretization_slack=0.0, rounds=found)


@functools.lru_cache(maxsize=64)
def spent_epsilon(rounds: tuple[RoundPlan, ...], epsilon: float, delta: float) -> float:
    """Composed epsilon of calibrated rounds with the slack for discrete noise, as `calibrate` figures it.

    Args:
      rounds: of a run, in order.
      epsilon: > 0; the target of the run; sets the resolution.
      delta: the target of the run.
    """
    return _spent(rounds, epsilon, delta)


def with_shares(epsilon: float, rounds: Sequence[RoundPlan]) -> float:
    """Epsilon of rounds whose noise is a sum of shares of senders, from that of single discrete Gaussians."""
    return math.nextafter(epsilon + closeness_epsilon(rounds), math.inf)


def describe(plan: PrivacyPlan) -> list[dict[str, Any]]:
    """One row of plain data per release, in order, as `privacy.json` lists them."""
    return [
        {
            "path": f"{each.path}/{release.spec.name}",
            **({"tells": release.spec.meaning.tells} if release.spec.meaning.tells else {}),
            "mechanism": str(release.spec.mechanism),
            "geometry": str(release.spec.geometry),
            "shape": list(release.spec.shape),
            "sensitivity_lattice": release.spec.sensitivity,
            "noise_multiplier": release.noise_multiplier,
            "noise_stddev_lattice": release.noise_stddev,
        }
        for each in plan.rounds
        for release in each.releases
    ]


@functools.lru_cache(maxsize=64)
def _calibrate(
    unit: PrivacyUnit, specs: tuple[RoundSpec, ...], epsilon: float, delta: float, allocation: Allocation
) -> PrivacyPlan:
    check_budget(epsilon, delta)
    check_specs(specs, allocation)
    at_level = _tuned(specs) if allocation is Allocation.TUNED else _paper(specs, delta)
    guess = functools.partial(_first_level, specs, epsilon, delta, allocation)
    request = {
        "unit": unit,
        "rounds": [{"path": each.path, "releases": [part.law for part in each.releases]} for each in specs],
        "epsilon": epsilon,
        "delta": delta,
        "allocation": allocation,
    }
    digest = plan_cache.digest(request)
    found = _recheck(plan_cache.load(digest), at_level, guess, epsilon, delta)
    if found is None:
        found = _search(at_level, guess(), epsilon, delta)
        plan_cache.store(digest, plan_cache.StoredLevel(*found))
    level, spent = found
    rounds = at_level(level)
    known_epsilons.propose(rounds, epsilon, delta, spent)
    _check_lattice(rounds, epsilon)
    slack = discretization_slack(rounds, epsilon, delta).delta
    return PrivacyPlan(unit=unit, epsilon=spent, delta=delta, discretization_slack=slack, rounds=rounds)


def _check_lattice(rounds: tuple[RoundPlan, ...], epsilon: float) -> None:
    """Refuses noise that the noise stage would refuse."""
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
    """Scaling by Gaussian weights; the level is 1 / (noise multiplier of the whole run)."""
    total = math.fsum(release.share for each in specs for release in each.releases)
    return lambda level: _scaled(specs, lambda spec: math.sqrt(total / spec.share) / level)


def _paper(specs: tuple[RoundSpec, ...], delta: float) -> _Scaling:
    """Scaling of nominal epsilons; the level is nominal epsilon / share."""
    gaussian = math.sqrt(2.0 * math.log(1.25 / delta))
    return lambda level: _scaled(specs, lambda spec: (1.0 if _is_laplace(spec) else gaussian) / (level * spec.share))


def _scaled(specs: tuple[RoundSpec, ...], multiplier: Callable[[ReleaseSpec], float]) -> tuple[RoundPlan, ...]:
    return tuple(
        RoundPlan(
            path=each.path,
            releases=tuple(ReleasePlan(spec=spec, noise_multiplier=multiplier(spec)) for spec in each.releases),
        )
        for each in specs
    )


def _first_level(specs: tuple[RoundSpec, ...], epsilon: float, delta: float, allocation: Allocation) -> float:
    """Where the search starts: exact but for slack and resolution if tuned, within a small factor if paper."""
    if allocation is Allocation.TUNED:
        from dp_accounting import gaussian_mechanism

        with np.errstate(divide="ignore"):
            return 1.0 / float(gaussian_mechanism.get_sigma_gaussian(_AIM * epsilon, delta))
    return 1.4 * epsilon / math.fsum(release.share for each in specs for release in each.releases)


def _search(at_level: _Scaling, guess: float, epsilon: float, delta: float) -> tuple[float, float]:
    """The highest level tried, and what it spends, of those that meet the budget."""
    spent: dict[float, float] = {}

    def excess(log_level: float) -> float:
        """Logarithm of spent / aim, bounded."""
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
    """The error for a search that has no end, or none within the budget."""
    return ConfigError(
        f"epsilon and delta must be such that some noise meets them, got {epsilon:g} and {delta:g}; "
        "raise epsilon, or lower a delta that is close to it."
    )


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float] | None:
    """Two points around the zero of `excess`, which grows about as fast as its argument or faster; None if lost."""
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
    stored: plan_cache.StoredLevel | None,
    at_level: _Scaling,
    guess: Callable[[], float],
    epsilon: float,
    delta: float,
) -> tuple[float, float] | None:
    """A stored level with what it spends; None unless that is true, and just within the budget."""
    if stored is None or not _SMALLEST_LEVEL < stored.level < 1.0 / _SMALLEST_LEVEL:
        return None
    rounds = at_level(stored.level)
    spent = stored.epsilon
    if not known_epsilons.is_tight(rounds, spent, epsilon, delta):
        first = guess()
        if not first / 100.0 < stored.level < first * 100.0:
            return None
        spent = _spent(rounds, epsilon, delta)
    return (stored.level, spent) if _CACHED_PART * epsilon <= spent <= epsilon else None


def _spent(rounds: tuple[RoundPlan, ...], epsilon: float, delta: float) -> float:
    """Composed epsilon with its slack; only a lower bound where that is beyond twice `epsilon`.

    The lower bound, of single events, keeps distributions small while the search is far from the target.
    """
    known = known_epsilons.recall(rounds, epsilon, delta)
    if known is not None:
        return known
    slack = discretization_slack(rounds, epsilon, delta)
    at_least = _single_epsilon(rounds, delta) + slack.epsilon
    if at_least > 2.0 * epsilon:
        return at_least
    return compose_epsilon(rounds, delta - slack.delta, epsilon) + slack.epsilon


def _single_epsilon(rounds: tuple[RoundPlan, ...], delta: float) -> float:
    """Exact epsilon of the Gaussian releases together or of the worst Laplace release, whichever is larger."""
    from dp_accounting import gaussian_mechanism

    laplace = max((1.0 / each.noise_multiplier for each in _releases(rounds) if _is_laplace(each.spec)), default=0.0)
    randomized_response = laplace + math.log(max(1.0 - delta * (1.0 + math.exp(-laplace)), math.ulp(0.0)))
    with np.errstate(divide="ignore"):
        gaussian = gaussian_mechanism.get_epsilon_gaussian(merged_multiplier(rounds), delta)
    return max(float(gaussian), randomized_response)


def _discretization_interval(epsilon: float, multiplier: float, n_laplace: int) -> float:
    """Width of a bin of losses; wider where more than a few 100,000 would be needed.

    The loss of the Gaussian releases has stddev 1 / multiplier and hardly depends on the width; that of every
    Laplace release is rounded up by as much as one bin.
    """
    width = max(min(1e-3, epsilon / 1e3), epsilon / 2e4, 1e-4 / multiplier)
    return width / min(max(n_laplace, 1), _MAX_REFINEMENT)


def _event(release: ReleasePlan) -> "dp_event.DpEvent":
    from dp_accounting import dp_event

    if _is_laplace(release.spec):
        return dp_event.DiscreteLaplaceDpEvent(1.0 / release.noise_multiplier, 1)
    return dp_event.GaussianDpEvent(release.noise_multiplier)


def _is_laplace(spec: ReleaseSpec) -> bool:
    return spec.mechanism is Mechanism.DISCRETE_LAPLACE


def _releases(rounds: Sequence[RoundPlan]) -> Iterator[ReleasePlan]:
    return (release for each in rounds for release in each.releases)
