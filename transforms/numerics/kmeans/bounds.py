"""Clipping bounds of clients, found on public rows only: medians over bootstrapped pseudo-clients."""

import math

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.statistics import lattice

PSEUDO_CLIENTS = 200
"""Bootstrapped pseudo-clients behind every median."""


def scatter_bound(rows: NDArray[np.float64], samples: NDArray[np.int64]) -> float:
    """Returns the median Frobenius norm of a pseudo-client's scatter.

    Args:
      rows: shape (q, d), centered and clipped public rows, feature units.
      samples: shape (n_clients, client_rows): indices of each pseudo-client's rows.

    Returns:
      Feature units squared, > 0.
    """
    return _median([float(np.linalg.norm(rows[sample].T @ rows[sample])) for sample in samples])


def histogram_bound(labels: NDArray[np.int64], samples: NDArray[np.int64], n_bins: int) -> float:
    """Returns the median L2 norm of a pseudo-client's relative histogram; `labels` (q,) are the bins of public rows."""
    return _median([float(np.linalg.norm(_counts(labels[sample], n_bins))) / samples.shape[1] for sample in samples])


def sums_bound(
    rows: NDArray[np.float64], labels: NDArray[np.int64], samples: NDArray[np.int64], n_clusters: int
) -> float:
    """Returns the median L2 norm of a pseudo-client's stacked sums per cluster, feature units, not divided by rows."""
    return _median([float(np.linalg.norm(_sums(rows[sample], labels[sample], n_clusters))) for sample in samples])


def means_bound(
    rows: NDArray[np.float64], labels: NDArray[np.int64], samples: NDArray[np.int64], n_clusters: int
) -> float:
    """Returns the median L2 norm of a pseudo-client's stacked means per cluster, in feature units."""
    norms = []
    for sample in samples:
        counts = np.maximum(_counts(labels[sample], n_clusters), 1.0)
        norms.append(float(np.linalg.norm(_sums(rows[sample], labels[sample], n_clusters) / counts[:, None])))
    return _median(norms)


def presence_bound(labels: NDArray[np.int64], samples: NDArray[np.int64], n_clusters: int) -> float:
    """Returns the median number of clusters in which a pseudo-client has rows."""
    return _median([float((_counts(labels[sample], n_clusters) > 0).sum()) for sample in samples])


def _counts(labels: NDArray[np.int64], n_bins: int) -> NDArray[np.float64]:
    return np.bincount(labels[labels >= 0], minlength=n_bins).astype(np.float64)


def _sums(rows: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.float64]:
    return (labels[:, None] == np.arange(n_clusters)).astype(np.float64).T @ rows


def _median(norms: list[float]) -> float:
    """Returns the median, kept above zero in proportion to the largest norm, so that it can be a scale."""
    return max(float(np.median(norms)), 1e-9 * (max(norms) or 1.0))


def squared_bound(centers: NDArray[np.float64], max_distance: float = math.inf) -> int:
    """Returns the squared distance at which costs are capped.

    No row of the clipping ball is farther from its nearest center than from the innermost one, and that is at most the
    clipping norm and this center's norm away: a cap there cuts nothing off.

    Args:
      centers: integers, shape (n_clusters, n_features), at SUM_BITS, in the clipping ball; public.
      max_distance: > 0, lattice units; a lower cap, public.

    Returns:
      Squared lattice units, from 1 to a little more than 4 * 4**SUM_BITS.
    """
    innermost = math.isqrt(int(lattice.squared_norms(centers).min())) + 1
    within_ball = (lattice.SUM_UNITS + innermost) ** 2
    return max(int(min(within_ball, max_distance * max_distance)), 1)
