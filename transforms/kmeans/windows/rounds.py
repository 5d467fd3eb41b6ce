"""The one round of a window of an epoch.

Every row is in the window of its date. The release of window t is sum over ages i of weight_i s_(t - i) + noise, with
s_u the relative sums and counts of FastLloyd of the rows of window u, around the centers that were known at u. So one
row moves the release of window t by weight_(t - u) times what it moves s_u, whatever was released in between, and all
releases of an epoch by at most the norm of the weights times that: `epoch_sensitivity`. The budget of a job is that of
its epoch, and the plan of each window states it.

At client level s_u adds up the clients that count in window u, and a client counts in several windows. Readers leave
out all other clients (`dapple_dp.transforms.tables.counted_clients`), and `worst_column` bounds the rest.

Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", for the statistic; see
`transforms/numerics/kmeans/recurring.py`.
"""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import Mechanism, PrivacyPlan, ReleaseSpec, RoundSpec
from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.schemas.kmeans.windows_config import WindowsFit
from dapple_dp.schemas.privacy.meaning import Meaning, Quantity, Replaced
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.stated_sensitivity import n_moved, worst_column
from dapple_dp.transforms.core.statistics import differences, lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.kmeans.lloyd.specs import allocation_as_asked
from dapple_dp.transforms.kmeans.windows import server
from dapple_dp.transforms.kmeans.windows.state import WindowState
from dapple_dp.transforms.numerics.kmeans import lloyd_rules
from dapple_dp.transforms.numerics.kmeans.recurring.windows import epoch_sensitivity
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

PATH = "windows/window"
_SUMS = Meaning(tells="where each center lies, with what remains of earlier windows", quantity=Quantity.LENGTH)
_COUNTS = Meaning(tells="how large each cluster is, with what remains of earlier windows", replaced=Replaced.LEFT)


def column_of(config: WindowsFit) -> tuple[int, ...]:
    """Returns the most by which one unit moves successive releases of an epoch; see `worst_column`."""
    return worst_column(config.weights, config.epoch.times, config.epoch.separation)


def round_specs(config: WindowsFit, n_features: int) -> tuple[RoundSpec, ...]:
    """Returns the releases of a window before calibration; `n_features` is d.

    Their sensitivities are those of a whole epoch: the most by which one unit moves all its releases together.
    """
    column, size = column_of(config), config.max_clusters
    windows = n_moved(config.weights, config.epoch.times)
    sums_share = lloyd_rules.sums_weight(n_features)
    share = 1.0 / (sums_share + 1.0)
    sums = ReleaseSpec(
        name="weighted_sums",
        shape=(size, n_features),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=epoch_sensitivity(column, differences.RELATIVE_UNITS),
        share=share * sums_share,
        windows=windows,
        meaning=_SUMS,
    )
    counts = ReleaseSpec(
        name="weighted_counts",
        shape=(size,),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=epoch_sensitivity(column, lattice.SUM_UNITS),
        share=share,
        windows=windows,
        meaning=_COUNTS,
    )
    return (RoundSpec(path=PATH, releases=(sums, counts)),)


def rounds(config: WindowsFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated round; `plan` was made from `round_specs` of the same config."""
    weights = config.weights
    statistic = functools.partial(window_statistic, weights=weights)
    step = functools.partial(server.window_step, weights=weights, index=config.epoch.index)
    return tuple(Round(each, statistic, step, at=state_at) for each in plan.rounds)


def state_at(state: WindowState, path: str) -> WindowState:
    """Returns the state for the rows of one file; raises InputError if it belongs to no window."""
    return state.at(path)


def window_statistic(block: ClientBlock, state: WindowState, *, weights: Sequence[int]) -> NDArray[np.int64]:
    """Computes relative sums per cluster, then counts, times the weight of these rows' window.

    Args:
      block: rows of one file; at client level those of clients that count in its window.
      state: for that file, see `state_at`.
      weights: of the windows, by age.
    """
    form = of_unit(state.privacy_unit).relative_sums
    return form(block, state.frame, state.neighborhoods, state.sums_bound) * weights[state.age]


def warm(centers: NDArray[np.float64], memory: Memory | None) -> RoundsProtocol:
    """Returns the round of a window from the centers of the window before, shape (k, d), and its memory."""
    return PROTOCOL._replace(initial_state=lambda job, *_: server.initial_state(job, centers, memory))


PROTOCOL = RoundsProtocol(
    title="DP-Lloyd",
    initial_state=lambda config, centers, _: server.initial_state(config, centers),
    round_specs=lambda config, n_features, _: round_specs(config, n_features),
    allocation=allocation_as_asked,
    rounds=rounds,
    from_centers=True,
)
