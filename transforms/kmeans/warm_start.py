"""A start from the centers of an earlier run: post-processing, so that the whole budget goes to Lloyd rounds.

Nothing of the earlier run but its centers is used, and they count only where a round finds nothing: the centers that
come out say what the rows of this run are like.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from schemas.kmeans.fit_config import FitConfig
from transforms.kmeans.lloyd.server import await_means, public_state
from transforms.kmeans.lloyd.state import MeansState
from transforms.numerics.kmeans.centers import Prior
from transforms.numerics.statistics.assignment import Assigner


def initial_state(config: FitConfig, server: NDArray[np.float64], centers: NDArray[np.float64]) -> MeansState:
    """State before the first round of sums and counts.

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
