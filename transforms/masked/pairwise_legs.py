"""Legs of a round with pairwise masks as the clients' jobs run them, each in a separate pipeline.

    keys -> (list of keys) -> letters -> (list of letters) -> messages -> (noised sum, its senders) -> shares

The aggregator makes lists and sum. All legs use the statistics that were pinned in the first one. A client's secret
is read in the stages that need it; all of its draws follow from secret, round and statistic. Before a message
is sent, its listed letters are sealed again and compared, so that neighbors do hold shares of its mask.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton
from numpy.typing import NDArray

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import NotYetError, ProtocolError
from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, Letter, SenderKeys, pinned_from_table, pinned_to_table
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.masked.clients import ClientsStep, Masking, SecretFn, UnmaskReleases, WithShares, unmasked
from dapple_dp.transforms.masked.pairwise_lists import Correspondence, Roster, number_listed, sender_of
from dapple_dp.transforms.masked.party_state import RunState
from dapple_dp.transforms.masked.table_forms import pinned_form
from dapple_dp.transforms.numerics.masked.pairwise_masks import (
    Neighbor,
    PairwiseClient,
    Revealed,
    SharedRound,
    total_mask,
)
from dapple_dp.transforms.numerics.masked.shamir import SHARE_BYTES
from dapple_dp.transforms.on_beam.workers import LeanFn

_PINNED = Refusal(kind=ProtocolError, rule="what this party has stored must be unchanged", remedy="open a new run")


class PairwiseFn(SecretFn):
    """A step of clients, which derives each client's secret when it needs it."""

    def __init__(self, masking: Masking, plan: RoundPlan):
        super().__init__(masking)
        self._plan = plan

    def _client(self, name: bytes, number: int, state: Any) -> PairwiseClient:
        own = KeyStream(self._held_key(), encode_label("client", name)).uint64(4).tobytes()
        return PairwiseClient(own, number, self._masking.context(self._plan, state))

    def _keys(self, name: bytes, state: Any) -> SenderKeys:
        return SenderKeys(name, *self._client(name, 0, state).advertise())

    def _letters(self, client: PairwiseClient, statistic: NDArray[np.int64], roster: Roster) -> list[Letter]:
        sealed = client.share(roster.neighbors_of(client.number), roster.threshold, statistic)
        return [Letter(client.number, receiver, letter) for receiver, letter in sealed.items()]

    def _handed_out(
        self, client: PairwiseClient, inbox: Mapping[int, tuple[Neighbor, bytes]], present: frozenset[int]
    ) -> list[HandedOut]:
        """Returns the shares that a client hands out for one final list of senders."""
        opened = client.reveal(inbox, present)
        return [HandedOut(*each[:3], each.share.astype("<u4").tobytes()) for each in opened]


class _SenderFn(PairwiseFn):
    """A step of senders, who are known by their pseudonyms of the round."""

    def _pseudonym(self, name: bytes, state: Any) -> bytes:
        """Returns a sender's pseudonym, which means nothing to anyone without the secret."""
        label = encode_label("pseudonym", self._masking.context(self._plan, state), name)
        return KeyStream(self._held_key(), label).uint64(2).tobytes()

    def _parties(self, named: tuple, state: Any, roster: Roster) -> Iterator[tuple[PairwiseClient, NDArray[np.int64]]]:
        """Yields the senders whose keys are listed, with their statistics."""
        for name, statistic in zip(*named, strict=True):
            pseudonym = self._pseudonym(name, state)
            number = roster.number_of(pseudonym)
            if roster.names[number : number + 1] == (pseudonym,):
                yield self._client(pseudonym, number, state), statistic


class _KeysFn(_SenderFn):
    def process(self, named: tuple, state: Any) -> Iterator[list[SenderKeys]]:
        yield [self._keys(self._pseudonym(name, state), state) for name in named[0]]


class _LettersFn(_SenderFn):
    """Seals the shares of senders for their neighbors."""

    def process(self, named: tuple, state: Any, listed: Correspondence) -> Iterator[list[Letter]]:
        parties = self._parties(named, state, listed.roster)
        yield [letter for party in parties for letter in self._letters(*party, listed.roster)]


