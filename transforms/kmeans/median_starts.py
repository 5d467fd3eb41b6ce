"""k-medians after any start of DP-Lloyd: the start's releases give the first state of k-medians."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import PrivacyPlan, RoundSpec
from dapple_dp.schemas.kmeans.medians_config import DPMediansFit
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.kmeans import lloyd_starts
from dapple_dp.transforms.kmeans.dp_medians import rounds as dp_medians
from dapple_dp.transforms.kmeans.dp_medians import server
from dapple_dp.transforms.kmeans.dp_medians.state import MedianSettings, MedianState
from dapple_dp.transforms.kmeans.lloyd.box import rounds_frame
from dapple_dp.transforms.kmeans.lloyd.specs import allocation_as_asked
from dapple_dp.transforms.rounds.protocol import RoundsProtocol

_MEANS = "dp_lloyd/lloyd_"
"""Path of the rounds that medians replace."""


def initial_state(config: DPMediansFit, points: NDArray[np.float64], n_features: int) -> Any:
    """Returns the state before the first round; arguments and errors as in `lloyd_starts`."""
    start: Any = lloyd_starts.initial_state(config.start, points, n_features)
    return start if config.dp_lloyd.starts_privately else warm_state(config, start.positions)


def warm_state(config: DPMediansFit, centers: NDArray[np.float64]) -> MedianState:
    """Returns the state before the first round from known centers, shape (k, d), feature units."""
    frame = rounds_frame(config, centers.shape[1])
    return server.initial_state(MedianSettings.from_config(config), frame, centers)


def round_specs(config: DPMediansFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Returns every release of a job, before calibration; arguments as in `lloyd_starts`."""
    specs = lloyd_starts.round_specs(config.start, n_features, n_bins)
    start = [spec for spec in specs if not spec.path.startswith(_MEANS)]
    spent = math.fsum(release.share for each in start for release in each.releases)
    return (*start, *dp_medians.round_specs(config, n_features, 1.0 - spent))


def rounds(config: DPMediansFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of a job, in order; `plan` is from `round_specs`, or from a warm start's."""
    own = dp_medians.rounds(config, plan)
    of_start = plan.rounds[: len(plan.rounds) - len(own)]
    if not of_start:
        return own
    *before, last = lloyd_starts.rounds(config.start, dataclasses.replace(plan, rounds=of_start))
    leave = functools.partial(_leave, step=last.step, settings=MedianSettings.from_config(config))
    return (*before, last._replace(step=leave), *own)


def _leave(state: Any, releases: Releases, step: Callable[..., Any], settings: MedianSettings) -> MedianState:
    """Handles the last step of a start: puts its centers into the domain."""
    after = step(state, releases)
    return server.initial_state(settings, after.frame, after.positions, after.releases)


def warm(centers: NDArray[np.float64], _: object) -> RoundsProtocol:
    """Returns the rounds of a job from centers of an earlier run, shape (k, d), feature units."""
    return PROTOCOL._replace(
        initial_state=lambda job, *_: warm_state(job, centers),
        round_specs=lambda job, n_features, _: dp_medians.round_specs(job, n_features, 1.0),
    )


PROTOCOL = RoundsProtocol(
    title="DP-Medians",
    unknown_noise="How far noise moves a center is unknown: k-medians adds noise in many steps, and nothing released "
    "shows how densely rows lie around their median.",
    initial_state=initial_state,
    round_specs=round_specs,
    allocation=allocation_as_asked,
    rounds=rounds,
)
