"""Distances between two releases of the same clusters, in units of their known noise.

All results are computed from releases, whose noise is known. A score is standard normal if nothing but noise
moved the means; it ignores how much means of other rows differ by chance.
"""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans

FEWEST_STDDEVS = 5.0
"""Noise stddevs of a count below which its mean has unknown noise, since errors of quotients are of first order."""


def mean_scores(
    differences: NDArray[np.float64], before: NoisyMeans, after: NoisyMeans
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compares differences of noisy means with the noise of both.

    A mean sum / count has, to first order, noise of covariance (s^2 I + c^2 m m^T) / count^2, with s and c the noise
    stddevs of sums and counts and m the mean, from the origin of the sum. The squared length of a difference
    in these units follows chi-squared with a degree of freedom per feature; its cube root is almost normal.

    Args:
      differences: shape (k, d), feature units: noisy means after minus those before, cluster by cluster.
      before: sums and counts of those before.
      after: of those after.

    Returns:
      scores, shape (k,), standard normal if both means are equal except for noise, NaN if a count is too small for
      its noise; and, shape (k,), the move by noise alone: the root of the expected squared distance.

    Source: Wilson, Hilferty (1931), "The distribution of chi-square".
    """
    n_features = differences.shape[1]
    plain = _variance(before) + _variance(after)
    spread = np.stack([_by_counts(before), _by_counts(after)], axis=2)  # (k, d, 2)
    crossed = np.einsum("kdi,kdj->kij", spread, spread)
    inner = plain[:, None, None] * np.eye(2) + crossed
    along = np.einsum("kdi,kd->ki", spread, differences)
    explained = np.einsum("ki,ki->k", along, np.linalg.solve(inner, along[:, :, None])[:, :, 0])
    squared = np.maximum((differences**2).sum(axis=1) - explained, 0.0) / plain
    scores = cube_root_normal(squared, n_features)
    known = _is_known(before) & _is_known(after)
    noise = np.sqrt(n_features * plain + np.trace(crossed, axis1=1, axis2=2))
    return np.where(known, scores, np.nan), np.where(known, noise, np.nan)


def _variance(noisy: NoisyMeans) -> NDArray[np.float64]:
    """Returns the variance of each coordinate by the noise of the sums, shape (k,)."""
    return (noisy.sums_stddev / noisy.safe_counts) ** 2


def _by_counts(noisy: NoisyMeans) -> NDArray[np.float64]:
    """Returns the move of each mean by one stddev of the count's noise, shape (k, d)."""
    return noisy.means * (noisy.counts_stddev / noisy.safe_counts)[:, None]


def _is_known(noisy: NoisyMeans) -> NDArray[np.bool_]:
    return noisy.counts >= FEWEST_STDDEVS * noisy.counts_stddev


def cube_root_normal(squared: NDArray[np.float64], freedom: int) -> NDArray[np.float64]:
    """Transforms chi-squared numbers to almost standard normal ones.

    Args:
      squared: of any shape, at least 0.
      freedom: degrees of freedom.
    """
    variance = 2.0 / (9.0 * freedom)
    return (np.cbrt(squared / freedom) - (1.0 - variance)) / np.sqrt(variance)


def size_scores(
    before: NDArray[np.float64], after: NDArray[np.float64], stddevs: tuple[float, float]
) -> NDArray[np.float64]:
    """Returns changes of noisy sizes over the stddev of the noise of both, shape (k,).

    Args:
      before: shape (k,), noisy.
      after: shape (k,), noisy.
      stddevs: noise stddev of one size before, and after.

    Example:
      >>> size_scores(np.array([10.0]), np.array([20.0]), (3.0, 4.0))
      array([2.])
    """
    return (after - before) / np.hypot(*stddevs)
