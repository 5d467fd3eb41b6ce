"""What R-DPCFL is compared with: one model for all, a model each, MR-MTL, IFCA, and clusters that an oracle knows.

Clients train, select and are accounted for as in R-DPCFL, but there is no first round of its own. `project` has the
other views of first updates: two principal components, the same stretched as in the published code, or all coordinates.

Source: Malekmohammadi, Taik, Farnadi, "Differentially private clustered federated learning", Section 5.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.plan import SiloBudget, SiloEvent
from dapple_dp.schemas.clustered_fl.records import (
    MAX_UNITS,
    UPDATE_UNIT,
    ClientRows,
    FederatedState,
    Federation,
    TrainingParams,
)
from dapple_dp.transforms.clustered_fl import silo_accounting
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl import dp_sgd, update_clusters
from dapple_dp.transforms.numerics.clustered_fl import round as federated_round

PERSONAL = ("local", "mr_mtl")
VIEWS = ("pca", "two_pc", "two_pc_scaled", "raw")
Vectors = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Baseline(Federation):
    """Public settings of a run of global, local, mr_mtl, ifca or oracle.

    Attributes:
      algorithm: one of these.
      truth: cluster of each client, for the oracle.
      random: whether models of IFCA start apart.
      pull: weight of the distance to the mean model, for MR-MTL.
    """

    algorithm: str
    truth: tuple[int, ...]
    random: bool = False
    pull: float = 0.0


def events(
    n_rows: int, training: TrainingParams, selections: int, budget: SiloBudget, noise: float
) -> tuple[SiloEvent, ...]:
    """All events of a client, whose rounds all have ordinary batches."""
    schedule, most = dp_sgd.schedule_of(training, n_rows, first=False), budget.select_share * budget.epsilon
    count = schedule.n_steps * training.rounds
    steps = SiloEvent(name="steps", count=count, noise_multiplier=noise, sampling_rate=schedule.rate)
    return (steps, *([SiloEvent(name="selections", count=selections, select_epsilon=most)] if selections else []))


def multiplier(n_rows: int, training: TrainingParams, selections: int, budget: SiloBudget) -> float:
    """The least noise that keeps all events of a client within its budget."""

    def spent_at(noise: float) -> float:
        return silo_accounting.silo_epsilon(events(n_rows, training, selections, budget, noise), budget)

    return silo_accounting._search(spent_at, budget.epsilon)[0]


def initial_state(federation: Baseline) -> FederatedState:
    """The state before the first round."""
    n_clients = federation.n_clients
    known = {"oracle": federation.truth} | {name: range(n_clients) for name in PERSONAL}
    assignments = np.array(known.get(federation.algorithm, [0] * n_clients))
    n_models = federation.clustering.n_clusters if federation.algorithm == "ifca" else int(assignments.max()) + 1
    model, random = dp_sgd.model_of(federation.shape), federation.shape.kind is not ModelKind.SOFTMAX
    numbers = range(n_models) if federation.random else [0] * n_models
    streams = [federated_round._public_stream(federation, "start", number) for number in numbers]
    models = np.stack([model.start(stream if random or federation.random else None) for stream in streams])
    state, shares = federated_round.initial_state(federation), np.eye(n_models)[assignments]
    return dataclasses.replace(state, models=models, assignments=assignments, responsibilities=shares)


def run_rounds(
    federation: Baseline,
    rows: Sequence[ClientRows],
    stream: KeyStream,
    state: FederatedState | None = None,
    rounds: int | None = None,
) -> FederatedState:
    """The state after some or all rounds that are left; arguments are those of R-DPCFL's in `tests.scenes`."""
    state = initial_state(federation) if state is None else state
    left = federation.training.rounds - state.round_number
    for _ in range(left if rounds is None else min(rounds, left)):
        state = _next(federation, state, list(_updates(federation, state, rows, stream)))
    return state


