"""FedDP-Init as the start of DP-Lloyd."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dapple_dp.schemas.core.plan import RoundSpec
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.kmeans.lloyd_config import START_SHARE, DPLloydFit
from dapple_dp.transforms.core.round import Releases
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.kmeans.dp_lloyd.starts import state_after
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.feddp_kmeans import rounds as feddp_kmeans
from dapple_dp.transforms.kmeans.feddp_kmeans import server as feddp_server
from dapple_dp.transforms.kmeans.feddp_kmeans.state import FedDPState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings
from dapple_dp.transforms.numerics.kmeans import server_points

_ROOM = 2.0
_Step = Callable[..., Any]
initial_state = feddp_server.initial_state
rounds = feddp_kmeans.rounds


def round_specs(config: DPLloydFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Returns the rounds of FedDP-Init."""
    specs = feddp_kmeans.round_specs(config, n_features, n_bins)
    total = math.fsum(release.share for spec in specs for release in spec.releases)
    scale = START_SHARE / total
    return tuple(
        dataclasses.replace(
            spec, releases=tuple(dataclasses.replace(one, share=one.share * scale) for one in spec.releases)
        )
        for spec in specs
    )


def leave(state: FedDPState, releases: Releases, step: _Step, settings: LloydSettings) -> LloydState:
    """Handles the last step of FedDP-Init: puts its centers into the domain; the projected clusters set the radius."""
    after = step(state, releases)
    n_features = after.centers.shape[1]
    frame = Frame.of_box(settings.box, n_features)
    absolute = after.centers + after.frame.lattice.center
    radius = min(_projected_radius(state), settings.radius(n_features))
    return state_after(after, settings, frame, absolute - frame.lattice.center, radius)


def _projected_radius(state: FedDPState) -> float:
    """Returns twice the RMS distance of weighted server points to their projected center, for all features.

    The projection keeps the differences between clusters; inside a cluster, other directions are assumed as wide.
    """
    if state.assigner is None:
        raise ValueError("the projected clusters depend on the weights; run that round first.")
    release: Release = state.releases[-1]
    points = state.projected_server()
    weights = server_points.significant_weights(release.decoded, release.stddev)
    squared = ((points - state.assigner.centers[state.labels()]) ** 2).sum(axis=1)
    mass = np.maximum(weights, 1e-9)
    mean = float((mass * squared).sum() / max(float(mass.sum()), 1e-9)) / points.shape[1]
    return _ROOM * math.sqrt(max(mean, 1.0) * state.server.shape[1]) * state.sum_unit
