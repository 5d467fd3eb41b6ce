"""Answers of clients to offers, who takes one, and their cost."""

import dataclasses

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dapple_dp.schemas.choices import Adjacency, ModelKind, SiloAccountant, WhenScarce
from dapple_dp.schemas.clustered_fl.plan import SiloBudget
from dapple_dp.schemas.clustered_fl.records import ClusteringParams, ModelShape, TrainingParams
from dapple_dp.transforms.clustered_fl.scarce_rows import begin
from dapple_dp.transforms.clustered_fl.silo_accounting import silo_epsilon, silo_events, silo_plan
from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows
from dapple_dp.transforms.numerics.clustered_fl.choices import answer, offer_rounds, takers
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of
from dapple_dp.transforms.numerics.clustered_fl.update_clusters import own_clusters

SHAPE = ModelShape(kind=ModelKind.SOFTMAX, n_features=4, n_classes=3)
MODEL = model_of(SHAPE)
TRAINING = TrainingParams(rounds=12, local_epochs=1, batch_size=20, learning_rate=0.5, clipping_norm=1.0)
BUDGET = SiloBudget(epsilon=2.0, delta=1e-4, adjacency=Adjacency.ADD_REMOVE, accountant=SiloAccountant.RDP)
R_DPCFL = ClusteringParams(n_clusters=3, when_scarce=WhenScarce.APART)


def _stream(*label):
    return KeyStream(bytes(32), encode_label("offers", *label))


def _case(seed, n_rows):
    random = np.random.default_rng(seed)
    rows, labels = random.normal(size=(n_rows, 4)), random.integers(3, size=n_rows)
    return rows, labels, random.normal(size=(2, SHAPE.n_parameters))


def _gain(rows, labels, models):
    return answer(MODEL, models[0], models[1], bounded_rows(rows, labels), 0.0, _stream())


def test_models_are_offered_after_a_quarter_and_three_quarters_of_the_rounds():
    found = {rounds: offer_rounds(rounds) for rounds in (1, 2, 3, 4, 40)}
    assert found == {1: (), 2: (1,), 3: (1,), 4: (1, 3), 40: (10, 30)}


@given(seed=st.integers(0, 2**32), n_rows=st.integers(1, 700))
@settings(max_examples=60, deadline=None)
def test_a_row_moves_an_answer_by_what_is_charged(seed, n_rows):
    rows, labels, models = _case(seed, n_rows)
    place, whole = seed % n_rows, _gain(rows, labels, models)
    fewer = _gain(np.delete(rows, place, axis=0), np.delete(labels, place), models)
    assert abs(whole - fewer) <= 1
    labels[place] = (labels[place] + 1) % 3
    assert abs(_gain(rows, labels, models) - whole) <= 2


def test_a_replaced_row_can_move_an_answer_by_two():
    models = np.zeros((2, SHAPE.n_parameters))
    models[0, -3], models[1, -2] = 1.0, 1.0
    rows = np.zeros((1, 4))
    assert _gain(rows, np.array([1]), models) - _gain(rows, np.array([0]), models) == 2


def test_law_of_answers():
    rows, labels, models = _case(1, 300)
    bounded, exact = bounded_rows(rows, labels), _gain(rows, labels, models)
    drawn = np.array([answer(MODEL, *models, bounded, 20.0, _stream(trial)) for trial in range(4000)])
    assert stats.kstest((drawn - exact) / 20.0, "norm").pvalue > 1e-3
    assert stats.kstest((drawn - exact) / 17.0, "norm").pvalue < 1e-3
    assert drawn.dtype == np.int64


def test_alike_clients_decide_together():
    """One answer of eight is negative by noise."""
    answers = np.array([12, 9, -3, 15, 11, 8, 14, 10])
    assert takers(answers, np.full(8, 100), np.full(8, 9.0)).all()
    assert not takers(-answers, np.full(8, 100), np.full(8, 9.0)).any()


def test_a_client_that_would_lose_decides_alone():
    answers = np.array([12, 9, -60, 15, 11, 8, 14, 10])
    np.testing.assert_array_equal(takers(answers, np.full(8, 100), np.full(8, 9.0)), answers >= 0)


def test_nobody_takes_one_model_for_all_unless_clients_gain_on_average():
    answers, equal = np.array([-20, -25, 40, -18, -30, -22, -19, -24]), np.full(8, 100)
    np.testing.assert_array_equal(takers(answers, equal, np.full(8, 9.0)), answers > 0)
    assert not takers(answers, equal, np.full(8, 9.0), one_group=True).any()
    taken = takers(np.array([12, 9, -60, 15, 11, 8, 14, 10]), equal, np.full(8, 9.0), one_group=True)
    assert taken.sum() == 7


