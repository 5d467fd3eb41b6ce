"""Rounds of clustered federated learning: each client trains under its own DP-SGD; the server adds up and steps.

    clients + state -> DP-SGD per client -> private updates -> exact sum per slot -> server step -> next state

Input element: `ClientGroup`. Output element: the next `FederatedState`, exactly one. Guarantee: a client's update is
private by itself, for the client's rows, before it leaves the DoFn; no one else is trusted. So the rounds' noise
is a declared exception to the one noise stage: it is drawn at the client, by `TrainPrivately`, in a stream that
follows from run key, client, round and the client's rows.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton
from apache_beam.utils.shared import Shared

from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.clustered_fl.records import ClientUpdate, FederatedState, Federation
from dapple_dp.schemas.core.plan import Promise, Zone
from dapple_dp.schemas.settings.gone import with_defaults
from dapple_dp.transforms.clustered_fl.labeled_clients import ClientGroup, ListClients, RowCache
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.files.checkpoint import Arrays
from dapple_dp.transforms.numerics import one_thread
from dapple_dp.transforms.numerics.clustered_fl.round import (
    RoundSums,
    client_step,
    initial_state,
    server_step,
    slots_of,
)
from dapple_dp.transforms.on_beam.steps import DeclaredMechanism
from dapple_dp.transforms.on_beam.workers import HeldKeyFn
from dapple_dp.transforms.privacy.key_files import KeyFile


class TrainingSetup(NamedTuple):
    """Settings that all rounds share.

    Attributes:
      federation: public terms.
      contract: reads the rows.
      key_uri: place of the run key, for workers.
      cache_bytes: rows that a worker process may keep between rounds.
    """

    federation: Federation
    contract: LabeledContract
    key_uri: str
    cache_bytes: int


def run_stream(key: bytes, federation: Federation) -> KeyStream:
    """Creates the stream that all clients draw from; other terms never share noise with these, even under one key."""
    terms = with_defaults(dataclasses.asdict(federation))
    # Terms of methods that left, so that a key draws what it drew.
    terms["clustering"] |= {"algorithm": "r_dpcfl", "pull": 0.0}
    terms["silos"] = [silo | {"true_cluster": None} for silo in terms["silos"]]
    content = json.dumps(terms, sort_keys=True, default=bytes.hex)
    return KeyStream(key, encode_label("clustered_fl", hashlib.sha256(content.encode()).hexdigest()))


@functools.cache
def _use_one_blas_thread() -> None:
    """Limits BLAS once in a worker process, since looking for its libraries takes a millisecond or more."""
    one_thread.limit()


class _TrainPrivatelyFn(HeldKeyFn):
    """Reads clients' rows, or takes them from the cache, and yields their private updates."""

    def __init__(self, setup: TrainingSetup, shared: Shared):
        super().__init__(KeyFile(setup.key_uri))
        self._setup = setup
        self._shared = shared
        self._cache: RowCache | None = None
        self._stream: KeyStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_stream": None, "_cache": None}

    def setup(self) -> None:
        """Reads the key on the worker; batches are small, so BLAS gets one thread."""
        super().setup()
        self._stream = run_stream(self._held_key(), self._setup.federation)
        self._cache = self._shared.acquire(RowCache)
        _use_one_blas_thread()

    def teardown(self) -> None:
        """Drops the key."""
        super().teardown()
        self._stream = None

    def process(self, place: ClientGroup, state: FederatedState) -> Iterator[ClientUpdate]:
        """Yields one update per client; the same state gives the same updates again."""
        if self._stream is None or self._cache is None:
            raise RuntimeError("process must be called between setup and teardown; run it in a pipeline.")
        rows = self._cache.rows(place, self._setup.contract, self._setup.cache_bytes)
        for index in sorted(rows):
            yield client_step(self._setup.federation, state, rows[index], index, self._stream)


@dataclasses.dataclass(eq=False, kw_only=True)
class TrainPrivately(DeclaredMechanism):
    """`ClientGroup`s and one `FederatedState` → `ClientUpdate`s, each (epsilon, delta)-DP for its client's rows.

    A declared exception to the one noise stage: DP-SGD and private selections draw their noise here, per client.

    Attributes:
      setup: of all rounds.
      state: PCollection of one state; private updates and public data only.
      shared: handle of the rows that workers keep.
      number: of the round, from 1.

    Windowing: global. Privacy: the events of the round in the plan of each client. Cost: one pass over the rows if
    they are not kept.
    """

    setup: TrainingSetup
    state: beam.PCollection
    shared: Shared
    number: int

    def declared(self) -> tuple[int, Federation]:
        """Returns the round, and the public terms by which every client draws its noise."""
        return self.number, self.setup.federation

    def expand(self, places: beam.PCollection) -> beam.PCollection:
        """Returns the updates of all clients at `places`, each trained privately from the one state."""
        return places | "DpSgd" >> beam.ParDo(_TrainPrivatelyFn(self.setup, self.shared), AsSingleton(self.state))


