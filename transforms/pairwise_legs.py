"""Legs of a round with pairwise masks as the clients' jobs take them, each in a pipeline of its own.

    keys -> (list of keys) -> letters -> (list of letters) -> messages -> (noised sum, who is present) -> shares

Lists and sum are the aggregator's. A client's secret is read in the stages that need it; all that it draws follows
from it, the round and the statistic, so that a leg taken again sends the same octets. Before a message leaves, the
letters that were listed for it are sealed again and compared: neighbors hold shares of the mask that it has.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton
from numpy.typing import NDArray

from schemas.errors import ProtocolError
from schemas.masked_message import MaskedMessages, MaskedReleases
from schemas.pairwise_messages import HandedOut, Leg, Letter, PairwiseParams, SenderKeys
from schemas.plan import RoundPlan
from schemas.release import Release
from schemas.shard import EMPTY_SHARD, ShardRef
from schemas.table import TableContract
from transforms.client_messages import Masking, mask_context, shard_statistics, unmasked
from transforms.numerics.keystream import KeyStream, encode_label
from transforms.numerics.pairwise import Neighbor, PairwiseClient, PublicKeys, Revealed, total_mask
from transforms.pairwise_files import PairwiseExchange
from transforms.pairwise_rounds import PairwiseFn, Roster, make_roster, present_numbers, sender_of
from transforms.read import prefetched_blocks
from transforms.rounds import Round


class Correspondence(NamedTuple):
    """What the aggregator has listed so far, as one client sees it: public keys, and sealed letters.

    Attributes:
      roster: everybody who has sent keys.
      shared: numbers of those who have sent a letter to every neighbor.
      own: numbers of this client's senders.
      letters: of all that they have sent or are sent.
    """

    roster: Roster
    shared: frozenset[int]
    own: frozenset[int]
    letters: dict[tuple[int, int], bytes]

    @classmethod
    def of(
        cls, keys: Iterable[SenderKeys], letters: Iterable[Letter], own: Iterable[SenderKeys], params: PairwiseParams
    ) -> "Correspondence":
        """Of the lists.

        Args:
          keys: listed.
          letters: listed; none before they are.
          own: keys that this client's senders have sent.
          params: of the run.

        Raises:
          ProtocolError: if other keys are listed for an own sender, or too few in all.
        """
        listed = {each.sender: each for each in keys}
        if any(listed.get(each.sender, each) != each for each in own):
            raise ProtocolError("keys that are listed must be those that were sent, got others; open a new run.")
        roster = make_roster([(each.sender, PublicKeys(each.mask, each.letters)) for each in listed.values()], params)
        mine = frozenset(roster.number_of(each.sender) for each in own if each.sender in listed)
        sent: dict[int, set[int]] = {}
        kept = {}
        for sender, receiver, sealed in letters:
            sent.setdefault(sender, set()).add(receiver)
            if sender in mine or receiver in mine:
                kept[sender, receiver] = sealed
        expected = ((number, set(row)) for number, row in enumerate(roster.neighbors.tolist()))
        shared = frozenset(number for number, row in expected if sent.get(number) == row)
        return cls(roster, shared, mine, kept)

    @classmethod
    def read(cls, client: str, folder: str, index: int) -> "Correspondence":
        """Of the files of a round; `client` may be empty for whoever sends nothing."""
        exchange = PairwiseExchange(folder)
        params = exchange.plan().pairwise or PairwiseParams(0.0, 0.0)
        letters = exchange.letters(index) if exchange.leg(index) in (Leg.MESSAGES, Leg.SHARES) else []
        own = exchange.own_keys(index, client) if client else []
        return cls.of(exchange.keys(index), letters, own, params)

    def partners_of(self, number: int) -> list[Neighbor]:
        """The neighbors of a sender that have shared: those with whom it masks."""
        return [each for each in self.roster.neighbors_of(number) if each.number in self.shared]

    def inbox_of(self, number: int) -> dict[int, tuple[Neighbor, bytes]]:
        """The letters to a sender, from those who have shared."""
        return {each.number: (each, self.letters[each.number, number]) for each in self.partners_of(number)}


class _SenderFn(PairwiseFn):
    """A step of senders, who are called by pseudonyms of the round."""

    def __init__(self, masking: Masking, plan: RoundPlan, contract: TableContract):
        super().__init__(masking, plan)
        self._contract = contract

    def _pseudonym(self, shard: ShardRef, index: int, state: Any) -> bytes:
        """What a sender is called: nothing to whoever lacks the secret."""
        context = mask_context(self._masking.run, self._plan, state)
        label = encode_label("pseudonym", context, self._masking.client, shard.path, shard.row_group, index)
        return KeyStream(self._held_key(), label).uint64(2).tobytes()


class _KeysFn(_SenderFn):
    """Public keys of the senders of a shard."""

    def process(self, shard: ShardRef, state: Any) -> Iterator[list[SenderKeys]]:
        """One list per shard."""
        if shard == EMPTY_SHARD:
            return
        n_senders = 1
        if self._contract.by_client:
            n_senders = sum(block.n_clients for block in prefetched_blocks(shard, self._contract))
        names = [self._pseudonym(shard, index, state) for index in range(n_senders)]
        yield [SenderKeys(name, *self._client(name, 0, state).advertise()) for name in names]


class _StatisticFn(_SenderFn):
    """What becomes of the statistics of a shard's senders."""

    def __init__(self, masking: Masking, contract: TableContract, each: Round):
        super().__init__(masking, each.plan, contract)
        self._round = each

    def _parties(
        self, shard: ShardRef, state: Any, roster: Roster
    ) -> Iterator[list[tuple[PairwiseClient, NDArray[np.int64]]]]:
        """Senders whose keys are listed, with their statistics, in batches."""
        if shard == EMPTY_SHARD:
            return
        for first, statistics in shard_statistics(shard, self._contract, self._round, state):
            batch = []
            for index, statistic in enumerate(statistics):
                name = self._pseudonym(shard, first + index, state)
                number = roster.number_of(name)
                if roster.names[number : number + 1] == (name,):
                    batch.append((self._client(name, number, state), statistic))
            yield batch

    def _sealed(self, client: PairwiseClient, statistic: NDArray[np.int64], roster: Roster) -> dict[int, bytes]:
        """A sender's letters."""
        return client.share(roster.neighbors_of(client.number), roster.threshold, statistic)