@pytest.mark.parametrize("stddev", [0.0, 9.0])
def test_a_single_client_decides_by_its_own_answer(stddev):
    for gain in (-1, 0, 1):
        np.testing.assert_array_equal(takers(np.array([gain]), np.array([10]), np.array([stddev])), [gain >= 0])


def test_without_noise_everybody_decides_alone():
    np.testing.assert_array_equal(takers(np.array([1, -2, 30]), np.full(3, 50), np.zeros(3)), [True, False, True])
    assert takers(np.array([3, 3, 3]), np.full(3, 50), np.zeros(3)).all()


def test_large_clients_weigh_more():
    """Their answers, as shares of their rows, are surer."""
    answers, n_rows = np.array([30, -3, -3, -3]), np.array([1000, 20, 20, 20])
    assert takers(answers, n_rows, np.full(4, 9.0)).all()


def test_few_clients_are_distinguished_by_their_models():
    random, truth = np.random.default_rng(0), np.repeat([0, 1, 2, 3], 3)
    models = np.eye(4, 60)[truth] * 3.0 + random.normal(scale=0.3, size=(12, 60))
    for search in (False, True):
        labels, separation = own_clusters(models, 4, _stream(), search=search)
        assert len(set(zip(labels.tolist(), truth.tolist(), strict=True))) == 4
        assert separation > 2.0


def test_choices_are_charged_as_gaussian_releases():
    terms = dataclasses.replace(R_DPCFL, offer_rounds=(3, 9))
    plan = silo_plan(200, TRAINING, terms, BUDGET)
    named = {event.name: event for event in plan.events}
    assert (named["choices"].count, named["choices"].sampling_rate) == (2, 1.0)
    alone = RdpAccountant()
    alone.compose(dp_event.GaussianDpEvent(plan.choice_multiplier * np.sqrt(BUDGET.choice_share)))
    assert alone.get_epsilon(BUDGET.delta) == pytest.approx(BUDGET.epsilon, rel=1e-3)
    whole = RdpAccountant()
    for event in plan.events:
        step = dp_event.GaussianDpEvent(event.noise_multiplier)
        sampled = dp_event.PoissonSampledDpEvent(event.sampling_rate, step)
        whole.compose(dp_event.SelfComposedDpEvent(sampled, event.count))
    assert plan.epsilon == pytest.approx(whole.get_epsilon(BUDGET.delta), rel=1e-6)
    assert plan.epsilon <= BUDGET.epsilon
    assert silo_epsilon(plan.events[:-1], BUDGET) < plan.epsilon


def test_the_account_knows_that_a_replaced_row_moves_an_answer_twice_as_far():
    """The noise is that of a release of sensitivity 2, whichever of two accounts says so."""
    replacing = dataclasses.replace(BUDGET, adjacency=Adjacency.REPLACE_ONE, accountant=SiloAccountant.PLD)
    terms = dataclasses.replace(R_DPCFL, offer_rounds=(3, 9))
    stddev = silo_plan(200, TRAINING, terms, replacing).choice_multiplier
    same = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    same.compose(dp_event.GaussianDpEvent(stddev * np.sqrt(BUDGET.choice_share) / 2.0))
    assert same.get_epsilon(BUDGET.delta) == pytest.approx(BUDGET.epsilon, rel=1e-2)


@pytest.mark.parametrize(("rounds", "count"), [(3, 0), (4, 1), (9, 1), (10, 2), (12, 2)])
def test_the_first_rounds_are_charged_the_answers_that_they_have(rounds, count):
    terms = dataclasses.replace(R_DPCFL, offer_rounds=(3, 9))
    events = silo_events(200, dataclasses.replace(TRAINING, rounds=rounds), terms, BUDGET, 1.0)
    assert sum(event.count for event in events if event.name == "choices") == count


@pytest.mark.parametrize(
    ("changes", "offers", "selections"),
    [
        ({}, (3, 9), 0),
        ({"when_scarce": WhenScarce.CLUSTER}, (3, 9), 2),
        ({"when_scarce": WhenScarce.CLUSTER, "min_separation": 0.0}, (), 2),
        ({"when_scarce": WhenScarce.ONE_MODEL}, (), 2),
        ({"when_scarce": WhenScarce.APART, "min_separation": 0.0}, (3, 9), 0),
    ],
)
def test_clients_that_may_have_models_of_their_own_get_offers(changes, offers, selections):
    asked = dataclasses.replace(R_DPCFL, selection_rounds=2, **changes)
    found = begin(TRAINING, asked, BUDGET, [200] * 6, SHAPE.n_parameters, bytes(32)).clustering
    assert (found.offer_rounds, found.selection_rounds) == (offers, selections)