class Arrived(NamedTuple):
    """Updates that have arrived, added up per slot; exact, so that neither order nor bundles matter.

    Attributes:
      values: int64 vector by slot.
      trained: (client, model that it trained, answer), one for each update.
    """

    values: dict[int, np.ndarray]
    trained: list[tuple[int, int, int]]


class SumUpdatesFn(beam.CombineFn):
    """Adds up integer updates per slot."""

    def create_accumulator(self) -> Arrived:
        """Creates an empty sum."""
        return Arrived({}, [])

    def add_input(self, accumulator: Arrived, element: ClientUpdate) -> Arrived:
        """Adds one update to the accumulator, in place."""
        _add(accumulator.values, element.slot, element.values)
        accumulator.trained.append((element.client, element.cluster, element.answer))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Arrived]) -> Arrived:
        """Adds up accumulators into a new one."""
        total = self.create_accumulator()
        for accumulator in accumulators:
            for slot, values in accumulator.values.items():
                _add(total.values, slot, values)
            total.trained.extend(accumulator.trained)
        return total

    def extract_output(self, accumulator: Arrived) -> Arrived:
        """Returns the exact sums; the updates in them were private before they were added."""
        return accumulator


def _add(sums: dict[int, np.ndarray], slot: int, values: np.ndarray) -> None:
    """Adds to a slot; arrays from elsewhere are not changed."""
    sums[slot] = sums[slot] + values if slot in sums else values


def _round_sums(arrived: Arrived, state: FederatedState, federation: Federation) -> RoundSums:
    sums = RoundSums.zeros(slots_of(federation, state), federation.shape.n_parameters, federation.n_clients)
    for slot, values in arrived.values.items():
        sums.values[slot] = values
    for client, cluster, answer in arrived.trained:
        sums.senders[client] += 1
        sums.clusters[client] += cluster
        sums.answers[client] += answer
    return sums


def _server_step(arrived: Arrived, state: FederatedState, federation: Federation) -> FederatedState:
    _use_one_blas_thread()
    return server_step(federation, state, _round_sums(arrived, state, federation))


@dataclasses.dataclass(eq=False, kw_only=True)
class FederatedRound(beam.PTransform):
    """`ClientGroup`s and one state → the next state.

    Attributes:
      train: the training of clients.

    Windowing: global. Privacy: see `TrainPrivately`; the rest is post-processing. Cost: one shuffle of one vector per
    slot and bundle.
    """

    train: TrainPrivately

    def expand(self, places: beam.PCollection) -> beam.PCollection:
        """Trains, adds up and steps."""
        updates = places | "TrainPrivately" >> self.train
        sums = updates | "Sum" >> beam.CombineGlobally(SumUpdatesFn()).without_defaults()
        return sums | "Server" >> beam.Map(_server_step, AsSingleton(self.train.state), self.train.setup.federation)


def _to_arrays(state: FederatedState) -> dict[str, np.ndarray]:
    return state.to_arrays()


class FederatedProtocol:
    """The rounds of a job, for the driver that runs them in chunks.

    Args:
      setup: of all rounds.
      places: references to the clients' rows.
      events: number of rounds -> the events that they spend, as JSON.
    """

    def __init__(
        self, setup: TrainingSetup, places: Sequence[ClientGroup], events: Callable[[int], list[dict[str, Any]]]
    ):
        self.n_rounds = setup.federation.training.rounds
        self.asks_last = True
        self.events = events
        self._setup = setup
        self._places = places
        # One handle for all chunks: if they run in one process, rows are read once.
        self._shared = Shared()

    def initial(self) -> Arrays:
        """Returns the public initial models."""
        return initial_state(self._setup.federation).to_arrays()

    def add_rounds(self, root: beam.Pipeline, arrays: Arrays, first: int, last: int) -> beam.PCollection:
        """Unrolls rounds `first` to `last`; worker processes keep rows from one to the next."""
        state = root | "State" >> beam.Create([FederatedState.from_arrays(dict(arrays))], reshuffle=False)
        places = root | "Clients" >> ListClients(places=tuple(self._places))
        for number in range(first, last + 1):
            train = TrainPrivately(setup=self._setup, state=state, shared=self._shared, number=number)
            state = places | f"Round{number}" >> FederatedRound(train=train)
        return state | "Arrays" >> beam.Map(_to_arrays)

    def rounds_done(self, arrays: Arrays) -> int:
        """Returns the round of a state; refuses one whose shapes are not those of the federation."""
        federation = self._setup.federation
        state = FederatedState.from_arrays(dict(arrays))
        state.check(federation.n_clients, federation.shape.n_parameters)
        return state.round_number

    def promise(self, first: int, last: int) -> Promise:
        """Promises the rounds with the terms by which each was accounted for."""
        rounds = range(first, last + 1)
        return Promise(zone=Zone.PUBLIC, declared=tuple((number, self._setup.federation) for number in rounds))
