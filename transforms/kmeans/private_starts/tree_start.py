"""The tree of CentralTree as the start of DP-Lloyd."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import PrivacyPlan, RoundSpec
from dapple_dp.schemas.kmeans.lloyd_config import START_SHARE, DPLloydFit
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.kmeans.central_tree import rounds as central_tree
from dapple_dp.transforms.kmeans.central_tree import server as tree_server
from dapple_dp.transforms.kmeans.central_tree.state import TreeSettings, TreeState
from dapple_dp.transforms.kmeans.dp_lloyd.starts import state_after
from dapple_dp.transforms.kmeans.dp_lloyd.state import LloydState
from dapple_dp.transforms.kmeans.lloyd.box import LloydSettings, box_frame

_Step = Callable[..., Any]


def initial_state(config: DPLloydFit, server: NDArray[np.float64], n_features: int) -> TreeState:
    """Returns the state of the tree in the frame of the domain."""
    return tree_server.start_state(TreeSettings.from_config(config), box_frame(config, n_features))


def round_specs(config: DPLloydFit, n_features: int, n_bins: int) -> tuple[RoundSpec, ...]:
    """Returns the rounds of the tree, which needs no server points."""
    return central_tree.start_specs(config, n_features, START_SHARE)


def rounds(config: DPLloydFit, plan: PrivacyPlan) -> tuple[Round, ...]:
    """Returns the calibrated rounds of the tree."""
    return central_tree.start_rounds(plan.rounds)


def leave(state: TreeState, releases: Releases, step: _Step, settings: LloydSettings) -> LloydState:
    """Handles the last step of the tree: puts its centers into the domain."""
    after = step(state, releases)
    radius = settings.first_radius(after.centers.shape[1])
    return state_after(after, settings, after.frame, after.centers, radius)
