"""Small federations for tests: clients of two kinds, their lake, and the same rounds without Beam."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.records import (
    ClientRows,
    ClientUpdate,
    ClusteringParams,
    FederatedState,
    Federation,
    ModelShape,
    Silo,
    TrainingParams,
)
from dapple_dp.transforms.clustered_fl.rounds import run_stream
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.round import (
    RoundSums,
    client_step,
    initial_state,
    server_step,
    slots_of,
)
from tests.scenes.lake import KEY, write_files

N_CLIENTS, N_ROWS, N_FEATURES, N_CLASSES = 6, 80, 5, 3
NAMES = tuple(f"silo-{index}" for index in range(N_CLIENTS))


def client_rows(client: int, seed: int = 0, n_rows: int = N_ROWS) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of three classes; clients of odd number call the classes otherwise."""
    rng = np.random.default_rng([seed, client])
    labels = rng.integers(0, N_CLASSES, n_rows)
    points = 2.0 * np.eye(N_CLASSES, N_FEATURES)[labels] + rng.normal(0.0, 0.5, (n_rows, N_FEATURES))
    return points.astype(np.float32), (labels + client % 2) % N_CLASSES


def table_of(clients: list[int], seed: int = 0) -> pa.Table:
    """Rows of some clients as columns x, y, client_id and kind."""
    rows = [client_rows(client, seed) for client in clients]
    points, labels = np.concatenate([x for x, _ in rows]), np.concatenate([y for _, y in rows])
    owners = np.repeat(clients, [len(y) for _, y in rows])
    return pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), N_FEATURES),
            "y": pa.array(labels),
            "client_id": pa.array([NAMES[owner] for owner in owners]),
            "kind": pa.array(["odd" if owner % 2 else "even" for owner in owners]),
        }
    )


def write_lake(folder: pathlib.Path, *, split: bool = False, seed: int = 0) -> str:
    """A file per two clients; with `split`, row groups that cut clients and two files that share them."""
    pairs = [table_of([index, index + 1], seed) for index in range(0, N_CLIENTS, 2)]
    if not split:
        return write_files(folder, pairs)
    halves = [pairs[0].slice(0, 30), pa.concat_tables([pairs[0].slice(30), pairs[1]]), pairs[2]]
    return write_files(folder, halves, row_group_size=50)


def job(data: str, **settings: Any) -> dict[str, Any]:
    """A job as plain data; `section__name` in `settings` is one value of a section."""
    found: dict[str, Any] = {
        "experimental": True,
        "algorithm": "r_dpcfl",
        "data": {"path": data, "client_id": "client_id", "features": "x", "label": "y", "classes": N_CLASSES},
        "n_clusters": 2,
        "privacy": {"epsilon": 8.0, "delta": 1e-3, "adjacency": "add_remove"},
        "training": {
            "model": "softmax",
            "rounds": 6,
            "batch_size": 20,
            "learning_rate": 0.5,
            "clipping_norm": 1.0,
        },
    }
    for name, value in settings.items():
        section, _, key = name.rpartition("__")
        (found.setdefault(section, {}) if section else found)[key] = value
    return found


def federation(rounds: int = 6, **clustering: Any) -> Federation:
    """Public terms with little noise."""
    shape = ModelShape(kind=ModelKind.SOFTMAX, n_features=N_FEATURES, n_classes=N_CLASSES)
    options = {"n_clusters": 2, "selection_rounds": 1} | clustering
    clients = [silo(name, N_ROWS, 0.5) for name in NAMES]
    return terms(shape, clients, training={"rounds": rounds}, **options)


def silo(name: str, n_rows: int, noise: float, **changes: Any) -> Silo:
    """Public terms of a client whose noise is the same in all rounds."""
    equal = Silo(
        client_id=name, n_rows=n_rows, noise_multiplier=noise, first_round_multiplier=noise, select_epsilon=2.0
    )
    return dataclasses.replace(equal, **changes)


def terms(shape: ModelShape, silos: list[Silo], training: dict[str, Any], **clustering: Any) -> Federation:
    """Public terms of clients that make an epoch a round, with batches of 20 rows unless `training` says otherwise."""
    usual = {"local_epochs": 1, "batch_size": 20, "learning_rate": 0.5, "clipping_norm": 1.0}
    return Federation(
        shape=shape,
        training=TrainingParams(**usual | training),
        clustering=ClusteringParams(**clustering),
        silos=tuple(silos),
        public_seed=bytes(32),
    )


def sum_updates(federation: Federation, state: FederatedState, updates: Iterable[ClientUpdate]) -> RoundSums:
    """All updates of the round after `state`, in any order."""
    zeros = RoundSums.zeros(slots_of(federation, state), federation.shape.n_parameters, federation.n_clients)
    return functools.reduce(RoundSums.plus, updates, zeros)


def run_rounds(
    federation: Federation,
    rows: Sequence[ClientRows],
    stream: KeyStream,
    state: FederatedState | None = None,
    rounds: int | None = None,
) -> FederatedState:
    """The state after `rounds` more rounds, all in one process: what pipelines must equal and are timed beside.

    Args:
      federation: public settings.
      rows: per client, in the order of `federation.silos`.
      stream: of the run, from its secret key.
      state: to go on from; None for the first round.
      rounds: how many; None for all that are left.
    """
    state = initial_state(federation) if state is None else state
    left = federation.training.rounds - state.round_number
    for _ in range(left if rounds is None else min(rounds, left)):
        updates = [client_step(federation, state, own, client, stream) for client, own in enumerate(rows)]
        state = server_step(federation, state, sum_updates(federation, state, updates))
    return state


def looped(terms: Federation, key: bytes = KEY, seed: int = 0) -> FederatedState:
    """The state after all rounds, without Beam."""
    rows = [bounded_rows(*client_rows(client, seed)) for client in range(N_CLIENTS)]
    return run_rounds(terms, rows, run_stream(key, terms))
