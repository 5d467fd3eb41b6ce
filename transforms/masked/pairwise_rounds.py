r"""A round with pairwise masks: clients' stages around those of the aggregator, which are the same for every scheme.

    statistic per client -> advertise -> roster -> share -> letters ---------------------> reveal -> unmask
                         \-> message ------------------> | sum -> noise | -> who is present -/

Input element: `ShardRef`. Output element: tuple of `Release`, exactly one. Here one file holds the secrets of all
clients: each is derived from the file's content and the client's name.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, Letter, SenderKeys
from dapple_dp.transforms.masked.aggregator import AggregateMasked
from dapple_dp.transforms.masked.clients import ClientsStep, SenderStatistics, WithShares
from dapple_dp.transforms.masked.pairwise_legs import PairwiseFn, UnmaskPairwise
from dapple_dp.transforms.masked.pairwise_lists import Correspondence, list_everybody, number_listed, sender_of
from dapple_dp.transforms.numerics.masked.pairwise_masks import Neighbor


class _AdvertiseFn(PairwiseFn):
    def process(self, named: tuple, state: Any) -> Iterator[SenderKeys]:
        for name in named[0]:
            yield self._keys(name, state)


class _ShareFn(PairwiseFn):
    """Seals shares of every client for its neighbors."""

    def process(self, named: tuple, state: Any, listed: Correspondence) -> Iterator[tuple[int, Letter]]:
        """Yields (number of the neighbor, letter)."""
        for name, statistic in zip(*named, strict=True):
            client = self._client(name, listed.roster.number_of(name), state)
            for letter in self._letters(client, statistic, listed.roster):
                yield letter.receiver, letter


class _MaskFn(PairwiseFn):
    def process(self, named: tuple, state: Any, listed: Correspondence) -> Iterator[MaskedMessages]:
        """Yields batches of one message; only a number identifies its sender."""
        for name, statistic in zip(*named, strict=True):
            number = listed.roster.number_of(name)
            client = self._client(name, number, state)
            values = client.mask(listed.partners_of(number), statistic)
            yield MaskedMessages((sender_of(number),), (client.tag(statistic),), values[None])


class _RevealFn(PairwiseFn):
    """Hands out clients' shares once the list of senders is final; missing clients hand out nothing."""

    def process(self, sent: tuple, state: Any, listed: Correspondence, masked: MaskedReleases) -> Iterator[HandedOut]:
        holder, letters = sent
        roster, present = listed.roster, listed.present(masked, self._masking)
        if holder in present:
            inbox = {owner: (Neighbor(owner, roster.keys[owner]), sealed) for owner, _, sealed in letters}
            yield from self._handed_out(self._client(roster.names[holder], holder, state), inbox, present)


@dataclasses.dataclass(eq=False, kw_only=True)
class PairwiseReleases(ClientsStep):
    """`ShardRef`s and one state → the releases of a round, by pairwise masks with recovery of dropouts.

    Attributes: as in `ClientsStep`, and
      key_uri: place of the key of the aggregator's noise stage.
      deliver: applied to batches of messages in transit.

    Windowing: global. Privacy: as `Masked`; no stage holds enough to unmask a single message. Cost: one
    pass, one shuffle of a letter per neighbor of each client, and as many key agreements.
    """

    key_uri: str
    deliver: Callable[[MaskedMessages], MaskedMessages]

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Runs the clients, the aggregator, and the clients again."""
        plan, masking, state = self.round.plan, self.masking, AsSingleton(self.state)
        form = SenderStatistics(round=self.round, state=self.state, contract=self.contract, masking=masking)
        exact = shards | "Statistic" >> form
        keys = exact | "Advertise" >> beam.ParDo(_AdvertiseFn(masking, plan), state) | "All" >> beam.combiners.ToList()
        everybody = keys | "Roster" >> beam.Map(list_everybody, masking.pairwise)
        listed, n_listed = AsSingleton(everybody), everybody | "Number" >> beam.Map(number_listed)
        named = exact | "Shares" >> WithShares(plan=plan, masking=masking, n_listed=n_listed)
        aggregate = AggregateMasked(
            plan=plan, key_uri=self.key_uri, threshold=masking.threshold, shares=masking.shares, n_listed=n_listed
        )
        masked = (
            named
            | "Mask" >> beam.ParDo(_MaskFn(masking, plan), state, listed)
            | "Deliver" >> beam.Map(self.deliver)
            | "Aggregate" >> aggregate
        )
        handed = (
            named
            | "Share" >> beam.ParDo(_ShareFn(masking, plan), state, listed)
            | "Letters" >> beam.GroupByKey()
            | "Reveal" >> beam.ParDo(_RevealFn(masking, plan), state, listed, AsSingleton(masked))
        )
        unmask = UnmaskPairwise(plan=plan, state=self.state, listed=everybody, handed=handed, masking=masking)
        return masked | "Unmask" >> unmask
