"""Public bounds of columns, as the parameters of estimators give them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError

Pair = tuple[float, float]
Bounds = Pair | Sequence[Pair] | Mapping[str, Pair]
_LARGEST = 1e100


def by_column(bounds: Any, n_features: int, names: Any = None) -> NDArray[np.float64]:
    """Bounds as an array, shape (n_features, 2).

    Args:
      bounds: a pair, a list of pairs, or a mapping by name.
      n_features: number of columns.
      names: of the columns; None where they have none.

    Raises:
      ConfigError: in one sentence.
    """
    if isinstance(bounds, Mapping):
        columns = [] if names is None else [str(name) for name in names]
        odd = [str(name) for name in {*columns, *bounds} if (name in bounds) != (name in columns)]
        if odd:
            raise ConfigError(
                f"bounds must have a pair for every column of X and no other, got {min(odd)!r} in one of them only; "
                "use the names of the columns, or a list of pairs where they have none."
            )
        bounds = [bounds[name] for name in columns]
    try:
        ends = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        ends = np.zeros(0)
    if ends.shape == (2,):
        ends = np.tile(ends, (n_features, 1))
    if ends.shape != (n_features, 2):
        raise ConfigError(
            f"bounds must be a pair of numbers, or one for each of the {n_features} columns, got others; give the "
            "lower and the upper bound of each column."
        )
    apart = ends[:, 1] - ends[:, 0] > 1e-9 * np.abs(ends).max(axis=1)
    if not (np.isfinite(ends).all() and (np.abs(ends) <= _LARGEST).all() and apart.all()):
        raise ConfigError(
            "bounds must be finite, the lower one first and clearly apart from the upper one, got others; give a range "
            "that you know without looking at the rows."
        )
    return ends
