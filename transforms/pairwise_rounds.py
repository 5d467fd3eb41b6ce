r"""A round with pairwise masks: clients' stages around those of the aggregator, which are the same for every scheme.

    statistic per client -> advertise -> roster -> share -> letters ---------------------> reveal -> unmask
                         \-> message ------------------> | sum -> noise | -> who is present -/

Input element: `ShardRef`. Output element: tuple of `Release`, exactly one. One file stands for the secrets of all
clients here: each client's own is derived from it and its name.
"""

import bisect
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton
from numpy.typing import NDArray

from schemas.errors import ProtocolError
from schemas.masked_message import MaskedMessages, MaskedReleases
from schemas.pairwise_messages import PairwiseParams
from schemas.plan import RoundPlan
from schemas.release import Release
from schemas.shard import EMPTY_SHARD, ShardRef
from schemas.table import TableContract
from transforms.client_messages import (
    Masking,
    SecretFn,
    mask_context,
    shard_statistics,
    unmasked,
)
from transforms.masked_sum import AggregateMasked
from transforms.numerics.keystream import KeyStream, encode_label
from transforms.numerics.neighbors import circle, parameters
from transforms.numerics.pairwise import Neighbor, PairwiseClient, PublicKeys, Revealed, total_mask
from transforms.rounds import Round


class Roster(NamedTuple):
    """Everybody who takes part in a round; public to clients and aggregator.

    Attributes:
      names: of the clients, sorted; a client's number is its place.
      keys: public keys by number.
      neighbors: numbers, shape (n_clients, n_neighbors).
      threshold: shares that give a secret back.
    """

    names: tuple[bytes, ...]
    keys: tuple[PublicKeys, ...]
    neighbors: NDArray[np.int64]
    threshold: int

    def number_of(self, name: bytes) -> int:
        """The number of a client."""
        return bisect.bisect_left(self.names, name)

    def neighbors_of(self, number: int) -> list[Neighbor]:
        """The neighbors of a client."""
        return [Neighbor(other, self.keys[other]) for other in self.neighbors[number].tolist()]


def _statistics(
    shard: ShardRef, state: Any, contract: TableContract, each: Round
) -> Iterator[tuple[bytes, np.ndarray]]:
    """(name, statistic) of everybody who sends a message for the shard."""
    if shard == EMPTY_SHARD:
        return
    for first, statistics in shard_statistics(shard, contract, each, state):
        for index, statistic in enumerate(statistics):
            yield encode_label(shard.path, shard.row_group, first + index), statistic


def make_roster(advertised: list, params: PairwiseParams) -> Roster:
    """Everybody who has advertised: numbers in the order of names, neighbors by a digest of all public keys.

    Raises:
      ProtocolError: if they are too few.
    """
    if len(advertised) < 3:
        raise ProtocolError("pairwise masks must be among at least 3 clients, got fewer; use scheme shared_secret.")
    ordered = sorted(advertised)
    keys = tuple(each for _, each in ordered)
    graph = parameters(len(keys), params.corrupt, params.dropout)
    seed = hashlib.sha256(b"".join(each.mask + each.letters for each in keys)).digest()
    return Roster(tuple(name for name, _ in ordered), keys, circle(len(keys), graph.n_neighbors, seed), graph.threshold)


class PairwiseFn(SecretFn):
    """A step of clients; each one's secret is derived where it is needed."""

    def __init__(self, masking: Masking, plan: RoundPlan):
        super().__init__(masking)
        self._plan = plan

    def _client(self, name: bytes, number: int, state: Any) -> PairwiseClient:
        """The client of this name in this round."""
        own = KeyStream(self._held_key(), encode_label("client", name)).uint64(4).tobytes()
        return PairwiseClient(own, number, mask_context(self._masking.run, self._plan, state))


class _AdvertiseFn(PairwiseFn):
    """Public keys of every client."""

    def process(self, named: tuple, state: Any) -> Iterator[tuple[bytes, PublicKeys]]:
        """(name, keys)."""
        yield named[0], self._client(named[0], 0, state).advertise()


