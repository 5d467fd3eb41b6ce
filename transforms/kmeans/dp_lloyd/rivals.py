"""Who starts the Lloyd rounds where there are server rows: what candidates have found, or what server rows give.

One released number decides: by how much squared distances to the one are smaller than to the other, each difference
capped. Most rows are about as near to both, so a cap on differences is small, and so is the noise.
"""

import dataclasses

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.kmeans.dp_lloyd.candidates import CandidateState, Releases
from dapple_dp.transforms.kmeans.lloyd.box import lattice_radius

IN_DOUBT = 0.5
"""Noise stddevs by which server rows may seem worse than the candidates and still start the Lloyd rounds."""

DECISIVE = 0.5
"""Largest difference that counts, in squared distances that most server rows keep from their centers."""


def gain_bound(state: CandidateState) -> int:
    """Squared lattice units: the largest difference of two squared distances of a row that counts; public."""
    reach = 0.0 if state.served is None else state.served.reach
    return max(1, int(DECISIVE * (reach / state.unit) ** 2))


def server_step(state: CandidateState, releases: Releases) -> CandidateState:
    """After the comparison of two costs: the Lloyd rounds start from server rows where these are nearer to the rows."""
    release = releases[0].with_unit(gain_bound(state) * state.unit**2 / lattice.SUM_UNITS)
    after = dataclasses.replace(state, rivals=None, heirs=None, prior=None, releases=(*state.releases, release))
    if state.rivals is None or state.served is None or release.decoded[0] <= -IN_DOUBT * release.stddev:
        return after
    of_server = state.rivals[state.settings.n_clusters :]
    radius = lattice_radius(state.frame, state.served.reach)
    return dataclasses.replace(after, centers=of_server, radius=radius, prior=state.prior)
