"""Rows that are in memory: checked without quoting one, matched with public rows, and written for a job to read."""

import itertools
import os
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from schemas.errors import InputError
from schemas.tables.client_block import group_by_client
from schemas.tables.columns import is_numeric

POINT = "point"
"""Column of all features together, where they have no names."""
_NUMBERS, _TIMES = frozenset("biuf"), frozenset("Mm")
"""Kinds of NumPy's types."""
_MOST_NAMES = 8
_ROW_GROUP_ROWS = 1 << 16
_MOST_WORK = 1 << 20
"""Steps after which two arrays whose ranges of memory overlap count as shared."""


def checked_points(holder: BaseEstimator, X: ArrayLike, *, reset: bool, name: str = "X") -> NDArray[np.floating]:
    """Rows as a finite float matrix.

    Args:
      holder: whose names and number of features are set, or checked.
      X: shape (n_rows, n_features): an array, or a table of pandas, polars or Arrow.
      reset: whether they are set.
      name: that messages give the rows.

    Returns:
      float64 or float32, shape (n_rows, n_features).

    Raises:
      InputError: if rows cannot be used; no value is quoted.
    """
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if not _has_numbers_only(X, name) and not issparse(X):
        _refuse_without_quoting(X, name)
    points = validate_data(holder, X, dtype=(np.float64, np.float32), reset=reset, ensure_all_finite=False)
    finite = np.isfinite(points).all(axis=0)
    if not finite.all():
        where = _column(X, int(np.argmin(finite)))
        raise InputError(f"{name} must be finite, got NaN or infinity in {where}; drop such rows, or fill them in.")
    return points


def matched_server(holder: BaseEstimator, server_data: ArrayLike) -> NDArray[np.floating]:
    """Public rows with their columns in the order of the private ones.

    Args:
      holder: with the names and the number of features of the private rows.
      server_data: shape (q, n_features).

    Returns:
      Shape (q, n_features).

    Raises:
      InputError: if columns cannot be matched.
    """
    own = BaseEstimator()
    server = checked_points(own, server_data, reset=True, name="server_data")
    names, found = (getattr(each, "feature_names_in_", None) for each in (holder, own))
    if (names is None) != (found is None):
        with_names, without = ("server_data", "X") if names is None else ("X", "server_data")
        raise InputError(
            f"server_data must have column names where X has them and only there, got names in {with_names} and none "
            f"in {without}; give both as tables of the same columns and units. If X comes out of a transformer, then "
            "server_data must have gone through it, too."
        )
    if names is None or found is None:
        return _as_wide(server, int(getattr(holder, "n_features_in_", 0)))
    others = [str(each) for each in (*names, *found) if (each in names) != (each in found)]
    if others:
        raise InputError(
            f"server_data must have the columns of X, got {others[0]!r} in one of them only; rename or drop columns."
        )
    return server[:, [list(found).index(each) for each in names]]


def _as_wide(server: NDArray[np.floating], n_features: int) -> NDArray[np.floating]:
    """Rows without names; raises InputError unless they are as wide as the private ones."""
    if server.shape[1] != n_features:
        raise InputError(
            f"server_data must have the {n_features} features of X, got {server.shape[1]}; give the same columns."
        )
    return server


def refuse_shared(X: Any, server_data: Any) -> None:
    """Refuses public rows that are private ones: the same object, the same memory, or the same mapped file."""
    if server_data is None:
        return
    rows, public = (each if isinstance(each, list | tuple) else () for each in (X, server_data))
    same_rows = {id(row) for row in rows} & {id(row) for row in public}
    pairs = itertools.product(_buffers(X), _buffers(server_data))
    if server_data is X or same_rows or any(_share(*pair) for pair in pairs):
        raise InputError(
            "server_data must be public and no part of X, got rows that are in the memory of X; give other rows, or "
            "leave server_data out."
        )


def _buffers(values: Any) -> list[NDArray[Any]]:
    """Arrays as they are in memory; of a table, its columns. What has no memory of its own is copied."""
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
    """The chunks of a table that Arrow can look at without a copy."""
    chunks = (chunk for column in pa.table(values).columns for chunk in column.chunks)
    plain = (each for each in chunks if pa.types.is_primitive(each.type) and not each.null_count)
    return [each.to_numpy() for each in plain if not pa.types.is_boolean(each.type)]