class _MessagesFn(_SenderFn):
    """Masks the statistics of senders that have shared."""

    def process(self, named: tuple, state: Any, listed: Correspondence) -> Iterator[MaskedMessages]:
        """Yields all messages at once; only numbers identify their senders."""
        senders, tags, values = [], [], []
        for client, statistic in self._parties(named, state, listed.roster):
            if client.number in listed.shared:
                self._check(client, self._letters(client, statistic, listed.roster), listed)
                senders.append(sender_of(client.number))
                tags.append(client.tag(statistic))
                values.append(client.mask(listed.partners_of(client.number), statistic))
        yield MaskedMessages(tuple(senders), tuple(tags), np.array(values, dtype=np.int64).reshape(-1, self._plan.size))

    def _check(self, client: PairwiseClient, letters: list[Letter], listed: Correspondence) -> None:
        """Refuses to send a message whose mask the neighbors couldn't remove."""
        for sender, receiver, sealed in letters:
            if listed.letters.get((sender, receiver)) != sealed:
                raise ProtocolError("the aggregator lists other letters than those that were sent; open a new run.")
        if len(listed.partners_of(client.number)) < listed.roster.threshold:
            raise ProtocolError(
                f"fewer than {listed.roster.threshold} neighbors of a client have shared their secrets; open a new run."
            )


class _SharesFn(PairwiseFn):
    """Opens the shares that the senders of a client hand out for one final list of senders."""

    def process(
        self, own: list, state: Any, listed: Correspondence, masked: MaskedReleases
    ) -> Iterator[list[HandedOut]]:
        """Yields one list; raises ProtocolError if none of the client's senders is present."""
        present, roster = listed.present(masked, self._masking), listed.roster
        handed: list[HandedOut] = []
        for name in own:
            number = roster.number_of(name)
            if roster.names[number : number + 1] == (name,) and number in present:
                client = self._client(name, number, state)
                handed += self._handed_out(client, listed.inbox_of(number), present)
        if not handed:
            raise NotYetError(
                "--client is not in the sum yet, so it has no shares to hand out; run `dapple masked unmask`."
            )
        yield handed


def _unmask(
    masked: MaskedReleases, state: Any, listed: Correspondence, handed: Iterable, plan: RoundPlan, masking: Masking
) -> tuple[Release, ...]:
    """Subtracts the total mask of those present."""
    revealed = [opened for each in handed for opened in _revealed(*each)]
    present, roster = listed.present(masked, masking), listed.roster
    neighbors = {number: listed.shared.intersection(roster.neighbors[number].tolist()) for number in listed.shared}
    keys = {number: roster.keys[number] for number in listed.shared}
    tags = {int.from_bytes(sender, "big"): tag for sender, tag in zip(masked.senders, masked.tags, strict=True)}
    shared = SharedRound(keys, neighbors, roster.threshold, masking.context(plan, state), tags)
    total = total_mask(revealed, shared, present, plan.size)
    return masking.stated(unmasked(masked.releases, plan, total), len(present), len(roster.names))


def _revealed(owner: int, holder: int, there: bool, raw: bytes) -> Iterator[Revealed]:
    """Yields the share that a neighbor has handed out; nothing if it can't be a share."""
    if len(raw) == SHARE_BYTES:
        yield Revealed(owner, holder, there, np.frombuffer(raw, dtype="<u4").astype(np.int64))


def pin(batches: list, round_path: str, kept: RunState, only_sender: bytes = b"") -> None:
    """Pins names of senders and their statistics, unless they are pinned already.

    Args:
      batches: (names of senders, their statistics).
      round_path: of the round.
      kept: state in which they are pinned.
      only_sender: name under which all statistics are added up to one; empty to keep them apart.
    """
    if only_sender:
        batches = [([only_sender], sum(statistics.sum(axis=0, keepdims=True) for _, statistics in batches))]
    kept.pin(round_path, table_bytes(pinned_to_table(batches)))


class _PinnedFn(LeanFn):
    """Reads pinned statistics, with the round and contract of their computation."""

    def __init__(self, kept: RunState, contract: TableContract, round_: Round):
        self._kept = kept
        self._contract = contract
        self._round = round_

    def process(self, path: str, _: Any) -> Iterator[tuple[list[bytes], NDArray[np.int64]]]:
        """Yields (names of senders, their statistics), all at once."""
        size = self._round.plan.size
        yield pinned_from_table(untrusted.table_of(self._kept.pinned(path), _PINNED, pinned_form(size)), size)


