"""Simulates whether clusters will show in first updates, before any, from public numbers and without clients' rows.

The stand-in of an update is the mean clipped gradient of its cluster under the noise that the client will add. That
the means of two clusters are `ASSUMED_DISTANCE` apart is an assumption; if it is wrong, accuracy suffers, but
never privacy. On MNIST they are .15 (rotated images) to .19 (shifted labels) of the clipping norm apart.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.records import ClusteringParams
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.update_clusters import cluster_updates

ASSUMED_DISTANCE = 0.15
"""Distance of the mean clipped gradients of two clusters at the common start, in clipping norms."""
N_RUNS = 10
ENOUGH = 0.75
"""Share of simulated runs whose clusters must be the true ones, and be believed."""
_MOST_CLIENTS = 64
"""Most simulated clients; more wouldn't make clusters harder to see, and would slow the simulation."""


class Foresight(NamedTuple):
    """Result of a simulation of the first updates.

    Attributes:
      share: share of runs whose clusters were the true ones, and believed.
      separation: MSS, median over runs.
    """

    share: float
    separation: float

    @property
    def enough(self) -> bool:
        """True if a full first batch pays off."""
        return self.share >= ENOUGH


def foresee(
    noise: NDArray[np.float64], n_parameters: int, clustering: ClusteringParams, stream: KeyStream
) -> Foresight:
    """Simulates first updates of clusters of equal size, and clusters them as the first round will.

    Args:
      noise: stddev of every parameter of a client's mean clipped gradient, in clipping norms, shape (n_clients,).
      n_parameters: of a model.
      clustering: number of clusters and smallest separation.
      stream: public.
    """
    noise = np.sort(noise)[:: -(-len(noise) // _MOST_CLIENTS)]
    n_clusters = min(clustering.n_clusters, len(noise))
    truth = np.arange(len(noise)) % n_clusters
    found, separations = [], []
    for run in range(N_RUNS):
        own = stream.substream(encode_label("run", run))
        random = np.random.default_rng(int(own.residues(1 << 32, 1)[0]))
        updates = stand_ins(noise, truth, n_parameters, random)
        mixture = cluster_updates(updates, n_clusters, own, search=clustering.search)
        pairs = set(zip(mixture.responsibilities.argmax(axis=1).tolist(), truth.tolist(), strict=True))
        true = len(pairs) == n_clusters == len({cluster for cluster, _ in pairs})
        found.append(true and mixture.separation >= clustering.min_separation)
        separations.append(mixture.separation)
    return Foresight(float(np.mean(found)), float(np.median(separations)))


def stand_ins(
    noise: NDArray[np.float64], truth: NDArray[np.int64], n_parameters: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Draws vectors whose products with each other are distributed as those of noisy updates, for any parameters.

    Signal lies along a coordinate per cluster. All other coordinates are noise, so they are drawn as the triangular
    factor of its products.

    Args:
      noise: shape (n_clients,), stddevs.
      truth: cluster of each client, shape (n_clients,).
      n_parameters: of an update.
      random: public.

    Returns:
      Shape (n_clients, m) with m at most n_clusters + n_clients.

    Source: Bartlett (1933), "On the theory of statistical regression"; Anderson (2003), "An introduction to
    multivariate statistical analysis", Section 7.2.
    """
    n_clients, n_clusters = len(noise), int(truth.max()) + 1
    means = np.eye(n_clusters) * (ASSUMED_DISTANCE / np.sqrt(2.0))
    signal = means[truth] + noise[:, None] * random.normal(size=(n_clients, n_clusters))
    rest = max(n_parameters - n_clusters, 0)
    if rest <= n_clients:
        return np.hstack([signal, noise[:, None] * random.normal(size=(n_clients, rest))])
    factor = np.tril(random.normal(size=(n_clients, n_clients)), -1)
    factor[np.diag_indices(n_clients)] = np.sqrt(random.chisquare(rest - np.arange(n_clients)))
    return np.hstack([signal, noise[:, None] * factor])
