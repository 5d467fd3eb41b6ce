"""What clusters are called: terms that more of their units have than of all, by more than noise explains.

Post-processing of one release of noisy counts, one for each cluster and term.
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
      threshold: excess over its noise that a name has at least, in stddevs.
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
    """Stddevs that noise exceeds in at most `FALSE_NAMES` of so many cells, as expected."""
    return -statistics.NormalDist().inv_cdf(FALSE_NAMES / max(n_cells, 1))


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
    excess, deviation = excesses(counts, stddev, sizes, size_stddev)
    least = threshold(counts.size)
    # Counts that are negative by noise cannot be names either, whatever is expected there.
    above = (excess > least * deviation) & (counts > least * stddev)
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


def excesses(
    counts: NDArray[np.float64], stddev: float, sizes: NDArray[np.float64], size_stddev: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By how many units each cell is above the share of its cluster in all that have the term; and stddevs of noise.

    Args:
      counts: shape (k, V): units per cluster and term.
      stddev: of the noise of each.
      sizes: shape (k,): units per cluster.
      size_stddev: of the noise of each.

    Returns:
      Shapes (k, V): count - share * (count in all clusters), and by how much noise moves it, to first order.
    """
    positive = np.maximum(sizes, 0.0)
    total = max(float(positive.sum()), size_stddev, 1e-300)
    share = (positive / total)[:, None]
    everywhere = np.maximum(counts.sum(axis=0), 0.0)
    own = stddev**2 * ((1.0 - share) ** 2 + share**2 * (len(sizes) - 1))
    of_share = (everywhere * size_stddev / total) ** 2
    return counts - share * everywhere, np.sqrt(own + of_share)