def _share(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays have an element in common; also if that is too hard to tell, and if they map one file."""
    files = [_mapped_file(each) for each in (one, other)]
    if None not in files and files[0] == files[1]:
        return True
    try:
        return bool(np.shares_memory(one, other, max_work=_MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _mapped_file(array: Any) -> tuple[int, int] | None:
    """Device and number of the file behind an array; None where there is none."""
    while array is not None:
        path = getattr(array, "filename", None)
        if path is not None and os.path.exists(path):
            found = os.stat(path)
            return found.st_dev, found.st_ino
        array = getattr(array, "base", None)
    return None


def _has_numbers_only(X: Any, name: str) -> bool:
    """Whether the types of a table say that all columns are numbers; False of an array, which has no columns.

    Raises:
      InputError: if a column holds something else, which nobody shall take for a number: a date is none.
    """
    if hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(X, "dtypes"):
        others = [str(column) for column, values in X.items() if not _is_number(values)]
        known = all(getattr(values.dtype, "kind", "") in _NUMBERS for _, values in X.items())
    elif hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"):
        schema = pa.table(X).schema
        others, known = [field.name for field in schema if not is_numeric(field.type)], True
    else:
        return False
    if others:
        named = ", ".join(map(repr, others[:_MOST_NAMES])) + (", ..." if len(others) > _MOST_NAMES else "")
        raise InputError(
            f"{name} must hold numbers only, got others in column{'s' * (len(others) > 1)} {named}; drop what is not a "
            "number, such as ids and texts, and count a date in days from a public one."
        )
    return known


def _is_number(values: Any) -> bool:
    """Whether a column of pandas holds numbers, or objects that are all numbers."""
    kind = getattr(values.dtype, "kind", "")
    if kind in _NUMBERS or kind in _TIMES:
        return kind in _NUMBERS
    try:
        np.asarray(values).astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _refuse_without_quoting(X: ArrayLike, name: str) -> None:
    """Refuses what scikit-learn would refuse too, but with the values in the message."""
    array = np.asarray(X)
    if array.dtype.kind in _TIMES:
        raise InputError(f"{name} must hold numbers only, got dates or times; count them in days from a public date.")
    if array.ndim != 2:
        raise InputError(
            f"{name} must be a matrix, got shape {array.shape}. Reshape your data to (n_rows, n_features)."
        )
    if array.dtype.kind == "c":
        raise InputError(f"{name} must be real, got dtype {array.dtype}. Complex data not supported.")
    if array.dtype.kind not in _NUMBERS:
        for index, column in enumerate(array.T):
            _refuse_other_than_numbers(column, f"{name} must hold numbers only, got others in {_column(X, index)}")


def _refuse_other_than_numbers(column: NDArray[Any], refusal: str) -> None:
    """Refuses a column that is not of numbers, nor of what can be read as one."""
    try:
        column.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, TypeError) and not _holds_plain(column):
            raise TypeError(f"{refusal}; argument must be a string or a real number.") from None
        raise InputError(f"{refusal}; convert or drop that column.") from None


def _column(X: Any, index: int) -> str:
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return f"column {index}, counted from 0" if names is None else f"column {str(list(names)[index])!r}"


def _holds_plain(array: NDArray[Any]) -> bool:
    """Whether all values are numbers, strings or nothing."""
    return all(value is None or isinstance(value, str | bytes | int | float | np.generic) for value in array.flat)


def client_ids(groups: ArrayLike, n_rows: int) -> pa.ChunkedArray:
    """Client ids as Arrow holds them, one per row; raises InputError, which quotes none."""
    try:
        ids = pa.chunked_array([pa.array(np.asarray(groups))])
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError(
            "groups must be a vector of integers, of strings or of bytes, got a mixture or another shape; "
            "convert the ids to one type."
        ) from None
    kind = ids.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise InputError(f"groups must hold integers, strings or bytes, got {kind}; convert the ids.")
    if len(ids) != n_rows or ids.null_count:
        got = "nulls" if ids.null_count else f"{len(ids)} ids for {n_rows} rows"
        raise InputError(f"groups must name a client for every row of X, got {got}; give one id per row.")
    return ids


def made_names(n_features: int) -> tuple[str, ...]:
    """Names of columns that have none, where a job needs some."""
    return tuple(f"x{index}" for index in range(n_features))


def client_column(names: tuple[str, ...] | None) -> str:
    """A name for the column of clients that no feature has."""
    found = "client"
    while names is not None and found in names:
        found += "_"
    return found


def write_rows(
    path: str,
    points: NDArray[np.floating],
    clients: pa.ChunkedArray | None = None,
    names: tuple[str, ...] | None = None,
    beside: Mapping[str, pa.Array] = types.MappingProxyType({}),
) -> None:
    """Writes rows to Parquet, no client in more than one row group; clients are numbered, their ids stay in memory.

    Args:
      path: of the file.
      points: shape (n_rows, n_features).
      clients: id of each row; None at record level.
      names: of the columns; None for one column of lists.
      beside: further columns by name, n_rows long each.
    """
    columns = dict(beside)
    offsets = np.arange(len(points) + 1, dtype=np.int64)
    if clients is not None:
        order, offsets, _ = group_by_client(clients)
        points = points.take(order, axis=0)
        columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
        columns[client_column(names)] = pa.array(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    table = pa.table(_features(points, names) | columns)
    starts = np.searchsorted(offsets, np.arange(0, len(points), _ROW_GROUP_ROWS))
    cuts = np.unique(np.append(offsets[starts], len(points))).tolist()
    with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
        for start, stop in itertools.pairwise(cuts):
            writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)


def _features(points: NDArray[np.floating], names: tuple[str, ...] | None) -> dict[str, pa.Array]:
    """Columns by name, or one of lists."""
    if names is None:
        return {POINT: pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])}
    return {name: pa.array(column) for name, column in zip(names, points.T, strict=True)}
