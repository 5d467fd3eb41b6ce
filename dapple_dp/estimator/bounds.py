"""Public bounds of columns, from the parameters of estimators.

If bounds look as if they were read off the rows, the person who calls the estimator gets a Python warning. The
comparison isn't private, so no output, log or exit code depends on it.
"""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError, PrivacyWarning, few

Pair = tuple[float, float]
Bounds = Pair | Sequence[Pair] | Mapping[str, Pair]
_LARGEST = 1e100
_USUAL = ((0.0, 1.0), (-1.0, 1.0))
"""Ranges that are common in columns, or come from scaling."""


def by_column(bounds: Any, n_features: int, names: Any = None) -> NDArray[np.float64]:
    """Converts bounds to an array, shape (n_features, 2).

    Args:
      bounds: a pair, a list of pairs, or a mapping by name.
      n_features: number of columns.
      names: names of the columns; None if they have none.

    Raises:
      ConfigError: one sentence.
    """
    if isinstance(bounds, Mapping):
        columns = [] if names is None else [str(name) for name in names]
        odd = sorted(str(name) for name in {*columns, *bounds} if (name in bounds) != (name in columns))
        if odd:
            raise ConfigError(
                f"bounds must have a pair for each column of X and no other, got {few(odd)} in only one of them; "
                "use the names of the columns, or a list of pairs if they have none."
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
            f"bounds must be a pair of numbers, or one for each of the {n_features} columns, got another shape; "
            "give the lower and the upper bound of each column."
        )
    apart = ends[:, 1] - ends[:, 0] > 1e-9 * np.abs(ends).max(axis=1)
    if not (np.isfinite(ends).all() and (np.abs(ends) <= _LARGEST).all() and apart.all()):
        raise ConfigError(
            "bounds must be finite, with the lower one first and clearly below the upper one, got others; give a "
            "range that you know without looking at the rows."
        )
    return ends


def tell_of_bounds(
    points: NDArray[np.floating], names: Any, *, domain: Any = None, norm: Any = None, setting: str = "domain"
) -> None:
    """Warns if bounds are exactly the ends of the rows, or if a norm is exactly that of the longest row.

    A filter that turns warnings into errors doesn't stop the caller, since the result of the comparison is private.

    Args:
      points: shape (n_rows, n_features); NaN is ignored.
      names: names of the columns; None if they have none.
      domain: validated bounds: a pair, a list of pairs, or a mapping by name; None if there are none.
      norm: clipping norm, as the caller gave it.
      setting: name of the parameter with the bounds.
    """
    if domain is not None and (where := _equal(points, names, domain)) is not None:
        _tell(
            f"{setting} equals the smallest and largest value of {where}. If you read it off the rows, it isn't "
            "private: use bounds known without them."
        )
    if isinstance(norm, int | float | np.number) and norm != 1.0 and float(norm) == _longest(points):
        _tell(
            "clipping_norm equals the norm of the longest row. If you read it off the rows, it isn't private: use a "
            "bound known without them."
        )


def _equal(points: NDArray[np.floating], names: Any, domain: Any) -> str | None:
    """Names the data whose bounds are exactly its ends, X for a single pair, else the first such column; or None."""
    try:
        ends = by_column(domain, points.shape[1], names)
    except ConfigError:
        # The budget is spent by now, so the comparison must not fail the fit.
        return None
    one_pair = not isinstance(domain, Mapping) and np.ndim(domain) == 1
    lows, highs = (_ends(points, ufunc, one_pair) for ufunc in (np.fmin, np.fmax))
    for index, (low, high) in enumerate(ends):
        if (low, high) == (lows[index], highs[index]) and (low, high) not in _USUAL:
            return "X" if one_pair else f"column {index if names is None else str(names[index])!r}"
    return None


def _ends(points: NDArray[np.floating], least: np.ufunc, one_pair: bool) -> NDArray[np.floating]:
    ends = least.reduce(points, axis=0)
    return np.full_like(ends, least.reduce(ends)) if one_pair else ends


def _longest(points: NDArray[np.floating]) -> float:
    with np.errstate(over="ignore"):
        return float(np.fmax.reduce(np.linalg.norm(points, axis=1)))


def _tell(text: str) -> None:
    with contextlib.suppress(PrivacyWarning):
        warnings.warn(text, PrivacyWarning, stacklevel=4)
