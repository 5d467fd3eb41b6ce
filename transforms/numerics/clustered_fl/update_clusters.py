"""Clusters of clients from their first updates: principal components, a spherical Gaussian mixture, its separation."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.one_thread import one_thread

N_STARTS = 10
_MAX_ITERATIONS = 200
_TOLERANCE = 1e-6
_FLOOR = 1e-6
"""Smallest variance of a component, in units of the mean variance of a coordinate."""


class Mixture(NamedTuple):
    """A spherical Gaussian mixture on clients.

    Attributes:
      responsibilities: shape (n_clients, n_clusters), rows sum to 1.
      means: shape (n_clusters, n_dimensions).
      variances: shape (n_clusters,), per coordinate.
      weights: shape (n_clusters,).
      log_likelihood: mean over clients; NaN for one client.
      iterations: of EM, of the best start; 0 for one client.
    """

    responsibilities: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    weights: NDArray[np.float64]
    log_likelihood: float
    iterations: int

    @property
    def separation(self) -> float:
        """MSS: smallest distance of two means over twice the largest stddev; infinity for one cluster."""
        if len(self.means) < 2:
            return math.inf
        first, second = np.triu_indices(len(self.means), 1)
        distances = np.linalg.norm(self.means[first] - self.means[second], axis=1)
        return float(distances.min() / (2.0 * math.sqrt(self.variances.max())))


def overlap(separation: float) -> float:
    """Returns the MPO, 2 Q(separation), in [0, 1]."""
    return math.erfc(separation / math.sqrt(2.0))


def switch_round(separation: float, rounds: int) -> int:
    """Returns E_c, the last round of sampled clusters: int((1 - MPO) rounds / 2), at least the first round."""
    return max(1, int((1.0 - overlap(separation)) * rounds / 2.0))


def cluster_updates(
    updates: NDArray[np.float64], n_clusters: int, stream: KeyStream, *, search: bool = False
) -> Mixture:
    """Returns the mixture of `n_clusters`, or the best separated one of 2 to `n_clusters`.

    Args:
      updates: shape (n_clients, n_parameters).
      n_clusters: >= 1; more than n_clients count as n_clients.
      stream: public.
      search: True to try smaller numbers, too.
    """
    largest = min(n_clusters, len(updates))
    numbers = range(min(2, largest), largest + 1) if search else (largest,)
    mixtures = [fit_mixture(project(updates, n), n, stream.substream(encode_label(n))) for n in numbers]
    return max(mixtures, key=lambda mixture: mixture.separation)


def own_clusters(
    models: NDArray[np.float64], n_clusters: int, stream: KeyStream, *, search: bool = False
) -> tuple[NDArray[np.int64], float]:
    """Clusters clients by models that they trained apart, and returns the separation; by k-means of ten starts.

    The noise of all clients is similar, and a mixture with a separate variance for each cluster is easily misled by
    few of them.

    Args:
      models: shape (n_clients, n_parameters), two clients or more.
      n_clusters: >= 1; more than n_clients count as n_clients.
      stream: public.
      search: True to try smaller numbers from 2 on, too.

    Returns:
      Shape (n_clients,); and the smallest distance of two means over twice the stddev around means, per coordinate,
      infinity for one cluster.
    """
    largest = min(n_clusters, len(models))
    found = []
    for n in range(min(2, largest), largest + 1) if search else (largest,):
        points, state = project(models, n), int(stream.substream(encode_label(n)).residues(1 << 32, 1)[0])
        with one_thread():
            fitted = KMeans(n, n_init=N_STARTS, random_state=state).fit(points)
        variance = fitted.inertia_ / max(1, (len(points) - n) * points.shape[1])
        means = fitted.cluster_centers_
        mixture = Mixture(np.eye(n)[fitted.labels_], means, np.full(n, max(variance, _FLOOR)), np.ones(n) / n, 0.0, 0)
        found.append((mixture.separation, fitted.labels_.astype(np.int64)))
    separation, labels = max(found, key=lambda each: each[0])
    return labels, separation


def project(updates: NDArray[np.float64], n_clusters: int) -> NDArray[np.float64]:
    """Returns n_clusters - 1 principal components, shape (n_clients, n_dimensions), with a mean variance of 1 (or 0).

    They come from the Gram matrix of clients, which is small even if the models are large.
    """
    centered = updates - updates.mean(axis=0)
    values, vectors = np.linalg.eigh(centered @ centered.T)
    order = np.argsort(values)[::-1][: min(max(1, n_clusters - 1), len(updates))]
    components = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    scale = math.sqrt(float((components**2).mean()))
    return components / scale if scale > 0.0 else components


def fit_mixture(points: NDArray[np.float64], n_clusters: int, stream: KeyStream) -> Mixture:
    """Fits the likeliest spherical mixture of ten k-means++ starts, single-threaded; a lone point is its own mixture.

    Args:
      points: shape (n_points, n_dimensions), of mean variance 1.
      n_clusters: in [1, n_points].
      stream: of the starts.
    """
    if len(points) == 1:
        return Mixture(np.ones((1, 1)), points, np.array([_FLOOR]), np.ones(1), math.nan, 0)
    mixture = GaussianMixture(
        n_clusters,
        covariance_type="spherical",
        tol=_TOLERANCE,
        reg_covar=_FLOOR,
        max_iter=_MAX_ITERATIONS,
        n_init=N_STARTS,
        init_params="k-means++",
        random_state=int(stream.residues(1 << 32, 1)[0]),
    )
    with one_thread():
        shares = mixture.fit(points).predict_proba(points)
    return Mixture(
        shares, mixture.means_, mixture.covariances_, mixture.weights_, mixture.lower_bound_, mixture.n_iter_
    )
