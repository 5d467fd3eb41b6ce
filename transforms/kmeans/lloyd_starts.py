"""DP-Lloyd after the private start of another protocol: its releases first, then the state of DP-Lloyd made of them."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.choices import LloydStart
from schemas.kmeans.lloyd_config import DPLloydFit
from schemas.privacy.plan import PrivacyPlan, RoundSpec
from schemas.privacy.release import Release
from transforms.kmeans.central_tree import rounds as central_tree
from transforms.kmeans.central_tree import server as tree_server
from transforms.kmeans.central_tree.state import TreeSettings, TreeState
from transforms.kmeans.dp_lloyd import candidates
from transforms.kmeans.dp_lloyd import rounds as dp_lloyd
from transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from transforms.kmeans.dp_lloyd.state import LloydState
from transforms.kmeans.feddp_kmeans import rounds as feddp_kmeans
from transforms.kmeans.feddp_kmeans import server as feddp_server
from transforms.kmeans.feddp_kmeans.state import FedDPState
from transforms.kmeans.lloyd.box import LloydSettings, box_frame, lattice_centers, lattice_radius
from transforms.kmeans.lloyd.state import MeansState
from transforms.numerics.kmeans import folding, server_points
from transforms.numerics.statistics.frame import Frame
from transforms.rounds.protocol import Releases, Round

_ROOM = 2.0
_Step = Callable[..., Any]


class PrivateStart(NamedTuple):
    """Another protocol as the start of DP-Lloyd.

    Attributes:
      initial_state: (config, server points, d) -> state before its first round.
      round_specs: (config, d, number of server points) -> its releases, whose shares add up to that of the start.
      rounds: (config, plan of these releases) -> its calibrated rounds.
      leave: (state, releases, its last step, settings) -> the state of DP-Lloyd in place of its own last state.
    """

    initial_state: Callable[[DPLloydFit, NDArray[np.float64], int], Any]
    round_specs: Callable[[DPLloydFit, int, int], tuple[RoundSpec, ...]]
    rounds: Callable[[DPLloydFit, PrivacyPlan], tuple[Round, ...]]
    leave: Callable[..., LloydState]


def initial_state(
    config: DPLloydFit, server: NDArray[np.float64], n_features: int
) -> LloydState | FedDPState | TreeState:
    """State before the first round; arguments and errors as of `dp_lloyd_starts` and FedDP-KMeans."""
    start = _STARTS.get(config.dp_lloyd.start)
    if config.dp_lloyd.start is LloydStart.CANDIDATES:
        return candidates.initial_state(config, server, n_features)
    begin = dp_lloyd_starts.initial_state if start is None else start.initial_state
    return begin(config, server, n_features)


def round_specs(config: DPLloydFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Every release of a job, before calibration.

    Args:
      config: the job.
      n_features: d.
      n_bins: number of server points, for start `feddp_init`.
    """
    start = _STARTS.get(config.dp_lloyd.start)
    first = () if start is None else start.round_specs(config, n_features, n_bins)
    return (*first, *dp_lloyd.round_specs(config, n_features))


def rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """The calibrated rounds of a job, in order; `plan` was made from `round_specs`, or from those of a warm start."""
    own = dp_lloyd.rounds(config, plan)
    of_start = plan.rounds[: len(plan.rounds) - len(own)]
    if not of_start:
        return own
    start = _STARTS[config.dp_lloyd.start]
    *before, last = start.rounds(config, dataclasses.replace(plan, rounds=of_start))
    leave = functools.partial(start.leave, step=last.step, settings=LloydSettings.from_config(config))
    return (*before, last._replace(step=leave), *own)


def _feddp_specs(config: DPLloydFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """The rounds of FedDP-Init."""
    specs = feddp_kmeans.round_specs(config, n_features, n_bins)
    total = math.fsum(release.share for spec in specs for release in spec.releases)
    scale = config.dp_lloyd.start_share / total
    return tuple(
        dataclasses.replace(
            spec, releases=tuple(dataclasses.replace(one, share=one.share * scale) for one in spec.releases)
        )
        for spec in specs
    )


def _leave_feddp(state: FedDPState, releases: Releases, step: _Step, settings: LloydSettings) -> LloydState:
    """After the last step of FedDP-Init: its centers in the domain, and a radius from the projected clusters."""
    after = step(state, releases)
    n_features = after.centers.shape[1]
    frame = Frame.of_box(settings.box, n_features)
    absolute = after.frame.restore(after.centers + after.frame.lattice.center)
    radius = min(_projected_radius(state), settings.radius(n_features))
    return _lloyd_state(after, settings, frame, absolute - frame.lattice.center, radius)


def _begin_tree(config: DPLloydFit, server: NDArray[np.float64], n_features: int) -> TreeState:
    """The tree in the frame of the domain."""
    return tree_server.start_state(TreeSettings.from_config(config), box_frame(config, n_features))


def _tree_specs(config: DPLloydFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """The rounds of the tree, which needs no server points."""
    return central_tree.start_specs(config, n_features, config.dp_lloyd.start_share)


def _tree_rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    return central_tree.start_rounds(plan.rounds)


def _leave_tree(state: TreeState, releases: Releases, step: _Step, settings: LloydSettings) -> LloydState:
    """After the last step of the tree: its centers in the domain."""
    after = step(state, releases)
    radius = settings.first_radius(after.centers.shape[1])
    return _lloyd_state(after, settings, after.frame, after.centers, radius)


def _lloyd_state(
    after: MeansState, settings: LloydSettings, frame: Frame, centers: NDArray[np.float64], radius: float
) -> LloydState:
    """The state of DP-Lloyd with the centers of a start, folded into the domain.

    Args:
      after: last state of the start.
      settings: of the Lloyd rounds.
      frame: of these rounds.
      centers: shape (k, d), measured from the middle of the domain, feature units.
      radius: of the first Lloyd round, feature units.
    """
    return LloydState(
        settings=settings,
        frame=frame,
        server=after.server[:0],
        centers=lattice_centers(frame, folding.fold(centers, settings.box.half_side)),
        radius=lattice_radius(frame, radius),
        n_rows=after.n_rows,
        sizes=after.sizes,
        releases=after.releases,
    )


def _projected_radius(state: FedDPState) -> float:
    """Twice the root mean squared distance of weighted server points to their projected center, for all features.

    The projection keeps what distinguishes clusters; inside a cluster the other directions are taken to be as wide.
    """
    if state.assigner is None:
        raise ValueError("the projected clusters must be asked for after the weights round; run that round first.")
    release: Release = state.releases[-1]
    points = state.projected_server()[state.active]
    weights = server_points.significant_weights(release.decoded[: len(points)], release.stddev)
    labels = state.assigner.labels(state.server_integers()[state.active])
    kept = labels >= 0
    squared = ((points[kept] - state.assigner.centers[labels[kept]]) ** 2).sum(axis=1)
    mass = np.maximum(weights[kept], 1e-9)
    mean = float((mass * squared).sum() / max(float(mass.sum()), 1e-9)) / points.shape[1]
    return _ROOM * math.sqrt(max(mean, 1.0) * state.server.shape[1]) * state.sum_unit


_STARTS = {
    LloydStart.FEDDP_INIT: PrivateStart(feddp_server.initial_state, _feddp_specs, feddp_kmeans.rounds, _leave_feddp),
    LloydStart.CENTRAL_TREE: PrivateStart(_begin_tree, _tree_specs, _tree_rounds, _leave_tree),
}