def _updates(
    federation: Baseline, state: FederatedState, rows: Sequence[ClientRows], stream: KeyStream
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yields the model that each client trained, and its private update."""
    model, selects = dp_sgd.model_of(federation.shape), state.round_number < federation.clustering.selection_rounds
    for client, (own, silo) in enumerate(zip(rows, federation.silos, strict=True)):
        label = encode_label("client", silo.client_id, state.round_number + 1, state.digest(), own.digest)
        random, cluster = stream.substream(label), int(state.assignments[client])
        if selects and federation.algorithm == "ifca":
            cluster = federated_round._selected(federation, state, own, silo, random)
        start, sgd = state.models[cluster], federated_round.steps_of(federation, silo, federated_round.Phase.ASSIGNED)
        steps = random.substream(encode_label("steps"))
        if federation.algorithm == "mr_mtl":
            trained = _pulled(model, start, own, sgd, steps, federation.pull, state.models.mean(axis=0))
        else:
            trained = dp_sgd.train(model, start, own, sgd, steps)
        units = np.clip(np.rint((trained - start) / UPDATE_UNIT), -MAX_UNITS, MAX_UNITS)
        yield cluster, units.astype(np.int64)


def _pulled(
    model: dp_sgd.Model,
    parameters: Vectors,
    rows: ClientRows,
    sgd: dp_sgd.Sgd,
    stream: KeyStream,
    pull: float,
    anchor: Vectors,
) -> Vectors:
    """Parameters after noisy steps that are pulled to the mean model, which uses no rows and follows the noise."""
    schedule, stddev = sgd.schedule, dp_sgd._stddev(model, sgd)
    noise = dp_sgd._noise(stream.substream(encode_label("noise")), schedule.n_steps, len(parameters), stddev)
    for noise_of_step, (features, labels) in zip(noise, dp_sgd._batches(rows, schedule, stream), strict=True):
        gradient = model.clipped_gradient_sum(parameters, features, labels, sgd.clipping_norm)
        direction = gradient.plus_noise(noise_of_step)
        direction /= schedule.expected_batch
        direction += pull * (parameters - anchor)
        parameters = dp_sgd._moved(parameters, direction, sgd.learning_rate)
    return parameters


def _next(federation: Baseline, state: FederatedState, updates: list[tuple[int, NDArray[np.int64]]]) -> FederatedState:
    """The state whose models have moved by the mean of the updates of their clients."""
    clusters, sums = np.array([cluster for cluster, _ in updates]), np.zeros(state.models.shape, dtype=np.int64)
    for cluster, values in updates:
        sums[cluster] += values
    counts = np.bincount(clusters, minlength=len(state.models))
    return dataclasses.replace(
        state,
        round_number=state.round_number + 1,
        models=state.models + sums.astype(np.float64) * UPDATE_UNIT / np.maximum(counts, 1)[:, None],
        assignments=clusters,
        responsibilities=np.eye(len(state.models))[clusters],
    )


def project(updates: Vectors, n_clusters: int, view: str) -> Vectors:
    """Coordinates of updates in a view of `VIEWS`, centered, with a mean variance of 1 (or 0)."""
    centered = updates - updates.mean(axis=0)
    if view == "pca":
        return update_clusters.project(updates, n_clusters)
    if view != "raw":
        values, vectors = np.linalg.eigh(centered @ centered.T)
        order = np.argsort(values)[::-1][: min(2, len(updates))]
        centered = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    if view == "two_pc_scaled":
        ranges = np.ptp(centered, axis=0)
        centered = centered / np.where(ranges > 0.0, ranges, 1.0)
        centered = centered - centered.mean(axis=0)
    scale = math.sqrt(float((centered**2).mean()))
    return centered / scale if scale > 0.0 else centered


def first_clusters(
    federation: Federation, rows: Sequence[ClientRows], stream: KeyStream, view: str
) -> update_clusters.Mixture:
    """The mixture of R-DPCFL's first updates in a view."""
    state, n_clusters = federated_round.initial_state(federation), federation.clustering.n_clusters
    updates = [
        federated_round.client_step(federation, state, own, client, stream).values for client, own in enumerate(rows)
    ]
    points = project(np.stack(updates).astype(np.float64) * UPDATE_UNIT, n_clusters, view)
    own = federated_round._public_stream(federation, "mixture").substream(encode_label(n_clusters))
    return update_clusters.fit_mixture(points, n_clusters, own)
