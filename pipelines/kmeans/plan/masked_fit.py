"""Guarantees of a fit with `trust: masked` besides its noise, and the cost of noise shares."""

import dataclasses
from typing import Any

from dapple_dp.schemas.core.plan import PrivacyPlan
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.masked.coalitions import coalitions
from dapple_dp.schemas.masked.config import MaskedConfig
from dapple_dp.schemas.privacy.statement import SIMULATED
from dapple_dp.transforms.numerics.masked import noise_shares
from dapple_dp.transforms.numerics.masked.shared_masks import message_bytes

_LEFT_OUT = "one unit is left out of its sender's statistic; who sends is public, and the same in both"


def masked_statement(masked: MaskedConfig, plan: PrivacyPlan) -> dict[str, Any]:
    """The guarantee's `masked` entry: scheme, message sizes, coalitions, and noise shares if there are any.

    Args:
      masked: masked settings of the job.
      plan: privacy plan of the job.
    """
    result: dict[str, Any] = {
        "scheme": str(masked.scheme),
        "noise_by": str(masked.noise_by),
        "message_bytes": {each.path: message_bytes(each.size) for each in plan.rounds},
        "roles": SIMULATED,
        "coalitions": coalitions(masked),
    }
    if masked.shares is not None:
        cost = noise_shares.closeness_epsilon(plan.rounds)
        result["shares"] = dataclasses.asdict(masked.shares) | {"closeness_epsilon": cost}
        result["neighbors"] = _LEFT_OUT
    return result


def with_shares(plan: PrivacyPlan, target: float) -> PrivacyPlan:
    """Adds the cost of noise shares to a plan's epsilon: sums of shares only approximate the noise.

    Raises:
      ConfigError: if a release has noise that can't be split, or the cost exceeds the target.
    """
    noise_shares.check_divisible(plan.rounds)
    epsilon = noise_shares.with_shares(plan.epsilon, plan.rounds)
    if epsilon > target:
        raise ConfigError(
            f"privacy.epsilon must be more than sums of noise shares cost, got {target:g}; raise it, or release less."
        )
    return dataclasses.replace(plan, epsilon=epsilon)
