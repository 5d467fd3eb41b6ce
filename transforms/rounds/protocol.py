"""What a protocol that runs in rounds is made of; it knows neither Beam nor where rows are."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from schemas.choices import Allocation
from schemas.errors import PrivacyFlowError
from schemas.privacy.plan import PrivacyPlan, RoundPlan, RoundSpec
from schemas.privacy.release import Release
from schemas.privacy.unit import Unit
from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics.frame import Frame

Releases = tuple[Release, ...]


class ProtocolState(Protocol):
    """What travels between rounds: no private number but in `releases` and what follows from them."""

    @property
    def frame(self) -> Frame:
        """Public frame of the run."""

    @property
    def privacy_unit(self) -> Unit:
        """By which statistics of it are bounded; the plan's unit must be the same."""

    @property
    def server(self) -> NDArray[np.float64]:
        """Public points, shape (q, d), feature units."""

    @property
    def centers(self) -> NDArray[np.float64] | None:
        """Centers after the last round, shape (k, d), in the protocol's own units; None before there are some."""

    @property
    def positions(self) -> NDArray[np.float64] | None:
        """Centers in feature units, shape (k, d), that the next round starts from; None before there are some."""

    @property
    def center_stddevs(self) -> NDArray[np.float64] | None:
        """By how much the noise of the last round moves each coordinate of each center, feature units, shape (k, d)."""

    @property
    def cells(self) -> NDArray[np.float64] | None:
        """Middles of the cells of a released histogram, shape (n, d), feature units; None without such a one."""

    @property
    def releases(self) -> Releases:
        """All so far, in order."""

    def broadcast(self) -> Self:
        """What statistics read of it: a small part."""

    def model(self) -> Any:
        """The model published after the last round."""


class Round(NamedTuple):
    """One round of a protocol whose state is of some type S.

    Attributes:
      plan: releases, noise and sensitivities.
      statistic: (block, S) -> int64, shape (plan.size,); its sums over blocks keep the plan's sensitivities.
      step: (S, releases) -> next S; a pure function of releases and public data.
      bits: if the statistic knows rows only by what the frame of the state makes of them at this many bits, these bits;
        workers may then keep such integers. None if it reads rows otherwise.
      later_bits: bits at which later rounds know the rows in the same frame, if these are others: workers keep rows for
        them while they read them for this round. None if they are the same.
      at: (S, path of a file) -> the S that the statistic is given for its rows; None where it is the same for all.
    """

    plan: RoundPlan
    statistic: Callable[[ClientBlock, Any], NDArray[np.int64]]
    step: Callable[[Any, Releases], Any]
    bits: int | None = None
    later_bits: int | None = None
    at: Callable[[Any, str], Any] | None = None


def measure(round_: Round, block: ClientBlock, state: Any) -> NDArray[np.int64]:
    """The statistic of a block, as everything that adds statistics up asks for it.

    Returns:
      int64, shape (round_.plan.size,).

    Raises:
      PrivacyFlowError: if the statistic has another shape or type: spread over the coordinates of the plan, or
        rounded, it would not keep its sensitivity.
    """
    found = round_.statistic(block, state)
    if found.shape != (round_.plan.size,) or found.dtype != np.int64:
        raise PrivacyFlowError(
            f"the statistic of {round_.plan.path} must be {round_.plan.size} whole numbers, as in its plan, got an "
            f"array of shape {found.shape} and type {found.dtype}; start the run from the state that the plan was made "
            "for."
        )
    return found


class RoundsProtocol(NamedTuple):
    """An algorithm as what its rounds release and compute, for jobs with a config of some type C.

    Attributes:
      title: how pages call it.
      initial_state: (C, public points (q, d) in feature units, d) -> state before the first round, from public data.
      round_specs: (C, d, q) -> every release before calibration, round by round.
      allocation: C -> how the shares of releases become noise.
      rounds: (C, plan) -> calibrated rounds; the plan was made from `round_specs` of the same config.
      from_centers: whether its public points are the centers that an earlier run released, so that it asks for no
        others, nor for the width of the rows.
      computes: what its server steps compute, in words that complete "Server steps compute".
      reads_server: whether it is made for public server data, so that their lack is worth a word.
      sells_cost: whether a job may buy the noisy cost of its centers.
      names: (C, releases) -> what its clusters are called, or None.
      one_length: whether it makes centers as long as the clipping norm, however long rows are.
      found_from: (C, plan, d) -> sentences on how many units a cluster needs to be found.
    """

    title: str
    initial_state: Callable[[Any, NDArray[np.float64], int], Any]
    round_specs: Callable[[Any, int, int], tuple[RoundSpec, ...]]
    allocation: Callable[[Any], Allocation]
    rounds: Callable[[Any, PrivacyPlan], tuple[Round, ...]]
    from_centers: bool = False
    computes: str = "centers from noised sums and counts and from public data"
    reads_server: bool = False
    sells_cost: bool = False
    names: Callable[[Any, Releases], Any] = lambda *_: None
    one_length: bool = False
    found_from: Callable[[Any, PrivacyPlan, int], tuple[str, ...]] = lambda *_: ()
