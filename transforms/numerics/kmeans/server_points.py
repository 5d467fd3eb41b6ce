"""Weights of the server points from released histograms."""

import math

import numpy as np
from numpy.typing import NDArray

NEIGHBORS = 10
"""Most points over which weights are averaged in full space; at most half of those of an average cluster."""
PLENTY = 30.0
"""Noise stddevs of a bin in the mean cluster from which on weak bins are distinguished from empty ones."""
_EMPTY_SHARE = 0.01
"""Share of the rows that empty bins may add."""


def significant_weights(noisy: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Returns noisy weights, with those under one noise stddev set to zero; shape (q,)."""
    return np.where(noisy > stddev, noisy, 0.0)


def weights_beyond_noise(
    noisy: NDArray[np.float64], stddev: float, n_rows: float, n_clusters: int
) -> NDArray[np.float64]:
    """Returns noisy weights of bins, with those that noise alone may explain set to zero; shape (q,).

    If the mean cluster has at least `PLENTY` noise stddevs of a bin, the threshold is as high as needed for
    empty bins to add at most 1% of the rows, and at most 3.5 stddevs or 15% of that mean cluster; else one stddev.

    Args:
      noisy: shape (q,), released.
      stddev: noise stddev of each.
      n_rows: > 0, public or released.
      n_clusters: k.
    """
    known = n_rows / n_clusters / stddev if stddev > 0.0 else math.inf
    if known < PLENTY:
        return significant_weights(noisy, stddev)
    # An empty bin adds stddev * density(t) above t stddevs, in the mean.
    density = _EMPTY_SHARE * n_rows / (len(noisy) * max(stddev, 1e-300)) * math.sqrt(2.0 * math.pi)
    threshold = math.sqrt(max(-2.0 * math.log(density), 0.0)) if density > 0.0 else math.inf
    return np.where(noisy > min(max(threshold, 1.0), 3.5, 0.15 * known) * stddev, noisy, 0.0)


def printed_weights(noisy: NDArray[np.float64], _stddev: float) -> NDArray[np.float64]:
    """Returns noisy weights with negative ones set to zero, since k-means takes none; shape (q,)."""
    return np.maximum(noisy, 0.0)


def shrunken_weights(noisy: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """Blends noisy weights with equal weights by the known noise; never negative.

    Args:
      noisy: shape (q,), released weights.
      stddev: noise stddev of each.

    Returns:
      shape (q,): mean + t (noisy - mean) with t = signal / (signal + noise), the signal being the spread
      of the weights beyond the noise. With vanishing noise t goes to 1; with growing noise the private
      weights fade out into equal ones.

    Source: Efron and Morris (1973), empirical Bayes estimation.
    """
    mean = max(float(noisy.mean()), stddev * 1e-6, 1e-12)
    signal = max(float(noisy.var()) - stddev**2, 0.0)
    trust = signal / (signal + stddev**2) if stddev > 0 else 1.0
    return np.maximum(mean + trust * (noisy - mean), 0.0)


def smoothed_weights(
    noisy: NDArray[np.float64], stddev: float, points: NDArray[np.float64], n_neighbors: int
) -> NDArray[np.float64]:
    """Applies `shrunken_weights` to means over each point's neighbors, so that weights vary smoothly.

    A mean of m bins has the m-th part of their noise variance, and rows lie near several points rather than at one.

    Args:
      noisy: shape (q,), released weights.
      stddev: noise stddev of each.
      points: shape (q, d), whose nearest rows each bin counts.
      n_neighbors: points in a mean, the point itself included, from 2 to q.

    Returns:
      shape (q,), never negative.
    """
    from sklearn.neighbors import NearestNeighbors

    # scikit-learn's distances lose the digits of rows far from zero.
    centered = points - points.mean(axis=0)
    near = NearestNeighbors(n_neighbors=n_neighbors - 1, algorithm="brute").fit(centered).kneighbors()[1]
    own = np.arange(len(points))[:, None]
    means = noisy[np.hstack([own, near])].mean(axis=1)
    return shrunken_weights(means, stddev / math.sqrt(n_neighbors))
