"""One round of clustered federated learning: the client's step, the sum of updates, and the server's step.

    state + rows -> client_step -> ClientUpdate -> RoundSums (exact) -> server_step -> next state

Guarantee: a `ClientUpdate` is differentially private for the client's rows by itself (noisy steps, one selection);
all later steps are post-processing. Events of a client are composed in `transforms/clustered_fl/silo_accounting.py`.
"""

import dataclasses
import enum
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.choices import ModelKind, SelectionScore, WhenScarce
from dapple_dp.schemas.clustered_fl.records import (
    MAX_UNITS,
    UPDATE_UNIT,
    ClientRows,
    ClientUpdate,
    FederatedState,
    Federation,
    Silo,
)
from dapple_dp.schemas.errors import InputError, ProtocolError
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.choices import answer, scores, takers
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import Sgd, model_of, schedule_of, train
from dapple_dp.transforms.numerics.clustered_fl.exact_layer import GAIN_BITS
from dapple_dp.transforms.numerics.clustered_fl.normal import uniforms
from dapple_dp.transforms.numerics.clustered_fl.private_selection import select
from dapple_dp.transforms.numerics.clustered_fl.update_clusters import (
    Mixture,
    cluster_updates,
    own_clusters,
    switch_round,
)

_SHARE_BITS = 20


class Phase(enum.StrEnum):
    """Steps of clients in a round.

    FIRST: (full) batches from the common start, updates kept apart. ASSIGNED: train the assigned model.
    SELECT: select a model in private, then train it.
    """

    FIRST = "first"
    ASSIGNED = "assigned"
    SELECT = "select"


class RoundSums(NamedTuple):
    """Exact sums of updates; addition of integers, so neither order nor grouping matters.

    Attributes:
      values: int64, shape (n_slots, n_parameters); sums of updates per slot.
      senders: int64, shape (n_clients,); updates by client: 1 each when a round is complete.
      clusters: int64, shape (n_clients,); models that clients trained.
      answers: int64, shape (n_clients,); answers of clients to their offers.
    """

    values: NDArray[np.int64]
    senders: NDArray[np.int64]
    clusters: NDArray[np.int64]
    answers: NDArray[np.int64]

    @classmethod
    def zeros(cls, n_slots: int, n_parameters: int, n_clients: int) -> "RoundSums":
        """Creates sums of no updates."""
        shapes = ((n_slots, n_parameters), *[(n_clients,)] * 3)
        return cls(*(np.zeros(shape, dtype=np.int64) for shape in shapes))

    def plus(self, update: ClientUpdate) -> "RoundSums":
        """Returns the sums with one more update; new arrays."""
        copy = RoundSums(*(array.copy() for array in self))
        copy.values[update.slot] += update.values
        copy.senders[update.client] += 1
        copy.clusters[update.client] += update.cluster
        copy.answers[update.client] += update.answer
        return copy

    def merge(self, other: "RoundSums") -> "RoundSums":
        """Returns the sums of both; new arrays."""
        return RoundSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def initial_state(federation: Federation) -> FederatedState:
    """Returns the state before the first round, from public settings alone."""
    n_clients = federation.n_clients
    return FederatedState(
        round_number=0,
        models=_first_model(federation)[None],
        assignments=np.zeros(n_clients, dtype=np.int64),
        responsibilities=np.ones((n_clients, 1)),
        separation=math.nan,
        switch_round=0,
        em_iterations=0,
        offers=np.zeros((0, federation.shape.n_parameters)),
        offered=np.full(n_clients, -1),
    )


def phase_of(federation: Federation, state: FederatedState) -> Phase:
    """Returns the phase of the round after `state`."""
    coming = state.round_number + 1
    if coming == 1:
        return Phase.FIRST
    if (
        len(state.models) > 1
        and not is_apart(federation, state)
        and state.switch_round < coming <= state.switch_round + federation.clustering.selection_rounds
    ):
        return Phase.SELECT
    return Phase.ASSIGNED


def is_apart(federation: Federation, state: FederatedState) -> bool:
    """Returns whether clients began with separate models, and share one only if their rows support it."""
    unsure = state.round_number > 0 and state.switch_round == 0
    return unsure and federation.clustering.when_scarce is not WhenScarce.ONE_MODEL


def slots_of(federation: Federation, state: FederatedState) -> int:
    """Returns the number of sums in the round after `state`: one per client if updates stay apart, else per model."""
    return federation.n_clients if phase_of(federation, state) is Phase.FIRST else len(state.models)


