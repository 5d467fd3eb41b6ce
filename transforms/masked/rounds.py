"""Rounds with masked aggregation: the clients' role and the aggregator's in one pipeline.

    shards + broadcast -> statistic per client -> masked message | sum -> noise | -> unmask -> releases -> server step
              clients' role                      | aggregator's  |          clients' role

Input element: `ShardRef`. Output element: the next state, exactly one. Guarantee: what the aggregator's stages see
is uniform to whoever lacks the secret; the state contains nothing private but releases of the rounds' plans.
"""

import dataclasses
from collections.abc import Callable

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from schemas.choices import NoiseBy
from schemas.masked.message import MaskedMessages
from transforms.masked.aggregator import AggregateMasked
from transforms.masked.clients import ClientsStep, Masking, UnmaskReleases, UploadMessages
from transforms.masked.pairwise_rounds import PairwiseReleases
from transforms.privacy.noise_stage import AddFurtherNoise
from transforms.rounds.protocol import Round
from transforms.rounds.round import RunRounds, server_step


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
        aggregate = AggregateMasked(
            plan=round_.plan,
            key_uri=self.key_uri,
            threshold=masking.threshold,
            shares=masking.shares,
        )
        return (
            shards
            | "Upload" >> UploadMessages(round=round_, state=state, contract=contract, masking=masking)
            | "Deliver" >> beam.Map(self.deliver)
            | "Aggregate" >> aggregate
            | "Unmask" >> UnmaskReleases(plan=round_.plan, state=state, masking=masking)
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class RunMaskedRounds(RunRounds):
    """`RunRounds` with masked aggregation: `ShardRef`s → the state after the last round.

    Attributes: as of `RunRounds`, whose key is the aggregator's, and
      masking: of the clients' role.
      deliver: what becomes of a batch of messages on its way.

    Windowing: global. Privacy: the releases of the rounds' plans, composed. Cost: as `RunRounds`, and two
    keystreams of the statistic's size per message.
    """

    masking: Masking
    deliver: Callable[[MaskedMessages], MaskedMessages] = all_arrive

    def one(self, bound: Round, state: beam.PCollection) -> beam.PTransform:
        """A round that is given this state."""
        return MaskedRound(
            round=bound,
            state=state,
            contract=self.contract,
            key_uri=self.key_uri,
            masking=self.masking,
            deliver=self.deliver,
        )
