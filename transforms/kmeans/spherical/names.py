"""What clusters are called: terms that more of their units have than of all, by more than noise explains.

Post-processing of two releases: noisy sizes of clusters, and noisy counts, one for each cluster and term. A name is
false if n <= h * N: n of the cluster's units that count have the term, N of all, and the cluster has a share h of the
units. At most `FALSE_NAMES` false ones are expected in a whole run, whatever the exact numbers are:

- Given sizes, count - g * (counts of the term) has mean n - g * N and noise of stddev * sqrt((1 - g)^2 + (k - 1) * g^2)
  for any g that follows from sizes alone, since counts have a noise of their own. If g >= h then this mean is at most 0
  where a name would be false, and one of k * V cells is above `threshold` of these stddevs with odds of
  (1 - OF_SHARES) * FALSE_NAMES / (k * V).
- g is below h in one cluster with odds of OF_SHARES * FALSE_NAMES / (k * MOST_NAMES) (`largest_shares`), and then that
  cluster has `MOST_NAMES` false ones at most.

Noise is discrete, with a stddev of 2^10 lattice steps or more. So a tail from z stddevs has the odds of the normal law,
but for a factor of about 1 + z / 2^11.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.kmeans.fit_config import SphericalFit
from schemas.privacy.plan import Role
from schemas.privacy.release import Release
from transforms.numerics.kmeans.centers import released_as

FALSE_NAMES = 0.05
"""Names by noise alone that are expected in a whole run, at most."""
OF_SHARES = 0.2
"""Of these, those where the noise of sizes hides how large a cluster is; noise of counts may give the others."""
MOST_NAMES = 5
"""Names of a cluster, at most."""


class ClusterNames(NamedTuple):
    """Names of clusters, the strongest first; a cluster without one has no row.

    Attributes:
      clusters: shape (n_names,), ascending: indices of clusters.
      terms: as the vocabulary has them.
      counts: shape (n_names,): noisy numbers of units that count in the cluster with this term.
      excess: shape (n_names,): how many more these are than if the term were as frequent everywhere.
      count_stddev: of the noise of a count.
      threshold: stddevs of noise that the excess of a name is above, for the largest share that its cluster may have.
    """

    clusters: NDArray[np.int64]
    terms: tuple[str, ...]
    counts: NDArray[np.float64]
    excess: NDArray[np.float64]
    count_stddev: float
    threshold: float

    def of(self, cluster: int) -> list[int]:
        """Rows of a cluster, the strongest name first."""
        return [int(row) for row in np.flatnonzero(self.clusters == cluster)]

    def reordered(self, rows: Sequence[int]) -> "ClusterNames":
        """The same with clusters in another order, `rows` of where each was."""
        order = [row for cluster in rows for row in self.of(cluster)]
        again = [index for index, cluster in enumerate(rows) for _ in self.of(cluster)]
        return self._replace(
            clusters=np.array(again, dtype=np.int64),
            terms=tuple(self.terms[row] for row in order),
            counts=self.counts[order],
            excess=self.excess[order],
        )

    def table(self, numbers: Sequence[int]) -> pa.Table:
        """`names.parquet`: cluster int32, term string, noisy_count, count_stddev and excess, all doubles.

        Args:
          numbers: of the clusters, in their order.
        """
        return pa.table(
            {
                "cluster": pa.array([numbers[index] for index in self.clusters], pa.int32()),
                "term": pa.array(self.terms, pa.string()),
                "noisy_count": pa.array(self.counts, pa.float64()),
                "count_stddev": pa.array(np.full(len(self.terms), self.count_stddev), pa.float64()),
                "excess": pa.array(self.excess, pa.float64()),
            }
        )


def threshold(n_cells: int) -> float:
    """Stddevs that noise exceeds in (1 - `OF_SHARES`) * `FALSE_NAMES` of so many cells, as expected."""
    return _exceeded_by((1.0 - OF_SHARES) * FALSE_NAMES / max(n_cells, 1))


def _exceeded_by(probability: float) -> float:
    """Stddevs that a normal number is above with this probability."""
    return -statistics.NormalDist().inv_cdf(probability)


def cluster_names(config: SphericalFit, releases: Sequence[Release]) -> ClusterNames | None:
    """The names that the releases of a run give; None for a job without names.

    Args:
      config: the job, with the terms of its vocabulary.
      releases: of the run, with their units.
    """
    if config.terms is None:
        return None
    terms, sizes = (released_as(releases, role) for role in (Role.CLUSTER_TERMS, Role.CLUSTER_COUNTS))
    if terms is None or sizes is None:
        raise ValueError("releases must hold terms and sizes of clusters for a job with names; give those of its run.")
    return named(terms.decoded, terms.stddev, sizes.decoded, sizes.stddev, config.terms.vocabulary)


def named(
    counts: NDArray[np.float64],
    stddev: float,
    sizes: NDArray[np.float64],
    size_stddev: float,
    vocabulary: Sequence[str],
) -> ClusterNames:
    """Names by noisy counts.

    Args:
      counts: shape (k, V): units per cluster and term.
      stddev: of the noise of each.
      sizes: shape (k,): units per cluster.
      size_stddev: of the noise of each.
      vocabulary: the V terms.
    """
    least = threshold(counts.size)
    positive = np.maximum(sizes, 0.0)
    excess = excesses(counts, positive / max(float(positive.sum()), size_stddev, 1e-300))
    largest = largest_shares(sizes, size_stddev)
    # Sizes have noise of their own: given them, the noise of these differences is exactly that of counts.
    deviation = stddev * np.sqrt((1.0 - largest) ** 2 + largest**2 * (len(sizes) - 1))
    above = excesses(counts, largest) > least * deviation[:, None]
    strength = np.where(above, excess, -np.inf)
    order = np.argsort(-strength, axis=1, kind="stable")[:, :MOST_NAMES]
    clusters, places = np.nonzero(np.take_along_axis(above, order, axis=1))
    found = order[clusters, places]
    return ClusterNames(
        clusters=clusters,
        terms=tuple(vocabulary[index] for index in found),
        counts=counts[clusters, found],
        excess=excess[clusters, found],
        count_stddev=stddev,
        threshold=least,
    )


def excesses(counts: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how many units each cell (k, V) is above the share (k,) of its cluster in all that have the term."""
    return counts - shares[:, None] * np.maximum(counts.sum(axis=0), 0.0)


def largest_shares(sizes: NDArray[np.float64], stddev: float) -> NDArray[np.float64]:
    """The largest share of all units that each cluster may have, given noisy sizes; some is larger with little odds.

    A share h is possible if size - h * (sum of sizes), of mean 0 where h is true, is above -z times its stddev. Each of
    k clusters may get `MOST_NAMES` false names where its share is larger, so z is such that `OF_SHARES` of
    `FALSE_NAMES` are expected of that. Source: Fieller (1954), "Some problems in interval estimation".

    Args:
      sizes: shape (k,), noisy.
      stddev: of the noise of each.

    Returns:
      Shape (k,), from 0 to 1.
    """
    variance = (_exceeded_by(OF_SHARES * FALSE_NAMES / (len(sizes) * MOST_NAMES)) * stddev) ** 2
    total = float(sizes.sum())
    # The larger root of (size - h * total)**2 = variance * ((1 - h)**2 + (k - 1) * h**2).
    square, half, rest = total**2 - len(sizes) * variance, sizes * total - variance, sizes**2 - variance
    if total <= 0.0 or square <= 0.0:
        return np.ones(len(sizes))
    return np.clip((half + np.sqrt(np.maximum(half**2 - square * rest, 0.0))) / square, 0.0, 1.0)