@dataclasses.dataclass(eq=False, kw_only=True)
class PinnedStatistics(ClientsStep):
    """A pipeline and one state → (names of senders, their statistics), as `SenderStatistics` gave them.

    Attributes: as in `ClientsStep`, and
      kept: state in which they are pinned.

    Windowing: global. Privacy: none, statistics are exact. Cost: no pass over rows.
    """

    kept: RunState

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads statistics in one stage."""
        read = _PinnedFn(self.kept, self.contract, self.round)
        place = root | "Place" >> beam.Create([self.round.plan.path], reshuffle=False)
        return place | "Read" >> beam.ParDo(read, AsSingleton(self.state))


class AdvertiseKeys(ClientsStep):
    """(names of senders, statistics) and one state → lists of `SenderKeys`, which are public.

    Windowing: global. Privacy: keys follow from the secret and the round; their number is that of senders. Cost: no
    shuffle.
    """

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Computes keys in one stage."""
        return named | "Keys" >> beam.ParDo(_KeysFn(self.masking, self.round.plan), AsSingleton(self.state))


@dataclasses.dataclass(eq=False, kw_only=True)
class ListedStatistics(ClientsStep):
    """(names of senders, statistics), one state and one `Correspondence` → the same with shares of the noise.

    Attributes: as in `ClientsStep`, and
      listed: PCollection of one element: the keys.

    Windowing: global. Privacy: none, statistics are exact or have one share of the noise. Cost: no shuffle.
    """

    listed: beam.PCollection

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Adds shares of the noise, whose size depends on the number of keys."""
        n_listed = None
        if self.masking.shares is not None:
            n_listed = self.listed | "Number" >> beam.Map(number_listed)
        return named | "Shares" >> WithShares(plan=self.round.plan, masking=self.masking, n_listed=n_listed)


class SealLetters(ListedStatistics):
    """(names of senders, statistics), one state and one `Correspondence` → lists of `Letter`.

    Attributes: as in `ListedStatistics`.

    Windowing: global. Privacy: letters are sealed for neighbors; fewer than the threshold reveal nothing. Cost:
    one key agreement per letter.
    """

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Adds shares of the noise, shares secrets, and seals."""
        seal = _LettersFn(self.masking, self.round.plan)
        return super().expand(named) | "Seal" >> beam.ParDo(seal, AsSingleton(self.state), AsSingleton(self.listed))


class MaskPairwise(ListedStatistics):
    """(names of senders, statistics), one state and one `Correspondence` → `MaskedMessages` of those who have shared.

    Attributes, windowing: as in `SealLetters`; the letters must be listed, too. Privacy: messages are uniform to
    anyone without a threshold of shares. Cost: two key agreements per neighbor of each sender.
    """

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Adds shares of the noise, and masks."""
        mask = _MessagesFn(self.masking, self.round.plan)
        return super().expand(named) | "Mask" >> beam.ParDo(mask, AsSingleton(self.state), AsSingleton(self.listed))


@dataclasses.dataclass(eq=False, kw_only=True)
class HandOutShares(beam.PTransform):
    """Pseudonyms of a client's senders → lists of `HandedOut`, for the clients' role.

    Attributes:
      plan: of the round.
      state: PCollection of one element: the broadcast.
      listed: PCollection of one element: keys and letters.
      masked: PCollection of one element: the sum, and the final list of its senders.
      masking: of the clients' role.

    Windowing: global. Privacy: shares of each client's seed or of its key, never of both; together they give the sum
      of those present and nothing else. Cost: one key agreement per letter.
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
class UnmaskPairwise(UnmaskReleases):
    """`MaskedReleases` → the round's releases, by shares that clients have handed out.

    Attributes: as in `UnmaskReleases`, and
      listed: PCollection of one element: keys and letters.
      handed: PCollection of `HandedOut`.

    Windowing: global. Privacy: noise was added before; `AddFurtherNoise` may follow. Cost: one secret reconstructed
    and one keystream per sender, and a key agreement per neighbor of each that has gone.
    """

    listed: beam.PCollection
    handed: beam.PCollection

    def expand(self, masked: beam.PCollection) -> beam.PCollection:
        """Reconstructs secrets and subtracts the masks of those present."""
        known = (AsSingleton(self.state), AsSingleton(self.listed), AsList(self.handed))
        return masked | "Subtract" >> beam.Map(_unmask, *known, self.plan, self.masking)
