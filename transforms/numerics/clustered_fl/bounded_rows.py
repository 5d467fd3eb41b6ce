"""Rows of clients as integers of bounded norm, created as soon as rows are read, before any computation on them.

A row that is longer than the public norm is shortened to it, for any magnitude. All that follows from a row is then a
function of integers of `FEATURE_BITS` bits, so its dot products are exact.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.records import FEATURE_BITS, ClientRows
from dapple_dp.transforms.core.statistics.lattice import Lattice, quantize

_TYPICAL_FEATURE = 64.0


def row_norm(n_features: int, feature_norm: float | None) -> float:
    """Returns the largest L2 norm of a row, in feature units; by default that of a row of 64s.

    Args:
      n_features: >= 1.
      feature_norm: of the job, in [1, 1e9], or None.
    """
    return _TYPICAL_FEATURE * math.sqrt(n_features) if feature_norm is None else feature_norm


def bound_features(points: NDArray[Any], feature_norm: float | None = None) -> NDArray[np.float32]:
    """Returns rows as integers of L2 norm at most 2**FEATURE_BITS, truncated toward zero; each from its row alone.

    Args:
      points: shape (n_rows, n_features), feature units, finite, of any magnitude.
      feature_norm: in [1, 1e9], public, feature units, worth 2**FEATURE_BITS units; None for the default of `row_norm`.

    Returns:
      Same shape; float32 holds such integers exactly.

    Raises:
      LatticeOverflowError: for more than 8,192 features.
    """
    n_features = points.shape[1]
    public = Lattice(np.zeros(n_features), row_norm(n_features, feature_norm))
    return quantize(points, public, FEATURE_BITS).astype(np.float32)


def bounded_rows(points: NDArray[Any], labels: NDArray[np.int64], feature_norm: float | None = None) -> ClientRows:
    """Returns the rows of one client, bounded as in `bound_features`."""
    return ClientRows.of(bound_features(points, feature_norm), labels)
