"""FedDP-Lloyds with the whole budget, from centers that an earlier run released; no private row is read for them.

Source: Scott, Lampert, Saulpic (2025), Algorithm 2.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.server import await_means, public_state
from dapple_dp.transforms.kmeans.lloyd.specs import allocation_as_asked
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.kmeans.centers import Prior
from dapple_dp.transforms.rounds.protocol import RoundsProtocol


def _initial_state(config: FitConfig, server: NDArray[np.float64], centers: NDArray[np.float64]) -> MeansState:
    """Returns the state before the first round of sums and counts; the start costs nothing.

    Only the centers of the earlier run are used, and they count only for clusters in which a round finds nothing. The
    result describes the rows of this run.

    Args:
      config: the job, with a warm start.
      server: shape (q, d), feature units; public points, for client-level bounds.
      centers: shape (n_clusters, d), feature units: released by the earlier run.

    Raises:
      ConfigError: as for the algorithm without a warm start.
    """
    state = public_state(config, server)
    integers = state.integers(centers - state.frame.lattice.center)
    prior = Prior(integers * state.sum_unit, np.full(len(centers), np.inf))
    return await_means(dataclasses.replace(state, assigner=Assigner(integers), prior=prior), absolute=True)


def protocol(centers: NDArray[np.float64], _: object = None) -> RoundsProtocol:
    """Returns the Lloyd rounds of a job from centers of an earlier run, shape (k, d), feature units."""
    return RoundsProtocol(
        title="FedDP-Lloyds",
        reads_server=True,
        sells_cost=True,
        initial_state=lambda config, server, _: _initial_state(config, server, centers),
        round_specs=lambda config, n_features, _: lloyd.round_specs(config, n_features),
        allocation=allocation_as_asked,
        rounds=lloyd.rounds,
    )
