"""Types of algorithms that run in rounds: the state between rounds, and the record of an algorithm."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import Allocation, PrivacyPlan, RoundSpec
from dapple_dp.schemas.core.unit import Unit
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.core.statistics.frame import Frame


class ProtocolState(Protocol):
    """The state of a protocol between rounds; it depends on private rows only through `releases`."""

    @property
    def frame(self) -> Frame:
        """The public frame of the run."""

    @property
    def privacy_unit(self) -> Unit:
        """The unit by which statistics are bounded; must be the plan's."""

    @property
    def server(self) -> NDArray[np.float64]:
        """Public points, shape (q, d), feature units."""

    @property
    def centers(self) -> NDArray[np.float64] | None:
        """Centers after the last round, shape (k, d), in the protocol's own units; None before there are any."""

    @property
    def positions(self) -> NDArray[np.float64] | None:
        """Centers from which the next round starts, shape (k, d), feature units; None before there are any."""

    @property
    def move_stddevs(self) -> NDArray[np.float64] | None:
        """Stddevs, to first order, of the last move of each center by the noise of that round alone.

        Shape (k, d), feature units; None if there was no such move.
        """

    @property
    def cells(self) -> NDArray[np.float64] | None:
        """Middles of the cells of a released histogram, shape (n, d), feature units; None without one."""

    @property
    def releases(self) -> Releases:
        """All releases so far, in order."""

    def broadcast(self) -> Self:
        """Returns the small part that statistics read."""

    def model(self) -> Any:
        """Returns the model that is published after the last round."""


class RoundsProtocol(NamedTuple):
    """An algorithm that runs in rounds, for jobs with a config of some type C.

    Attributes:
      title: its name on pages.
      initial_state: (C, public points (q, d) in feature units, d) -> state before the first round, from public data.
      round_specs: (C, d, q) -> every release before calibration, round by round.
      allocation: C -> the rule that turns shares into noise.
      rounds: (C, plan) -> calibrated rounds; the plan was made from `round_specs` of the same config.
      from_centers: True if its public points are the centers of an earlier run; it then needs no others, and not
        the width of the rows.
      reads_server: True if it is made for public server data, so that pages mention if these are missing.
      sells_cost: True if a job may buy the noisy cost of its centers.
      names: (C, releases) -> names of its clusters, or None.
      has_modes: True if its centers have modes of codes, where pages show how frequent its noisy means say they are.
      one_length: True if all its centers have the clipping norm, however long rows are.
      found_from: (C, plan, d) -> sentences on how many units a cluster needs to be found.
      unknown_noise: a sentence on why nobody knows how far noise moves its centers; "" if its models state it.
    """

    title: str
    initial_state: Callable[[Any, NDArray[np.float64], int], Any]
    round_specs: Callable[[Any, int, int], tuple[RoundSpec, ...]]
    allocation: Callable[[Any], Allocation]
    rounds: Callable[[Any, PrivacyPlan], tuple[Round, ...]]
    from_centers: bool = False
    reads_server: bool = False
    sells_cost: bool = False
    names: Callable[[Any, Releases], Any] = lambda *_: None
    has_modes: bool = False
    one_length: bool = False
    found_from: Callable[[Any, PrivacyPlan, int], tuple[str, ...]] = lambda *_: ()
    unknown_noise: str = ""
