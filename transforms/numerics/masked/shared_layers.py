"""Keys of layers of noise, shared among neighbors: those in excess come to light once it is final who is present.

A client's neighbors hold Shamir shares of the key of every layer, apart from one another. Of a client that is present
they hand out shares of one key, that of the first layer in excess. The keys of later layers follow from it; those of
the layers that are kept, and of the base, which is not shared, do not. Nobody asks for a layer: every holder works out
from the list of who is present which one it is.

Source: Jiang, Wang, Chen (2024), arXiv 2209.12528, Section 3.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.masked import shamir
from transforms.numerics.masked.neighbors import GraphParams
from transforms.numerics.masked.recovery import Answers, is_residues, recovered
from transforms.numerics.privacy.keystream import KeyStream, encode_label
from transforms.numerics.privacy.noise_layers import layer_keys

TAG_BYTES = 16


class SharedLayers(NamedTuple):
    """Keys of a client's layers, as it shares them.

    Attributes:
      keys: of layers 1, 2, ..., 32 octets each; the base has none.
      end: what follows from the last key.
      holders: how many of the client's neighbors, the first ones, hold shares, and how many give a key back.
    """

    keys: tuple[bytes, ...]
    end: bytes
    holders: GraphParams

    @classmethod
    def of(cls, first: bytes, n_layers: int, holders: GraphParams) -> "SharedLayers":
        """From the key of the first layer."""
        *keys, end = layer_keys(first, n_layers)
        return cls(tuple(keys), end, holders)

    def shares(self, neighbors: list[int], stream: KeyStream) -> dict[int, NDArray[np.int64]]:
        """Shares by holder: shape (n_layers, shamir.N_LIMBS).

        Args:
          neighbors: numbers of the client's neighbors, in the order of the circle.
          stream: of the client alone, for this purpose and this statistic.
        """
        held_by = neighbors[: self.holders.n_neighbors]
        secrets = np.frombuffer(b"".join(self.keys), dtype=np.uint8).reshape(len(self.keys), shamir.SECRET_BYTES)
        points = np.tile([number + 1 for number in held_by], (len(self.keys), 1))
        shares = shamir.split(secrets, points, self.holders.threshold, stream)
        return {number: shares[:, place] for place, number in enumerate(held_by)}

    def tag(self, number: int, context: bytes) -> bytes:
        """What goes with the message, so that a wrong key of a layer is noticed: 16 octets that say nothing of it."""
        return layer_tag(self.end, number, context)


def layer_tag(end: bytes, number: int, context: bytes) -> bytes:
    """What shows that a chain of keys is that of a client in a round."""
    return hashlib.blake2b(encode_label("tag of layers", context, number, end), digest_size=TAG_BYTES).digest()


class ExcessLayers(NamedTuple):
    """The layers in excess of a round, as the collector sees them.

    Attributes:
      first: number of the first layer in excess, >= 1.
      n_layers: of every share.
      holders: as of `SharedLayers`.
      tags: of layers by number of those present.
      context: of the round.
    """

    first: int
    n_layers: int
    holders: GraphParams
    tags: Mapping[int, bytes]
    context: bytes

    def is_key(self, key: bytes, owner: int) -> bool:
        """Whether it is the key of the owner's first layer in excess."""
        end = layer_keys(key, self.n_layers - self.first + 1)[-1]
        return layer_tag(end, owner, self.context) == self.tags[owner]

    def keys(
        self,
        handed: Iterable[tuple[int, int, NDArray[np.int64]]],
        neighbors: Mapping[int, list[int]],
        present: frozenset[int],
    ) -> dict[int, bytes]:
        """Keys of the first layer in excess of all who are present, by number.

        Args:
          handed: (owner, holder, share) in any order.
          neighbors: numbers of every owner's neighbors, in the order of the circle.
          present: numbers of those whose messages were added up.

        Raises:
          ProtocolError: if too few shares are there, or some of another key.
        """
        held_by = {owner: set(neighbors[owner][: self.holders.n_neighbors]) & present for owner in present}
        shares: dict[int, dict[int, NDArray[np.int64]]] = {owner: {} for owner in sorted(present)}
        for owner, holder, share in handed:
            if owner in present and holder in held_by[owner] and is_residues(share):
                shares[owner][holder] = share
        answers: dict[int, Answers] = {owner: sorted(each.items()) for owner, each in shares.items()}
        return recovered(answers, self.holders.threshold, self.is_key)
