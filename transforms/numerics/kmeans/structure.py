"""Tests, from released numbers alone, if centers explain more of the rows than centers of a single cloud would."""

import itertools

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.numerics.one_thread import one_thread

_DRAWS = 1_000
"""Rows of each cloud that represents data without clusters."""
_RESTARTS = 5
MARGIN = 0.03
"""Share of the variance that clouds leave unexplained which centers must explain to count as clusters."""

CUT = 3.0
"""Stddevs of rows around their centers below which two centers may share a cluster; halves of one are 1.6 apart."""


def n_found(
    centers: NDArray[np.float64],
    sizes: NDArray[np.float64],
    noise: NDArray[np.float64],
    covariance: NDArray[np.float64],
    seed: int,
) -> int:
    """Returns how many clusters centers show: all, or else 3 or 2 groups of them; 1 if there is no more than one.

    Args:
      centers: shape (k, d), feature units; k >= 2.
      sizes: shape (k,), >= 0, some above 0.
      noise: shape (k, d): stddev of each coordinate.
      covariance: shape (d, d), of the rows.
      seed: public.
    """
    variances = _variances(covariance)
    for size in sorted({len(centers), *(each for each in (2, 3) if each < len(centers))}, reverse=True):
        groups = seeding.weighted_kmeans(centers, sizes, size, _RESTARTS, seed).labels
        members = (groups == np.arange(size)[:, None]) * sizes
        total = np.maximum(members.sum(axis=1, keepdims=True), 1e-300)
        shares = members / total
        found = explained(shares @ centers, total[:, 0], np.sqrt(shares**2 @ noise**2), float(np.trace(covariance)))
        cloud = _explained_of_clouds(variances, size, seed)
        if found - cloud > MARGIN * (1.0 - cloud):
            return size
    return 1


def cut_pairs(
    centers: NDArray[np.float64],
    sizes: NDArray[np.float64],
    noise: NDArray[np.float64],
    covariance: NDArray[np.float64],
) -> list[tuple[int, int]]:
    """Returns pairs of centers as near to each other, relative to the spread of rows, as parts of one cluster are.

    Args:
      centers: shape (k, d), feature units.
      sizes: shape (k,), >= 0, some above 0.
      noise: shape (k, d): stddev of each coordinate.
      covariance: shape (d, d), of all rows.
    """
    shares = sizes / sizes.sum()
    offsets = centers - shares @ centers
    within = covariance - (offsets * shares[:, None]).T @ offsets + np.diag(shares @ noise**2)
    result = []
    for first, second in itertools.combinations(range(len(centers)), 2):
        along = centers[first] - centers[second]
        squared = float(along @ along)
        if squared**2 < CUT**2 * float(along @ within @ along):
            result.append((first, second))
    return result


def explained(
    centers: NDArray[np.float64], sizes: NDArray[np.float64], noise: NDArray[np.float64], total: float
) -> float:
    """Returns the share of the variance of rows that lies between centers.

    Args:
      centers: shape (k, d), feature units.
      sizes: shape (k,), >= 0, some above 0.
      noise: shape (k, d): stddev of each coordinate; its contribution is subtracted.
      total: variance of rows around their mean, all coordinates together, > 0.
    """
    shares = sizes / sizes.sum()
    offsets = centers - shares @ centers
    return float((shares @ ((offsets**2).sum(axis=1) - (noise**2).sum(axis=1))) / total)


def _variances(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the variances of rows along their principal directions, largest first; negative ones count as zero."""
    with one_thread():
        return np.maximum(np.linalg.eigvalsh(covariance)[::-1], 0.0)


def _explained_of_clouds(variances: NDArray[np.float64], n_clusters: int, seed: int) -> float:
    """Returns the largest share of variance that k centers explain of a Gaussian or a uniform cloud without clusters.

    Args:
      variances: shape (d,), of the rows along their principal directions, largest first, >= 0.
      n_clusters: k >= 1.
      seed: public.

    Source: after Tibshirani, Walther, Hastie (2001), "Estimating the number of clusters in a data set via the gap
      statistic", whose reference is uniform along the principal directions.
    """
    total, used = float(variances.sum()), variances[: 2 * n_clusters]
    if not total > 0.0:
        return 1.0
    rng = np.random.default_rng([seed, 23])
    shape = (max(_DRAWS, 20 * n_clusters), len(used))
    clouds = (rng.normal(size=shape), rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), shape))
    return max(_of_cloud(cloud * np.sqrt(used), n_clusters, seed) for cloud in clouds) / total


def _of_cloud(rows: NDArray[np.float64], n_clusters: int, seed: int) -> float:
    """Returns the variance of rows, shape (n, d), between the centers of k-means."""
    found = seeding.weighted_kmeans(rows, np.ones(len(rows)), n_clusters, _RESTARTS, seed)
    shares = np.bincount(found.labels, minlength=n_clusters) / len(rows)
    return float(shares @ ((found.centers - rows.mean(axis=0)) ** 2).sum(axis=1))
