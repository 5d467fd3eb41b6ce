"""Masks that pairs of clients agree on: no common secret, and clients may drop out after they have shared.

A client's message is its statistic, plus a mask from its own seed, plus or minus a mask per neighbor: these
cancel in the sum. Own seeds and the keys behind pairwise masks are Shamir-shared among the neighbors. For clients that
are present the neighbors hand out shares of the seed; for those that are gone, shares of the key; never both.

    advertise -> share -> mask -> (list of senders) -> reveal -> total

The collector of shares is in the clients' role, apart from the aggregator: it learns the total of the masks and the
noised sum. If the two collude, they learn the sum without noise, but no client's statistic. Everything a
client draws is derived from its own secret, the context and its message, so that a retry repeats its bytes.

Source: Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning", Figure 4;
Bell et al. (2020) for neighbors; clients and aggregator follow the protocol (semi-honest).
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dapple_dp.schemas.errors import NotYetError, ProtocolError
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.masked import shamir
from dapple_dp.transforms.numerics.masked.public_keys import public_key

Answers = list[tuple[int, NDArray[np.int64]]]
"""Holders' numbers, and the share of each; shares are taken at number + 1."""
_NONCE = bytes(12)
_KEY_BYTES = 32
_TAG_BYTES = 16


def recovered(
    answers: Mapping[int, Answers], threshold: int, is_secret: Callable[[bytes, int], bool]
) -> dict[int, bytes]:
    """Reconstructs secrets by owner, 32 bytes each.

    Args:
      answers: by owner, sorted by holder.
      threshold: shares that give a secret back.
      is_secret: (bytes, owner) -> whether they are the owner's secret.

    Raises:
      ProtocolError: if an owner has too few shares, or no successive shares give its secret.
    """
    if any(len(answer) < threshold for answer in answers.values()):
        raise NotYetError(
            f"at least {threshold} neighbors of every client must hand out shares, got fewer; wait for more of them."
        )
    if not answers:
        return {}
    found = _combined([answer[:threshold] for answer in answers.values()])
    secrets = dict(zip(answers, found, strict=False))
    wrong = [owner for owner in answers if owner not in secrets or not is_secret(secrets[owner], owner)]
    return secrets | {owner: _secret(answers[owner], threshold, owner, is_secret) for owner in wrong}


def is_residues(share: NDArray[np.int64]) -> bool:
    """Returns whether numbers can be a share."""
    return share.shape == (shamir.N_LIMBS,) and bool(((share >= 0) & (share < shamir.PRIME)).all())


def _combined(chosen: list[Answers]) -> list[bytes]:
    """Reconstructs secrets from shares of as many owners; none if any of the shares don't fit together."""
    points = np.array([[holder + 1 for holder, _ in answers] for answers in chosen])
    try:
        secrets = shamir.combine(points, np.array([[share for _, share in answers] for answers in chosen]))
    except ValueError:
        return []
    return [secret.tobytes() for secret in secrets]


def _secret(answers: Answers, threshold: int, owner: int, is_secret: Callable[[bytes, int], bool]) -> bytes:
    """Reconstructs the secret of an owner from the first of its shares that fit together, leaving out wrong ones.

    Raises:
      ProtocolError: if no successive shares give the secret that its owner has shared.
    """
    for first in range(len(answers)):
        chosen = [answers[(first + step) % len(answers)] for step in range(threshold)]
        for secret in _combined([chosen]):
            if is_secret(secret, owner):
                return secret
    raise ProtocolError("clients handed out other shares than those sent to them; their masks stay, so open a new run.")


class PublicKeys(NamedTuple):
    """Public keys that a client advertises: one for masks, one for letters to its neighbors, 32 bytes each."""

    mask: bytes
    letters: bytes


class Neighbor(NamedTuple):
    """A neighbor as a client sees it.

    Attributes:
      number: of the neighbor among all clients, >= 0; Shamir shares are taken at number + 1.
      keys: its public keys.
    """

    number: int
    keys: PublicKeys


class Revealed(NamedTuple):
    """A share that a neighbor hands out.

    Attributes:
      owner: the client whose secret is shared.
      holder: the client that hands it out.
      present: True for a share of the owner's seed, False for one of its key.
      share: int64, shape (shamir.N_LIMBS,).
    """

    owner: int
    holder: int
    present: bool
    share: NDArray[np.int64]


