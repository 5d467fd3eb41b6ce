"""Computes centers from noisy sums and counts, with guards for small counts and shrinkage to public information."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.privacy.meaning import Role, meaning_of

PRIOR_BIAS = 0.006
"""Squared bias granted to a prior mean, as a share of the within-cluster scatter of one row."""
GUARD_STDDEVS = 2.0
"""A noisy count below this many noise stddevs carries no mean."""


def unexplained(
    squared: NDArray[np.float64], expected: NDArray[np.float64], n_coordinates: int, stddevs: float = 2.0
) -> NDArray[np.float64]:
    """Returns the excess of squared distances over what noise explains: their expectation and some of its stddevs.

    Args:
      squared: shape (n,): squared distances.
      expected: shape (n,): their expectation by Gaussian noise alone, equal in every coordinate.
      n_coordinates: over which each distance sums.
      stddevs: > 0; larger for many distances.

    Returns:
      shape (n,), possibly negative.

    Source: the variance of a sum of m squared normals of expectation v is 2 v^2 / m.
    """
    return squared - expected * (1.0 + stddevs * np.sqrt(2.0 / n_coordinates))


class NoisyMeans(NamedTuple):
    """Decoded release of one sums-and-counts round.

    Attributes:
      sums: shape (n_clusters, d), feature units.
      counts: shape (n_clusters,), rows or client weights; may be negative.
      sums_stddev: noise stddev of one entry of `sums`.
      counts_stddev: noise stddev of one count.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    sums_stddev: float
    counts_stddev: float

    @property
    def safe_counts(self) -> NDArray[np.float64]:
        """Counts, at least one noise stddev (and never zero)."""
        return np.maximum(self.counts, max(self.counts_stddev, 1e-9))

    @property
    def means(self) -> NDArray[np.float64]:
        """Sums over safe counts, shape (n_clusters, d)."""
        return self.sums / self.safe_counts[:, None]

    @property
    def variances(self) -> NDArray[np.float64]:
        """Expected squared error of each mean by its noise alone, shape (n_clusters,), feature units squared.

        The noise of the sums, and to first order that of the count by which they are divided.
        """
        by_sums = self.sums.shape[1] * self.sums_stddev**2
        by_counts = (self.means**2).sum(axis=1) * self.counts_stddev**2
        return (by_sums + by_counts) / self.safe_counts**2

    @property
    def stddevs(self) -> NDArray[np.float64]:
        """Stddev of each coordinate of each mean by its noise alone, to first order; shape of `sums`, feature units."""
        stddevs = np.hypot(self.sums_stddev, self.means * self.counts_stddev) / self.safe_counts[:, None]
        return np.asarray(stddevs, dtype=np.float64)


class Prior(NamedTuple):
    """Public data (or earlier releases) about each center.

    Attributes:
      means: shape (n_clusters, d), feature units.
      variances: shape (n_clusters,): expected squared error of each mean, feature units squared; infinite
        if nothing is known and `means` are only a fallback.
      bias: squared bias that no amount of public data removes, feature units squared.
    """

    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    bias: float = 0.0

    @property
    def informative(self) -> bool:
        """True if every mean has a finite expected error."""
        return bool(np.isfinite(self.variances).all())

    def widened(self, noisy: NoisyMeans, stddevs: float = 2.0) -> "Prior":
        """Returns the prior with larger variances if noisy means are farther off than their noise explains.

        `stddevs` are as in `unexplained`. There the public data don't represent the cluster, and the distance shows
        how far they are off.
        """
        squared = ((noisy.means - self.means) ** 2).sum(axis=1)
        beyond_noise = unexplained(squared, noisy.variances, self.means.shape[1], stddevs)
        return self._replace(variances=np.maximum(self.variances, beyond_noise))

    def updated(self, means: NDArray[np.float64], noisy: NoisyMeans) -> "Prior":
        """Returns the prior of the next round: `means`, which blended this prior with `noisy`."""
        if not self.informative:
            return self._replace(means=means)
        return self._replace(means=means, variances=1.0 / (1.0 / self.variances + 1.0 / noisy.variances) + self.bias)


