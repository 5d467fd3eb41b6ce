"""Ends a run if a broadcast that is computed again isn't the same to the last bit.

A runner may repeat a server step for one consumer and not for another. If the copies differed, the round would
measure other sums and draw a second time, uncharged. So the first process to compute a broadcast writes its digest.
"""

import dataclasses
import enum
import functools
import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pydantic

from dapple_dp.schemas.errors import PrivacyFlowError, ProtocolError
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.core.round import Releases, Round
from dapple_dp.transforms.files.file_bytes import write_once
from dapple_dp.transforms.files.stores import join, makes_once

SUFFIX = ".broadcast"
"""Ending of files that hold a digest."""


def state_digest(value: Any) -> bytes:
    """Returns the SHA-256 of a state and its content: equal for equal bits, in every process.

    Args:
      value: a dataclass or tuple of arrays, numbers, strings, bytes, settings, None and of such.

    Raises:
      TypeError: if it holds something else, whose digest would depend on its place in memory.
    """
    digest = hashlib.sha256()
    for piece in _label(value):
        digest.update(piece)
    return digest.digest()


def _label(value: Any) -> list[bytes | memoryview]:
    """Encodes a value so that it differs from all others of its type and of other types; arrays aren't copied.

    Returns:
      The pieces of what `encode_label` returns for the name of its type and the encoded parts.
    """
    kind = type(value).__qualname__
    if dataclasses.is_dataclass(value):
        return _nested(kind, *(_label(getattr(value, field.name)) for field in dataclasses.fields(value)))
    if isinstance(value, np.ndarray | np.generic):
        found = np.asarray(value)
        content = np.ascontiguousarray(found).reshape(-1).view(np.uint8).data
        return [encode_label("array", found.dtype.str, str(found.shape)), *_as_part([content])]
    if isinstance(value, tuple | list):
        return _nested(kind, *map(_label, value))
    if isinstance(value, float):
        return [encode_label("float", value.hex())]
    if value is None or isinstance(value, bool | int | str | bytes | enum.Enum):
        return [encode_label(kind, value if isinstance(value, bytes) else repr(value))]
    if isinstance(value, pydantic.BaseModel):
        return [encode_label(kind, value.model_dump_json())]
    raise TypeError(f"a state must hold arrays, numbers, strings and such, got {kind}.")


def _nested(kind: str, *labels: list[bytes | memoryview]) -> list[bytes | memoryview]:
    return [encode_label(kind), *itertools.chain.from_iterable(map(_as_part, labels))]


def _as_part(pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Returns pieces as the part of bytes that `encode_label` makes of them together."""
    return [b"b" + sum(map(len, pieces)).to_bytes(8, "big"), *pieces]


def bind(state: Any, path: str) -> Any:
    """Returns the state; a second call must get one with the same bits.

    Args:
      state: the broadcast; public.
      path: of the digest, in the private staging folder.

    Raises:
      PrivacyFlowError: if a worker got a broadcast with other bits.
    """
    try:
        write_once(path, state_digest(state), private=True)
    except ProtocolError as error:
        raise PrivacyFlowError(
            "A broadcast differed in some bits between two workers or versions; use workers of one CPU type and the "
            "versions that the run began with, and run the job again."
        ) from error
    return state


def bound(round_: Round, folder: str) -> Round:
    """Returns a round whose step writes the digest of its state into a private folder, if that shows who was first."""
    if not can_bind(folder):
        return round_
    path = join(folder, round_.plan.label + SUFFIX)
    return round_._replace(step=functools.partial(_bound_step, round_.step, path))


def _bound_step(step: Callable[[Any, Releases], Any], path: str, state: Any, releases: Releases) -> Any:
    return bind(step(state, releases), path)


def can_bind(folder: str) -> bool:
    """Returns whether a folder shows who was first to write a file."""
    return makes_once(folder)
