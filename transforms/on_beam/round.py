"""A round as a PTransform, with the trusted pipeline as its aggregation.

    shards + broadcast -> statistic per shard -> exact sum -> noise -> releases -> server step -> next broadcast

A protocol defines a round's releases. An `Aggregation` adds up its statistics and draws the noise: `Central` in the
trusted pipeline, `transforms/masked/aggregation.py` from masked messages. There are no others: the graph checker
refuses stages that are not listed, and none can be registered.

Input element: a reference to rows. Output element: the next state, exactly one. Guarantee: the state contains nothing
private but releases of the round's plan.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from dapple_dp.transforms.core.keys import KeySource
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.on_beam.exact_sums import SumStatistics
from dapple_dp.transforms.on_beam.noise_stage import AddNoise
from dapple_dp.transforms.on_beam.workers import LeanFn

_SHARDS_PER_CORE = 1024


class RowReader(Protocol):
    """Reads the rows of shards. Its type must be audited, as a contract."""

    @property
    def by_client(self) -> bool:
        """True if blocks are grouped by client."""

    @property
    def client_id(self) -> str | None:
        """Column with the client of a row, if any."""

    @property
    def participation(self) -> Any:
        """Bounds on the windows that a client takes part in; None without windows."""

    @property
    def cores(self) -> int:
        """Number of threads that share one call of `sums`; 0 to add up shards one by one."""

    def start(self) -> None:
        """Prepares a worker process."""

    def sums(self, shards: Sequence[Any], round_: Round, state: Any) -> NDArray[np.int64]:
        """Adds up `measure` over all blocks of some shards, shape (round_.plan.size,)."""


class Aggregation(Protocol):
    """The stages of a round between the shards and the server step."""

    def releases(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        """Adds the stages of a round to its graph.

        Args:
          shards: references to rows.
          state: one element, the broadcast: public data and releases only.
          round_: statistic and plan.

        Returns:
          The releases of `round_.plan`, one tuple.
        """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Central:
    """Aggregation in a trusted pipeline: workers add up the statistics, and its noise stage draws.

    Attributes:
      reader: of the shards.
      key_source: finds the run key for the noise stage.

    Cost of a round: one pass over the needed columns, one shuffle of one vector per bundle.
    """

    reader: RowReader
    key_source: KeySource

    def releases(self, shards: beam.PCollection, state: beam.PCollection, round_: Round) -> beam.PCollection:
        """Adds statistic, exact sum and noise."""
        return (
            shards
            | "Statistic" >> beam.ParDo(_StatisticFn(self.reader, round_), AsSingleton(state))
            | "Aggregate" >> SumStatistics(size=round_.plan.size)
            | "Noise" >> AddNoise(plan=round_.plan, key_source=self.key_source)
        )


class _StatisticFn(LeanFn):
    """Adds up the statistic of the shards of each window."""

    def __init__(self, reader: RowReader, round_: Round):
        self._reader = reader
        self._round = round_

    def setup(self) -> None:
        """Prepares the worker process."""
        self._reader.start()

    def start_bundle(self) -> None:
        """Starts without shards."""
        self._waiting: dict[BoundedWindow, list[Any]] = {}
        self._states: dict[BoundedWindow, Any] = {}

    def process(self, shard: Any, state: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[np.ndarray]:
        """Yields an int64 vector once there are enough shards of a window for all threads."""
        self._waiting.setdefault(window, []).append(shard)
        self._states[window] = state
        if len(self._waiting[window]) > _SHARDS_PER_CORE * self._reader.cores:
            yield self._summed(window)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields a vector for the remaining shards of each window."""
        for window in list(self._waiting):
            yield WindowedValue(self._summed(window), window.max_timestamp(), (window,))

    def _summed(self, window: BoundedWindow) -> np.ndarray:
        return self._reader.sums(self._waiting.pop(window), self._round, self._states[window])


class ServerFn(LeanFn):
    """Computes the next state, which is the same to the last bit in every process."""

    def __init__(self, round_: Round):
        self._round = round_

    def process(self, releases: tuple[Any, ...], state: Any) -> Iterator[Any]:
        """Yields the next state."""
        yield self._round.step(state, releases)


@dataclasses.dataclass(eq=False, kw_only=True)
class PrivateRound(beam.PTransform):
    """Runs one round: references to rows and a state in, the next state out.

    Attributes:
      round: statistic, plan and server step.
      state: PCollection of one element, the broadcast: public data and releases only.
      aggregation: adds up the statistics and draws the noise.

    Windowing: any that the noise stage takes. Privacy: the state of a window gains the releases of `round.plan` and
    nothing else from its shards. Cost: that of the aggregation.
    """

    round: Round
    state: beam.PCollection
    aggregation: Aggregation

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Adds the stages and the server step."""
        releases = self.aggregation.releases(shards, self.state, self.round)
        return releases | "Server" >> beam.ParDo(ServerFn(self.round), AsSingleton(self.state))


@dataclasses.dataclass(eq=False, kw_only=True)
class RunRounds(beam.PTransform):
    """Runs rounds: references to rows in, the state after the last round out, exactly one element.

    Attributes:
      rounds: calibrated rounds, unrolled in this order.
      state: PCollection of one element, the state before the first round: public data and releases only.
      aggregation: adds up the statistics and draws the noise.

    Windowing: that of a round. Privacy: the releases of the rounds' plans, composed, in each window. Cost: one pass
    over the needed columns and one small shuffle per round.
    """

    rounds: tuple[Round, ...]
    state: beam.PCollection
    aggregation: Aggregation

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Chains the rounds: the state of one is the broadcast of the next."""
        state = self.state
        for round_ in self.rounds:
            one = PrivateRound(round=round_, state=state, aggregation=self.aggregation)
            state = shards | round_.plan.label >> one
        return state
