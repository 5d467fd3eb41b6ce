"""The clients' role in masked aggregation: masks messages, and removes the masks from the sum.

Input elements: `ShardRef`s; later `MaskedReleases`. Output elements: `MaskedMessages`; later tuples of `Release`.
Guarantee: messages are uniform to anyone without the secret; releases are those of the round's plan.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator
from typing import Any, Self

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton
from numpy.typing import NDArray

from dapple_dp.schemas.choices import NoiseBy
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import ProtocolError
from dapple_dp.schemas.masked.config import SECRET_SETTING, MaskedConfig, PairwiseParams
from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedReleases
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.core.round import Round, measure
from dapple_dp.transforms.files.stores import is_local
from dapple_dp.transforms.masked.noise_stages import AddNoiseShares
from dapple_dp.transforms.numerics.masked.noise_shares import stated
from dapple_dp.transforms.numerics.masked.shared_masks import RoundMasks
from dapple_dp.transforms.on_beam.workers import HeldKeyFn
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables import client_ids
from dapple_dp.transforms.tables.shard_rows import prefetched_blocks

_MESSAGE_BATCH_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """The clients' settings of the protocol; the secret itself is read where it is used.

    Attributes:
      secret_uri: place of the secret that all clients share, for workers of the clients' role.
      run: names the run: part of every mask.
      nonce: random bytes of the run, also part of every mask; empty only if one pipeline is the whole run.
      client: unique name of the client that owns the shards; empty if they belong to all clients.
      root: place of its rows; shards are named by their places below it, for every spelling of paths.
      one_message: True if the client sends one message, of all its shards and client ids together.
      whole_clients: True if all rows of a client id are in one shard, so that the id alone names a sender.
      threshold: fewest messages in the sum of a round.
      noise_by: the roles that add noise.
      pairwise: None for masks from the shared secret; else the shares of clients that may collude and drop out.
      shares: law by which senders split the noise; None if they don't.
      noise_key: place of the key under which senders of this party draw their shares; empty if they draw none.
    """

    secret_uri: str
    run: str
    nonce: bytes = b""
    client: str = ""
    root: str = ""
    one_message: bool = False
    whole_clients: bool = False
    threshold: int = 1
    noise_by: NoiseBy = NoiseBy.AGGREGATOR
    pairwise: PairwiseParams | None = None
    shares: ShareLaw | None = None
    noise_key: str = ""

    @classmethod
    def of_section(cls, masked: MaskedConfig, **run: Any) -> Self:
        """Creates the settings of a job with this section; `run` gives all others, by the names above."""
        return cls(
            threshold=masked.threshold,
            noise_by=masked.noise_by,
            pairwise=masked.pairwise,
            one_message=bool(masked.one_message),
            shares=masked.shares,
            **run,
        )

    def stated(self, releases: tuple[Release, ...], n_present: int, n_listed: int | None) -> tuple[Release, ...]:
        """Returns releases as they are published: if senders split the noise, with that of all who are present.

        Raises:
          ProtocolError: if they hold shares of too few senders.
        """
        if self.shares is None:
            return releases
        self.shares.check_present(n_present, n_listed)
        return stated(releases, self.shares.counted(n_listed), n_present)

    def sender(self, shard: ShardRef, owner: bytes) -> bytes:
        """Returns a sender's unique name in a round: party and client id, or party and place of the shard."""
        place = () if owner and self.whole_clients else (_place_of(shard, self.root),)
        return encode_label(self.client, owner, *place)

    def context(self, plan: RoundPlan, state: Any) -> bytes:
        """Returns a label that no two rounds share: run, nonce, round and broadcast."""
        return encode_label(self.run, self.nonce, plan.path, broadcast_digest(state))


def broadcast_digest(state: Any) -> bytes:
    """Returns a digest of a run's broadcast: SHA-256 of the releases that it was computed from.

    Args:
      state: of any protocol; all but its `releases` follows from them and public data.
    """
    digest = hashlib.sha256()
    for release in state.releases:
        values = release.values.astype("<i8").tobytes()
        digest.update(encode_label(release.path, values))
    return digest.digest()


def statistics_by_client(
    block: ClientBlock, round_: Round, state: Any, batch: int
) -> Iterator[tuple[list[bytes], NDArray[np.int64]]]:
    """Computes statistics of a block's clients, each from the client's rows alone.

    Args:
      block: rows grouped by client, with their ids.
      round_: statistic and plan.
      state: the broadcast.
      batch: the most clients at a time.

    Yields:
      Ids of some clients, and int64 of shape (n_clients, round_.plan.size).
    """
    offsets, owners = block.client_offsets, _owners_of(block)
    for first in range(0, block.n_clients, batch):
        clients = range(first, min(first + batch, block.n_clients))
        yield (
            owners[first : clients.stop],
            np.stack([measure(round_, _alone(block, offsets, client), state) for client in clients]),
        )


