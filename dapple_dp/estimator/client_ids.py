"""Client ids in memory, one for each row, validated one by one before NumPy or Arrow can merge different ids.

NumPy converts a NaN among strings to text, strips zero bytes from the end of bytes and text, and drops masks.
"""

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from dapple_dp.estimator.matrices import is_missing, refuse_masked
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.columns import is_identifier

_MIXED = (
    "groups must be a vector of integers, of strings or of bytes, got a mixture or another shape; convert the ids to "
    "one type."
)
_INT64, _UINT64 = (-(1 << 63), (1 << 63) - 1), (0, (1 << 64) - 1)


def client_ids(groups: Any, n_rows: int) -> pa.ChunkedArray:
    """Converts client ids to an Arrow column.

    Args:
      groups: a sequence, an array, or a column of pandas, polars or Arrow.
      n_rows: number of rows; each needs an id.

    Raises:
      InputError: if a row has no id, or two different ids could be merged; the message contains no id.
    """
    refuse_masked(groups, "groups")
    if isinstance(groups, str | bytes):
        raise InputError(
            "groups must have the client id of each row, got one string; give the column itself, as in "
            "groups=table['patient'], and leave it out of X."
        )
    try:
        ids = _as_arrow(groups)
    except InputError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(_MIXED) from None
    if not is_identifier(ids.type) and not pa.types.is_null(ids.type):
        hint = "drop rows without an id, then use astype(int)" if pa.types.is_floating(ids.type) else "convert the ids"
        raise InputError(f"groups must hold integers, strings or bytes, got {ids.type}; {hint}.")
    if len(ids) != n_rows or ids.null_count:
        got = "nulls" if ids.null_count else f"{len(ids)} ids for {n_rows} rows"
        raise InputError(f"groups must name a client for every row of X, got {got}; give one id per row that X has.")
    return ids


def _as_arrow(groups: Any) -> pa.ChunkedArray:
    """Returns the ids as one column, nulls included; `client_ids` replaces the messages of its exceptions."""
    if hasattr(groups, "columns"):
        raise TypeError("a table")
    if isinstance(groups, pa.Array | pa.ChunkedArray):
        return _plain(groups if isinstance(groups, pa.ChunkedArray) else pa.chunked_array([groups]))
    if hasattr(groups, "__arrow_c_stream__") and not hasattr(groups, "iloc"):
        return _plain(pa.chunked_array(groups))
    if not isinstance(groups, np.ndarray) and hasattr(groups, "dtype") and hasattr(groups, "__array__"):
        plain = isinstance(groups.dtype, np.dtype) and groups.dtype.kind in "iu"
        groups = np.asarray(groups, dtype=None if plain else object)
    if isinstance(groups, np.ndarray) and groups.ndim == 1 and groups.dtype.kind not in "OT":
        return pa.chunked_array([pa.array(groups)])
    if isinstance(groups, np.ndarray) and groups.ndim != 1:
        raise TypeError("a matrix")
    if isinstance(groups, str | bytes | dict | set | frozenset) or not isinstance(groups, Collection | np.ndarray):
        raise TypeError("no sequence")
    values = [None if is_missing(group) else group for group in groups]
    return pa.chunked_array([pa.array(values, _type_of([value for value in values if value is not None]))])


def _plain(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decodes a dictionary column, as pandas uses for categories; codes and values may both contain nulls."""
    return ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids


def _type_of(values: list[Any]) -> pa.DataType:
    """Returns the common type of all ids; raises TypeError for a mixture, InputError for integers beyond 64 bits."""
    kinds = {_kind_of(value) for value in values}
    if len(kinds) > 1:
        raise TypeError("a mixture")
    kind = next(iter(kinds), pa.null())
    if kind != pa.int64():
        return kind
    low, high = int(min(values)), int(max(values))
    for (first, last), wide in ((_INT64, pa.int64()), (_UINT64, pa.uint64())):
        if first <= low and high <= last:
            return wide
    raise InputError("groups must hold integers of at most 64 bits, got a larger one; convert the ids with str().")


def _kind_of(value: Any) -> pa.DataType:
    """Returns the type of one id; raises InputError for booleans, and for numbers that aren't integers."""
    if isinstance(value, str):
        return pa.large_string()
    if isinstance(value, bytes):
        return pa.large_binary()
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return pa.int64()
    raise InputError(f"groups must hold integers, strings or bytes, got {type(value).__name__}; convert the ids.")