def client_step(
    federation: Federation, state: FederatedState, rows: ClientRows, client: int, stream: KeyStream
) -> ClientUpdate:
    """Returns the update that a client sends in the round after `state`.

    Private randomness is bound to client, round, broadcast and rows: the same call sends the same update, and a
    call with other rows or another broadcast shares no noise with it.

    Args:
      federation: public settings.
      state: broadcast.
      rows: of the client, bounded; there may be more or fewer than it declared, or none.
      client: index in `federation.silos`.
      stream: of the run, from its secret key; only substreams are used.
    """
    silo, phase, model = federation.silos[client], phase_of(federation, state), model_of(federation.shape)
    if len(rows.labels) > model.most_rows:
        raise InputError(
            f"a client must have at most {model.most_rows} rows for this model, got more; split the client."
        )
    own = stream.substream(encode_label("client", silo.client_id, state.round_number + 1, state.digest(), rows.digest))
    cluster = int(state.assignments[client])
    if phase is Phase.SELECT:
        cluster = _selected(federation, state, rows, silo, own)
    start = state.models[cluster]
    trained = train(model, start, rows, steps_of(federation, silo, phase), own.substream(encode_label("steps")))
    offered, choice = int(state.offered[client]), own.substream(encode_label("choice"))
    units = np.clip(np.rint((trained - start) / UPDATE_UNIT), -MAX_UNITS, MAX_UNITS)
    slot = client if phase is Phase.FIRST else cluster
    return ClientUpdate(
        client=client,
        slot=slot,
        cluster=cluster,
        values=units.astype(np.int64),
        answer=0 if offered < 0 else answer(model, start, state.offers[offered], rows, silo.choice_stddev, choice),
    )


def steps_of(federation: Federation, silo: Silo, phase: Phase) -> Sgd:
    """Returns a client's noisy steps of one round."""
    training = federation.training
    return Sgd(
        schedule=schedule_of(training, silo.n_rows, first=phase is Phase.FIRST),
        learning_rate=training.learning_rate,
        clipping_norm=training.clipping_norm,
        noise_multiplier=silo.first_round_multiplier if phase is Phase.FIRST else silo.noise_multiplier,
    )


def server_step(federation: Federation, state: FederatedState, sums: RoundSums) -> FederatedState:
    """Returns the next state, a pure function of private updates and public settings.

    Raises:
      ProtocolError: unless every client sent exactly one update.
    """
    if (sums.senders != 1).any():
        raise ProtocolError(
            f"every client must send one update per round, got {sorted(set(sums.senders.tolist()))} in round "
            f"{state.round_number + 1}; resume the run from its last checkpoint."
        )
    if phase_of(federation, state) is Phase.FIRST:
        return _found_clusters(federation, state, sums)
    counts = np.bincount(sums.clusters, minlength=len(state.models))
    models = state.models + sums.values.astype(np.float64) * UPDATE_UNIT / np.maximum(counts, 1)[:, None]
    coming = state.round_number + 2
    sampled = 1 < coming <= state.switch_round
    shares = state.responsibilities if sampled else np.eye(len(models))[sums.clusters]
    after = dataclasses.replace(
        state,
        round_number=state.round_number + 1,
        models=models,
        assignments=_sampled(federation, shares, coming) if sampled else sums.clusters,
        responsibilities=shares,
    )
    if len(state.offers):
        after = _answered(federation, state, after, sums.answers)
    return _with_offers(federation, after) if is_apart(federation, after) else after


def _found_clusters(federation: Federation, state: FederatedState, sums: RoundSums) -> FederatedState:
    """Returns the state after the first round: a model per cluster of updates, or others if clusters are unclear."""
    clustering, n_clients = federation.clustering, federation.n_clients
    updates = sums.values.astype(np.float64) * UPDATE_UNIT
    first = dataclasses.replace(
        state,
        round_number=1,
        models=state.models + updates,
        assignments=np.arange(n_clients),
        responsibilities=np.eye(n_clients),
    )
    if clustering.when_scarce is WhenScarce.APART:
        return _with_offers(federation, first)
    mixture = _mixture(federation, updates)
    seen = dataclasses.replace(first, separation=mixture.separation, em_iterations=mixture.iterations)
    if mixture.separation >= clustering.min_separation:
        models = np.repeat(state.models[:1], mixture.responsibilities.shape[1], axis=0)
        return _with_clusters(federation, seen, models, mixture)
    if clustering.when_scarce is WhenScarce.ONE_MODEL:
        nobody = np.zeros(n_clients, dtype=np.int64)
        return dataclasses.replace(
            seen, models=state.models[:1], assignments=nobody, responsibilities=np.ones((n_clients, 1))
        )
    return _with_offers(federation, seen)


