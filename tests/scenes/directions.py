"""Server points that cluster better in full space, or in a subspace."""

import numpy as np
from numpy.typing import NDArray

from tests.scenes import lake


def in_many_directions(n_rows: int = 400) -> NDArray[np.float64]:
    """More well separated clusters than are asked for, each in a direction of its own."""
    return lake.mixture(n_rows, means=5.0 * np.eye(20))


def in_few_directions(n_rows: int = 120) -> NDArray[np.float64]:
    """Three clusters a little apart in sixty noisy directions."""
    return lake.mixture(n_rows, means=1.2 * np.eye(3, 60))
