"""Every algorithm of a `fit` job that runs in rounds, in one table; a new one is a folder and a line here."""

import numpy as np
from numpy.typing import NDArray

from schemas.choices import Algorithm, Allocation
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.recurring.remembered import Memory
from transforms.kmeans import lloyd_starts, median_starts, server_starts, warm_start
from transforms.kmeans.central_tree import rounds as central_tree
from transforms.kmeans.central_tree import server as tree_server
from transforms.kmeans.dp_lloyd import rounds as dp_lloyd
from transforms.kmeans.dp_lloyd import starts as dp_lloyd_starts
from transforms.kmeans.dp_medians import rounds as dp_medians
from transforms.kmeans.feddp_kmeans import rounds as feddp_kmeans
from transforms.kmeans.feddp_kmeans import server as feddp_server
from transforms.kmeans.lloyd import rounds as lloyd
from transforms.kmeans.spherical import names, reach
from transforms.kmeans.spherical import rounds as spherical
from transforms.kmeans.spherical import server as spherical_server
from transforms.kmeans.windows import rounds as windows
from transforms.kmeans.windows import server as windows_server
from transforms.rounds.protocol import RoundsProtocol


def _as_asked(config: FitConfig) -> Allocation:
    return config.privacy.allocation


_CENTERS = "centers from noised sums and counts and from public data"

_SERVER_START = RoundsProtocol(
    title="ServerKMeans++",
    reads_server=True,
    sells_cost=True,
    initial_state=server_starts.initial_state,
    round_specs=lambda config, n_features, _: lloyd.round_specs(config, n_features),
    allocation=_as_asked,
    rounds=lloyd.rounds,
)

PROTOCOLS = {
    Algorithm.FEDDP_KMEANS: RoundsProtocol(
        title="FedDP-KMeans",
        computes=f"{_CENTERS}, eigenvectors, and k-means on weighted public points",
        reads_server=True,
        sells_cost=True,
        initial_state=feddp_server.initial_state,
        round_specs=feddp_kmeans.round_specs,
        allocation=_as_asked,
        rounds=feddp_kmeans.rounds,
    ),
    Algorithm.CENTRAL_TREE: RoundsProtocol(
        title="CentralTree",
        computes=f"{_CENTERS}, eigenvectors, a tree of half-spaces, and k-means of its leaves",
        sells_cost=True,
        initial_state=tree_server.initial_state,
        round_specs=lambda config, n_features, _: central_tree.round_specs(config, n_features),
        allocation=_as_asked,
        rounds=central_tree.rounds,
    ),
    Algorithm.DP_LLOYD: RoundsProtocol(
        title="DP-Lloyd",
        computes=f"{_CENTERS}, eigenvectors, and k-means on weighted public points",
        initial_state=lloyd_starts.initial_state,
        round_specs=lloyd_starts.round_specs,
        allocation=dp_lloyd.allocation,
        rounds=lloyd_starts.rounds,
    ),
    Algorithm.DP_MEDIANS: RoundsProtocol(
        title="DP-Medians",
        computes="centers from noised sums of directions and counts, and its start those of DP-Lloyd's starts",
        initial_state=median_starts.initial_state,
        round_specs=median_starts.round_specs,
        allocation=_as_asked,
        rounds=median_starts.rounds,
    ),
    Algorithm.SPHERICAL: RoundsProtocol(
        title="Spherical k-means",
        computes="centers of one length from noised sums and public directions or public data",
        initial_state=spherical_server.initial_state,
        round_specs=spherical.round_specs,
        allocation=_as_asked,
        rounds=spherical.rounds,
        names=names.cluster_names,
        one_length=True,
        found_from=reach.found_from,
    ),
    Algorithm.WINDOWS: RoundsProtocol(
        title="DP-Lloyd",
        initial_state=lambda config, centers, _: windows_server.initial_state(config, centers),
        round_specs=lambda config, n_features, _: windows.round_specs(config, n_features),
        allocation=dp_lloyd.allocation,
        rounds=windows.rounds,
        from_centers=True,
    ),
    Algorithm.SERVER_KMEANSPP: _SERVER_START,
    Algorithm.SERVER_LLOYDS: _SERVER_START._replace(title="ServerLloyds"),
    Algorithm.SPHERE_PACKING: _SERVER_START._replace(title="SpherePacking"),
}


def warm_protocol(config: FitConfig, centers: NDArray[np.float64], memory: Memory | None = None) -> RoundsProtocol:
    """The Lloyd rounds of a job from the centers that an earlier run released.

    Args:
      config: the job.
      centers: shape (k, d), feature units.
      memory: of the earlier run, if it has some; windows read that of the windows before them.
    """
    return _WARM.get(config.algorithm, _warm_server)(centers, memory)


def _warm_server(centers: NDArray[np.float64], _: Memory | None) -> RoundsProtocol:
    return _SERVER_START._replace(initial_state=lambda job, server, _: warm_start.initial_state(job, server, centers))


def _warm_lloyd(centers: NDArray[np.float64], _: Memory | None) -> RoundsProtocol:
    return PROTOCOLS[Algorithm.DP_LLOYD]._replace(
        initial_state=lambda job, *_: dp_lloyd_starts.warm_state(job, centers),
        round_specs=lambda job, n_features, _: dp_lloyd.lloyd_round_specs(job, n_features),
    )


def _warm_medians(centers: NDArray[np.float64], _: Memory | None) -> RoundsProtocol:
    return PROTOCOLS[Algorithm.DP_MEDIANS]._replace(
        initial_state=lambda job, *_: median_starts.warm_state(job, centers),
        round_specs=lambda job, n_features, _: dp_medians.round_specs(job, n_features, 1.0),
    )


def _warm_windows(centers: NDArray[np.float64], memory: Memory | None) -> RoundsProtocol:
    return PROTOCOLS[Algorithm.WINDOWS]._replace(
        initial_state=lambda job, *_: windows_server.initial_state(job, centers, memory)
    )


_WARM = {
    Algorithm.DP_LLOYD: _warm_lloyd,
    Algorithm.DP_MEDIANS: _warm_medians,
    Algorithm.WINDOWS: _warm_windows,
}
