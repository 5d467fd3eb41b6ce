"""What one round of sums and counts says of each cluster, found among the releases of a run."""

from collections.abc import Sequence

from schemas.privacy.release import Release
from transforms.numerics.kmeans.centers import NoisyMeans

LEAVES = "/leaves/counts"
"""Counts of the central tree's leaves, which are no clusters."""


def last_means(releases: Sequence[Release], n_clusters: int) -> NoisyMeans | None:
    """Sums and counts of the last round that released both per cluster, in its own order of the clusters.

    Sums are measured from wherever the round measured them: the frame's center, or the centers before it.

    Args:
      releases: of a run, in order, told their lattice units.
      n_clusters: of the run's model; at most as many as the round summed.

    Returns:
      None where no round did, or the centers are not made of it (leaves of the central tree).
    """
    for sums, counts in zip(reversed(releases[:-1]), reversed(releases[1:]), strict=True):
        paired = sums.path.endswith("/sums") and counts.path.endswith("/counts")
        if paired and not counts.path.endswith(LEAVES):
            return NoisyMeans(sums.decoded[:n_clusters], counts.decoded[:n_clusters], sums.stddev, counts.stddev)
        if paired:
            return None
    return None
