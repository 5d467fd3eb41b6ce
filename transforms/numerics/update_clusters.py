"""Clusters of clients from their first updates: principal components, a spherical Gaussian mixture, its separation."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.choices import UpdateView
from transforms.numerics.keystream import KeyStream, encode_label
from transforms.numerics.normal import uniforms

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
      log_likelihood: mean over clients.
      iterations: of EM, of the best start.
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
    """MPO: 2 Q(separation), in [0, 1]."""
    return math.erfc(separation / math.sqrt(2.0))


def switch_round(separation: float, rounds: int) -> int:
    """E_c: the last round of sampled clusters, int((1 - MPO) rounds / 2), at least the first round."""
    return max(1, int((1.0 - overlap(separation)) * rounds / 2.0))


def cluster_updates(
    updates: NDArray[np.float64], n_clusters: int, view: UpdateView, stream: KeyStream, *, search: bool = False
) -> Mixture:
    """The mixture of `n_clusters`, or the best separated one of 2 to `n_clusters`.

    Args:
      updates: shape (n_clients, n_parameters).
      n_clusters: >= 1; more than n_clients count as n_clients.
      view: what is clustered.
      stream: public.
      search: whether smaller numbers are tried, too.
    """
    largest = min(n_clusters, len(updates))
    numbers = range(min(2, largest), largest + 1) if search else (largest,)
    found = [fit_mixture(project(updates, n, view), n, stream.substream(encode_label(n))) for n in numbers]
    return max(found, key=lambda mixture: mixture.separation)


def project(updates: NDArray[np.float64], n_clusters: int, view: UpdateView) -> NDArray[np.float64]:
    """Coordinates of updates, centered, shape (n_clients, n_dimensions), with a mean variance of 1 (or 0).

    Principal components come from the Gram matrix of clients, which is small where the models are large.
    """
    centered = updates - updates.mean(axis=0)
    if view is not UpdateView.RAW:
        n_dimensions = max(1, n_clusters - 1) if view is UpdateView.PCA else 2
        values, vectors = np.linalg.eigh(centered @ centered.T)
        order = np.argsort(values)[::-1][: min(n_dimensions, len(updates))]
        centered = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    scale = math.sqrt(float((centered**2).mean()))
    return centered / scale if scale > 0.0 else centered


def fit_mixture(points: NDArray[np.float64], n_clusters: int, stream: KeyStream) -> Mixture:
    """The likeliest spherical mixture of ten starts with k-means++ centers.

    Args:
      points: shape (n_points, n_dimensions), of mean variance 1.
      n_clusters: in [1, n_points].
      stream: of the starts.
    """
    starts = (_start(points, n_clusters, stream.substream(encode_label("start", start))) for start in range(N_STARTS))
    return max((_expectation_maximization(points, each) for each in starts), key=lambda mixture: mixture.log_likelihood)


def _start(points: NDArray[np.float64], n_clusters: int, stream: KeyStream) -> NDArray[np.float64]:
    """Hard responsibilities of centers drawn with probability proportional to squared distances."""
    draws = uniforms(stream, n_clusters)
    distances = np.empty((len(points), n_clusters))
    weights = np.ones(len(points))
    for index in range(n_clusters):
        shares = np.cumsum(weights)
        center = min(int(np.searchsorted(shares, draws[index] * shares[-1])), len(points) - 1)
        distances[:, index] = ((points - points[center]) ** 2).sum(axis=1)
        nearest = distances[:, : index + 1].min(axis=1)
        weights = nearest if nearest.any() else np.ones(len(points))
    return np.eye(n_clusters)[distances.argmin(axis=1)]


def _expectation_maximization(points: NDArray[np.float64], responsibilities: NDArray[np.float64]) -> Mixture:
    """EM from given responsibilities until the likelihood stands still."""
    before, iterations = -math.inf, 0
    while iterations < _MAX_ITERATIONS:
        iterations += 1
        weights, means, variances = _maximize(points, responsibilities)
        logs = _log_densities(points, weights, means, variances)
        peaks = logs.max(axis=1, keepdims=True)
        sums = np.exp(logs - peaks).sum(axis=1, keepdims=True)
        responsibilities = np.exp(logs - peaks) / sums
        likelihood = float((peaks + np.log(sums)).mean())
        if likelihood - before < _TOLERANCE:
            break
        before = likelihood
    return Mixture(responsibilities, means, variances, weights, likelihood, iterations)


def _maximize(
    points: NDArray[np.float64], responsibilities: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Weights, means and variances of components."""
    counts = responsibilities.sum(axis=0) + 10.0 * np.finfo(np.float64).eps
    means = responsibilities.T @ points / counts[:, None]
    variances = (responsibilities * _squared_distances(points, means)).sum(axis=0) / (counts * points.shape[1])
    return counts / counts.sum(), means, variances + _FLOOR


def _log_densities(
    points: NDArray[np.float64],
    weights: NDArray[np.float64],
    means: NDArray[np.float64],
    variances: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Logarithms of weighted densities, shape (n_points, n_clusters)."""
    constants = np.log(weights) - 0.5 * points.shape[1] * np.log(2.0 * math.pi * variances)
    return constants - 0.5 * _squared_distances(points, means) / variances


def _squared_distances(points: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shape (n_points, n_clusters)."""
    return ((points[:, None, :] - means) ** 2).sum(axis=2)
