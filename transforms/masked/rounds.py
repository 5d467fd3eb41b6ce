"""Rounds with masked aggregation: the clients' role and the aggregator's in one pipeline.

    shards + broadcast -> statistic per client -> masked message | sum -> noise | -> unmask -> releases -> server step
              clients' role                      | aggregator's  |          clients' role

Input element: `ShardRef`. Output element: the next state, exactly one. Guarantee: what the aggregator's stages see
is uniform to whoever lacks the secret; the state contains nothing private but releases of the rounds' plans.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from schemas.choices import NoiseBy
from schemas.masked.message import MaskedMessages
from schemas.tables.contract import TableContract
from transforms.masked.aggregator import AggregateMasked
from transforms.masked.clients import ClientsStep, Masking, UnmaskReleases, UploadMessages
from transforms.masked.pairwise_rounds import PairwiseReleases
from transforms.privacy.noise_stage import AddFurtherNoise
from transforms.rounds.protocol import Round
from transforms.rounds.round import round_label, server_step


def all_arrive(messages: MaskedMessages) -> MaskedMessages:
    """Nobody drops out."""
    return messages


@dataclasses.dataclass(eq=False, kw_only=True)
class MaskedRound(ClientsStep):
    """`ShardRef`s and one state → the next state, both roles in one pipeline.

    Attributes: as of `ClientsStep`, and
      key_uri: where the aggregator's noise stage finds its key.
      deliver: what becomes of a batch of messages on its way, to see what dropouts do.

    Windowing: global. Privacy: as `PrivateRound`; the roles are told apart by stages, not by identities.
    """

    key_uri: str
    deliver: Callable[[MaskedMessages], MaskedMessages] = all_arrive

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Releases by either scheme, noise of the clients' role if it adds any, server step."""
        releases = self._releases(shards)
        if self.masking.noise_by is NoiseBy.BOTH:
            further = AddFurtherNoise(plan=self.round.plan, key_uri=self.masking.secret_uri)
            releases = releases | "FurtherNoise" >> further
        return releases | "Server" >> beam.Map(server_step, AsSingleton(self.state), self.round)

    def _releases(self, shards: beam.PCollection) -> beam.PCollection:
        """Clients, aggregator, clients."""
        round_, state, contract, masking = self.round, self.state, self.contract, self.masking
        if masking.pairwise is not None:
            return shards | "Pairwise" >> PairwiseReleases(
                round=round_,
                state=state,
                contract=contract,
                key_uri=self.key_uri,
                masking=masking,
                deliver=self.deliver,
            )
        return (
            shards
            | "Upload" >> UploadMessages(round=round_, state=state, contract=contract, masking=masking)
            | "Deliver" >> beam.Map(self.deliver)
            | "Aggregate" >> AggregateMasked(plan=round_.plan, key_uri=self.key_uri, threshold=masking.threshold)
            | "Unmask" >> UnmaskReleases(plan=round_.plan, state=state, masking=masking)
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class RunMaskedRounds(beam.PTransform):
    """`RunRounds` with masked aggregation: `ShardRef`s → the state after the last round.

    Attributes:
      rounds: calibrated rounds, unrolled in this order.
      initial: state before the first round; public data only.
      contract: how shards are read.
      key_uri: where the aggregator's noise stages find their key.
      masking: of the clients' role.
      deliver: what becomes of a batch of messages on its way.

    Windowing: global. Privacy: the releases of the rounds' plans, composed. Cost: as `RunRounds`, and two
    keystreams of the statistic's size per message.
    """

    rounds: tuple[Round, ...]
    initial: Any
    contract: TableContract
    key_uri: str
    masking: Masking
    deliver: Callable[[MaskedMessages], MaskedMessages] = all_arrive

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Chains the rounds: each one's state is the next one's broadcast."""
        state = shards.pipeline | "Public" >> beam.Create([self.initial], reshuffle=False)
        for each in self.rounds:
            state = shards | round_label(each) >> MaskedRound(
                round=each,
                state=state,
                contract=self.contract,
                key_uri=self.key_uri,
                masking=self.masking,
                deliver=self.deliver,
            )
        return state
