"""The clients' role in masked aggregation, and rounds in which it works with the aggregator's.

    shards + broadcast -> statistic per client -> masked message | sum -> noise | -> unmask -> releases -> server step
              clients' role                      | aggregator's  |          clients' role

Input element: `ShardRef`. Output element: the next state, exactly one. Guarantee: what the aggregator's stages see
is uniform to whoever lacks the secret; the state contains nothing private but releases of the rounds' plans.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from schemas.choices import NoiseBy
from schemas.client_block import ClientBlock
from schemas.masked_message import MaskedMessages, MaskedReleases
from schemas.plan import RoundPlan
from schemas.release import Release
from schemas.shard import EMPTY_SHARD, ShardRef
from schemas.table import TableContract
from transforms.keys import read_key
from transforms.masked_sum import AggregateMasked
from transforms.noise import AddFurtherNoise
from transforms.numerics.keystream import encode_label
from transforms.numerics.masking import RoundMasks
from transforms.read import prefetched_blocks
from transforms.rounds import Round, round_label

_MESSAGE_BATCH_BYTES = 1 << 20
SECRET_SETTING = "masked.secret_uri"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """What the clients' role knows of the protocol; the secret itself is read where it is used.

    Attributes:
      secret_uri: where workers of the clients' role find the secret that all clients share.
      run: names the run: part of every mask.
      client: names the client whose shards these are, unique among clients; empty if they are of all clients.
      threshold: the fewest messages a round may be the sum of.
      noise_by: whether the clients' role adds noise of its own as well.
    """

    secret_uri: str
    run: str
    client: str = ""
    threshold: int = 1
    noise_by: NoiseBy = NoiseBy.AGGREGATOR


def broadcast_digest(state: Any) -> bytes:
    """What tells one broadcast of a run from another: SHA-256 of the releases it was computed from.

    Args:
      state: of any protocol; all but its `releases` follows from them and public data.
    """
    digest = hashlib.sha256()
    for release in state.releases:
        values = release.values.astype("<i8").tobytes()
        digest.update(encode_label(release.path, values))
    return digest.digest()


def _masks(secret: bytes, masking: Masking, plan: RoundPlan, state: Any) -> RoundMasks:
    """The masks of a round."""
    return RoundMasks(secret, encode_label(masking.run, plan.path, broadcast_digest(state)))


def statistics_by_client(
    block: ClientBlock, each: Round, state: Any, batch: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Statistics of a block's clients, each formed from the client's rows alone.

    Args:
      block: rows grouped by client.
      each: the round.
      state: what is broadcast.
      batch: the most clients at a time.

    Yields:
      Index of the first client, and int64 of shape (n_clients, each.plan.size).
    """
    offsets = block.client_offsets
    for first in range(0, block.n_clients, batch):
        clients = range(first, min(first + batch, block.n_clients))
        yield first, np.stack([each.statistic(_alone(block, offsets, client), state) for client in clients])


def _alone(block: ClientBlock, offsets: NDArray[np.int64], client: int) -> ClientBlock:
    """The rows of one client."""
    start, stop = int(offsets[client]), int(offsets[client + 1])
    return ClientBlock(block.points[start:stop], np.array([0, stop - start]))


class _SecretFn(beam.DoFn):
    """Holds the secret between `setup` and `teardown` only."""

    def __init__(self, masking: Masking):
        self._masking = masking
        self._secret: bytes | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_secret": None}

    def setup(self) -> None:
        """Reads the secret on the worker; small blocks need no BLAS threads."""
        threadpool_limits(limits=1)
        self._secret = read_key(self._masking.secret_uri, SECRET_SETTING)

    def teardown(self) -> None:
        """Forgets the secret."""
        self._secret = None

    def _masks(self, plan: RoundPlan, state: Any) -> RoundMasks:
        """The masks of a round."""
        if self._secret is None:
            raise RuntimeError("process must be called between setup and teardown; run it in a pipeline.")
        return _masks(self._secret, self._masking, plan, state)