class PairwiseClient:
    """One client in one round.

    Args:
      secret: 32 bytes of this client alone.
      number: of the client among all.
      context: run, round and broadcast, by `encode_label`; no two rounds have the same.
    """

    __slots__ = ("_answered", "_context", "_letter_private", "_mask_key", "_mask_private", "_stream", "number")

    def __init__(self, secret: bytes, number: int, context: bytes) -> None:
        self.number, self._context = number, context
        self._stream = KeyStream(secret, encode_label("pairwise", context))
        self._mask_key = self._stream.substream(b"mask").uint64(4).tobytes()
        # Creating such an object costs as much as agreeing on a secret, so there is one for all neighbors.
        self._mask_private = X25519PrivateKey.from_private_bytes(self._mask_key)
        letter_key = self._stream.substream(b"letters").uint64(4).tobytes()
        self._letter_private = X25519PrivateKey.from_private_bytes(letter_key)
        self._answered: frozenset[int] | None = None

    def advertise(self) -> PublicKeys:
        """Returns the client's public keys."""
        private = (self._mask_private, self._letter_private)
        return PublicKeys(*(each.public_key().public_bytes_raw() for each in private))

    def _seed(self, statistic: NDArray[np.int64]) -> bytes:
        """Returns the seed of the client's own mask; it differs for every statistic."""
        digest = hashlib.sha256(statistic.astype("<i8").tobytes()).digest()
        return self._stream.substream(encode_label("seed", digest)).uint64(4).tobytes()

    def share(self, neighbors: Sequence[Neighbor], threshold: int, statistic: NDArray[np.int64]) -> dict[int, bytes]:
        """Returns one sealed letter per neighbor with its shares of this client's key and seed.

        Args:
          neighbors: of this client, in the order of the circle.
          threshold: shares that give a secret back.
          statistic: int64, which the client will send.
        """
        seed = self._seed(statistic)
        secrets = np.frombuffer(self._mask_key + seed, dtype=np.uint8).reshape(2, _KEY_BYTES)
        points = np.tile([neighbor.number + 1 for neighbor in neighbors], (2, 1))
        stream = self._stream.substream(encode_label("shares", seed, points.tobytes(), threshold))
        shares = shamir.split(secrets, points, threshold, stream)
        texts = (shares[:, place].astype("<u4").tobytes() for place in range(len(neighbors)))
        return {each.number: self._seal(each, text) for each, text in zip(neighbors, texts, strict=True)}

    def mask(self, neighbors: Iterable[Neighbor], statistic: NDArray[np.int64]) -> NDArray[np.int64]:
        """Masks a statistic: returns the message, int64, shape of `statistic`.

        Args:
          neighbors: this client's neighbors that have shared, the same for everybody.
          statistic: int64, shape (size,).
        """
        total = statistic.view(np.uint64) + _words(self._seed(statistic), len(statistic))
        for neighbor in neighbors:
            total += _signed(self._agreed(neighbor), self.number, neighbor.number, len(statistic))
        return total.view(np.int64)

    def tag(self, statistic: NDArray[np.int64]) -> bytes:
        """Returns the tag of the message of `statistic`, 16 bytes, which reveals a wrong seed of its mask.

        A seed has 256 random bits, so its digest reveals nothing of it.
        """
        return seed_tag(self._seed(statistic), self.number, self._context)

    def reveal(self, letters: Mapping[int, tuple[Neighbor, bytes]], present: frozenset[int]) -> list[Revealed]:
        """Returns shares of the seeds of neighbors that are present, and of the keys of those that are not.

        A letter that was changed on its way, or isn't valid, is left out: its sender has other neighbors.

        Args:
          letters: by number of the sender: the neighbor, and its letter to this client.
          present: numbers of all clients whose messages were added up; final.

        Raises:
          ProtocolError: if another list of those present was answered before.
        """
        if self._answered not in (None, present):
            raise ProtocolError("a second list of who is present has arrived for this round; it gets no answer.")
        self._answered = present
        answers = []
        for owner, (neighbor, letter) in sorted(letters.items()):
            if (text := self._open(neighbor, letter)) is None:
                continue
            key, seed = np.frombuffer(text, dtype="<u4").astype(np.int64).reshape(2, shamir.N_LIMBS)
            there = owner in present
            answers.append(Revealed(owner, self.number, there, seed if there else key))
        return answers

    def _agreed(self, neighbor: Neighbor) -> bytes:
        """Returns the seed of the pairwise mask with a neighbor, which nobody else knows."""
        return agreed_seed(self._mask_private, neighbor.keys.mask, (self.number, neighbor.number), self._context)

    def _seal(self, neighbor: Neighbor, text: bytes) -> bytes:
        """Seals a letter to a neighbor; its salt, and so its key, depends on the text, so the nonce can be constant."""
        label = encode_label("letter", self._context, self.number, neighbor.number)
        salt = self._stream.substream(encode_label("salt", label, text)).uint64(4).tobytes()
        key = _derived(self._letter_private, neighbor.keys.letters, label + salt)
        return salt + ChaCha20Poly1305(key).encrypt(_NONCE, text, label)

    def _open(self, neighbor: Neighbor, letter: bytes) -> bytes | None:
        """Opens a letter from a neighbor; None if it was changed, or holds something else than shares."""
        label = encode_label("letter", self._context, neighbor.number, self.number)
        key = _derived(self._letter_private, neighbor.keys.letters, label + letter[:_KEY_BYTES])
        try:
            text = ChaCha20Poly1305(key).decrypt(_NONCE, letter[_KEY_BYTES:], label)
        except InvalidTag:
            return None
        return text if len(text) == 2 * shamir.SHARE_BYTES else None


