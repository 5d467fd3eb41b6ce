"""Pseudorandom streams: the same key and label give the same bits on every machine.

A stream is the ChaCha20 keystream under a key of its own, BLAKE2b(key, label). To anyone without the key, streams
of different labels are independent uniform bits.
"""

import hashlib
import math
from collections.abc import Callable
from typing import NoReturn, SupportsIndex, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

KEY_BYTES = 32
MAX_BOUND = 1 << 62
"""Largest `bound` of `KeyStream.residues`."""
BATCH_TRIALS = 1 << 16
"""Trials drawn at a time, few enough for the cache. Part of the stream's format: it orders the draws."""

Integers: TypeAlias = NDArray[np.int64]
"""An alias, since Python evaluates annotations of inner functions again at every call of the outer one."""

_WORD = np.dtype("<u8")
_STREAM_PERSON = b"dapple-stream"
_SUBSTREAM_PERSON = b"dapple-substream"
_NONCE = bytes(16)


class KeyStream:
    """A stream of uniform bits, read once from its start.

    Args:
      key: 32 secret bytes; ValueError for another length.
      label: the purpose of the stream; build it with `encode_label` so that no two purposes share one.

    Source: Nir, Langley (2018), RFC 8439 (ChaCha20); Saarinen, Aumasson (2015), RFC 7693 (BLAKE2).

    Example:
      >>> stream = KeyStream(bytes(32), encode_label("coins", 1))
      >>> stream.residues(6, 4)
      array([4, 0, 1, 1])
    """

    __slots__ = ("_encryptor", "_position", "_secret")

    def __init__(self, key: bytes, label: bytes) -> None:
        self._secret = _derive(key, label, _STREAM_PERSON)
        self._encryptor = Cipher(algorithms.ChaCha20(self._secret, _NONCE), mode=None).encryptor()
        self._position = 0

    def __repr__(self) -> str:
        return f"KeyStream(secret, position={self._position})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a KeyStream must not be pickled or copied, so that keys stay out of the job graph; create it in setup()."
        )

    @property
    def position(self) -> int:
        """Number of 64-bit words read so far."""
        return self._position

    def substream(self, label: bytes) -> "KeyStream":
        """Returns an independent stream, the same wherever this one stands."""
        return KeyStream(_derive(self._secret, label, _SUBSTREAM_PERSON), label)

    def uint64(self, n: int) -> NDArray[np.uint64]:
        """Reads `n` words, shape (n,), as little-endian."""
        self._position += n
        return np.frombuffer(self._encryptor.update(bytes(8 * n)), dtype=_WORD).astype(np.uint64)

    def bits(self, n: int) -> NDArray[np.bool_]:
        """Flips `n` fair coins, shape (n,); reads ceil(n / 64) words."""
        raw = self.uint64(-(-n // 64)).astype(_WORD, copy=False).view(np.uint8)
        return np.unpackbits(raw, count=n, bitorder="little").view(np.bool_)

    def residues(self, bound: int, n: int) -> NDArray[np.int64]:
        """Draws exactly uniform integers on {0, ..., bound - 1}, shape (n,), by rejection; 1 <= bound <= 2**62."""
        if not 1 <= bound <= MAX_BOUND:
            raise ValueError(f"bound must be in [1, 2**62], got {bound}; draw a larger integer in two parts.")
        width = (bound - 1).bit_length()
        if width == 0:
            return np.zeros(n, dtype=np.int64)

        def accepted(trials: int) -> Integers:
            candidates = (self.uint64(trials) >> np.uint64(64 - width)).view(np.int64)
            return candidates[candidates < bound]

        return first_accepted(accepted, bound / (1 << width), n)


def first_accepted(draw: Callable[[int], NDArray[np.int64]], rate: float, size: int) -> NDArray[np.int64]:
    """Returns the first `size` survivors of independent trials, in batches.

    Survivors beyond `size` are discarded unseen, so the law is that of one trial given survival.

    Args:
      draw: number of trials -> the survivors of that many new trials, in order.
      rate: in (0, 1]; about the share of trials that survive. It sets the batch sizes, never the law.
      size: length of the result.
    """
    survivors = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        trials = int(missing / rate) + 4 * math.isqrt(missing) + 8
        kept = draw(min(trials, BATCH_TRIALS))[:missing]
        survivors.append(kept)
        missing -= len(kept)
    return np.concatenate(survivors)


def encode_label(*parts: bytes | str | int | float) -> bytes:
    """Encodes a tuple of bytes, str, int (not bool) and float injectively: different tuples give different bytes.

    Every part is a type tag, the payload's length in eight bytes, and the payload; 1, 1.0 and "1" differ. Floats are
    written exactly, in hexadecimal. Other types raise TypeError.

    Example:
      >>> encode_label("ab", "c") == encode_label("a", "bc")
      False
    """
    return b"".join(_encode_part(part) for part in parts)


def _encode_part(part: bytes | str | int | float) -> bytes:
    if isinstance(part, bytes):
        tag, payload = b"b", part
    elif isinstance(part, str):
        tag, payload = b"s", part.encode()
    elif isinstance(part, int) and not isinstance(part, bool):
        tag, payload = b"i", str(int(part)).encode()
    elif isinstance(part, float):
        tag, payload = b"f", part.hex().encode()
    else:
        raise TypeError(f"a label part must be bytes, str, int or float, got {type(part).__name__}; convert it first.")
    return tag + len(payload).to_bytes(8, "big") + payload


def _derive(key: bytes, label: bytes, person: bytes) -> bytes:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ValueError(f"key must be {KEY_BYTES} bytes; create one with secrets.token_bytes({KEY_BYTES}).")
    return hashlib.blake2b(label, key=key, digest_size=KEY_BYTES, person=person).digest()
