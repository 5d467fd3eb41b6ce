"""Who starts the Lloyd rounds where there are server rows: what candidates have found, or what server rows give.

One released number decides: by how much capped squared distances to the one are smaller than to the other.
"""

import dataclasses
import math

import numpy as np

from transforms.kmeans.dp_lloyd.candidates import CandidateState, Releases
from transforms.kmeans.lloyd.box import lattice_radius
from transforms.numerics.statistics import center_quality, lattice

IN_DOUBT = 0.5
"""Noise stddevs by which server rows may seem worse than the candidates and still start the Lloyd rounds."""


def cost_cap(state: CandidateState) -> int:
    """Squared lattice units: at which the squared distances of both sides are capped; public.

    Not below the noisy squared distance of rows from their mean: missing clusters lie far from all centers.
    """
    distance = math.inf if state.deviations is None else float(np.linalg.norm(state.deviations))
    least = 0.0 if state.served is None else state.served.cap
    return center_quality.squared_bound(state.known_rivals, max(distance, least) / state.unit)


def server_step(state: CandidateState, releases: Releases) -> CandidateState:
    """After the comparison of two costs: the Lloyd rounds start from server rows where these are nearer to the rows."""
    cap = 1 if state.rivals is None else cost_cap(state)
    release = releases[0].with_unit(cap * state.unit**2 / lattice.SUM_UNITS)
    after = dataclasses.replace(state, rivals=None, heirs=None, prior=None, releases=(*state.releases, release))
    if state.rivals is None or state.served is None or release.decoded[0] <= -IN_DOUBT * release.stddev:
        return after
    of_server = state.rivals[state.settings.n_clusters :]
    radius = lattice_radius(state.frame, state.served.reach)
    return dataclasses.replace(after, centers=of_server, radius=radius, prior=state.prior)
