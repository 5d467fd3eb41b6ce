"""Masked aggregation: the clients' role and the aggregator's in one pipeline.

    shards + broadcast -> statistic per client -> masked message | sum -> noise | -> unmask -> releases
              clients' role                      | aggregator's  |  clients' role

Guarantee: data in the aggregator's stages are uniform to anyone without the secret; the releases have the law that the
rounds' plans state. The roles are distinguished by stages, not by identities.
"""

import dataclasses
from collections.abc import Callable

import apache_beam as beam

from dapple_dp.schemas.choices import NoiseBy
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.masked.aggregator import AggregateMasked
from dapple_dp.transforms.masked.clients import Masking, UnmaskReleases, UploadMessages
from dapple_dp.transforms.masked.noise_stages import AddFurtherNoise
from dapple_dp.transforms.masked.pairwise_rounds import PairwiseReleases
from dapple_dp.transforms.privacy.key_files import KeyFile


def all_arrive(messages: MaskedMessages) -> MaskedMessages:
    """Passes on all messages, without dropouts."""
    return messages


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Masked:
    """`Aggregation` of masked messages, by either scheme.

    Attributes:
      contract: reads shards; by client if clients send messages, otherwise each shard sends one.
      key_uri: place of the key of the aggregator's noise stage.
      masking: of the clients' role.
      deliver: applied to batches of messages in transit, to simulate dropouts.

    Cost of a round: one pass over the needed columns, and two keystreams of the statistic's size per message; with
    pairwise masks those of `PairwiseReleases`.
    """

    contract: TableContract
    key_uri: str
    masking: Masking
    deliver: Callable[[MaskedMessages], MaskedMessages] = all_arrive

    def releases(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        """Runs the clients, the aggregator, the clients again, and the noise of the clients' role if it adds any."""
        scheme = self._shared_secret if self.masking.pairwise is None else self._pairwise
        releases = scheme(shards, state, round_)
        if self.masking.noise_by is NoiseBy.BOTH:
            further = AddFurtherNoise(plan=round_.plan, key_source=KeyFile(self.masking.secret_uri))
            releases = releases | "FurtherNoise" >> further
        return releases

    def _pairwise(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        return shards | "Pairwise" >> PairwiseReleases(
            round=round_,
            state=state,
            contract=self.contract,
            key_uri=self.key_uri,
            masking=self.masking,
            deliver=self.deliver,
        )

    def _shared_secret(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        masking, plan = self.masking, round_.plan
        aggregate = AggregateMasked(plan=plan, key_uri=self.key_uri, threshold=masking.threshold, shares=masking.shares)
        return (
            shards
            | "Upload" >> UploadMessages(round=round_, state=state, contract=self.contract, masking=masking)
            | "Deliver" >> beam.Map(self.deliver)
            | "Aggregate" >> aggregate
            | "Unmask" >> UnmaskReleases(plan=plan, state=state, masking=masking)
        )
