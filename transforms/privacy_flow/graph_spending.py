"""What the noise stages of a graph spend, against what the job has planned."""

import collections
import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from schemas.errors import PrivacyFlowError
from schemas.privacy.flow import Promise, PromisedPlan
from schemas.privacy.plan import Geometry, Mechanism, ReleasePlan, RoundPlan
from transforms.privacy import accounting


def check_chunk(drawn: Iterable[RoundPlan], persisted: tuple[RoundPlan, ...], first: int) -> int:
    """Checks the noise stages of one chunk of a run against the plan that was written before its first chunk.

    Args:
      drawn: rounds of the chunk's graph, as `check_graph` returns them.
      persisted: all rounds of the run, in order.
      first: number of rounds that earlier chunks have released.

    Returns:
      Number of rounds released after this chunk: `first` of the next one.

    Raises:
      PrivacyFlowError: if the chunk's rounds are not the next ones of the plan.
    """
    rounds = tuple(drawn)
    if rounds != persisted[first : first + len(rounds)]:
        raise PrivacyFlowError(
            f"the rounds of a chunk must be those of the run's plan from number {first} on, got "
            f"{paths(rounds) or 'none'}; run the next chunk of the same job."
        )
    return first + len(rounds)


def composed(rounds: tuple[RoundPlan, ...], promise: Promise) -> tuple[float | None, float | None]:
    """Epsilon and delta of the rounds of a graph; None for both where its job does not compose them.

    Raises:
      PrivacyFlowError: if epsilon is more than the job may spend.
    """
    for each in promise.plans:
        _spent(each, each.rounds)
    plan = promise.plans[0] if len(promise.plans) == 1 and promise.chunk is None else None
    return (None, None) if plan is None or not rounds else _spent(plan, rounds)


def _spent(plan: PromisedPlan, rounds: tuple[RoundPlan, ...]) -> tuple[float | None, float | None]:
    """Epsilon and delta of some rounds of a plan, recomposed whatever the plan says of them."""
    if plan.epsilon is None or plan.delta is None:
        return None, None
    # Runs of a sweep differ in their paths alone: the composition that is remembered is that of all of them.
    alike = tuple(dataclasses.replace(each, path="") for each in rounds)
    epsilon = accounting.spent_epsilon(alike, plan.epsilon, plan.delta)
    if plan.shares is not None:
        epsilon = accounting.with_shares(epsilon, alike)
    if not epsilon <= plan.epsilon:
        raise PrivacyFlowError(
            f"the noise stages of the graph must spend at most epsilon {plan.epsilon:g}, got {epsilon:g} at delta "
            f"{plan.delta:g}; calibrate the plan again."
        )
    return epsilon, plan.delta


def check_values(rounds: Iterable[RoundPlan]) -> None:
    """Stops at a plan whose numbers are not what they are declared to be.

    A text in place of a mechanism equals it, but would be accounted for and drawn as another one.

    Raises:
      PrivacyFlowError: naming the release.
    """
    for plan in rounds:
        for release in plan.releases:
            if not _is_plain(release):
                raise PrivacyFlowError(
                    f"the plan of {plan.path} must have a mechanism, a geometry, a whole sensitivity of at least 1 and "
                    "a finite noise multiplier above 0 for each release, got something else; calibrate it again."
                )


def _is_plain(release: ReleasePlan) -> bool:
    """Whether a plan's values are of their declared types and in their range."""
    spec = release.spec
    kinds = type(spec.mechanism) is Mechanism and type(spec.geometry) is Geometry and type(spec.sensitivity) is int
    shape = type(spec.shape) is tuple and all(type(each) is int and each >= 0 for each in spec.shape)
    noise = isinstance(release.noise_multiplier, float) and 0.0 < release.noise_multiplier < math.inf
    return kinds and shape and noise and spec.sensitivity >= 1


def check_spent(rounds: tuple[RoundPlan, ...], declared: tuple[Any, ...], promise: Promise) -> None:
    """Stops where the graph spends anything else than what was planned."""
    wanted, found = collections.Counter(promise.noised), collections.Counter(rounds)
    if found != wanted:
        extra, missing = paths((found - wanted).elements()), paths((wanted - found).elements())
        raise PrivacyFlowError(
            f"the noise stages of the graph must be those of the plan, got {extra or 'none'} besides and "
            f"{missing or 'none'} left out; draw every release that was accounted for once."
        )
    if declared != promise.declared:
        raise PrivacyFlowError(
            f"the declared mechanisms of the graph must be those that the job accounts for, in order, got "
            f"{len(declared)} where it has {len(promise.declared)}, or others; account for each."
        )


def paths(rounds: Iterable[RoundPlan]) -> str:
    """What messages call some rounds."""
    return ", ".join(each.path for each in rounds)
