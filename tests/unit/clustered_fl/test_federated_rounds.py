"""Rounds of clustered federated learning on toy clients."""

import dataclasses
import random as shuffling

import numpy as np
import pytest

from dapple_dp.schemas.choices import ModelKind, SelectionScore, WhenScarce
from dapple_dp.schemas.clustered_fl.records import UPDATE_UNIT, FederatedState, ModelShape
from dapple_dp.schemas.errors import InputError, ProtocolError
from dapple_dp.transforms.clustered_fl.rounds import run_stream
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.dense_model import DenseModel
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of
from dapple_dp.transforms.numerics.clustered_fl.round import (
    Phase,
    RoundSums,
    _selected,
    client_step,
    initial_state,
    is_apart,
    phase_of,
    server_step,
    slots_of,
)
from tests.scenes.federation import run_rounds, silo, sum_updates, terms

TRUTH = (0, 0, 1, 1, 1)
ROUNDS = 12
SHAPE = ModelShape(kind=ModelKind.SOFTMAX, n_features=2, n_classes=2)


def _federation(noise=0.1, shape=SHAPE, n_rows=60, **clustering):
    settings = {"n_clusters": 2, "selection_rounds": 2} | clustering
    clients = [silo(f"c{index}", n_rows, noise) for index in range(len(TRUTH))]
    found = terms(shape, clients, {"rounds": ROUNDS}, **settings)
    return dataclasses.replace(found, public_seed=bytes(range(32)))


def _clients(n_rows=60, truth=TRUTH):
    """Two classes apart in the first feature; labels of the second cluster are swapped."""
    random = np.random.default_rng(0)
    rows = []
    for cluster in truth:
        classes = random.integers(2, size=n_rows)
        points = random.normal(scale=0.3, size=(n_rows, 2)) + np.outer(2 * classes - 1, [1.0, 0.0])
        rows.append(bounded_rows(points, (classes + cluster) % 2))
    return rows


def _stream(key=7):
    return KeyStream(bytes([key]) * 32, b"run")


def _accuracy(federation, state, clients=None):
    model = model_of(federation.shape)
    return [
        (model.predictions(state.models[state.assignments[client]], rows.features) == rows.labels).mean()
        for client, rows in enumerate(clients or _clients())
    ]


def _updates(federation, state, key=7):
    return [client_step(federation, state, rows, client, _stream(key)) for client, rows in enumerate(_clients())]


def test_clients_that_select_by_loss_learn():
    federation = _federation(select_by=SelectionScore.LOSS)
    found = run_rounds(federation, _clients(), _stream())
    assert min(_accuracy(federation, found)) > 0.9


def test_the_model_of_least_loss_may_have_fewer_correct_rows():
    rows = bounded_rows(np.zeros((10, 2)), np.repeat([0, 1], [6, 4]))
    sure, unsure = np.zeros(6), np.zeros(6)
    sure[4], unsure[5] = 10.0, 0.1
    for score, chosen in ((SelectionScore.ACCURACY, 0), (SelectionScore.LOSS, 1)):
        federation = _federation(select_by=score)
        state = dataclasses.replace(initial_state(federation), models=np.stack([sure, unsure]))
        certain = dataclasses.replace(federation.silos[0], select_epsilon=np.inf)
        assert _selected(federation, state, rows, certain, _stream()) == chosen