class _LettersFn(_StatisticFn):
    """Shares of the senders of a shard, sealed."""

    def process(self, shard: ShardRef, state: Any, listed: Correspondence) -> Iterator[list[Letter]]:
        """One list per batch of senders."""
        for batch in self._parties(shard, state, listed.roster):
            yield [
                Letter(client.number, other, sealed)
                for client, statistic in batch
                for other, sealed in self._sealed(client, statistic, listed.roster).items()
            ]


class _MessagesFn(_StatisticFn):
    """Masked statistics of the senders of a shard that have shared."""

    def process(self, shard: ShardRef, state: Any, listed: Correspondence) -> Iterator[MaskedMessages]:
        """Messages in batches; a number is all that names a sender."""
        for batch in self._parties(shard, state, listed.roster):
            senders, values = [], []
            for client, statistic in batch:
                if client.number in listed.shared:
                    self._check(client, statistic, listed)
                    senders.append(sender_of(client.number))
                    values.append(client.mask(listed.partners_of(client.number), statistic))
            if senders:
                yield MaskedMessages(tuple(senders), (b"",) * len(senders), np.stack(values))

    def _check(self, client: PairwiseClient, statistic: NDArray[np.int64], listed: Correspondence) -> None:
        """Stops a message whose mask the neighbors could not take away."""
        for other, sealed in self._sealed(client, statistic, listed.roster).items():
            if listed.letters[client.number, other] != sealed:
                raise ProtocolError(
                    "letters that are listed must be those of this message, got others; the rows must stay the same "
                    "during a round, open a new run."
                )
        if len(listed.partners_of(client.number)) < listed.roster.threshold:
            raise ProtocolError(
                f"at least {listed.roster.threshold} neighbors of a client must have shared, got fewer; open a new run."
            )


class _SharesFn(PairwiseFn):
    """Shares that the senders of a client hand out for one final list of who is present."""

    def process(
        self, own: list, state: Any, listed: Correspondence, masked: MaskedReleases
    ) -> Iterator[list[HandedOut]]:
        """One list; raises ProtocolError if none of them is present."""
        present, roster = checked_present(masked, listed, self._masking.threshold), listed.roster
        handed: list[HandedOut] = []
        for name in own:
            number = roster.number_of(name)
            if roster.names[number : number + 1] == (name,) and number in present:
                revealed = self._client(name, number, state).reveal(listed.inbox_of(number), present)
                handed += [HandedOut(*each[:3], each.share.astype("<u4").tobytes()) for each in revealed]
        if not handed:
            raise ProtocolError(
                "--client must be present in the sum to hand out shares, got one that is not; run `dapple unmask`."
            )
        yield handed


def checked_present(masked: MaskedReleases, listed: Correspondence, threshold: int) -> frozenset[int]:
    """Numbers of who is present.

    Raises:
      ProtocolError: if they are fewer than the clients' threshold, or not all of them have shared.
    """
    present = present_numbers(masked)
    if len(present) < max(threshold, 2) or not present <= listed.shared:
        raise ProtocolError(
            f"those present must be at least {max(threshold, 2)} (masked.threshold) who have shared, got others; "
            "their masks stay, open a new run."
        )
    return present


