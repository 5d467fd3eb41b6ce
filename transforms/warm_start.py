"""A start from the centers of an earlier run: post-processing, so that the whole budget goes to Lloyd rounds.

Nothing of the earlier run but its centers is used, and they count only where a round finds nothing: the centers that
come out say what the rows of this run are like.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from schemas.choices import Algorithm, Allocation, LloydStart
from schemas.config import FitConfig
from schemas.plan import RoundSpec
from transforms import dp_lloyd, dp_lloyd_starts, feddp_kmeans, feddp_server
from transforms.dp_lloyd_state import LloydSettings, LloydState, lattice_centers, lattice_radius
from transforms.feddp_state import FedDPState
from transforms.numerics import lattice
from transforms.numerics.assignment import Assigner
from transforms.numerics.centers import Prior
from transforms.numerics.frame import Box, Frame
from transforms.numerics.lattice import Lattice


def initial_state(
    config: FitConfig, server: NDArray[np.float64], centers: NDArray[np.float64]
) -> FedDPState | LloydState:
    """State before the first Lloyd round.

    Args:
      config: the job, with a warm start.
      server: shape (q, d), feature units; public points, for client-level bounds.
      centers: shape (n_clusters, d), feature units: released by the earlier run.

    Raises:
      ConfigError: as for the algorithm without a warm start.
    """
    if config.algorithm is Algorithm.DP_LLOYD:
        return _lloyd_state(config, server, centers)
    state = feddp_server.initial_state(config, server, centers.shape[1])
    centered = Lattice(np.zeros(centers.shape[1]), state.frame.lattice.clipping_norm)
    integers = lattice.quantize(centers - state.frame.lattice.center, centered, lattice.SUM_BITS)
    prior = Prior(integers * state.sum_unit, np.full(len(centers), np.inf))
    return feddp_server.await_means(dataclasses.replace(state, assigner=Assigner(integers), prior=prior), absolute=True)


def _lloyd_state(config: FitConfig, server: NDArray[np.float64], centers: NDArray[np.float64]) -> LloydState:
    """State of DP-Lloyd."""
    lattice.check_features(centers.shape[1], lattice.SUM_BITS)
    settings, frame = LloydSettings.from_config(config), lloyd_frame(config, centers.shape[1])
    return LloydState(
        settings=settings,
        frame=frame,
        server=server[:0],
        centers=lattice_centers(frame, centers - frame.lattice.center),
        radius=lattice_radius(frame, settings.first_radius(centers.shape[1])),
        n_rows=settings.public_rows,
    )


def lloyd_frame(config: FitConfig, n_features: int) -> Frame:
    """Frame of the Lloyd rounds of DP-Lloyd, whatever its start."""
    if config.lloyd_options.start is LloydStart.FEDDP_INIT:
        return Frame.of_box(Box(*config.lloyd_options.domain), n_features)
    return dp_lloyd_starts.box_frame(config, n_features)


def round_specs(config: FitConfig, n_features: int) -> tuple[RoundSpec, ...]:
    """Every release of a job with a warm start, before calibration: those of its Lloyd rounds, and of `quality`."""
    if config.algorithm is Algorithm.DP_LLOYD:
        return dp_lloyd.lloyd_round_specs(config, n_features)
    return feddp_kmeans.lloyd_round_specs(config, n_features)


def allocation(config: FitConfig) -> Allocation:
    """How shares become noise."""
    return dp_lloyd.allocation(config) if config.algorithm is Algorithm.DP_LLOYD else config.privacy.allocation
