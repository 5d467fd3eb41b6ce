"""Combines the runs of a series for each cluster: a decayed sum of noisy sums and counts, and its drift.

All of it is post-processing of releases, whose noise is known. A run measured its sums from its centers at the time,
so sums are moved to one origin by the noisy counts; their noise moves with them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.recurring.remembered import Memory
from dapple_dp.transforms.numerics.kmeans.centers import NoisyMeans
from dapple_dp.transforms.numerics.kmeans.recurring.drift import FEWEST_STDDEVS, cube_root_normal
from dapple_dp.transforms.numerics.kmeans.recurring.windows import mixing

KEPT_LENGTHS = 8
"""Age, in lengths of the memory, from which on runs are forgotten: their weight is below exp(-8)."""


def memory_of(noisy: NoisyMeans, means: NDArray[np.float64]) -> Memory:
    """Returns the memory of one run.

    Args:
      noisy: its last sums and counts.
      means: shape (k, d), feature units: the centers by these.
    """
    return Memory(
        origins=(means - noisy.means)[None],
        sums=noisy.sums[None],
        counts=noisy.counts[None],
        sums_stddevs=np.array([noisy.sums_stddev]),
        counts_stddevs=np.array([noisy.counts_stddev]),
    )


def most_runs(length: int) -> int:
    """Returns how many runs a memory of this length holds."""
    return KEPT_LENGTHS * length


def recalled(memory: Memory, length: float, weights: Sequence[int] = (1,)) -> "Recalled":
    """Combines the runs of a memory.

    Args:
      memory: of the series.
      length: in runs, at least 1: a run weighs (1 - 1 / length)^age.
      weights: with which each run added the statistics of earlier ones, see `windows`; by default it added none.
    """
    decayed = (1.0 - 1.0 / length) ** np.arange(len(memory))[::-1]
    mixed = mixing(weights, len(memory))
    counts = decayed @ memory.counts
    stddev = float(np.sqrt(((decayed @ mixed) ** 2) @ memory.counts_stddevs**2))
    shares = decayed[:, None] / np.maximum(counts, max(stddev, 1e-9))
    here = memory.origins[-1]
    around = memory.sums + memory.counts[:, :, None] * (memory.origins - here)
    means = here + np.einsum("nk,nkd->kd", shares, around)
    offsets = shares[:, :, None] * (memory.origins - means)
    return Recalled(
        means=means,
        counts=counts,
        counts_stddev=stddev,
        shares=shares,
        noise_shares=mixed.T @ shares,
        noise_offsets=np.einsum("tn,tkd->nkd", mixed, offsets),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recalled:
    """Decayed sums over decayed counts.

    To first order the noise of a mean is the sum over runs of `noise_shares` times the noise of the run's sum, plus
    `noise_offsets` times the noise of its count.

    Attributes:
      means: shape (k, d), feature units.
      counts: shape (k,): decayed; may be negative.
      counts_stddev: noise stddev of one of them.
      shares: shape (n, k): weight of each run's sum in a mean.
      noise_shares: shape (n, k): as `shares`, for the noise, which runs have in common.
      noise_offsets: shape (n, k, d), feature units.
    """

    means: NDArray[np.float64]
    counts: NDArray[np.float64]
    counts_stddev: float
    shares: NDArray[np.float64]
    noise_shares: NDArray[np.float64]
    noise_offsets: NDArray[np.float64]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of counts that are large enough for the noise of the mean to be known, shape (k,)."""
        return self.counts >= FEWEST_STDDEVS * self.counts_stddev

    def variances(self, memory: Memory) -> NDArray[np.float64]:
        """Returns the expected squared error of each mean by noise alone, shape (k,), feature units squared."""
        n_features = self.means.shape[1]
        by_sums = n_features * (memory.sums_stddevs**2 @ self.noise_shares**2)
        by_counts = np.einsum("n,nkd->k", memory.counts_stddevs**2, self.noise_offsets**2)
        return np.asarray(by_sums + by_counts)


def drift_scores(
    memory: Memory, long: float, short: float, spread: float, weights: Sequence[int] = (1,)
) -> NDArray[np.float64]:
    """Returns the distance of a short memory from a long one, compared with noise and chance.

    Both recall the same runs, so the noise that they share cancels; what is left has, to first order, covariance
    a I + sum over runs of b b^T. Other rows have another mean by chance: rows within `spread` of a center have a
    covariance of at most spread^2 I, so the mean of n rows one of at most spread^2 / n, which is added to a.

    Args:
      memory: of the series.
      long: length of the long memory, in runs.
      short: length of the short one.
      spread: feature units: largest distance of a counted row from the origin of its sum.
      weights: see `recalled`.

    Returns:
      shape (k,): standard normal at most, if only noise and chance moved the means (Wilson, Hilferty 1931); NaN
      if a count is too small for its noise.
    """
    slow, fast = recalled(memory, long, weights), recalled(memory, short, weights)
    shares, n_features = fast.shares - slow.shares, slow.means.shape[1]
    offsets = (fast.noise_offsets - slow.noise_offsets) * memory.counts_stddevs[:, None, None]
    chance = spread**2 * (np.maximum(memory.counts, 0.0) * shares**2).sum(axis=0)
    plain = memory.sums_stddevs**2 @ (fast.noise_shares - slow.noise_shares) ** 2 + chance
    along = np.moveaxis(offsets, 0, -1)  # (k, d, n)
    differences = fast.means - slow.means
    inner = plain[:, None, None] * np.eye(len(memory)) + np.einsum("kdi,kdj->kij", along, along)
    crossed = np.einsum("kdi,kd->ki", along, differences)
    usable = slow.known & fast.known & (plain > 0.0)
    scores = np.full(len(plain), np.nan)
    for cluster in np.flatnonzero(usable):
        explained = crossed[cluster] @ np.linalg.solve(inner[cluster], crossed[cluster])
        squared = max(float(differences[cluster] @ differences[cluster]) - float(explained), 0.0) / plain[cluster]
        scores[cluster] = cube_root_normal(np.array([squared]), n_features)[0]
    return scores
