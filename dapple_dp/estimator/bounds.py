"""Public bounds of columns, as the parameters of estimators give them.

Bounds that look as if they were read off the rows are told to the person who holds these, and to nobody else. The
comparison is not private, so it is a Python warning and nothing more: no output, log or exit code follows from it.
"""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError, PrivacyWarning

Pair = tuple[float, float]
Bounds = Pair | Sequence[Pair] | Mapping[str, Pair]
_LARGEST = 1e100
_USUAL = ((0.0, 1.0), (-1.0, 1.0))
"""Ranges that many columns have, and those of scaled ones."""


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


def tell_of_bounds(
    points: NDArray[np.floating], names: Any, *, domain: Any = None, norm: Any = None, setting: str = "domain"
) -> None:
    """Warns where bounds are exactly the ends of the rows, or a norm is exactly that of the longest one.

    A filter that turns warnings into errors does not stop the caller: what it would say is private.

    Args:
      points: shape (n_rows, n_features); NaN does not count.
      names: of the columns; None where they have none.
      domain: bounds that were checked: a pair, a list of pairs, or a mapping by name; None without.
      norm: of the longest row, as it was given.
      setting: that gave the bounds.
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
    """What has the ends of its bounds exactly: all rows where there is one pair, else the first such column."""
    try:
        ends = by_column(domain, points.shape[1], names)
    except ConfigError:
        # What the fit has spent must not be lost to a comparison.
        return None
    one_pair = not isinstance(domain, Mapping) and np.ndim(domain) == 1
    lows, highs = (_ends(points, each, one_pair) for each in (np.fmin, np.fmax))
    for index, (low, high) in enumerate(ends):
        if (low, high) == (lows[index], highs[index]) and (low, high) not in _USUAL:
            return "X" if one_pair else f"column {index if names is None else str(names[index])!r}"
    return None


def _ends(points: NDArray[np.floating], least: np.ufunc, one_pair: bool) -> NDArray[np.floating]:
    found = least.reduce(points, axis=0)
    return np.full_like(found, least.reduce(found)) if one_pair else found


def _longest(points: NDArray[np.floating]) -> float:
    with np.errstate(over="ignore"):
        return float(np.fmax.reduce(np.linalg.norm(points, axis=1)))


def _tell(text: str) -> None:
    with contextlib.suppress(PrivacyWarning):
        warnings.warn(text, PrivacyWarning, stacklevel=4)
