"""The noise of the sizes of clusters, found among the releases of a run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.privacy.release import Release
from transforms.numerics.kmeans.noisy_means import LEAVES
from transforms.numerics.kmeans.recurring.windows import own_noise

_SIZES = ("/counts", "/sizes", "/weighted_counts")
"""Ends of the paths of releases that say how large clusters are."""


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
    if counts.path.endswith(LEAVES):
        return np.full(n_clusters, math.nan) if n_leaves is None else counts.stddev * np.sqrt(np.maximum(n_leaves, 1.0))
    own = 1.0
    if epoch is not None:
        weights = tuple(epoch["weights"])
        own = float(own_noise(weights, epoch["index"] + 1)[-1]) / weights[0]
    return np.full(n_clusters, counts.stddev * own)
