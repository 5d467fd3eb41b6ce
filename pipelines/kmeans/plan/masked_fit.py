"""What a fit with `trust: masked` promises beside its noise, and what shares of noise cost."""

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
    """The entry `masked` of the guarantee: scheme, bytes of messages, coalitions, and shares of noise if there are any.

    Args:
      masked: settings of the job.
      plan: what it spends.
    """
    found: dict[str, Any] = {
        "scheme": str(masked.scheme),
        "noise_by": str(masked.noise_by),
        "message_bytes": {each.path: message_bytes(each.size) for each in plan.rounds},
        "roles": SIMULATED,
        "coalitions": coalitions(masked),
    }
    if masked.shares is not None:
        cost = noise_shares.closeness_epsilon(plan.rounds)
        found["shares"] = dataclasses.asdict(masked.shares) | {"closeness_epsilon": cost}
        found["neighbors"] = _LEFT_OUT
    return found


def with_shares(plan: PrivacyPlan, target: float) -> PrivacyPlan:
    """The plan where senders split its noise: how close sums of shares are to the noise is paid from epsilon.

    Raises:
      ConfigError: if a release has noise that cannot be split, or nothing of the target is left to pay with.
    """
    noise_shares.check_divisible(plan.rounds)
    epsilon = noise_shares.with_shares(plan.epsilon, plan.rounds)
    if epsilon > target:
        raise ConfigError(
            f"privacy.epsilon must be more than sums of noise shares cost, got {target:g}; raise it, or release less."
        )
    return dataclasses.replace(plan, epsilon=epsilon)
