"""Starts that read no private data: server data, a packing of spheres, or centers that an earlier run released.

FedDP-Lloyds follows each of them with the whole budget. They are baselines of FedDP-KMeans, with the same Lloyd rounds.
Source: Scott, Lampert, Saulpic (2025), Section 5 and Appendix G.3.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.kmeans.lloyd import rounds as lloyd
from dapple_dp.transforms.kmeans.lloyd.server import await_means, public_state
from dapple_dp.transforms.kmeans.lloyd.specs import allocation_as_asked
from dapple_dp.transforms.kmeans.lloyd.state import MeansState
from dapple_dp.transforms.numerics.kmeans import centers
from dapple_dp.transforms.numerics.kmeans.centers import Prior
from dapple_dp.transforms.numerics.kmeans.starts import seeding, sphere_packing
from dapple_dp.transforms.rounds.protocol import RoundsProtocol


def initial_state(config: FitConfig, server: NDArray[np.float64], n_features: int) -> MeansState:
    """Returns the state before the first Lloyd round, from public data; arguments and errors as in FedDP-KMeans."""
    state = public_state(config, server)
    integers = state.integers(_start(config.algorithm, state))
    state = dataclasses.replace(state, assigner=Assigner(integers))
    prior = _prior(config.algorithm, state, integers * state.sum_unit)
    return await_means(dataclasses.replace(state, prior=prior), absolute=True)


def _start(algorithm: Algorithm, state: MeansState) -> NDArray[np.float64]:
    """Returns centers in centered feature units, shape (n_clusters, n_features)."""
    settings, rows = state.settings, state.server_rows()
    if algorithm is Algorithm.SPHERE_PACKING:
        half_side = state.frame.lattice.clipping_norm
        return sphere_packing.pack(settings.n_clusters, rows.shape[1], half_side, settings.seed)
    if algorithm is Algorithm.SERVER_KMEANSPP:
        return seeding.plus_plus(rows, settings.n_clusters, settings.seed)
    everywhere = np.ones(len(rows))
    return seeding.weighted_kmeans(rows, everywhere, settings.n_clusters, settings.restarts, settings.seed).centers


def _prior(algorithm: Algorithm, state: MeansState, start: NDArray[np.float64]) -> Prior:
    """Returns the prior of the centers by server data: strong for a mean of many points, weak for a single point."""
    if algorithm is Algorithm.SPHERE_PACKING or not state.settings.shrinks:
        return Prior(start, np.full(len(start), np.inf))
    rows = state.server_rows()
    known = centers.public_prior(rows, state.labels(), np.ones(len(rows)), start)
    if algorithm is Algorithm.SERVER_LLOYDS:
        return known
    of_one_point = known.bias / centers.PRIOR_BIAS + known.bias
    return Prior(start, np.full(len(start), of_one_point), known.bias)


def _warm_state(config: FitConfig, server: NDArray[np.float64], centers: NDArray[np.float64]) -> MeansState:
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


def warm(centers: NDArray[np.float64], _: object) -> RoundsProtocol:
    """Returns the Lloyd rounds of a job from centers of an earlier run, shape (k, d), feature units."""
    return SERVER_KMEANSPP._replace(initial_state=lambda job, server, _: _warm_state(job, server, centers))


SERVER_KMEANSPP = RoundsProtocol(
    title="ServerKMeans++",
    reads_server=True,
    sells_cost=True,
    initial_state=initial_state,
    round_specs=lambda config, n_features, _: lloyd.round_specs(config, n_features),
    allocation=allocation_as_asked,
    rounds=lloyd.rounds,
)
SERVER_LLOYDS = SERVER_KMEANSPP._replace(title="ServerLloyds")
SPHERE_PACKING = SERVER_KMEANSPP._replace(title="SpherePacking")
