"""Who adds up the statistics of a round, and who draws its noise.

A protocol says what a round releases. An aggregation says whose hands the statistics pass through on the way: those of
the trusted pipeline (`Central`), or masked messages (`transforms.masked.aggregation`). There are no others. The stages
of each are in the audited code of the graph checker, so another one would be refused, and none can be registered.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from schemas.tables.contract import TableContract
from schemas.tables.shard import ShardRef
from transforms.files.lean_fn import LeanFn
from transforms.numerics.one_thread import one_thread
from transforms.privacy.noise_stage import AddNoise
from transforms.rounds.exact_sums import SumStatistics
from transforms.rounds.protocol import Round
from transforms.rounds.row_cache import NO_LIMITS, WorkerLimits
from transforms.rounds.shard_sums import ShardReader, contract_digest, sum_shards

_SHARDS_PER_CORE = 1024


class Aggregation(Protocol):
    """What happens to the statistics of a round between the shards and the server step."""

    @property
    def contract(self) -> TableContract:
        """How shards are read."""

    def releases(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        """Adds the stages of a round to its graph.

        Args:
          shards: `ShardRef`s.
          state: one element: what is broadcast. Public data and releases only.
          round_: statistic and plan.

        Returns:
          The releases of `round_.plan`, one tuple.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Central:
    """The pipeline is trusted: workers add up statistics as they are, and its noise stage draws.

    Attributes:
      contract: how shards are read.
      key_uri: where the noise stage finds the run key.
      limits: of the workers.

    Cost of a round: one pass over the needed columns, one shuffle of one vector per bundle.
    """

    contract: TableContract
    key_uri: str
    limits: WorkerLimits = NO_LIMITS

    def releases(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        """Statistic, exact sum, noise."""
        return (
            shards
            | "Statistic" >> beam.ParDo(_StatisticFn(self.contract, round_, self.limits), AsSingleton(state))
            | "Aggregate" >> SumStatistics(size=round_.plan.size)
            | "Noise" >> AddNoise(plan=round_.plan, key_uri=self.key_uri)
        )


class _StatisticFn(LeanFn):
    """Adds up the statistic of shards; blocks are small, so BLAS gets one thread and workers the cores."""

    def __init__(self, contract: TableContract, round_: Round, limits: WorkerLimits = NO_LIMITS):
        self._contract = contract
        self._round = round_
        self._limits = limits

    def setup(self) -> None:
        """Keeps BLAS from starting threads for small blocks."""
        one_thread()
        self._identity = contract_digest(self._contract)

    def start_bundle(self) -> None:
        """Nothing is waiting yet."""
        self._waiting: list[ShardRef] = []

    def process(self, shard: ShardRef, state: Any) -> Iterator[np.ndarray]:
        """One int64 vector for so many shards that all threads have work."""
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
            contract=self._contract, identity=self._identity, round=self._round, state=self._state, limits=self._limits
        )
        return sum_shards(reader, waiting)