class _ShareFn(PairwiseFn):
    """Sealed shares of every client for its neighbors."""

    def process(self, named: tuple, state: Any, roster: Roster) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """(number of the neighbor, (number of the client, letter))."""
        name, statistic = named
        number = roster.number_of(name)
        letters = self._client(name, number, state).share(roster.neighbors_of(number), roster.threshold, statistic)
        for other, letter in letters.items():
            yield other, (number, letter)


class _MaskFn(PairwiseFn):
    """One masked message per client."""

    def process(self, named: tuple, state: Any, roster: Roster) -> Iterator[MaskedMessages]:
        """A batch of one message; a number is all that names its sender."""
        name, statistic = named
        number = roster.number_of(name)
        values = self._client(name, number, state).mask(roster.neighbors_of(number), statistic)
        yield MaskedMessages((sender_of(number),), (b"",), values[None])


class _RevealFn(PairwiseFn):
    """What clients hand out once it is known who is present; those who are gone hand out nothing."""

    def process(self, sent: tuple, state: Any, roster: Roster, masked: MaskedReleases) -> Iterator[Revealed]:
        """Shares from one holder."""
        holder, letters = sent
        present = present_numbers(masked)
        if holder in present:
            received = {owner: (Neighbor(owner, roster.keys[owner]), letter) for owner, letter in letters}
            yield from self._client(roster.names[holder], holder, state).reveal(received, present)


def sender_of(number: int) -> bytes:
    """What messages call a client."""
    return number.to_bytes(8, "big")


def present_numbers(masked: MaskedReleases) -> frozenset[int]:
    """Numbers of those whose messages were added up."""
    return frozenset(int.from_bytes(sender, "big") for sender in masked.senders)


def _unmask(
    masked: MaskedReleases, state: Any, roster: Roster, revealed: Iterable, plan: RoundPlan, run: str
) -> tuple[Release, ...]:
    """Subtracts the total mask of those present."""
    neighbors = dict(enumerate(roster.neighbors.tolist()))
    keys, context = dict(enumerate(roster.keys)), mask_context(run, plan, state)
    present = present_numbers(masked)
    total = total_mask(revealed, keys, neighbors, present, roster.threshold, plan.size, context)
    return unmasked(masked.releases, plan, total)


@dataclasses.dataclass(eq=False, kw_only=True)
class PairwiseReleases(beam.PTransform):
    """`ShardRef`s and one state → the releases of a round, by pairwise masks with recovery of dropouts.

    Attributes:
      round: statistic and plan.
      state: PCollection of one element: what is broadcast.
      contract: how shards are read; by client if clients send messages, else each shard does.
      key_uri: where the aggregator's noise stage finds its key.
      masking: of the clients' role, with its pairwise parameters.
      deliver: what becomes of a batch of messages on its way.

    Windowing: global. Privacy: as `MaskedRound`; no stage holds what could unmask one message alone. Cost: one
    pass, one shuffle of a letter per neighbor of each client, and as many key agreements.
    """

    round: Round
    state: beam.PCollection
    contract: TableContract
    key_uri: str
    masking: Masking
    deliver: Callable[[MaskedMessages], MaskedMessages]

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Clients, aggregator, clients."""
        plan, masking, state = self.round.plan, self.masking, AsSingleton(self.state)
        named = shards | "Statistic" >> beam.FlatMap(_statistics, state, self.contract, self.round)
        advertised = named | "Advertise" >> beam.ParDo(_AdvertiseFn(masking, plan), state)
        listed = advertised | "All" >> beam.combiners.ToList()
        roster = AsSingleton(listed | "Roster" >> beam.Map(make_roster, masking.pairwise))
        aggregate = AggregateMasked(plan=plan, key_uri=self.key_uri, threshold=masking.threshold)
        masked = (
            named
            | "Mask" >> beam.ParDo(_MaskFn(masking, plan), state, roster)
            | "Deliver" >> beam.Map(self.deliver)
            | "Aggregate" >> aggregate
        )
        revealed = (
            named
            | "Share" >> beam.ParDo(_ShareFn(masking, plan), state, roster)
            | "Letters" >> beam.GroupByKey()
            | "Reveal" >> beam.ParDo(_RevealFn(masking, plan), state, roster, AsSingleton(masked))
        )
        return masked | "Subtract" >> beam.Map(_unmask, state, roster, AsList(revealed), plan, masking.run)
