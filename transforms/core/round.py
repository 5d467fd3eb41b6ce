"""A round: the statistic of a block of rows, the plan of its noise, and the server step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import PrivacyFlowError

Releases = tuple[Release, ...]


class Round(NamedTuple):
    """One round of a protocol with states of some type S.

    A state contains nothing private but releases and what follows from them. It has the `privacy_unit` by which
    statistics are bounded, and `broadcast()` returns the part of it that statistics read.

    Attributes:
      plan: releases, noise and sensitivities.
      statistic: (block, S) -> int64, shape (plan.size,). Its sums over blocks keep the plan's sensitivities.
      step: (S, releases) -> next S; a pure function of releases and public data.
      bits: a hint that changes no sum: the statistic sees rows only as lattice integers of the state's frame at this
        many bits, so a reader may cache those instead of the rows. None if it needs the rows.
      later_bits: the `bits` of later rounds in the same frame if they differ, so that a reader can cache for those
        too; else None.
      at: (S, name of the place of rows) -> the S that the statistic gets for these rows, if it depends on the place;
        else None. A reader that doesn't know places must refuse such a round.
    """

    plan: RoundPlan
    statistic: Callable[[ClientBlock, Any], NDArray[np.int64]]
    step: Callable[[Any, Releases], Any]
    bits: int | None = None
    later_bits: int | None = None
    at: Callable[[Any, str], Any] | None = None


def measure(round_: Round, block: ClientBlock, state: Any) -> NDArray[np.int64]:
    """Computes the statistic of a block, int64 of shape (round_.plan.size,), and checks that it has the planned shape.

    Raises:
      PrivacyFlowError: if the statistic has another shape or type. Spread over the coordinates of the plan, or
        rounded, it would not keep its sensitivity.
    """
    statistic = round_.statistic(block, state)
    if statistic.shape != (round_.plan.size,) or statistic.dtype != np.int64:
        raise PrivacyFlowError(
            f"the statistic of {round_.plan.path} must be {round_.plan.size} whole numbers, as in its plan, got an "
            f"array of shape {statistic.shape} and type {statistic.dtype}; start the run from the state that the plan "
            "was made for."
        )
    return statistic
