"""Validation of rows in memory, without quoting values, and matching with public rows."""

import itertools
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dapple_dp.estimator.matrices import column_names, in_memory, is_table, matrix_of
from dapple_dp.schemas.errors import InputError, few

POINT = "point"
"""Column of all features together, if they have no names."""
_MOST_WORK = 1 << 20
"""Steps after which two arrays with overlapping memory ranges are assumed to share memory."""


def checked_points(
    holder: BaseEstimator,
    X: ArrayLike,
    *,
    reset: bool,
    name: str = "X",
    may_miss: Collection[str] = (),
    can_fill: bool = False,
) -> NDArray[np.floating]:
    """Converts rows to a float matrix, finite except for NaN in columns that may have missing values.

    Args:
      holder: estimator whose column names and number of features are set or checked.
      X: shape (n_rows, n_features): an array, or a table of pandas, polars or Arrow.
      reset: true to set them, false to check them.
      name: name of the rows in messages.
      may_miss: columns that may have missing values, by their names or made-up names.
      can_fill: true if the holder has a parameter `missing`, which the error then suggests.

    Returns:
      float64 or float32, shape (n_rows, n_features).

    Raises:
      InputError: if rows can't be used; contains no value.
    """
    rows = in_memory(X, name)
    matrix = matrix_of(rows, name)
    if is_table(rows):
        validate_data(holder, rows, reset=reset, skip_check_array=True)
        points = matrix
    else:
        points = validate_data(holder, matrix, dtype=(np.float64, np.float32), reset=reset, ensure_all_finite=False)
    finite = np.isfinite(points).all(axis=0)
    names = getattr(holder, "feature_names_in_", None)
    for index in np.flatnonzero(~finite) if may_miss else ():
        column = made_name(int(index)) if names is None else str(names[index])
        finite[index] = column in may_miss and not np.isinf(points[:, index]).any()
    if not finite.all():
        odd = np.flatnonzero(~finite).tolist()
        remedy = "drop such rows, or fill them in"
        if can_fill and not np.isinf(points[:, odd]).any():
            label = odd[0] if names is None else str(names[odd[0]])
            each = f"a public number for missing values{' of each' * (len(odd) > 1)}"
            remedy = f"drop such rows, or give {each}: missing={{{label!r}: NUMBER{', ...' * (len(odd) > 1)}}}"
        raise InputError(f"{name} must be finite, got NaN or infinity in {column_names(rows, odd)}; {remedy}.")
    return points


def matched_server(
    holder: BaseEstimator, server_data: ArrayLike, may_miss: Collection[str] = ()
) -> NDArray[np.floating]:
    """Returns the public rows with their columns in the order of the private ones.

    Args:
      holder: has the names and the number of features of the private rows.
      server_data: shape (q, n_features).
      may_miss: columns that may have missing values.

    Returns:
      Shape (q, n_features).

    Raises:
      InputError: if columns can't be matched.
    """
    own = BaseEstimator()
    server = checked_points(own, server_data, reset=True, name="server_data", may_miss=may_miss)
    names, server_names = (getattr(estimator, "feature_names_in_", None) for estimator in (holder, own))
    if (names is None) != (server_names is None):
        with_names, without = ("server_data", "X") if names is None else ("X", "server_data")
        raise InputError(
            f"server_data must have column names if X has them, and none otherwise, got names in {with_names} and "
            f"none in {without}; give both as tables with the same columns and units. If X comes from a "
            "transformer, transform server_data as well."
        )
    if names is None or server_names is None:
        return _as_wide(server, int(getattr(holder, "n_features_in_", 0)))
    others = [str(name) for name in (*names, *server_names) if (name in names) != (name in server_names)]
    if others:
        raise InputError(
            f"server_data must have the columns of X, got {few(others)} in only one of them; rename or drop columns."
        )
    return server[:, [list(server_names).index(name) for name in names]]


def _as_wide(server: NDArray[np.floating], n_features: int) -> NDArray[np.floating]:
    """Returns rows without names; raises InputError unless they have as many features as the private ones."""
    if server.shape[1] != n_features:
        raise InputError(
            f"server_data must have the {n_features} features of X, got {server.shape[1]}; give the same columns."
        )
    return server


def refuse_others(given: Mapping[str, Any]) -> None:
    """Raises TypeError for arguments that `fit` doesn't have."""
    if "sample_weight" in given:
        raise TypeError("fit has no sample_weight: every row counts once, so that its influence is bounded; remove it.")
    if given:
        raise TypeError(f"fit got an unexpected keyword argument {next(iter(given))!r}; remove it.")


def refuse_shared(X: Any, server_data: Any) -> None:
    """Refuses public rows that are the private ones: the same object, the same memory, or the same mapped file."""
    if server_data is None:
        return
    rows, public = (given if isinstance(given, list | tuple) else () for given in (X, server_data))
    same_rows = {id(row) for row in rows} & {id(row) for row in public}
    pairs = itertools.product(_buffers(X), _buffers(server_data))
    if server_data is X or same_rows or any(_share(*pair) for pair in pairs):
        raise InputError(
            "server_data must be public and not part of X, got rows that share memory with X; give other rows, or "
            "leave server_data out."
        )


def _buffers(values: Any) -> list[NDArray[Any]]:
    """Returns arrays that share the memory of the values, for a table by column; other values are copied."""
    if issparse(values):
        return [np.asarray(values.data)]
    if hasattr(values, "iloc"):
        return [np.asarray(column) for _, column in values.items()]
    if hasattr(values, "__arrow_c_stream__"):
        return _arrow_buffers(values)
    try:
        return [np.asanyarray(values)]
    except ValueError:
        return []


def _arrow_buffers(values: Any) -> list[NDArray[Any]]:
    """Returns the chunks of a table that Arrow can convert without a copy."""
    chunks = (chunk for column in pa.table(values).columns for chunk in column.chunks)
    plain = (chunk for chunk in chunks if pa.types.is_primitive(chunk.type) and not chunk.null_count)
    return [chunk.to_numpy() for chunk in plain if not pa.types.is_boolean(chunk.type)]


def _share(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Returns whether two arrays share memory or map the same file; also true if that is too hard to determine."""
    files = [_mapped_file(array) for array in (one, other)]
    if None not in files and files[0] == files[1]:
        return True
    try:
        return bool(np.shares_memory(one, other, max_work=_MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _mapped_file(array: Any) -> tuple[int, int] | None:
    """Returns device and inode number of the file that an array maps; None if there is none."""
    while array is not None:
        path = getattr(array, "filename", None)
        if path is not None and os.path.exists(path):
            status = os.stat(path)
            return status.st_dev, status.st_ino
        array = getattr(array, "base", None)
    return None


def made_names(n_features: int) -> tuple[str, ...]:
    """Returns column names for a job if columns have none."""
    return tuple(map(made_name, range(n_features)))


def made_name(index: int) -> str:
    """Returns the made-up name of a column."""
    return f"x{index}"


def client_column(names: tuple[str, ...] | None) -> str:
    """Returns a name for the column of clients that no feature has."""
    name = "client"
    while names is not None and name in names:
        name += "_"
    return name
