"""Participants of a round with pairwise masks, and their keys and letters as the aggregator lists them."""

import bisect
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.exchange import MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import Leg, Letter, SenderKeys
from dapple_dp.transforms.masked.clients import Masking
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.signing import Parties
from dapple_dp.transforms.numerics.masked.neighbors import circle, parameters
from dapple_dp.transforms.numerics.masked.pairwise_masks import Neighbor, PublicKeys
from dapple_dp.transforms.numerics.masked.public_keys import is_sound


class Roster(NamedTuple):
    """All participants of a round; public to clients and aggregator.

    Attributes:
      names: of the clients, sorted; a client's number is its place.
      keys: public keys by number.
      neighbors: numbers, shape (n_clients, n_neighbors).
      threshold: number of shares that reconstruct a secret.
    """

    names: tuple[bytes, ...]
    keys: tuple[PublicKeys, ...]
    neighbors: NDArray[np.int64]
    threshold: int

    @classmethod
    def of(cls, keys: Iterable[SenderKeys], params: PairwiseParams) -> "Roster":
        """Creates the roster of everybody who has sent keys: numbered by name, with neighbors by a digest of all keys.

        Raises:
          ProtocolError: if there are too few.
        """
        ordered = sorted(keys)
        if len(ordered) < 3:
            raise ProtocolError("pairwise masks need at least 3 clients; use scheme shared_secret.")
        graph = parameters(len(ordered), params.corrupt, params.dropout)
        seed = hashlib.sha256(b"".join(row.mask + row.letters for row in ordered)).digest()
        public = tuple(PublicKeys(row.mask, row.letters) for row in ordered)
        neighbors = circle(len(ordered), graph.n_neighbors, seed)
        return cls(tuple(row.sender for row in ordered), public, neighbors, graph.threshold)

    def number_of(self, name: bytes) -> int:
        """Returns the number of a client."""
        return bisect.bisect_left(self.names, name)

    def neighbors_of(self, number: int) -> list[Neighbor]:
        """Returns the neighbors of a client."""
        return [Neighbor(other, self.keys[other]) for other in self.neighbors[number].tolist()]


class Correspondence(NamedTuple):
    """The aggregator's lists so far, as one client sees them: public keys and sealed letters.

    Attributes:
      roster: everybody who has sent keys.
      shared: numbers of those who have sent a letter to every neighbor.
      own: numbers of this client's senders.
      letters: all letters from them or to them.
    """

    roster: Roster
    shared: frozenset[int]
    own: frozenset[int]
    letters: dict[tuple[int, int], bytes]

    @classmethod
    def of(
        cls, keys: Iterable[SenderKeys], letters: Iterable[Letter], own: Iterable[SenderKeys], params: PairwiseParams
    ) -> "Correspondence":
        """Creates the correspondence from the lists.

        Args:
          keys: listed.
          letters: listed; empty before that.
          own: keys that this client's senders have sent.
          params: of the run.

        Raises:
          ProtocolError: if a listed key differs from an own sender's or allows no agreement, or there are too few.
        """
        listed = {key.sender: key for key in keys}
        if not all(is_sound(each.mask) and is_sound(each.letters) for each in listed.values()):
            raise ProtocolError("the aggregator lists a key that is invalid; open a new run.")
        if any(listed.get(each.sender, each) != each for each in own):
            raise ProtocolError("the aggregator lists other keys than those that were sent; open a new run.")
        roster = Roster.of(listed.values(), params)
        mine = frozenset(roster.number_of(each.sender) for each in own if each.sender in listed)
        sent: dict[int, set[int]] = {}
        kept = {}
        for sender, receiver, sealed in letters:
            if not 0 <= min(sender, receiver) <= max(sender, receiver) < len(roster.names):
                continue
            sent.setdefault(sender, set()).add(receiver)
            if sender in mine or receiver in mine:
                kept[sender, receiver] = sealed
        expected = ((number, set(row)) for number, row in enumerate(roster.neighbors.tolist()))
        shared = frozenset(number for number, row in expected if sent.get(number) == row)
        return cls(roster, shared, mine, kept)

    @classmethod
    def read(
        cls, client: str, folder: str, index: int, params: PairwiseParams, parties: Parties | None = None
    ) -> "Correspondence":
        """Reads the files of a round; `client` is empty for a party that sends nothing, `params` are the reader's."""
        exchange = PairwiseExchange(folder, parties)
        letters = exchange.letters(index) if exchange.leg(index) in (Leg.MESSAGES, Leg.SHARES) else []
        own = exchange.own_keys(index, client) if client else []
        return cls.of(exchange.keys(index), letters, own, params)

    def partners_of(self, number: int) -> list[Neighbor]:
        """Returns a sender's neighbors that have shared: those with whom it masks."""
        return [each for each in self.roster.neighbors_of(number) if each.number in self.shared]

    def inbox_of(self, number: int) -> dict[int, tuple[Neighbor, bytes]]:
        """Returns the letters to a sender, from those who have shared."""
        return {each.number: (each, self.letters[each.number, number]) for each in self.partners_of(number)}

    def present(self, masked: MaskedReleases, masking: Masking) -> frozenset[int]:
        """Returns the numbers of those whose messages were added up.

        Raises:
          ProtocolError: if there are fewer than the clients' threshold or their shares of the noise require, or not
            all of them have shared.
        """
        present = frozenset(int.from_bytes(sender, "big") for sender in masked.senders)
        fewest = max(masking.threshold, 2)
        if len(present) < fewest or not present <= self.shared:
            raise ProtocolError(
                f"at least {fewest} clients (masked.threshold) who have shared their secrets must be present; the "
                "masks of those present stay, so open a new run."
            )
        if masking.shares is not None:
            masking.shares.check_present(len(present), len(self.roster.names))
        return present


def number_listed(listed: Correspondence) -> int:
    """Returns how many senders have sent keys, which sets their shares of the noise."""
    return len(listed.roster.names)


def read_lists(
    client: str, folder: str, index: int, params: PairwiseParams, parties: Parties | None = None
) -> Correspondence:
    """Reads the lists of a round, as this client sees them."""
    return Correspondence.read(client, folder, index, params, parties)


def sender_of(number: int) -> bytes:
    """Returns the name of a client in messages."""
    return number.to_bytes(8, "big")


def list_everybody(keys: list, params: PairwiseParams) -> Correspondence:
    """Returns the roster of a round in which everybody who has sent keys shares; letters are passed separately."""
    roster = Roster.of(keys, params)
    return Correspondence(roster, frozenset(range(len(roster.names))), frozenset(), {})
