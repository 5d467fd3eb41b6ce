"""Client ids in one form per kind, for every type of a file's column, and their digests."""

import enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.columns import check_identifiers
from dapple_dp.transforms.numerics.tables import partition


class IdKind(enum.StrEnum):
    """Kinds of ids; ids of different kinds are never equal."""

    INTEGER = "integers"
    TEXT = "strings"
    BYTES = "bytes"


_STORED_AS = {IdKind.TEXT: pa.large_string(), IdKind.BYTES: pa.large_binary()}
_CANONICAL = (pa.int64(), pa.uint64(), *_STORED_AS.values())


def canonical(ids: pa.ChunkedArray) -> pa.Array:
    """Converts ids to int64 (uint64 only if one is larger), large_string or large_binary.

    Args:
      ids: integers, strings or bytes, dictionary-encoded or not; nulls stay.

    Raises:
      InputError: if one is too long.
    """
    check_identifiers(ids)
    kind = ids.type
    if isinstance(kind, pa.BaseExtensionType):
        return canonical(pa.chunked_array([chunk.storage for chunk in ids.chunks], kind.storage_type))
    if pa.types.is_dictionary(kind):
        return canonical(ids.cast(kind.value_type))
    if not pa.types.is_integer(kind):
        return ids.cast(_STORED_AS[_kind(kind)]).combine_chunks()
    largest = pc.max(ids).as_py() if pa.types.is_uint64(kind) else None
    return ids.cast(pa.int64() if largest is None or largest < 1 << 63 else pa.uint64()).combine_chunks()


def _kind(stored: pa.DataType) -> IdKind:
    """Returns the kind of a type that the table contract accepts."""
    types = pa.types
    if types.is_integer(stored):
        return IdKind.INTEGER
    text = types.is_string(stored) or types.is_large_string(stored) or types.is_string_view(stored)
    return IdKind.TEXT if text else IdKind.BYTES


def kind_of(ids: pa.Array) -> IdKind:
    """Returns the kind of canonical ids."""
    return _kind(ids.type)


def check_one_kind(kinds: set[IdKind], client_id: str) -> None:
    """Refuses ids that can't be compared with each other.

    Raises:
      InputError: if there are several kinds.
    """
    if len(kinds) > 1:
        got = " and ".join(sorted(kinds))
        raise InputError(f"column {client_id!r} must hold one type of client ids in all files, got {got}; cast them.")


def concatenate(pieces: list[pa.Array], client_id: str) -> pa.Array:
    """Concatenates canonical ids of several files.

    Raises:
      InputError: if they are of different kinds, or some are negative and others beyond 2**63.
    """
    check_one_kind({kind_of(piece) for piece in pieces}, client_id)
    types = {piece.type for piece in pieces}
    try:
        common = pa.uint64() if pa.uint64() in types else pieces[0].type
        return pa.concat_arrays([piece.cast(common) for piece in pieces])
    except pa.ArrowInvalid:
        raise InputError(
            f"column {client_id!r} must hold client ids of one integer type, got both negative ones and some of 2**63 "
            "or more; cast them."
        ) from None


def digests(ids: pa.Array) -> NDArray[np.uint64]:
    """Returns digests of canonical ids without nulls, shape (n,); strings are hashed from Arrow's buffers.

    Raises:
      TypeError: if the ids aren't canonical, since other types have other buffers, and ids may be null.
    """
    if ids.type not in _CANONICAL or ids.null_count:
        raise TypeError(f"ids must be canonical and without nulls, got {ids.type}; pass them through canonical().")
    if pa.types.is_integer(ids.type):
        return partition.mix(ids.to_numpy(zero_copy_only=False).view(np.uint64))
    if not len(ids):
        return np.zeros(0, dtype=np.uint64)
    _, offsets, raw = ids.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    content = np.frombuffer(raw, dtype=np.uint8) if raw is not None else np.zeros(0, dtype=np.uint8)
    return partition.digests_of_strings(bounds - bounds[0], content[bounds[0] : bounds[-1]])


def bytes_of(ids: pa.Array) -> list[bytes]:
    """Returns canonical ids as bytes; ids of different kinds are never equal."""
    kind = str(kind_of(ids)).encode()
    if pa.types.is_integer(ids.type):
        return [kind + str(value).encode() for value in ids.to_pylist()]
    return [kind + (value.encode() if isinstance(value, str) else value) for value in ids.to_pylist()]