def test_other_terms_have_streams_of_their_own():
    federation = _federation()
    several = dataclasses.replace(federation.training, local_epochs=2)
    others = (dataclasses.replace(federation, training=several), _federation(select_by=SelectionScore.LOSS))
    drawn = [run_stream(bytes(32), each).uint64(1)[0] for each in (federation, _federation(), *others)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_a_client_has_no_more_rows_than_its_model_adds_exactly(monkeypatch):
    federation = _federation()
    client_step(federation, initial_state(federation), _clients()[0], 0, _stream())
    monkeypatch.setattr(DenseModel, "most_rows", property(lambda model: 50))
    with pytest.raises(InputError, match="a client must have at most 50 rows for this model, got more"):
        client_step(federation, initial_state(federation), _clients()[0], 0, _stream())


def test_r_dpcfl_finds_the_clusters():
    federation = _federation()
    state = run_rounds(federation, _clients(), _stream())
    assert len({(a, t) for a, t in zip(state.assignments.tolist(), TRUTH, strict=True)}) == 2
    assert state.separation > 2.0
    assert state.switch_round == ROUNDS // 2
    assert min(_accuracy(federation, state)) > 0.9


def test_phases_of_r_dpcfl():
    federation, state, phases = _federation(), None, []
    for _ in range(ROUNDS):
        phases.append(phase_of(federation, state or initial_state(federation)))
        state = run_rounds(federation, _clients(), _stream(), state, rounds=1)
    assert phases == [Phase.FIRST] + [Phase.ASSIGNED] * 5 + [Phase.SELECT] * 2 + [Phase.ASSIGNED] * 4


def test_the_first_round_keeps_updates_apart_and_the_start():
    federation = _federation()
    state = initial_state(federation)
    assert slots_of(federation, state) == 5
    after = run_rounds(federation, _clients(), _stream(), rounds=1)
    np.testing.assert_array_equal(after.models, np.zeros((2, 6)))
    assert slots_of(federation, after) == 2


def test_no_separation_no_clusters():
    federation = _federation(min_separation=1e9, when_scarce=WhenScarce.ONE_MODEL)
    state = run_rounds(federation, _clients(), _stream(), rounds=1)
    assert state.models.shape == (1, 6)
    assert (state.assignments == 0).all()
    final = run_rounds(federation, _clients(), _stream(), state)
    assert final.round_number == ROUNDS
    assert final.separation == state.separation


def _apart(truth=TRUTH, noise=0.1, **clustering):
    """A federation whose clients begin with models of their own, and rows of clients of these groups."""
    options = {"when_scarce": WhenScarce.APART, "offer_rounds": (3, 9), "selection_rounds": 0} | clustering
    return _federation(noise=noise, **options), _clients(truth=truth)


def _state_after(given, rounds=None, state=None):
    federation, rows = given
    return run_rounds(federation, rows, _stream(), state, rounds)


def test_clients_apart_train_models_of_their_own():
    given = _apart(offer_rounds=())
    state = _state_after(given)
    assert is_apart(given[0], state)
    np.testing.assert_array_equal(state.assignments, np.arange(5))
    assert min(_accuracy(given[0], state)) > 0.9
    assert len(state.offers) == 0


def test_nobody_takes_the_mean_of_opposite_models():
    """It is that of the larger group, whose clients gain nothing on average either."""
    given = _apart()
    asked = _state_after(given, 3)
    np.testing.assert_allclose(asked.offers[0], asked.models.mean(axis=0))
    np.testing.assert_array_equal(asked.offered, np.zeros(5))
    answered = _state_after(given, 1, asked)
    np.testing.assert_array_equal(answered.assignments, np.arange(5))
    assert (len(answered.offers), set(answered.offered)) == (0, {-1})


def test_clients_take_the_models_of_their_clusters():
    given = _apart(noise=1.0)
    asked = _state_after(given, 9)
    np.testing.assert_array_equal(asked.offered[:2], asked.offered[[0, 0]])
    assert asked.offered[0] >= 0
    last = _state_after(given, state=asked)
    assert last.assignments[0] == last.assignments[1]
    assert last.assignments[0] not in last.assignments[2:]
    assert min(_accuracy(given[0], last)) > 0.9


def test_alike_clients_share_one_model():
    given = _apart(truth=(0, 0, 0, 0, 0), noise=4.0)
    state = _state_after(given, 4)
    assert state.models.shape == (1, 6)
    before = _state_after(given, 3)
    sums = sum_updates(
        given[0], before, [client_step(given[0], before, r, c, _stream()) for c, r in enumerate(given[1])]
    )
    np.testing.assert_allclose(state.models[0], (before.models + sums.values * UPDATE_UNIT).mean(axis=0))
    assert _state_after(given, state=state).models.shape == (1, 6)


def test_a_client_of_another_kind_keeps_its_own_model():
    """Whatever the clusters are taken for: its rows decide."""
    given = _apart(truth=(0, 0, 0, 0, 1))
    state = _state_after(given, 3)
    state = dataclasses.replace(state, offers=state.models[:4].mean(axis=0)[None])
    answered = _state_after(given, 1, state)
    assert answered.assignments[4] not in answered.assignments[:4]
    assert min(_accuracy(given[0], answered, given[1])) > 0.9


def test_answers_are_asked_for_in_as_many_rounds_as_are_charged():
    given, state = _apart(), None
    asked = 0
    for number in range(ROUNDS):
        state = _state_after(given, 1, state)
        asked += bool(len(state.offers))
        assert bool(len(state.offers)) is (number + 1 in (3, 9))
    assert asked == len(given[0].clustering.offer_rounds)


def test_clients_without_believed_clusters_are_made_offers_too():
    federation = _federation(min_separation=1e9, offer_rounds=(3, 9))
    state = run_rounds(federation, _clients(), _stream(), rounds=10)
    assert len(state.models) < 5
    assert min(_accuracy(federation, state)) > 0.9


def test_phases_of_clients_apart_have_no_selection():
    federation, state, phases = _federation(min_separation=1e9), None, []
    for _ in range(ROUNDS):
        phases.append(phase_of(federation, state or initial_state(federation)))
        state = run_rounds(federation, _clients(), _stream(), state, rounds=1)
        assert slots_of(federation, state) == 5
    assert phases == [Phase.FIRST] + [Phase.ASSIGNED] * (ROUNDS - 1)


def test_clusters_are_left_in_the_round_that_is_asked_for():
    for asked, left in ((2, 2), (ROUNDS + 7, ROUNDS)):
        federation = _federation(min_separation=0.0, switch_round=asked, selection_rounds=1)
        state = run_rounds(federation, _clients(), _stream(), rounds=1)
        assert state.switch_round == left
        phases = [phase_of(federation, dataclasses.replace(state, round_number=done)) for done in range(ROUNDS)]
        selected = [done + 1 for done, phase in enumerate(phases) if phase is Phase.SELECT]
        assert selected == ([3] if asked == 2 else [])


def test_order_and_grouping_do_not_matter():
    federation = _federation()
    state = run_rounds(federation, _clients(), _stream(), rounds=1)
    updates = _updates(federation, state)
    expected = server_step(federation, state, sum_updates(federation, state, updates)).digest()
    shuffling.Random(1).shuffle(updates)
    merged = sum_updates(federation, state, updates[:2]).merge(sum_updates(federation, state, updates[2:]))
    assert server_step(federation, state, merged).digest() == expected
    zeros = RoundSums.zeros(2, 6, 5)
    for mine, theirs in zip(merged.merge(zeros), merged, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_resumed_run_equals_an_uninterrupted_one():
    federation = _federation()
    whole = run_rounds(federation, _clients(), _stream())
    half = run_rounds(federation, _clients(), _stream(), rounds=5)
    loaded = FederatedState.from_arrays(half.to_arrays())
    assert loaded.digest() == half.digest()
    loaded.check(federation.n_clients, federation.shape.n_parameters)
    assert run_rounds(federation, _clients(), _stream(), loaded).digest() == whole.digest()
    assert run_rounds(federation, _clients(), _stream(8)).digest() != whole.digest()


def test_noise_is_bound_to_rows_and_broadcast():
    federation = _federation(noise=1.0)
    state, rows = initial_state(federation), _clients()[0]
    first = client_step(federation, state, rows, 0, _stream())
    np.testing.assert_array_equal(first.values, client_step(federation, state, rows, 0, _stream()).values)
    # Without rows an update is nothing but noise.
    empty = bounded_rows(np.zeros((0, 2)), np.zeros(0))
    draws = [
        client_step(federation, state, empty, 0, _stream()).values,
        client_step(federation, dataclasses.replace(state, separation=1.0), empty, 0, _stream()).values,
        client_step(federation, state, dataclasses.replace(empty, digest=b"other"), 0, _stream()).values,
        client_step(federation, state, empty, 1, _stream()).values,
    ]
    assert all((one != two).all() for i, one in enumerate(draws) for two in draws[:i])


def test_every_client_sends_once():
    federation = _federation()
    state = initial_state(federation)
    updates = _updates(federation, state)
    for broken in (updates[1:], [*updates, updates[0]]):
        with pytest.raises(ProtocolError, match="every client must send one update per round, got"):
            server_step(federation, state, sum_updates(federation, state, broken))


def test_mean_of_updates():
    federation = _federation()
    state = run_rounds(federation, _clients(), _stream(), rounds=1)
    updates = _updates(federation, state)
    after = server_step(federation, state, sum_updates(federation, state, updates))
    for cluster in (0, 1):
        mean = np.mean([each.values for each in updates if each.cluster == cluster], axis=0) * UPDATE_UNIT
        np.testing.assert_allclose(after.models[cluster], mean, atol=1e-12)


def test_an_empty_cluster_keeps_its_model():
    federation = _federation()
    state = run_rounds(federation, _clients(), _stream(), rounds=1)
    updates = [dataclasses.replace(each, cluster=1, slot=1) for each in _updates(federation, state)]
    after = server_step(federation, state, sum_updates(federation, state, updates))
    np.testing.assert_array_equal(after.models[0], state.models[0])


def test_assignments_are_sampled_by_responsibilities():
    federation = _federation()
    state = run_rounds(federation, _clients(), _stream(), rounds=1)
    state = dataclasses.replace(state, responsibilities=np.full((5, 2), 0.5), switch_round=10**6)
    long = dataclasses.replace(federation, training=dataclasses.replace(federation.training, rounds=10**6))
    drawn = []
    for _ in range(40):
        state = server_step(long, state, sum_updates(long, state, _updates(long, state)))
        drawn.append(state.assignments)
    # 200 fair coins: outside this range once in a million.
    assert 65 < np.sum(drawn) < 135
    certain = dataclasses.replace(state, responsibilities=np.eye(2)[[1, 0, 1, 0, 1]])
    after = server_step(long, certain, sum_updates(long, certain, _updates(long, certain)))
    np.testing.assert_array_equal(after.assignments, [1, 0, 1, 0, 1])


def test_models_with_a_hidden_layer_learn():
    federation = _federation(shape=ModelShape(kind=ModelKind.MLP, n_features=2, n_classes=2, n_hidden=4))
    assert min(_accuracy(federation, run_rounds(federation, _clients(), _stream()))) > 0.9


def test_a_client_without_rows_takes_part():
    federation = _federation()
    rows = [*_clients()[:4], bounded_rows(np.zeros((0, 2)), np.zeros(0))]
    assert run_rounds(federation, rows, _stream()).round_number == ROUNDS