def _unmask(
    masked: MaskedReleases, state: Any, listed: Correspondence, handed: Iterable, plan: RoundPlan, masking: Masking
) -> tuple[Release, ...]:
    """Subtracts the total mask of those present."""
    revealed = [
        Revealed(owner, holder, there, np.frombuffer(share, dtype="<u4").astype(np.int64))
        for owner, holder, there, share in handed
    ]
    present, roster = checked_present(masked, listed, masking.threshold), listed.roster
    neighbors = {number: [each.number for each in listed.partners_of(number)] for number in listed.shared}
    keys = {number: roster.keys[number] for number in listed.shared}
    context = mask_context(masking.run, plan, state)
    total = total_mask(revealed, keys, neighbors, present, roster.threshold, plan.size, context)
    return unmasked(masked.releases, plan, total)


@dataclasses.dataclass(eq=False, kw_only=True)
class AdvertiseKeys(beam.PTransform):
    """`ShardRef`s and one state → lists of `SenderKeys`, which are public.

    Attributes:
      plan: of the round.
      state: PCollection of one element: what is broadcast.
      contract: how shards are read; by client if clients send messages, else each shard does.
      masking: of the clients' role.

    Windowing: global. Privacy: keys follow from the secret and the round; their number is that of senders. Cost: one
    pass over the client ids.
    """

    plan: RoundPlan
    state: beam.PCollection
    contract: TableContract
    masking: Masking

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Keys in one stage."""
        return shards | "Keys" >> beam.ParDo(_KeysFn(self.masking, self.plan, self.contract), AsSingleton(self.state))


@dataclasses.dataclass(eq=False, kw_only=True)
class SealLetters(beam.PTransform):
    """`ShardRef`s, one state and one `Correspondence` → lists of `Letter`.

    Attributes:
      round: statistic and plan.
      state: PCollection of one element: what is broadcast.
      listed: PCollection of one element: the keys.
      contract: how shards are read.
      masking: of the clients' role.

    Windowing: global. Privacy: letters are sealed for neighbors; fewer than the threshold of them say nothing. Cost:
    one pass over the needed columns, one key agreement per letter.
    """

    round: Round
    state: beam.PCollection
    listed: beam.PCollection
    contract: TableContract
    masking: Masking

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Statistic, shares and seals in one stage."""
        return shards | "Seal" >> beam.ParDo(
            _LettersFn(self.masking, self.contract, self.round), AsSingleton(self.state), AsSingleton(self.listed)
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class MaskPairwise(SealLetters):
    """`ShardRef`s, one state and one `Correspondence` → `MaskedMessages` of those who have shared.

    Attributes, windowing: as of `SealLetters`; the letters must be listed, too. Privacy: messages are uniform to
    whoever lacks a threshold of shares. Cost: one pass, two key agreements per neighbor of each sender.
    """

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Statistic and masks in one stage."""
        return shards | "Mask" >> beam.ParDo(
            _MessagesFn(self.masking, self.contract, self.round), AsSingleton(self.state), AsSingleton(self.listed)
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class HandOutShares(beam.PTransform):
    """Pseudonyms of a client's senders → lists of `HandedOut`, for the clients' role.

    Attributes:
      plan: of the round.
      state: PCollection of one element: what was broadcast.
      listed: PCollection of one element: keys and letters.
      masked: PCollection of one element: the sum, and the final list of who is in it.
      masking: of the clients' role.

    Windowing: global. Privacy: of each client shares of its seed or of its key, never of both; all of them tell the
    sum of those present and no more. Cost: one key agreement per letter.
    """

    plan: RoundPlan
    state: beam.PCollection
    listed: beam.PCollection
    masked: beam.PCollection
    masking: Masking

    def expand(self, own: beam.PCollection) -> beam.PCollection:
        """Opens letters in one stage."""
        known = [AsSingleton(each) for each in (self.state, self.listed, self.masked)]
        return own | "Open" >> beam.ParDo(_SharesFn(self.masking, self.plan), *known)


@dataclasses.dataclass(eq=False, kw_only=True)
class UnmaskPairwise(beam.PTransform):
    """`MaskedReleases` → the round's releases, by shares that clients have handed out.

    Attributes:
      plan: of the round.
      state: PCollection of one element: what was broadcast.
      listed: PCollection of one element: keys and letters.
      handed: PCollection of `HandedOut`.
      masking: of the clients' role.

    Windowing: global. Privacy: noise was added before; `AddFurtherNoise` may follow. Cost: one secret put together
    and one keystream per sender, and a key agreement per neighbor of each that has gone.
    """

    plan: RoundPlan
    state: beam.PCollection
    listed: beam.PCollection
    handed: beam.PCollection
    masking: Masking

    def expand(self, masked: beam.PCollection) -> beam.PCollection:
        """Puts secrets together and subtracts the masks of those present."""
        known = (AsSingleton(self.state), AsSingleton(self.listed), AsList(self.handed))
        return masked | "Subtract" >> beam.Map(_unmask, *known, self.plan, self.masking)