def guarded_means(noisy: NoisyMeans, prior: Prior) -> NDArray[np.float64]:
    """Returns noisy means for counts above `GUARD_STDDEVS` noise stddevs, else prior means; shape (n_clusters, d)."""
    trusted = noisy.counts > GUARD_STDDEVS * noisy.counts_stddev
    return np.where(trusted[:, None], noisy.means, prior.means)


def printed_means(noisy: NoisyMeans, prior: Prior) -> NDArray[np.float64]:
    """Divides noisy sums by noisy counts of any sign, shape (n_clusters, d); the prior's mean for a count of zero.

    Source: Scott et al. (2025), Algorithm 1, line 24.
    """
    known = noisy.counts != 0.0
    return np.where(known[:, None], noisy.sums / np.where(known, noisy.counts, 1.0)[:, None], prior.means)


def shrunken_means(noisy: NoisyMeans, prior: Prior) -> NDArray[np.float64]:
    """Blends noisy means and prior means by inverse variance, shape (n_clusters, d).

    lambda = v_prior / (v_prior + v_noise) is the weight of the private mean: it goes to one as the noise
    vanishes and to zero as it grows.
    """
    weight = (prior.variances / (prior.variances + noisy.variances))[:, None]
    return weight * noisy.means + (1.0 - weight) * prior.means


def public_prior(
    rows: NDArray[np.float64], labels: NDArray[np.int64], weights: NDArray[np.float64], fallback: NDArray[np.float64]
) -> Prior:
    """Returns the mean of the public rows of each cluster, weighted by released weights.

    Args:
      rows: shape (q, d), feature units.
      labels: shape (q,), cluster of each row.
      weights: shape (q,), >= 0.
      fallback: shape (n_clusters, d): mean of a cluster that has no public rows.

    Returns:
      `Prior`; the variance of a mean of m effective rows is s^2 d (1 / m + PRIOR_BIAS), s^2 the within-cluster
      variance of one coordinate.
    """
    n_clusters = len(fallback)
    members = (labels[:, None] == np.arange(n_clusters)) * weights[:, None]
    mass = members.sum(axis=0)
    known = mass > 0
    means = np.where(known[:, None], members.T @ rows / np.maximum(mass, 1e-300)[:, None], fallback)
    effective = np.where(known, mass**2 / np.maximum((members**2).sum(axis=0), 1e-300), 1.0)
    errors = ((rows - means[labels]) ** 2).sum(axis=1)
    freedom = max(float((effective - 1.0)[known].sum()) / max(float(effective[known].sum()), 1.0), 0.05)
    scatter = float((weights * errors).sum() / max(float(weights.sum()), 1e-300)) / freedom
    scatter = max(scatter, 1e-12 * (float((rows**2).sum(axis=1).max()) or 1.0))
    return Prior(means, scatter * (1.0 / effective + PRIOR_BIAS), scatter * PRIOR_BIAS)


def last_means(releases: Sequence[Release], n_clusters: int) -> NoisyMeans | None:
    """Returns sums and counts of the last round that released both per cluster, in its order of the clusters.

    Sums keep the round's origin: the frame's center, or the centers before it.

    Args:
      releases: of a run, in order, with their lattice units.
      n_clusters: of the run's model; at most as many as the round summed.

    Returns:
      None if no round did.
    """
    result = None
    for sums, counts in itertools.pairwise(releases):
        roles = (meaning_of(sums.plan.spec).role, meaning_of(counts.plan.spec).role)
        if roles == (Role.CLUSTER_SUMS, Role.CLUSTER_COUNTS):
            result = NoisyMeans(sums.decoded[:n_clusters], counts.decoded[:n_clusters], sums.stddev, counts.stddev)
    return result


def released_as(releases: Sequence[Release], role: Role) -> Release | None:
    """Returns the last release of a role; None if there is none."""
    return next((release for release in reversed(releases) if meaning_of(release.plan.spec).role is role), None)
