"""A broadcast that is computed again must be the same to the last bit, or the run ends.

A runner may compute a server step again for one consumer and not for the other. If the copies differed, the round would
measure other sums and draw a second time, uncharged. So the first process to compute a broadcast leaves its digest.
"""

import dataclasses
import enum
import functools
import hashlib
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
"""Of files that hold a digest."""


def state_digest(value: Any) -> bytes:
    """SHA-256 of a state and of all that it holds: equal for equal bits, no matter which process made it.

    Args:
      value: a dataclass or tuple of arrays, numbers, strings, bytes, settings, None and of such.

    Raises:
      TypeError: if it holds something else, whose digest would be that of a place in memory.
    """
    return hashlib.sha256(_label(value)).digest()


def _label(value: Any) -> bytes:
    """What distinguishes a value from others of its type and of other types."""
    kind = type(value).__qualname__
    if dataclasses.is_dataclass(value):
        return encode_label(kind, *(_label(getattr(value, field.name)) for field in dataclasses.fields(value)))
    if isinstance(value, np.ndarray | np.generic):
        found = np.asarray(value)
        return encode_label("array", found.dtype.str, str(found.shape), found.tobytes())
    if isinstance(value, tuple | list):
        return encode_label(kind, *map(_label, value))
    if isinstance(value, float):
        return encode_label("float", value.hex())
    if value is None or isinstance(value, bool | int | str | bytes | enum.Enum):
        return encode_label(kind, value if isinstance(value, bytes) else repr(value))
    if isinstance(value, pydantic.BaseModel):
        return encode_label(kind, value.model_dump_json())
    raise TypeError(f"a state must hold arrays, numbers, strings and such, got {kind}.")


def bind(state: Any, path: str) -> Any:
    """The state; the one that comes second must have the same bits.

    Args:
      state: that is broadcast; public.
      path: of the digest, in the private staging folder.

    Raises:
      PrivacyFlowError: if a broadcast of other bits was given to a worker.
    """
    try:
        write_once(path, state_digest(state), private=True)
    except ProtocolError as error:
        raise PrivacyFlowError(
            "a broadcast must be the same to the last bit whenever it is computed, got other bits on another worker "
            "or by another version; use workers of one CPU type and the versions that the run began with, and run the "
            "job again."
        ) from error
    return state


def bound(round_: Round, folder: str) -> Round:
    """A round whose step leaves the digest of its state in a private folder, if that shows who was first."""
    if not can_bind(folder):
        return round_
    path = join(folder, round_.plan.label + SUFFIX)
    return round_._replace(step=functools.partial(_bound_step, round_.step, path))


def _bound_step(step: Callable[[Any, Releases], Any], path: str, state: Any, releases: Releases) -> Any:
    return bind(step(state, releases), path)


def can_bind(folder: str) -> bool:
    """Whether a folder shows who was first to write a file."""
    return makes_once(folder)
