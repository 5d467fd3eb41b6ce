"""A scaler that doesn't learn from rows: columns are scaled by public bounds."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dapple_dp.estimator.bounds import Bounds, by_column, tell_of_bounds
from dapple_dp.estimator.matrices import refuse_masked
from dapple_dp.estimator.memory_rows import checked_points


class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scales every column from public bounds to [-1, 1]; values outside are clipped.

    `fit` keeps only the names and the number of columns. Unlike means, ranges or quantiles, this reveals nothing about
    the rows to later steps.

    Args:
      bounds: public, feature units, chosen without looking at the rows: a pair (lower, upper) for all columns, a list
        with a pair for each, or a mapping of every column name to its pair; finite, lower < upper.

    Attributes:
      lower_: shape (n_features,), feature units.
      upper_: shape (n_features,), feature units.
      n_features_in_: number of features.
      feature_names_in_: column names, if `X` has them.

    Example:
      >>> PrivateScaler(bounds=(0, 10)).fit_transform([[0.0, 5.0], [10.0, 99.0]]).tolist()
      [[-1.0, 0.0], [1.0, 1.0]]
    """

    lower_: NDArray[np.float64]
    upper_: NDArray[np.float64]

    def __init__(self, bounds: Bounds = (-1.0, 1.0)):
        self.bounds = bounds

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Sets the names and the number of columns.

        Args:
          X: shape (n_rows, n_features), feature units, finite; no value of it is kept.
          y: ignored.

        Raises:
          ConfigError: a ValueError, if the bounds don't fit the columns.
          InputError: a ValueError, if `X` can't be used; contains no value.
        """
        points, names = checked_points(self, X, reset=True), getattr(self, "feature_names_in_", None)
        ends = by_column(self.bounds, self.n_features_in_, names)
        tell_of_bounds(points, names, domain=self.bounds, setting="bounds")
        self.lower_, self.upper_ = ends[:, 0], ends[:, 1]
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns rows scaled to [-1, 1], shape (n_rows, n_features); as private as the rows."""
        check_is_fitted(self)
        return scaled(checked_points(self, X, reset=False), self.lower_, self.upper_)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns scaled rows, or centers, in feature units again, shape (n_rows, n_features)."""
        check_is_fitted(self)
        half = 0.5 * (self.upper_ - self.lower_)
        refuse_masked(X, "X")
        return np.asarray(X, dtype=np.float64) * half + (self.lower_ + half)


def scaled(points: NDArray[np.floating], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scales rows, shape (n_rows, n_features), from bounds of their columns to [-1, 1]; clips values beyond."""
    inside = np.clip(points, lower, upper, dtype=np.float64)
    return np.clip((inside - lower) / (0.5 * (upper - lower)) - 1.0, -1.0, 1.0)
