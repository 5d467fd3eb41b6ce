"""Scores of a clustering, from sums over rows; None if a score is not defined.

They agree with scikit-learn's functions of the same names on the same labels.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from dapple_dp.transforms.numerics.tables.row_sampling import order_of_rows


def finite(value: float) -> float | None:
    """Returns the value, or None for NaN and infinities, which JSON can't hold."""
    return float(value) if math.isfinite(value) else None


def adjusted_rand(table: NDArray[np.int64]) -> float:
    """Returns the Rand index of two partitions, corrected for chance; 1 if they agree.

    Args:
      table: shape (n_classes, n_clusters): rows per class and cluster.

    Source: Hubert and Arabie (1985), by pairs as in Steinley (2004).

    Example:
      >>> adjusted_rand(np.array([[2, 0], [0, 2]]))
      1.0
    """
    both, classes, clusters, pairs = _pairs(table)
    false_negative, false_positive = classes - both, clusters - both
    neither = pairs - classes - clusters + both
    if not false_negative and not false_positive:
        return 1.0
    spread = (both + false_negative) * (false_negative + neither) + (both + false_positive) * (false_positive + neither)
    return 2 * (both * neither - false_negative * false_positive) / spread


def fowlkes_mallows(table: NDArray[np.int64]) -> float:
    """Returns the geometric mean of pairwise precision and recall; 0 if no pair is together in both partitions.

    Args:
      table: shape (n_classes, n_clusters): rows per class and cluster.

    Source: Fowlkes and Mallows (1983).
    """
    both, classes, clusters, _ = _pairs(table)
    return math.sqrt(both / classes) * math.sqrt(both / clusters) if both else 0.0


def _pairs(table: NDArray[np.int64]) -> tuple[int, int, int, int]:
    """Counts pairs of rows that share class and cluster, class, cluster, and all pairs, as Python integers."""
    cells = table.astype(object)
    parts = (cells.ravel(), cells.sum(axis=1), cells.sum(axis=0), [cells.sum()])
    both, classes, clusters, pairs = (sum(int(count) * (int(count) - 1) // 2 for count in part) for part in parts)
    return both, classes, clusters, pairs


def davies_bouldin(
    sizes: NDArray[np.int64], means: NDArray[np.float64], distances: NDArray[np.float64]
) -> float | None:
    """Returns the mean over clusters of the worst ratio of widths to the distance between means; lower is better.

    Args:
      sizes: shape (n_clusters,); empty clusters do not count.
      means: shape (n_clusters, n_features).
      distances: shape (n_clusters,): mean distance of each cluster's rows to their mean.

    Returns:
      None unless there are from 2 to n_rows - 1 clusters with rows.

    Source: Davies and Bouldin (1979).
    """
    if not _comparable(sizes):
        return None
    means, distances = means[sizes > 0], distances[sizes > 0]
    with np.errstate(all="ignore"):
        apart = cdist(means, means)
        if not distances.any() or not apart.any():
            return 0.0
        apart[apart == 0.0] = np.inf
        return finite(((distances[:, None] + distances[None, :]) / apart).max(axis=1).mean())


def calinski_harabasz(
    sizes: NDArray[np.int64], means: NDArray[np.float64], mean: NDArray[np.float64], squared: NDArray[np.float64]
) -> float | None:
    """Returns the ratio of dispersion between and within clusters, each per degree of freedom; higher is better.

    Args:
      sizes: shape (n_clusters,); empty clusters do not count.
      means: shape (n_clusters, n_features).
      mean: shape (n_features,): of all rows.
      squared: shape (n_clusters,): sum of squared distances of each cluster's rows to their mean.

    Returns:
      None unless there are from 2 to n_rows - 1 clusters with rows.

    Source: Calinski and Harabasz (1974).
    """
    if not _comparable(sizes):
        return None
    filled = sizes > 0
    with np.errstate(all="ignore"):
        between = float((sizes[filled, None] * (means[filled] - mean) ** 2).sum())
        within = float(squared[filled].sum())
        if within == 0.0:
            return 1.0
        n_clusters = int(filled.sum())
        return finite(between * (int(sizes.sum()) - n_clusters) / (within * (n_clusters - 1.0)))


def _comparable(sizes: NDArray[np.int64]) -> bool:
    """Returns whether there are at least two clusters with rows, and one of several rows."""
    return 2 <= int((sizes > 0).sum()) < int(sizes.sum())


def silhouette(points: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Returns the mean silhouette of rows by Euclidean distance, in [-1, 1]; quadratic in their number.

    The same rows in any order give the same bits, since they are sorted by content.

    Args:
      points: shape (n_rows, n_features), feature units.
      labels: shape (n_rows,).

    Returns:
      None unless there are from 2 to n_rows - 1 different labels.

    Source: Rousseeuw (1987).
    """
    if not _comparable(np.unique(labels, return_counts=True)[1]):
        return None
    order = order_of_rows(np.column_stack([points, labels]))
    points, labels = points[order], labels[order]
    # The score does not change with place and scale: squares of rows could overflow, and a sum of them, too.
    exponent = int(np.frexp(np.abs(points).max())[1]) + 1
    scaled = np.ldexp(points, -exponent)
    centered = scaled - scaled.mean(axis=0)
    largest = float(np.abs(centered).max())
    # SciPy subtracts rows before it squares; scikit-learn's own distances lose the digits of rows far from their mean.
    rows = centered / largest if largest > 0 else centered
    return finite(silhouette_score(rows, labels, metric="minkowski", p=2))


def matched_error(centers: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, int]:
    """Returns the mean squared distance between matched centers, feature units squared, and the number of pairs.

    Centers are matched one to one so that the sum of squared distances is least (Hungarian method); if there are
    more of one kind, those that fit worst stay unmatched.

    Args:
      centers: shape (n, n_features), feature units.
      reference: shape (m, n_features).

    Example:
      >>> matched_error(np.array([[0.0], [5.0]]), np.array([[7.0], [0.0]]))
      (2.0, 2)
    """
    squared = cdist(centers, reference, "sqeuclidean")
    pairs = linear_sum_assignment(squared)
    return float(squared[pairs].mean()), len(pairs[0])
