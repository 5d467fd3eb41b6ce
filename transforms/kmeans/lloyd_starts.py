"""DP-Lloyd after the private start of another protocol: the start's releases give the first state of DP-Lloyd."""

import dataclasses
import functools
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import LloydStart
from dapple_dp.schemas.core.plan import PrivacyPlan, RoundSpec
from dapple_dp.schemas.kmeans.lloyd_config import DPLloydFit
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.kmeans.dp_lloyd import candidates
from dapple_dp.transforms.kmeans.dp_lloyd import rounds as dp_lloyd
from dapple_dp.transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.kmeans.lloyd.specs import allocation_as_asked
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

_PRIVATE = {
    LloydStart.FEDDP_INIT: "private_starts.feddp_start",
    LloydStart.CENTRAL_TREE: "private_starts.tree_start",
}
"""Modules of starts with releases. Each has `initial_state`, `round_specs` and `rounds` like this module, and
`leave`: (state, releases, last step, settings) -> the state of DP-Lloyd that replaces the start's last state."""


def _private_start(config: DPLloydFit) -> Any:
    """Returns the module of a job's start; None for DP-Lloyd's own starts."""
    name = _PRIVATE.get(config.dp_lloyd.start)
    return None if name is None else importlib.import_module(f"dapple_dp.transforms.kmeans.{name}")


def initial_state(config: DPLloydFit, server: NDArray[np.float64], n_features: int) -> Any:
    """Returns the state before the first round; arguments and errors as in `dp_lloyd_starts` and FedDP-KMeans."""
    start = _private_start(config)
    if config.dp_lloyd.start is LloydStart.CANDIDATES:
        return candidates.initial_state(config, server, n_features)
    begin = dp_lloyd_starts.initial_state if start is None else start.initial_state
    return begin(config, server, n_features)


def round_specs(config: DPLloydFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Returns every release of a job, before calibration.

    Args:
      config: the job.
      n_features: d.
      n_bins: number of server points, for start `feddp_init`.
    """
    start = _private_start(config)
    first = () if start is None else start.round_specs(config, n_features, n_bins)
    return (*first, *dp_lloyd.round_specs(config, n_features))


def rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a job, in order; `plan` is from `round_specs`, or from a warm start's."""
    own = dp_lloyd.rounds(config, plan)
    of_start = plan.rounds[: len(plan.rounds) - len(own)]
    if not of_start:
        return own
    start = _private_start(config)
    assert start is not None  # which has released something
    *before, last = start.rounds(config, dataclasses.replace(plan, rounds=of_start))
    leave = functools.partial(start.leave, step=last.step, settings=LloydSettings.from_config(config))
    return (*before, last._replace(step=leave), *own)


def warm(centers: NDArray[np.float64], _: object) -> RoundsProtocol:
    """Returns the Lloyd rounds of a job from centers of an earlier run, shape (k, d), feature units."""
    return PROTOCOL._replace(
        initial_state=lambda job, *_: dp_lloyd_starts.warm_state(job, centers),
        round_specs=lambda job, n_features, _: dp_lloyd.lloyd_round_specs(job, n_features),
    )


PROTOCOL = RoundsProtocol(
    title="DP-Lloyd",
    initial_state=initial_state,
    round_specs=round_specs,
    allocation=allocation_as_asked,
    rounds=rounds,
)