def _with_offers(federation: Federation, state: FederatedState) -> FederatedState:
    """Returns the state with the offers of the next round: the mean of all models, or those of clusters.

    All models are private already, so offers cost nothing.
    """
    clustering, nobody = federation.clustering, np.full(federation.n_clients, -1)
    clear = dataclasses.replace(state, offers=state.offers[:0], offered=nobody)
    if state.round_number not in clustering.offer_rounds:
        return clear
    if state.round_number == clustering.offer_rounds[0]:
        return dataclasses.replace(clear, offers=state.models[state.assignments].mean(axis=0)[None], offered=nobody + 1)
    users = np.bincount(state.assignments)
    alone = np.flatnonzero(users[state.assignments] == 1)
    if len(alone) < 2:
        return clear
    models, left = state.models[state.assignments[alone]], max(1, clustering.n_clusters - int((users > 1).sum()))
    stream = _public_stream(federation, "own models")
    labels, separation = own_clusters(models, left, stream, search=clustering.search)
    offers = np.stack([models[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    several = np.bincount(labels)[labels] > 1
    nobody[alone[several]] = labels[several]
    return dataclasses.replace(clear, offers=offers, offered=nobody, separation=separation)


def _answered(
    federation: Federation, before: FederatedState, state: FederatedState, answers: NDArray[np.int64]
) -> FederatedState:
    """Returns the state in which clients that take the same offer share a model, which starts as their mean."""
    asked = np.flatnonzero(before.offered >= 0)
    silos = [federation.silos[client] for client in asked]
    stddevs, n_rows = (np.array([getattr(silo, name) for silo in silos]) for name in ("choice_stddev", "n_rows"))
    one_group = before.round_number == federation.clustering.offer_rounds[0]
    taken = asked[takers(answers[asked], n_rows, stddevs, one_group=one_group)]
    groups = state.assignments.copy()
    groups[taken] = len(state.models) + before.offered[taken]
    found, assignments = np.unique(groups, return_inverse=True)
    own = state.models[state.assignments]
    models = np.stack([own[groups == group].mean(axis=0) for group in found])
    return dataclasses.replace(
        state, models=models, assignments=assignments, responsibilities=np.eye(len(models))[assignments]
    )


def _mixture(federation: Federation, updates: NDArray[np.float64]) -> Mixture:
    clustering = federation.clustering
    stream = _public_stream(federation, "mixture")
    return cluster_updates(updates, clustering.n_clusters, stream, search=clustering.search)


def _with_clusters(
    federation: Federation, state: FederatedState, models: NDArray[np.float64], mixture: Mixture
) -> FederatedState:
    """Returns the state with these models, shape (n_clusters, n_parameters), and clients drawn into their clusters."""
    return dataclasses.replace(
        state,
        models=models,
        assignments=_sampled(federation, mixture.responsibilities, state.round_number + 1),
        responsibilities=mixture.responsibilities,
        switch_round=max(_switch_round(federation, mixture.separation), state.round_number),
    )


def _switch_round(federation: Federation, separation: float) -> int:
    """Returns the last round of sampled clusters: as requested, or by the overlap of the clusters."""
    rounds = federation.training.rounds
    asked = federation.clustering.switch_round
    return switch_round(separation, rounds) if asked is None else min(asked, rounds)


def _sampled(federation: Federation, responsibilities: NDArray[np.float64], coming: int) -> NDArray[np.int64]:
    """Draws the assignments of a round by responsibilities with public coins, shape (n_clients,)."""
    # Rounded, so that the last bits of a mixture don't matter.
    bounds = np.rint(np.cumsum(responsibilities, axis=1) * 2.0**_SHARE_BITS)
    draws = uniforms(_public_stream(federation, "assignments", coming), len(bounds)) * bounds[:, -1]
    return (draws[:, None] > bounds).sum(axis=1)


def _selected(federation: Federation, state: FederatedState, rows: ClientRows, silo: Silo, stream: KeyStream) -> int:
    """Returns the model that the client selects by its scores: correct rows, or gaps of bounded losses."""
    model, by_loss = model_of(federation.shape), federation.clustering.select_by is SelectionScore.LOSS
    most = 1 << GAIN_BITS if by_loss else 1
    found = scores(model, list(state.models), rows, by_loss=by_loss)
    return select(found, silo.select_epsilon, stream.substream(encode_label("selection")), most)


def _first_model(federation: Federation) -> NDArray[np.float64]:
    random = federation.shape.kind is not ModelKind.SOFTMAX
    return model_of(federation.shape).start(_public_stream(federation, "start", 0) if random else None)


def _public_stream(federation: Federation, *purpose: str | int) -> KeyStream:
    """Returns a stream that anyone can draw again."""
    return KeyStream(federation.public_seed, encode_label("clustered_fl", *purpose))