class _UploadFn(_SecretFn):
    """Reads a shard and masks the statistic of each of its clients, or of the shard."""

    def __init__(self, masking: Masking, contract: TableContract, each: Round):
        super().__init__(masking)
        self._contract = contract
        self._round = each

    def process(self, shard: ShardRef, state: Any) -> Iterator[MaskedMessages]:
        """Messages in batches; of the empty shard a batch without messages."""
        masks = self._masks(self._round.plan, state)
        if shard == EMPTY_SHARD:
            yield MaskedMessages((), (), np.zeros((0, self._round.plan.size), dtype=np.int64))
            return
        place = (self._masking.client, shard.path, shard.row_group)
        for first, statistics in self._statistics(shard, state):
            senders = [encode_label(*place, first + index) for index in range(len(statistics))]
            yield masks.mask(senders, statistics)

    def _statistics(self, shard: ShardRef, state: Any) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Index of the first sender in the shard, and one statistic per sender."""
        size = self._round.plan.size
        blocks = prefetched_blocks(shard, self._contract)
        if self._contract.by_client:
            for block in blocks:
                yield from statistics_by_client(block, self._round, state, max(1, _MESSAGE_BATCH_BYTES // (8 * size)))
            return
        total = np.zeros((1, size), dtype=np.int64)
        for block in blocks:
            total[0] += self._round.statistic(block, state)
        yield 0, total


class _UnmaskFn(_SecretFn):
    """Subtracts the masks of the messages that were added up."""

    def __init__(self, masking: Masking, plan: RoundPlan):
        super().__init__(masking)
        self._plan = plan

    def process(self, masked: MaskedReleases, state: Any) -> Iterator[tuple[Release, ...]]:
        """The releases of the round."""
        total = self._masks(self._plan, state).total(masked.tags, self._plan.size).view(np.uint64)
        ends = np.cumsum([each.spec.size for each in self._plan.releases])
        parts = np.split(total, ends[:-1])
        yield tuple(_minus(release, part) for release, part in zip(masked.releases, parts, strict=True))


def _minus(release: Release, mask: NDArray[np.uint64]) -> Release:
    """The release without its mask, in the ring."""
    unmasked = release.values.view(np.uint64) - mask.reshape(release.values.shape)
    return dataclasses.replace(release, values=unmasked.view(np.int64))


@dataclasses.dataclass(eq=False, kw_only=True)
class UploadMessages(beam.PTransform):
    """`ShardRef`s and one state → `MaskedMessages`: one message per client and shard, or per shard.

    Attributes:
      round: statistic and plan.
      state: PCollection of one element: what is broadcast.
      contract: how shards are read; where it is by client, each client's statistic is a message of its own.
      masking: of the clients' role.

    Windowing: global. Privacy: messages are uniform to whoever lacks the secret. Cost: one pass over the needed
    columns.
    """

    round: Round
    state: beam.PCollection
    contract: TableContract
    masking: Masking

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Statistic and mask in one stage."""
        return shards | "Mask" >> beam.ParDo(
            _UploadFn(self.masking, self.contract, self.round), AsSingleton(self.state)
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class UnmaskReleases(beam.PTransform):
    """`MaskedReleases` and the state before the round → the round's releases.

    Attributes:
      plan: of the round.
      state: PCollection of one element: what was broadcast.
      masking: of the clients' role.

    Windowing: global. Privacy: noise was added before; with `noise_by: both` it is added once more here.
    Cost: one keystream per message.
    """

    plan: RoundPlan
    state: beam.PCollection
    masking: Masking

    def expand(self, masked: beam.PCollection) -> beam.PCollection:
        """Subtracts the masks of those present."""
        releases = masked | "Subtract" >> beam.ParDo(_UnmaskFn(self.masking, self.plan), AsSingleton(self.state))
        if self.masking.noise_by is NoiseBy.AGGREGATOR:
            return releases
        return releases | "FurtherNoise" >> AddFurtherNoise(plan=self.plan, key_uri=self.masking.secret_uri)


def _step(releases: tuple, state: Any, each: Round) -> Any:
    return each.step(state, releases)


def all_arrive(messages: MaskedMessages) -> MaskedMessages:
    """Nobody drops out."""
    return messages


@dataclasses.dataclass(eq=False, kw_only=True)
class MaskedRound(beam.PTransform):
    """`ShardRef`s and one state → the next state, both roles in one pipeline.

    Attributes:
      round: statistic, plan and server step.
      state: PCollection of one element: what is broadcast. Public data and releases only.
      contract: how shards are read.
      key_uri: where the aggregator's noise stage finds its key.
      masking: of the clients' role.
      deliver: what becomes of a batch of messages on its way, to see what dropouts do.

    Windowing: global. Privacy: as `PrivateRound`; the roles are told apart by stages, not by identities.
    """

    round: Round
    state: beam.PCollection
    contract: TableContract
    key_uri: str
    masking: Masking
    deliver: Callable[[MaskedMessages], MaskedMessages] = all_arrive

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Clients, aggregator, clients."""
        plan = self.round.plan
        upload = UploadMessages(round=self.round, state=self.state, contract=self.contract, masking=self.masking)
        aggregate = AggregateMasked(plan=plan, key_uri=self.key_uri, threshold=self.masking.threshold)
        return (
            shards
            | "Upload" >> upload
            | "Deliver" >> beam.Map(self.deliver)
            | "Aggregate" >> aggregate
            | "Unmask" >> UnmaskReleases(plan=plan, state=self.state, masking=self.masking)
            | "Server" >> beam.Map(_step, AsSingleton(self.state), self.round)
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
