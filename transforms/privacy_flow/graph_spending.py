"""What the noise stages of a graph spend, against what the job has planned."""

import collections
from collections.abc import Iterable
from typing import Any

from schemas.errors import PrivacyFlowError
from schemas.privacy.flow import Promise
from schemas.privacy.plan import RoundPlan
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
    plan = promise.plans[0] if len(promise.plans) == 1 else None
    if plan is None or plan.epsilon is None or plan.delta is None or not rounds:
        return None, None
    epsilon = accounting.spent_epsilon(rounds, plan.epsilon, plan.delta)
    if not epsilon <= plan.epsilon:
        raise PrivacyFlowError(
            f"the noise stages of the graph must spend at most epsilon {plan.epsilon:g}, got {epsilon:g} at delta "
            f"{plan.delta:g}; calibrate the plan again."
        )
    return epsilon, plan.delta


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
