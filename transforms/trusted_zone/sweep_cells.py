"""Runs many jobs over the same shards at once: every round of all of them in one pass.

Input element: `ShardRef`. Output element: (number of a cell, its model). A cell is one run of a sweep with its own plan
and guarantee; the results of all cells together aren't private.
"""

import dataclasses
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.round import Round, measure
from dapple_dp.transforms.files.signals.progress import PROGRESS
from dapple_dp.transforms.on_beam.noise_stage import AddKeyedNoise
from dapple_dp.transforms.privacy.key_files import KeyFile
from dapple_dp.transforms.rounds.small_blocks import SmallBlocksFn
from dapple_dp.transforms.tables.shard_rows import prefetched_blocks
from dapple_dp.transforms.trusted_zone.shared_frame import SharedFrame


class Cell(NamedTuple):
    """One run of a sweep: its `number`, its `rounds` in order, and `initial`, the state before the first."""

    number: int
    rounds: tuple[Round, ...]
    initial: Any


class _CellStatisticsFn(SmallBlocksFn):
    """Reads a shard once and adds up the statistic of every cell; one vector per cell leaves each bundle."""

    def __init__(self, contract: TableContract, rounds: dict[int, Round], news: str):
        self._contract = contract
        self._news = news
        self._rounds = rounds
        self._totals: dict[int, np.ndarray] = {}

    def start_bundle(self) -> None:
        self._totals = {number: np.zeros(each.plan.size, dtype=np.int64) for number, each in self._rounds.items()}
        PROGRESS.step(self._news)

    def process(self, shard: ShardRef, states: Mapping[int, Any]) -> None:
        shared = _share_frames({number: states[number] for number in self._rounds})
        frames = {id(state.frame): state.frame for state in shared.values() if isinstance(state.frame, SharedFrame)}
        for block in prefetched_blocks(shard, self._contract):
            for frame in frames.values():
                frame.hold(block.points)
            for number, state in shared.items():
                self._totals[number] += measure(self._rounds[number], block, state)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields (number, int64 vector) of every cell."""
        for keyed in self._totals.items():
            yield WindowedValue(keyed, MIN_TIMESTAMP, [GlobalWindow()])
        self._totals = {}


class SumPresentVectorsFn(beam.CombineFn):
    """Adds int64 vectors whose length is unknown; the sum of none is None."""

    def create_accumulator(self) -> np.ndarray | None:
        """Starts without a vector."""
        return None

    def add_input(self, accumulator: np.ndarray | None, element: np.ndarray) -> np.ndarray:
        """Adds one vector to a copy that this combiner owns."""
        if accumulator is None:
            return element.copy()
        accumulator += element
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[np.ndarray | None]) -> np.ndarray | None:
        """Adds vectors into a new one."""
        total = None
        for accumulator in accumulators:
            if accumulator is not None:
                total = self.add_input(total, accumulator)
        return total

    def extract_output(self, accumulator: np.ndarray | None) -> np.ndarray | None:
        """Returns the exact sum."""
        return accumulator


@dataclasses.dataclass(eq=False, kw_only=True)
class SumKeyedStatistics(beam.PTransform):
    """Adds (number, int64 vector) by number, to (number, exact sum).

    Windowing: global. Cost: one shuffle of one vector per bundle and number.
    """

    def expand(self, statistics: beam.PCollection) -> beam.PCollection:
        """Combines per number."""
        return statistics | "Sum" >> beam.CombinePerKey(SumPresentVectorsFn())


def _share_frames(states: dict[int, Any]) -> dict[int, Any]:
    """Returns the states with one `SharedFrame` for all that have equal frames; a single frame stays as it is."""
    groups: dict[bytes, list[int]] = {}
    for number, state in states.items():
        groups.setdefault(pickle.dumps(state.frame), []).append(number)
    shared = dict(states)
    for numbers in groups.values():
        frame = SharedFrame(*states[numbers[0]].frame)
        if len(numbers) > 1:
            shared |= {number: dataclasses.replace(states[number], frame=frame) for number in numbers}
    return shared


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """Numbers and initial states of all cells in one element, pickled together: a shared array is in it once."""

    states: tuple[tuple[int, Any], ...]


def _packed(cells: tuple[Cell, ...]) -> Starts:
    """Returns the states before the first round; arrays that are equal in several of them become one."""
    known: dict[tuple[object, ...], np.ndarray] = {}
    starts = []
    for cell in cells:
        arrays = {
            field.name: known.setdefault((value.dtype.str, value.shape, value.tobytes()), value)
            for field in dataclasses.fields(cell.initial)
            if isinstance(value := getattr(cell.initial, field.name), np.ndarray)
        }
        starts.append((cell.number, dataclasses.replace(cell.initial, **arrays)))
    return Starts(tuple(starts))


def _unpacked(packed: Starts) -> tuple[tuple[int, Any], ...]:
    return packed.states


def _broadcast(keyed_state: tuple) -> tuple[int, Any]:
    number, state = keyed_state
    return number, state.broadcast()


def _advance(joined: tuple, rounds: dict[int, Round]) -> Iterator[tuple[int, Any]]:
    """Yields the next state of a cell that has releases, and the same state of one that is done."""
    number, found = joined
    (state,) = found["state"]
    for releases in found["releases"]:
        state = rounds[number].step(state, releases)
    yield number, state


def _model(keyed_state: tuple) -> tuple[int, ClusterModel]:
    number, state = keyed_state
    return number, state.model()


@dataclasses.dataclass(eq=False, kw_only=True)
class RunCells(beam.PTransform):
    """`ShardRef`s → (number, `ClusterModel`) of every cell.

    Attributes:
      cells: runs whose rounds' paths differ.
      contract: reads shards; by client if any cell's statistics are.
      key_uri: place of the run key, for noise stages.

    Windowing: global. Privacy: each model satisfies the plan of its own cell. Cost: as many passes over the needed
    columns as the longest cell has rounds; one small shuffle per round.
    """

    cells: tuple[Cell, ...]
    contract: TableContract
    key_uri: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Runs the cells in step: their first rounds together, then their second ones."""
        starts = shards.pipeline | "Public" >> beam.Create([_packed(self.cells)], reshuffle=False)
        states = starts | "States" >> beam.FlatMap(_unpacked)
        n_cells, n_steps = len(self.cells), max((len(cell.rounds) for cell in self.cells), default=0)
        for step in range(n_steps):
            active = {cell.number: cell.rounds[step] for cell in self.cells if step < len(cell.rounds)}
            states = shards | f"Round{step}" >> _RunRound(
                rounds=active,
                states=states,
                contract=self.contract,
                key_uri=self.key_uri,
                news=f"round {step + 1} of {n_steps}: {n_cells - len(active)} of {n_cells} cells are done",
            )
        return states | "Models" >> beam.Map(_model)


@dataclasses.dataclass(eq=False, kw_only=True)
class _RunRound(beam.PTransform):
    """`ShardRef`s → (number, next state) of all cells, by one pass."""

    rounds: dict[int, Round]
    states: beam.PCollection
    contract: TableContract
    key_uri: str
    news: str

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        plans = {number: each.plan for number, each in self.rounds.items()}
        broadcasts = AsDict(self.states | "Broadcast" >> beam.Map(_broadcast))
        releases = (
            shards
            | "Statistics" >> beam.ParDo(_CellStatisticsFn(self.contract, self.rounds, self.news), broadcasts)
            | "Aggregate" >> SumKeyedStatistics()
            | "Noise" >> AddKeyedNoise(plan=plans, key_source=KeyFile(self.key_uri))
        )
        joined = {"state": self.states, "releases": releases} | "Join" >> beam.CoGroupByKey()
        return joined | "Server" >> beam.FlatMap(_advance, self.rounds)
