"""A scaler that learns nothing: columns are scaled by bounds that are public, not by what rows hold."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dapple_dp.estimator.memory_rows import checked_points
from schemas.errors import ConfigError

Pair = tuple[float, float]
Bounds = Pair | Sequence[Pair] | Mapping[str, Pair]
_LARGEST = 1e100


class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scales every column from public bounds to -1 to 1; values outside are moved to the nearer bound.

    `fit` reads the names and the number of the columns and no value. So nothing of the rows gets into what follows,
    unlike with a scaler that learns means, ranges or quantiles.

    Args:
      bounds: public, feature units, chosen without looking at the rows: a pair (lower, upper) for all columns, a list
        with a pair for each, or a mapping of every column name to its pair; finite, lower < upper.

    Attributes:
      lower_: shape (n_features,), feature units.
      upper_: shape (n_features,), feature units.
      n_features_in_: number of features.
      feature_names_in_: column names, where `X` had them.

    Example:
      >>> PrivateScaler(bounds=(0, 10)).fit_transform([[0.0, 5.0], [10.0, 99.0]]).tolist()
      [[-1.0, 0.0], [1.0, 1.0]]
    """

    lower_: NDArray[np.float64]
    upper_: NDArray[np.float64]

    def __init__(self, bounds: Bounds = (-1.0, 1.0)):
        self.bounds = bounds

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Notes names and number of the columns.

        Args:
          X: shape (n_rows, n_features), feature units, finite; no value of it is kept.
          y: ignored.

        Raises:
          ConfigError: a ValueError, if the bounds do not fit the columns.
          InputError: a ValueError, if `X` cannot be used; quotes no value.
        """
        checked_points(self, X, reset=True)
        ends = by_column(self.bounds, self.n_features_in_, getattr(self, "feature_names_in_", None))
        self.lower_, self.upper_ = ends[:, 0], ends[:, 1]
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Rows scaled to -1 to 1, shape (n_rows, n_features); as private as they were."""
        check_is_fitted(self)
        return scaled(checked_points(self, X, reset=False), self.lower_, self.upper_)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scaled rows, or centers, in feature units again, shape (n_rows, n_features)."""
        check_is_fitted(self)
        half = 0.5 * (self.upper_ - self.lower_)
        return np.asarray(X, dtype=np.float64) * half + (self.lower_ + half)


def scaled(points: NDArray[np.floating], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows, shape (n_rows, n_features), from bounds of their columns to -1 to 1, and moved to these if beyond."""
    inside = np.clip(points, lower, upper, dtype=np.float64)
    return np.clip((inside - lower) / (0.5 * (upper - lower)) - 1.0, -1.0, 1.0)


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
