"""Starts that read no private data: k-means++ or k-means of the server data, or a packing of spheres.

Each is followed by FedDP-Lloyds with the whole budget: baselines of FedDP-KMeans, Lloyd rounds included the same.
Source: Scott, Lampert, Saulpic (2025), Section 5 and Appendix G.3.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from schemas.choices import Algorithm
from schemas.kmeans.fit_config import FitConfig
from transforms.kmeans.lloyd.server import await_means, public_state
from transforms.kmeans.lloyd.state import MeansState
from transforms.numerics.kmeans import centers
from transforms.numerics.kmeans.centers import Prior
from transforms.numerics.kmeans.starts import seeding, sphere_packing
from transforms.numerics.statistics.assignment import Assigner


def initial_state(config: FitConfig, server: NDArray[np.float64], n_features: int) -> MeansState:
    """State before the first Lloyd round, from public data only; arguments and errors as of FedDP-KMeans."""
    state = public_state(config, server)
    integers = state.integers(_start(config.algorithm, state))
    state = dataclasses.replace(state, assigner=Assigner(integers))
    prior = _prior(config.algorithm, state, integers * state.sum_unit)
    return await_means(dataclasses.replace(state, prior=prior), absolute=True)


def _start(algorithm: Algorithm, state: MeansState) -> NDArray[np.float64]:
    """Centers in centered feature units, shape (n_clusters, n_features)."""
    settings, rows = state.settings, state.server_rows()
    if algorithm is Algorithm.SPHERE_PACKING:
        half_side = state.frame.lattice.clipping_norm
        return sphere_packing.pack(settings.n_clusters, rows.shape[1], half_side, settings.seed)
    if algorithm is Algorithm.SERVER_KMEANSPP:
        return seeding.plus_plus(rows, settings.n_clusters, settings.seed)
    everywhere = np.ones(len(rows))
    return seeding.weighted_kmeans(rows, everywhere, settings.n_clusters, settings.restarts, settings.seed).centers


def _prior(algorithm: Algorithm, state: MeansState, start: NDArray[np.float64]) -> Prior:
    """What the server data say of the centers: of a mean of its points much, of a single point little."""
    if algorithm is Algorithm.SPHERE_PACKING or not state.settings.shrinks:
        return Prior(start, np.full(len(start), np.inf))
    rows = state.server_rows()
    known = centers.public_prior(rows, state.labels(), np.ones(len(rows)), start)
    if algorithm is Algorithm.SERVER_LLOYDS:
        return known
    of_one_point = known.bias / centers.PRIOR_BIAS + known.bias
    return Prior(start, np.full(len(start), of_one_point), known.bias)
