"""What one round of sums and counts says of each cluster, and the noise of sizes, found among the releases of a run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.privacy.release import Release
from transforms.numerics.kmeans.centers import NoisyMeans
from transforms.numerics.kmeans.recurring.windows import own_noise

_SIZES = ("/counts", "/sizes", "/weighted_counts")
"""Ends of the paths of releases that say how large clusters are."""
_LEAVES = "/leaves/counts"
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
        if paired and not counts.path.endswith(_LEAVES):
            return NoisyMeans(sums.decoded[:n_clusters], counts.decoded[:n_clusters], sums.stddev, counts.stddev)
        if paired:
            return None
    return None


def size_stddevs(
    releases: Sequence[Release],
    n_clusters: int,
    *,
    epoch: Mapping[str, Any] | None = None,
    n_leaves: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Noise stddev of each noisy size of a run's model: the one place that knows, for pages, plans and drift alike.

    Args:
      releases: of the run, in order, told their lattice units.
      n_clusters: of its model.
      epoch: of a window what its outputs say of its epoch: a size there is the window's own part; else None.
      n_leaves: shape (n_clusters,), of central_tree without Lloyd rounds: how many leaves each size adds up.

    Returns:
      Shape (n_clusters,), rows (client weights). NaN where sizes add up leaves and it is not known how many.

    Raises:
      LookupError: if no release says how large clusters are.
    """
    counts = next((each for each in reversed(releases) if each.path.endswith(_SIZES)), None)
    if counts is None:
        raise LookupError("a size must be released to have a noise, got no such release; name it in _SIZES.")
    if counts.path.endswith(_LEAVES):
        return np.full(n_clusters, math.nan) if n_leaves is None else counts.stddev * np.sqrt(np.maximum(n_leaves, 1.0))
    own = 1.0
    if epoch is not None:
        weights = tuple(epoch["weights"])
        own = float(own_noise(weights, epoch["index"] + 1)[-1]) / weights[0]
    return np.full(n_clusters, counts.stddev * own)
