"""Noise of clients that run DP-SGD: published figures, exact counts of events, refusals."""

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from dapple_dp.schemas.choices import Adjacency
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig, ClusteringConfig, TrainingConfig
from dapple_dp.schemas.clustered_fl.plan import SiloEvent
from dapple_dp.schemas.errors import ConfigError, UnsupportedEventError
from dapple_dp.schemas.settings import rejection
from dapple_dp.transforms.clustered_fl import silo_accounting
from dapple_dp.transforms.clustered_fl.silo_accounting import selection_rounds, silo_epsilon, silo_events, silo_plan
from tests.scenes import federation
from tests.scenes.silos import clustering_params, silo_budget, training_params

ORDERS = (*(1.0 + x / 10.0 for x in range(1, 100)), *(float(x) for x in range(12, 64)))


def published_epsilon(events, budget):
    """That of the paper's code: orders and conversion of Mironov (2017), Proposition 3, for the same divergences."""
    accountant = RdpAccountant(ORDERS, NeighboringRelation.ADD_OR_REMOVE_ONE)
    silo_accounting._compose(accountant, events, silo_accounting._zero_concentrated)
    return float(np.min(np.asarray(accountant._rdp) - np.log(budget.delta) / (np.array(ORDERS) - 1.0)))


# Published to four digits by a search that stops within about a thousandth.
@pytest.mark.parametrize(
    ("n_rows", "epsilon", "published"),
    [
        (6600, 5.0, 1.4454),
        (6600, 2.0, 3.2064),
        (6600, 10.0, 0.9013),
        (8000, 3.0, 2.1210),
        (8000, 15.0, 0.7128),
    ],
)
def test_published_noise(n_rows, epsilon, published):
    budget = silo_budget(epsilon)

    def spent_at(noise):
        return published_epsilon(silo_events(n_rows, training_params(), clustering_params(), budget, noise), budget)

    noise, spent = silo_accounting._search(spent_at, epsilon)
    assert noise == pytest.approx(published, rel=1.5e-3)
    assert spent <= epsilon


def test_events_are_counted():
    training = training_params(rounds=40, batch_size=300, local_epochs=2)
    budget = silo_budget(4.0, first_round_noise_ratio=2.0)
    assert silo_events(1000, training, clustering_params(selections=4), budget, 1.5) == (
        SiloEvent(name="first_round_steps", count=2, noise_multiplier=3.0),
        SiloEvent(name="steps", count=2 * 39 * 4, noise_multiplier=1.5, sampling_rate=0.3),
        SiloEvent(name="selections", count=4, select_epsilon=0.12),
    )


def test_batches_as_large_as_the_client_are_not_sampled():
    (_, later) = silo_events(100, training_params(batch_size=100), clustering_params(), silo_budget(), 1.0)
    assert (later.sampling_rate, later.count) == (1.0, 199)


def test_a_dump_holds_every_setting_and_is_the_same_section_again():
    assert ClusteringConfig().model_dump().keys() == ClusteringConfig.model_fields.keys()
    given = ClusteringConfig(min_separation=0.0, switch_round=3, selection_share=0.2, select_by="loss")
    assert ClusteringConfig.model_validate(given.model_dump()) == given
    training = rejection.check_config(ClusteredFLConfig, federation.job("lake", training__local_epochs=5)).training
    assert TrainingConfig.model_validate(training.model_dump()) == training


def test_noise_of_the_first_round_stays_below_the_largest():
    few, many = (silo_budget(epsilon=0.2, first_round_noise_ratio=ratio) for ratio in (100.0, 900.0))
    with pytest.raises(ConfigError, match="noise multipliers must be at most 8192"):
        silo_plan(1000, training_params(), clustering_params(), many)
    assert silo_plan(1000, training_params(), clustering_params(), few).first_round_multiplier < 8192


def test_clusters_are_left_in_a_round_that_there_is():
    job = federation.job("lake", training__rounds=4) | {"clustering": {"switch_round": 5}}
    with pytest.raises(ConfigError, match=r"clustering.switch_round must be at most training.rounds = 4, got 5"):
        rejection.check_config(ClusteredFLConfig, job)


@pytest.mark.parametrize(("share", "expected"), [(0.1, 20), (0.05, 10), (0.001, 1), (1.0, 200)])
def test_every_round_with_a_selection_is_charged(share, expected):
    assert selection_rounds(200, share) == expected


def test_selections_are_concentrated():
    events = (SiloEvent(name="selections", count=8, select_epsilon=0.5),)
    alone = published_epsilon(events, silo_budget())
    # rho = 8 * 0.25 / 8; the smallest over all orders is rho + 2 sqrt(rho log(1 / delta)), the grid's is a little more.
    assert alone == pytest.approx(0.25 + 2.0 * (0.25 * 9.2103) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_every_selection_counts_in_distributions(adjacency):
    def spent(count):
        events = (SiloEvent(name="selections", count=count, select_epsilon=0.5),)
        return silo_epsilon(events, silo_budget(accountant="pld", adjacency=adjacency))

    single = 0.25 if adjacency is Adjacency.ADD_REMOVE else 0.5
    assert spent(1) == pytest.approx(single, rel=2e-3)
    assert spent(4) == pytest.approx(4 * single, rel=2e-3)


def test_smaller_first_batches_are_accounted_as_samples():
    events = silo_events(1000, training_params(first_batch_size=250), clustering_params(), silo_budget(), 1.0)
    assert (events[0].count, events[0].sampling_rate) == (4, 0.25)


def test_replace_one_needs_distributions():
    with pytest.raises(UnsupportedEventError, match="accountant must be pld for adjacency replace_one, got"):
        silo_plan(
            1000,
            training_params(),
            clustering_params(),
            silo_budget(adjacency=Adjacency.REPLACE_ONE),
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0, got 0.0"),
        ({"delta": 1e-3}, "delta must be above 0 and below 1 / 1000, .* got 0.001"),
        ({"first_round_noise_ratio": 1e5}, "noise multipliers must be at most 8192, got"),
        ({"select_share": 0.0}, "select_share and choice_share must be > 0, got 1.0, 0.0 and 0.05"),
        ({"select_share": 0.9}, "epsilon is 5, which is too little for training"),
    ],
)
def test_bad_budgets(changes, message):
    with pytest.raises(ConfigError, match=message):
        silo_plan(
            1000,
            training_params(40, 50),
            clustering_params(selections=40),
            silo_budget(**changes),
        )


def test_a_tenth_of_the_rounds_selects():
    assert [selection_rounds(rounds) for rounds in (1, 10, 40, 41)] == [1, 1, 4, 5]


def test_a_plan_names_every_event():
    plan = silo_plan(1000, training_params(40, 50), clustering_params(selections=4), silo_budget(4.0, "rdp"))
    assert [event.name for event in plan.events] == ["first_round_steps", "steps", "selections"]
    assert plan.adjacency == "add_remove"


def test_a_replaced_row_moves_sums_twice_as_far():
    def spent(adjacency, multiplier):
        events = (SiloEvent(name="first_round_steps", count=3, noise_multiplier=multiplier),)
        return silo_epsilon(events, silo_budget(accountant="pld", adjacency=adjacency))

    assert spent(Adjacency.REPLACE_ONE, 4.0) == pytest.approx(spent(Adjacency.ADD_REMOVE, 2.0), rel=1e-3)
