"""Halves of the exact sums of windows: sealed files of one role, and how they are combined in the ring.

y_t needs sum over ages i of weight_i s_(t - i). The aggregator forms it of masked sums, the clients' role of totals of
masks, each modulo 2**64 and each for itself. So the difference of the two is the combination of the exact sums, bit for
bit, and nobody forms it before noise is added. A half names, by a digest, the messages that it is of: halves of other
messages do not fit each other.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from apache_beam.io.filesystems import FileSystems
from numpy.typing import NDArray

from schemas.privacy.window_halves import WindowHalf
from schemas.settings.refusal import Refusal
from transforms.files import gate
from transforms.files.write_once import write_once
from transforms.masked.sealing import SEALED, Sealing, opened
from transforms.numerics.privacy.keystream import encode_label

_DIGEST_BYTES = 32
_PURPOSE = "halves of windows"


def present_digest(senders: Sequence[bytes], tags: Sequence[bytes]) -> bytes:
    """32 octets that tell which messages a half is of; both roles know the list."""
    return hashlib.sha256(encode_label(*senders, "tags", *tags)).digest()


def half_path(folder: str, index: int) -> str:
    """The file of a window in a folder of halves."""
    return FileSystems.join(folder, f"{index:05d}{SEALED}")


def sealed_half(half: WindowHalf, values: NDArray[np.int64], present: bytes) -> bytes:
    """The file of the window of a run.

    Args:
      half: of the role.
      values: int64, shape (size,): its part of the exact sum.
      present: see `present_digest`.
    """
    label = _label(half, half.index)
    return Sealing.to_itself(half.key_uri, _PURPOSE).seal(present + values.astype("<i8").tobytes(), label)


def opened_half(half: WindowHalf, index: int, content: bytes, refusal: Refusal) -> tuple[bytes, NDArray[np.int64]]:
    """Inverse of `sealed_half` for any window of the epoch: digest of the messages, and values.

    Args:
      half: of the role.
      index: of the window.
      content: of the file.
      refusal: what the user is told of a file of another window, epoch, role or key.
    """
    found = opened(content, half.key_uri, _PURPOSE, _label(half, index))
    if found is None or len(found) < _DIGEST_BYTES or (len(found) - _DIGEST_BYTES) % 8:
        raise refusal.because("another one")
    return found[:_DIGEST_BYTES], np.frombuffer(found[_DIGEST_BYTES:], dtype="<i8").astype(np.int64)


def combined(half: WindowHalf, values: NDArray[np.int64], present: bytes) -> NDArray[np.int64]:
    """Keeps a role's half of this window, and adds up those of its release times their weights, in the ring.

    Args:
      half: of the role; where it keeps files.
      values: int64, shape (size,): its part of the exact sum of this window.
      present: see `present_digest`.

    Returns:
      int64, shape (size,), wrapping.

    Raises:
      ProtocolError: if another half of this window lies there: a worker that is run again must find the same.
      InputError: if a half of an earlier window is gone or another one.
    """
    write_once(half_path(half.folder, half.index), sealed_half(half, values, present), private=True)
    total = values.view(np.uint64) * np.uint64(half.weights[0])
    for age, index in enumerate(half.earlier, start=1):
        path = half_path(half.folder, index)
        refusal = gate.staged(path)
        _, earlier = opened_half(half, index, gate.read_octets(path, refusal), refusal)
        if earlier.shape != values.shape:
            raise refusal.because("one of another length")
        total += earlier.view(np.uint64) * np.uint64(half.weights[age])
    return total.view(np.int64)


def _label(half: WindowHalf, index: int) -> bytes:
    """What a file is: the half of one role of one window of one epoch."""
    return encode_label(_PURPOSE, half.NAME, half.epoch, index)
