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
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from schemas.tables.contract import TableContract
from schemas.tables.shard import ShardRef
from transforms.numerics.one_thread import one_thread
from transforms.privacy.noise_stage import AddNoise
from transforms.rounds import bound_broadcast
from transforms.rounds.aggregation import SumStatistics
from transforms.rounds.protocol import Round
from transforms.rounds.row_cache import NO_LIMITS, WorkerLimits
from transforms.rounds.shard_sums import ShardReader, contract_digest, summed
from transforms.rounds.staged_state import StagedArrays, begun, lightened, restored

_SHARDS_PER_CORE = 1024


class _StatisticFn(beam.DoFn):
    """Adds up the statistic of shards; blocks are small, so BLAS gets one thread and workers the cores."""

    def __init__(self, contract: TableContract, bound: Round, limits: WorkerLimits = NO_LIMITS):
        self._contract = contract
        self._round = bound
        self._limits = limits

    def setup(self) -> None:
        """Keeps BLAS from starting threads for small blocks."""
        one_thread()
        self._identity = contract_digest(self._contract)

    def start_bundle(self) -> None:
        """Nothing is waiting yet."""
        self._waiting: list[ShardRef] = []

    def process(self, shard: ShardRef, state: Any) -> Iterator[np.ndarray]:
        """One int64 vector for so many shards that all processes have work."""
        self._waiting.append(shard)
        self._state = state
        if len(self._waiting) > _SHARDS_PER_CORE * self._limits.cores:
            yield self._summed()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """One for those that are left."""
        if self._waiting:
            yield WindowedValue(self._summed(), GlobalWindow().max_timestamp(), (GlobalWindow(),))

    def _summed(self) -> np.ndarray:
        """The statistic of the shards that wait."""
        waiting, self._waiting = self._waiting, []
        reader = ShardReader(
            contract=self._contract, identity=self._identity, bound=self._round, state=self._state, limits=self._limits
        )
        return summed(reader, waiting)


def round_label(bound: Round) -> str:
    """What the steps of a round are called in the graph."""
    return bound.plan.path.rpartition("/")[2].title().replace("_", "")


def server_step(releases: tuple, state: Any, bound: Round, staged: StagedArrays | None = None) -> Any:
    """The next state; the order of arguments is that of a main and a side input.

    Large public arrays of the state are read where this runs, and are not sent on.
    """
    if staged is None:
        return bound.step(state, releases)
    return lightened(bound.step(restored(state, staged), releases), staged)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRound(beam.PTransform):
    """`ShardRef`s and one state → the next state.

    Attributes:
      round: statistic, plan and server step.
      state: PCollection of one element: what is broadcast. Public data and releases only.
      contract: how shards are read.
      key_uri: where the noise stage finds the run key.
      limits: of the workers.
      staged: where large arrays of the state lie; None if it holds them itself.

    Windowing: global. Privacy: the state gains the releases of `round.plan` and nothing else from the shards.
    Cost: one pass over the needed columns, one shuffle of one vector per bundle.
    """

    round: Round
    state: beam.PCollection
    contract: TableContract
    key_uri: str
    limits: WorkerLimits = NO_LIMITS
    staged: StagedArrays | None = None

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Statistic, sum, noise, server step."""
        state = AsSingleton(self.state)
        return (
            shards
            | "Statistic" >> beam.ParDo(_StatisticFn(self.contract, self.round, self.limits), state)
            | "Aggregate" >> SumStatistics(size=self.round.plan.size)
            | "Noise" >> AddNoise(plan=self.round.plan, key_uri=self.key_uri)
            | "Server" >> beam.Map(server_step, state, self.round, self.staged)
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
      limits: of the workers.
      staged: where large arrays of `initial` lie; None if it holds them itself.

    Windowing: global. Privacy: the releases of the rounds' plans, composed. Cost: one pass over the needed
    columns, one small shuffle and one small file per round.
    """

    rounds: tuple[Round, ...]
    initial: Any
    contract: TableContract
    key_uri: str
    folder: str | None = None
    limits: WorkerLimits = NO_LIMITS
    staged: StagedArrays | None = None

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Chains the rounds: each one's state is the next one's broadcast."""
        state = shards.pipeline | "Public" >> beam.Create([self.initial], reshuffle=False)
        if self.staged is not None:
            state = state | "Begin" >> beam.Map(begun, self.staged)
        for bound in self.rounds:
            label = round_label(bound)
            state = shards | label >> self.one(bound, state)
            if self.folder is not None and bound_broadcast.can_bind(self.folder):
                path = FileSystems.join(self.folder, label + bound_broadcast.SUFFIX)
                state = state | f"Bind{label}" >> beam.Map(bound_broadcast.bound, path)
        return state

    def one(self, bound: Round, state: beam.PCollection) -> beam.PTransform:
        """A round that is given this state."""
        return PrivateRound(
            round=bound,
            state=state,
            contract=self.contract,
            key_uri=self.key_uri,
            limits=self.limits,
            staged=self.staged,
        )
