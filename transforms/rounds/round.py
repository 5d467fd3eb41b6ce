"""The round: shards and the state so far in, the next state out.

    shards + broadcast -> statistic per shard -> exact sum -> noise -> releases -> server step -> next broadcast

Input element: `ShardRef`. Output element: the next state, exactly one. Guarantee: the state contains nothing
private but releases of the round's plan.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsSingleton
from threadpoolctl import threadpool_limits

from schemas.tables.contract import TableContract
from schemas.tables.shard import ShardRef
from transforms.privacy.noise_stage import AddNoise
from transforms.rounds import bound_broadcast
from transforms.rounds.aggregation import SumStatistics
from transforms.rounds.protocol import Round, measured
from transforms.tables.read import prefetched_blocks


class _StatisticFn(beam.DoFn):
    """Reads a shard and adds up its statistic; blocks are small, so BLAS gets one thread and workers the cores."""

    def __init__(self, contract: TableContract, bound: Round):
        self._contract = contract
        self._round = bound

    def setup(self) -> None:
        """Keeps BLAS from starting threads for small blocks."""
        threadpool_limits(limits=1)

    def process(self, shard: ShardRef, state: Any) -> Iterator[np.ndarray]:
        """One int64 vector per shard."""
        total = np.zeros(self._round.plan.size, dtype=np.int64)
        for block in prefetched_blocks(shard, self._contract):
            total += measured(self._round, block, state)
        yield total


def round_label(bound: Round) -> str:
    """What the steps of a round are called in the graph."""
    return bound.plan.path.rpartition("/")[2].title().replace("_", "")


def server_step(releases: tuple, state: Any, bound: Round) -> Any:
    """The next state; the order of arguments is that of a main and a side input."""
    return bound.step(state, releases)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRound(beam.PTransform):
    """`ShardRef`s and one state → the next state.

    Attributes:
      round: statistic, plan and server step.
      state: PCollection of one element: what is broadcast. Public data and releases only.
      contract: how shards are read.
      key_uri: where the noise stage finds the run key.

    Windowing: global. Privacy: the state gains the releases of `round.plan` and nothing else from the shards.
    Cost: one pass over the needed columns, one shuffle of one vector per bundle.
    """

    round: Round
    state: beam.PCollection
    contract: TableContract
    key_uri: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Statistic, sum, noise, server step."""
        state = AsSingleton(self.state)
        return (
            shards
            | "Statistic" >> beam.ParDo(_StatisticFn(self.contract, self.round), state)
            | "Aggregate" >> SumStatistics(size=self.round.plan.size)
            | "Noise" >> AddNoise(plan=self.round.plan, key_uri=self.key_uri)
            | "Server" >> beam.Map(server_step, state, self.round)
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class RunRounds(beam.PTransform):
    """`ShardRef`s → the state after the last round, exactly one element.

    Attributes:
      rounds: calibrated rounds, unrolled in this order.
      initial: state before the first round; public data only.
      contract: how shards are read.
      key_uri: where noise stages find the run key.
      folder: private, where broadcasts leave their digests; None where no runner computes one twice.

    Windowing: global. Privacy: the releases of the rounds' plans, composed. Cost: one pass over the needed
    columns, one small shuffle and one small file per round.
    """

    rounds: tuple[Round, ...]
    initial: Any
    contract: TableContract
    key_uri: str
    folder: str | None = None

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Chains the rounds: each one's state is the next one's broadcast."""
        state = shards.pipeline | "Public" >> beam.Create([self.initial], reshuffle=False)
        for bound in self.rounds:
            label = round_label(bound)
            state = shards | label >> self.one(bound, state)
            if self.folder is not None and bound_broadcast.can_bind(self.folder):
                path = FileSystems.join(self.folder, label + bound_broadcast.SUFFIX)
                state = state | f"Bind{label}" >> beam.Map(bound_broadcast.bound, path)
        return state

    def one(self, bound: Round, state: beam.PCollection) -> beam.PTransform:
        """A round that is given this state."""
        return PrivateRound(round=bound, state=state, contract=self.contract, key_uri=self.key_uri)
