"""Masks of messages from a secret that all clients share: uniform on Z_2^64, one message per mask.

A mask is the ChaCha20 keystream under a key of its round and a nonce that is the keyed digest (tag) of sender and
message. So the same message gets the same mask again, and a message that differs in one unit, or comes
from another sender, gets another mask: of n messages two share one with probability below n**2 / 2**97, and of
m attempts of one sender at a message of at most 2**20 bytes with one below m**2 / 2**88. To anyone without the
secret, masked messages and their sums are uniform and independent of the data.

A tag is BLAKE2b of sender and Poly1305 of the message, both under secret keys of the round: the universal hash is
never shown, so that its key can serve for all messages.

Source: Diaa, Humphries, Kerschbaum (2025), "FastLloyd", Figure 1, for the protocol; Rogaway, Shrimpton (2006), "A
provable-security treatment of the key-wrap problem", for nonces made from the message; Bernstein (2005), "The
Poly1305-AES message-authentication code", for the hash.
"""

import hashlib
from collections.abc import Sequence
from typing import NoReturn, SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.poly1305 import Poly1305
from numpy.typing import NDArray

from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.transforms.core.keystream import KeyStream, encode_label

TAG_BYTES = 12
"""Length of a tag, which is the nonce of its message's mask."""
SENDER_BYTES = 16
"""Length of a sender's pseudonym in one round."""

_COUNTER = bytes(4)
_BATCH_BYTES = 1 << 19
_TAG_PERSON = b"dapple-mask-tag"
_SENDER_PERSON = b"dapple-sender"


class RoundMasks:
    """The masks of one round, for those who hold the secret.

    Args:
      secret: 32 bytes that all clients share and the aggregator lacks.
      context: run, round and broadcast, by `encode_label`; no two rounds have the same.

    Raises:
      ValueError: if the secret is not 32 bytes.
    """

    __slots__ = ("_encryptor", "_hash_key", "_sender_key", "_tag_key")

    def __init__(self, secret: bytes, context: bytes) -> None:
        stream = KeyStream(secret, encode_label("masks", context))
        keys = (stream.uint64(4).astype("<u8").tobytes() for _ in range(4))
        mask_key, self._tag_key, self._sender_key, self._hash_key = keys
        self._encryptor = Cipher(algorithms.ChaCha20(mask_key, _COUNTER + bytes(TAG_BYTES)), mode=None).encryptor()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("RoundMasks must not be pickled or copied, to keep secrets out of jobs; create it in setup().")

    def pseudonym(self, sender: bytes) -> bytes:
        """Returns the aggregator's name for a sender in this round; it distinguishes senders, but reveals no more."""
        return hashlib.blake2b(sender, key=self._sender_key, digest_size=SENDER_BYTES, person=_SENDER_PERSON).digest()

    def mask(self, senders: Sequence[bytes], statistics: NDArray[np.int64]) -> MaskedMessages:
        """Masks one message per sender.

        Args:
          senders: n_messages different names of any length.
          statistics: int64, shape (n_messages, size).
        """
        names = tuple(map(self.pseudonym, senders))
        tags = tuple(self._tag(*each) for each in zip(names, statistics, strict=True))
        masks = np.empty(statistics.shape, dtype="<u8")
        self._write(tags, masks)
        return MaskedMessages(names, tags, (statistics.view(np.uint64) + masks).view(np.int64))

    def total(self, tags: Sequence[bytes], size: int) -> NDArray[np.int64]:
        """Returns the sum of the masks of the messages with these tags, int64, shape (size,)."""
        sums = np.zeros(size, dtype=np.uint64)
        batch = max(1, _BATCH_BYTES // (8 * max(size, 1)))
        masks = np.empty((min(batch, len(tags)), size), dtype="<u8")
        for start in range(0, len(tags), batch):
            part = tags[start : start + batch]
            self._write(part, masks[: len(part)])
            sums += masks[: len(part)].sum(axis=0, dtype=np.uint64)
        return sums.view(np.int64)

    def _tag(self, pseudonym: bytes, statistic: NDArray[np.int64]) -> bytes:
        """Returns the keyed digest of a message and its sender."""
        hashed = Poly1305.generate_tag(self._hash_key, statistic.astype("<i8", copy=False).tobytes())
        return hashlib.blake2b(
            pseudonym + hashed, key=self._tag_key, digest_size=TAG_BYTES, person=_TAG_PERSON
        ).digest()

    def _write(self, tags: Sequence[bytes], masks: NDArray[np.uint64]) -> None:
        """Fills rows with the masks of their tags."""
        zeros = bytes(8 * masks.shape[1])
        for tag, row in zip(tags, masks.view(np.uint8), strict=True):
            self._encryptor.reset_nonce(_COUNTER + tag)
            self._encryptor.update_into(zeros, row)


def message_bytes(size: int) -> int:
    """Returns the bytes that a client sends in a round: its statistic, its pseudonym and its tag."""
    return 8 * size + SENDER_BYTES + TAG_BYTES