def _alone(block: ClientBlock, offsets: NDArray[np.int64], client: int) -> ClientBlock:
    start, stop = int(offsets[client]), int(offsets[client + 1])
    return ClientBlock(block.points[start:stop], np.array([0, stop - start]))


def shard_statistics(
    shard: ShardRef, contract: TableContract, round_: Round, state: Any
) -> Iterator[tuple[list[bytes], NDArray[np.int64]]]:
    """Computes the statistics that are sent for a shard: of each of its clients, or of the shard as a whole.

    Args:
      shard: not the empty one.
      contract: reads it; by client if clients send messages.
      round_: statistic and plan.
      state: the broadcast.

    Yields:
      Owners of messages (no bytes for a shard as a whole), and int64 of shape (n_owners, round_.plan.size).
    """
    size = round_.plan.size
    state = state if round_.at is None else round_.at(state, shard.path)
    total = np.zeros((1, size), dtype=np.int64)
    for block in prefetched_blocks(shard, contract):
        if contract.by_client:
            yield from statistics_by_client(block, round_, state, max(1, _MESSAGE_BATCH_BYTES // (8 * size)))
        else:
            total[0] += measure(round_, block, state)
    if not contract.by_client:
        yield [b""], total


def _place_of(shard: ShardRef, root: str) -> bytes:
    """Names the place of a shard among the rows of a party, the same for every spelling of paths.

    Args:
      shard: not the empty one.
      root: place of the party's rows; empty if paths are used as they are.
    """
    return encode_label(_below(shard.path, root), shard.row_group)


@functools.lru_cache(maxsize=4096)
def _below(path: str, root: str) -> str:
    """Returns a path relative to the root; links on a local disk are followed."""
    if not root:
        return path
    if is_local(path):
        return os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return path.removeprefix(root).lstrip("/")


def _owners_of(block: ClientBlock) -> list[bytes]:
    """Returns the ids of a block's clients as bytes; raises TypeError if the block lacks them."""
    if block.clients is None:
        raise TypeError("messages need a block with client ids; read it from a shard.")
    return client_ids.bytes_of(client_ids.canonical(pa.chunked_array([block.clients])))


class SecretFn(SmallBlocksFn, HeldKeyFn):
    """Masks and unmasks under the clients' secret; small blocks need no BLAS threads.

    Jobs of one run must create the same masks, so the run's name is in the context of the masks.
    """

    of_a_run = False

    def __init__(self, masking: Masking):
        super().__init__(KeyFile(masking.secret_uri, SECRET_SETTING))
        self._masking = masking

    def _masks(self, plan: RoundPlan, state: Any) -> RoundMasks:
        return RoundMasks(self._held_key(), self._masking.context(plan, state))


class _SenderStatisticsFn(SmallBlocksFn):
    """Reads a shard and computes the statistic of each of its clients, or of the shard."""

    def __init__(self, masking: Masking, contract: TableContract, round_: Round):
        self._masking = masking
        self._contract = contract
        self._round = round_

    def process(self, shard: ShardRef, state: Any) -> Iterator[tuple[list[bytes], NDArray[np.int64]]]:
        """Yields (names of senders, their statistics) in batches; an empty batch for the empty shard."""
        if shard == EMPTY_SHARD:
            yield [], np.zeros((0, self._round.plan.size), dtype=np.int64)
            return
        for owners, statistics in shard_statistics(shard, self._contract, self._round, state):
            yield [self._masking.sender(shard, owner) for owner in owners], statistics


class _MaskFn(SecretFn):
    def __init__(self, masking: Masking, plan: RoundPlan):
        super().__init__(masking)
        self._plan = plan

    def process(self, named: tuple, state: Any) -> Iterator[MaskedMessages]:
        """Yields a batch of messages, which may be empty."""
        yield self._masks(self._plan, state).mask(*named)


class _UnmaskFn(SecretFn):
    def __init__(self, masking: Masking, plan: RoundPlan):
        super().__init__(masking)
        self._plan = plan

    def process(self, masked: MaskedReleases, state: Any) -> Iterator[tuple[Release, ...]]:
        """Yields the releases of the round; raises ProtocolError if too few senders are present."""
        check_present(masked, self._masking.threshold)
        total = self._masks(self._plan, state).total(masked.tags, self._plan.size)
        yield self._masking.stated(unmasked(masked.releases, self._plan, total), len(masked.senders), None)


def check_present(masked: MaskedReleases, threshold: int) -> None:
    """Refuses a sum of fewer messages than the clients agreed on, or with a sender twice.

    Raises:
      ProtocolError: for such a sum; its masks stay.
    """
    n_senders = len(set(masked.senders))
    if n_senders < threshold or n_senders < len(masked.senders) or len(set(masked.tags)) < len(masked.senders):
        raise ProtocolError(
            f"the sum must cover at least {threshold} messages (masked.threshold) from different senders, and this one "
            "doesn't; its masks are not removed, so open a new run."
        )


def unmasked(releases: tuple[Release, ...], plan: RoundPlan, mask: NDArray[np.int64]) -> tuple[Release, ...]:
    """Returns the releases of a round without their masks, in the ring; `mask` is that of their concatenation."""
    ends = np.cumsum([each.spec.size for each in plan.releases])
    parts = np.split(mask.view(np.uint64), ends[:-1])
    return tuple(_minus(release, part) for release, part in zip(releases, parts, strict=True))


def _minus(release: Release, mask: NDArray[np.uint64]) -> Release:
    values = release.values.view(np.uint64) - mask.reshape(release.values.shape)
    return dataclasses.replace(release, values=values.view(np.int64))


@dataclasses.dataclass(eq=False, kw_only=True)
class ClientsStep(beam.PTransform):
    """A step of the clients' role on its `ShardRef`s in a round.

    Attributes:
      round: statistic, plan and server step.
      state: PCollection of one element: the broadcast. Public data and releases only.
      contract: reads shards; by client if clients send messages, otherwise each shard sends one.
      masking: of the clients' role.
    """

    round: Round
    state: beam.PCollection
    contract: TableContract
    masking: Masking


class SenderStatistics(ClientsStep):
    """`ShardRef`s and one state → (names of senders, their statistics), one sender per client and shard, or per shard.

    Windowing: global. Privacy: none, statistics are exact. Cost: one pass over the needed columns.
    """

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Computes statistics in one stage."""
        form = _SenderStatisticsFn(self.masking, self.contract, self.round)
        return shards | "Form" >> beam.ParDo(form, AsSingleton(self.state))


@dataclasses.dataclass(eq=False, kw_only=True)
class WithShares(beam.PTransform):
    """(names, statistics) of senders → the same, with shares of the noise if senders split it, as `AddNoiseShares`.

    Attributes:
      plan: of the round.
      masking: of the clients' role.
      n_listed: PCollection of one number, of the senders who were listed before; None without a list.

    Windowing: global. Privacy: as private as before, until enough of them are added up.
    """

    plan: RoundPlan
    masking: Masking
    n_listed: beam.PCollection | None = None

    def expand(self, named: beam.PCollection) -> beam.PCollection:
        """Adds shares, or nothing."""
        if self.masking.shares is None:
            return named
        shares = AddNoiseShares(
            plan=self.plan,
            shares=self.masking.shares,
            key_source=KeyFile(self.masking.noise_key),
            n_listed=self.n_listed,
        )
        return named | "Split" >> shares


class UploadMessages(ClientsStep):
    """`ShardRef`s and one state → `MaskedMessages`: one message per client and shard, or per shard.

    Windowing: global. Privacy: messages are uniform to anyone without the secret. Cost: one pass over the needed
    columns, and a draw of noise per message if senders split it.
    """

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Computes statistics, adds shares of the noise, and masks."""
        form = SenderStatistics(round=self.round, state=self.state, contract=self.contract, masking=self.masking)
        return (
            shards
            | "Statistic" >> form
            | "Shares" >> WithShares(plan=self.round.plan, masking=self.masking)
            | "Mask" >> beam.ParDo(_MaskFn(self.masking, self.round.plan), AsSingleton(self.state))
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class UnmaskReleases(beam.PTransform):
    """`MaskedReleases` and the state before the round → the round's releases.

    Attributes:
      plan: of the round.
      state: PCollection of one element: the broadcast.
      masking: of the clients' role.

    Windowing: global. Privacy: noise was added before; `AddFurtherNoise` may follow.
    Cost: one keystream per message.
    """

    plan: RoundPlan
    state: beam.PCollection
    masking: Masking

    def expand(self, masked: beam.PCollection) -> beam.PCollection:
        """Subtracts the masks of those present."""
        return masked | "Subtract" >> beam.ParDo(_UnmaskFn(self.masking, self.plan), AsSingleton(self.state))
