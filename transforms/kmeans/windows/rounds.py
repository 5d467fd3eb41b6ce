"""The one round of a window of an epoch.

Every row lies in the window of its date. The release of window t is sum over ages i of weight_i s_(t - i) + noise, with
s_u the relative sums and counts of FastLloyd of the rows of window u, around the centers that were known at u. So one
row moves the release of window t by weight_(t - u) times what it moves s_u, whatever was released in between, and all
releases of an epoch by at most the norm of the weights times that: `epoch_sensitivity`. The budget of a job is that of
its epoch, and the plan of each window states it.

At client level s_u sums what clients that count in window u add, and a client counts in several windows. Readers leave
out the rows of all others (`transforms.tables.counted_clients`), and `worst_column` says what that leaves.

Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", for the statistic; see `transforms.numerics.kmeans.recurring`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.privacy.plan import Mechanism, PrivacyPlan, ReleaseSpec, RoundSpec
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.windows import server as server
from transforms.kmeans.windows.state import WindowState
from transforms.numerics.kmeans import lloyd_rules
from transforms.numerics.kmeans.recurring.windows import epoch_sensitivity
from transforms.numerics.statistics import lattice, relative_sums
from transforms.numerics.statistics.by_unit import of_unit
from transforms.numerics.tables.participation import n_moved, worst_column
from transforms.rounds.protocol import Round

PATH = "windows/window"


def weights_of(config: DPLloydFit) -> tuple[int, ...]:
    """Weight of the statistic of each age in a release; the same in all windows of an epoch."""
    if not config.weights:
        raise ValueError("weights must be asked for with an epoch and a memory; give both sections.")
    return config.weights


def column_of(config: DPLloydFit) -> tuple[int, ...]:
    """By how much one unit moves successive releases of an epoch at most, see `worst_column`."""
    if config.epoch is None:
        raise ValueError("a column must be asked for of a window of an epoch; give the section.")
    return worst_column(weights_of(config), config.epoch.times, config.epoch.separation)


def epoch_facts(config: DPLloydFit, index: int | None = None) -> dict[str, Any]:
    """What outputs and ledger say of the epoch of a job: its calendar, its weights, and what all windows may spend.

    Args:
      config: the job.
      index: of the window that it is said of; None for that of the job.
    """
    section = config.recurring
    if section is None or section.epoch is None:
        raise ValueError("facts must be asked for of a window of an epoch; give the section.")
    epoch, privacy = section.epoch, config.privacy
    budget = {"epsilon": privacy.epsilon, "delta": privacy.delta, "weights": list(weights_of(config))}
    window = {} if index is None else {"window": epoch.date_of(index), "index": index}
    return epoch.to_json() | budget | window


def round_specs(config: DPLloydFit, n_features: int) -> tuple[RoundSpec, ...]:
    """The releases of a window before calibration; `n_features` is d.

    Their sensitivities are those of a whole epoch: what one unit moves all its releases together.
    """
    column, size = column_of(config), config.max_clusters
    windows = n_moved(weights_of(config), config.epoch.times if config.epoch else 1)
    sums_share = lloyd_rules.sums_weight(config.dp_lloyd.variant, n_features)
    share = 1.0 / (sums_share + 1.0)
    sums = ReleaseSpec(
        name="weighted_sums",
        shape=(size, n_features),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=epoch_sensitivity(column, relative_sums.RELATIVE_UNITS),
        share=share * sums_share,
        windows=windows,
    )
    counts = ReleaseSpec(
        name="weighted_counts",
        shape=(size,),
        mechanism=Mechanism.DISCRETE_GAUSSIAN,
        sensitivity=epoch_sensitivity(column, lattice.SUM_UNITS),
        share=share,
        windows=windows,
    )
    return (RoundSpec(path=PATH, releases=(sums, counts)),)


def rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated round; `plan` was made from `round_specs` of the same config."""
    weights = weights_of(config)
    statistic = functools.partial(window_statistic, weights=weights)
    step = functools.partial(server.window_step, weights=weights)
    return tuple(Round(each, statistic, step, at=state_at) for each in plan.rounds)


def state_at(state: WindowState, path: str) -> WindowState:
    """The state for the rows of one file; raises InputError if it is of no window."""
    return state.at(path)


def window_statistic(block: ClientBlock, state: WindowState, *, weights: Sequence[int]) -> NDArray[np.int64]:
    """Relative sums per cluster, then counts, times the weight of the window of these rows.

    Args:
      block: rows of one file; at client level those of clients that count in its window.
      state: for that file, see `state_at`.
      weights: of the ages.
    """
    form = of_unit(state.privacy_unit).relative_sums
    return form(block, state.frame, state.neighborhoods, state.sums_bound) * weights[state.age]