class SharedRound(NamedTuple):
    """A round in which clients have shared, as the collector sees it.

    Attributes:
      keys: by number, of everybody who has shared.
      neighbors: by number, those of everybody who has shared, among those who have.
      threshold: shares that give a secret back.
      context: of the round.
      tags: by number, from the messages of those present.
    """

    keys: Mapping[int, PublicKeys]
    neighbors: Mapping[int, Collection[int]]
    threshold: int
    context: bytes
    tags: Mapping[int, bytes]

    def is_secret(self, secret: bytes, owner: int) -> bool:
        """Returns whether it is the seed of the message's tag or, for an absent owner, the key that it advertised."""
        if owner in self.tags:
            return seed_tag(secret, owner, self.context) == self.tags[owner]
        return public_key(secret) == self.keys[owner].mask


def total_mask(
    revealed: Iterable[Revealed], shared: SharedRound, present: frozenset[int], size: int
) -> NDArray[np.int64]:
    """Returns the part of masks in the sum of the messages of those present, from the shares that were handed out.

    Args:
      revealed: shares, in any order.
      shared: of the round.
      present: numbers of those whose messages were added up.
      size: length of a message.

    Returns:
      int64, shape (size,).

    Raises:
      ProtocolError: if both kinds of shares of one client are there, shares of the wrong kind or of another secret, or
        too few.
    """
    total = np.zeros(size, dtype=np.uint64)
    for owner, secret in _secrets(revealed, shared, present).items():
        if owner in present:
            total += _words(secret, size)
            continue
        private = X25519PrivateKey.from_private_bytes(secret)
        for other in present.intersection(shared.neighbors[owner]):
            seed = agreed_seed(private, shared.keys[other].mask, (owner, other), shared.context)
            total += _signed(seed, other, owner, size)
    return total.view(np.int64)


def _is_share(answer: Revealed, shared: SharedRound, present: frozenset[int]) -> bool:
    """Returns whether an answer can be a share: from a present neighbor of the owner, and of residues."""
    known = answer.owner in shared.keys and answer.holder in present and answer.holder in shared.neighbors[answer.owner]
    return known and is_residues(answer.share)


def _secrets(revealed: Iterable[Revealed], shared: SharedRound, present: frozenset[int]) -> dict[int, bytes]:
    """Returns the seed of everybody present, and the key of everybody missing who has a neighbor left."""
    shares: dict[int, dict[int, NDArray[np.int64]]] = {owner: {} for owner in shared.keys}
    for answer in revealed:
        if not _is_share(answer, shared, present):
            continue
        if answer.present is not (answer.owner in present):
            raise ProtocolError("shares must be of a client's seed or of its key, got both; start the round again.")
        shares[answer.owner][answer.holder] = answer.share
    needed = [o for o in sorted(shares) if o in present or present.intersection(shared.neighbors[o])]
    answers = {owner: sorted(shares[owner].items()) for owner in needed}
    return recovered(answers, shared.threshold, shared.is_secret)


def seed_tag(seed: bytes, number: int, context: bytes) -> bytes:
    """Returns the tag that ties a seed to a client in a round, 16 bytes."""
    return hashlib.blake2b(encode_label("tag of a seed", context, number, seed), digest_size=_TAG_BYTES).digest()


def agreed_seed(own: X25519PrivateKey, other_public: bytes, numbers: tuple[int, int], context: bytes) -> bytes:
    """Returns the seed of the pairwise mask of two clients, the same from either end."""
    low, high = sorted(numbers)
    return _derived(own, other_public, encode_label("pair", context, low, high))


def _derived(own: X25519PrivateKey, other_public: bytes, label: bytes) -> bytes:
    """Derives a key by X25519, then HKDF."""
    shared = own.exchange(X25519PublicKey.from_public_bytes(other_public))
    return HKDF(algorithm=hashes.SHA256(), length=_KEY_BYTES, salt=None, info=label).derive(shared)


def _words(seed: bytes, size: int) -> NDArray[np.uint64]:
    return KeyStream(seed, b"mask").uint64(size)


def _signed(seed: bytes, own: int, other: int, size: int) -> NDArray[np.uint64]:
    """Returns the words that client `own` adds for the mask that it shares with `other`; the two add up to zero."""
    words = _words(seed, size)
    return words if own < other else np.zeros(size, dtype=np.uint64) - words
