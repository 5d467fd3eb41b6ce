"""What decoders of reports give."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class DecodedCenters(NamedTuple):
    """Centers: `centers` (n_clusters, n_features) in units of the radius, and `sizes` (n_clusters,) in reports."""

    centers: NDArray[np.float64]
    sizes: NDArray[np.float64]


def in_ball(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points at their nearest place in the unit ball."""
    return points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
