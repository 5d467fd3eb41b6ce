"""Columns of a table: lookup by name, types, and conversion of values to plain Arrow or NumPy."""

import difflib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError, SchemaMismatchError

MOST_ID_BYTES = 1 << 12
"""Maximum bytes of a client id."""
_MOST_NAMES = 8


def find(schema: pa.Schema, name: str, where: str) -> pa.Field:
    """Returns the only field with that name.

    Raises:
      SchemaMismatchError: if there is none, or several.
    """
    places = schema.get_all_field_indices(name)  # by Arrow's table of names; a list would be made for each column
    if len(places) == 1:
        return schema.field(places[0])
    if places:
        raise mismatch(name, where, "appear once", f"{len(places)} columns of that name", "rename the others")
    close = difflib.get_close_matches(name, schema.names, n=1)
    listed = ", ".join(map(repr, schema.names[:_MOST_NAMES])) + (", ..." if len(schema.names) > _MOST_NAMES else "")
    remedy = f"did you mean {close[0]!r}?" if close else f"its columns are {listed or 'none'}."
    raise SchemaMismatchError(f"column {name!r} not found in {where}; {remedy}")


def in_numbers(kind: pa.DataType, otherwise: str) -> str:
    """Returns the remedy for a column that isn't numeric: for dates, to count days; for other types, `otherwise`."""
    if not pa.types.is_temporal(kind):
        return otherwise
    return "count it in days from a public date, in a column of numbers, or leave it out of data.features"


def mismatch(name: str, where: str, rule: str, got: str, remedy: str) -> SchemaMismatchError:
    """Builds the error for a column that breaks a contract."""
    return SchemaMismatchError(f"column {name!r} of {where} must {rule}, got {got}; {remedy}.")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of the values behind dictionaries and extension types."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    return plain_type(kind.value_type) if pa.types.is_dictionary(kind) else kind


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the column without dictionaries, extension types and string views, which Arrow can't filter."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    return plain(column.cast(kind.value_type)) if pa.types.is_dictionary(kind) else column


def is_numeric(kind: pa.DataType) -> bool:
    """Returns whether values, behind dictionaries and extension types, are numbers or booleans."""
    kind, types = plain_type(kind), pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a plain type holds strings."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a plain type holds lists, of fixed or variable length."""
    return pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)


def is_identifier(kind: pa.DataType) -> bool:
    """Returns whether a plain type can identify clients: integers, strings or bytes."""
    types = pa.types
    raw = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return types.is_integer(kind) or is_text(kind) or raw or types.is_fixed_size_binary(kind)


def floats(column: pa.ChunkedArray) -> NDArray[np.floating]:
    """Converts a plain column to numbers; float32 stays, everything else becomes float64; nulls are NaN."""
    if not pa.types.is_float32(column.type):
        # The error message of a safe cast would quote a value without an exact double.
        column = column.cast(pa.float64(), safe=False)
    if column.num_chunks == 1:
        return column.chunk(0).to_numpy(zero_copy_only=False)
    return column.to_numpy(zero_copy_only=False)


def check_identifiers(ids: pa.ChunkedArray) -> None:
    """Refuses client ids longer than `MOST_ID_BYTES`, since each is hashed and compared many times.

    Args:
      ids: of any type; for a dictionary, all of its values are checked, even unused ones.

    Raises:
      InputError: if one is too long; the message doesn't contain it.
    """
    lengths = [_longest(chunk) for chunk in ids.chunks]
    if max(lengths, default=0) > MOST_ID_BYTES:
        raise InputError(
            f"client ids must have at most {MOST_ID_BYTES} bytes, got a longer one; shorten them, for example by "
            "hashing."
        )


def _longest(ids: pa.Array) -> int:
    if isinstance(ids, pa.ExtensionArray):
        return _longest(ids.storage)
    if isinstance(ids, pa.DictionaryArray):
        return _longest(ids.dictionary)
    if pa.types.is_string_view(ids.type) or pa.types.is_binary_view(ids.type):
        return _longest(ids.cast(pa.large_binary()))
    if pa.types.is_integer(ids.type) or not len(ids):
        return 0
    return int(pc.max(pc.binary_length(ids)).as_py() or 0)


def group_by_client(ids: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """Groups rows by client, stably.

    Args:
      ids: shape (n_rows,), integers, strings or bytes without nulls; dictionary-encoded or not.

    Returns:
      `order`, int64, shape (n_rows,): rows sorted by client, stably; `offsets`, int64, shape (n_clients + 1,):
      order[offsets[i]:offsets[i + 1]] are the rows of client i; `unique`, length n_clients: the clients' ids, in
      the order in which they first appear.

    Raises:
      ValueError: if an id is null.

    Example:
      >>> group_by_client(pa.chunked_array([["b", "a"], ["b"]]))[0].tolist()
      [0, 2, 1]
    """
    column = plain(ids)
    if column.null_count:
        raise ValueError("ids must have no nulls, got some; drop those rows first.")
    encoded = column.combine_chunks().dictionary_encode()
    clients = encoded.indices.to_numpy()
    counts = np.bincount(clients, minlength=len(encoded.dictionary))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return np.argsort(clients, kind="stable").astype(np.int64, copy=False), offsets, encoded.dictionary
