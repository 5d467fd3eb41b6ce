"""Noise of clients that run DP-SGD: published figures, exact counts of events, refusals."""

import pytest

from schemas.choices import Adjacency, FederatedAlgorithm, SiloAccountant
from schemas.errors import ConfigError, UnsupportedEventError
from schemas.federated import ClusteringParams, TrainingParams
from schemas.silo_plan import SiloBudget, SiloEvent
from transforms.silo_accounting import selection_rounds, silo_epsilon, silo_events, silo_plan


def _training(rounds=200, batch_size=32, **changes):
    settings = {"local_epochs": 1, "learning_rate": 0.4, "clipping_norm": 1.0} | changes
    return TrainingParams(rounds=rounds, batch_size=batch_size, **settings)


def _clustering(algorithm="r_dpcfl", selections=0):
    return ClusteringParams(algorithm=FederatedAlgorithm(algorithm), n_clusters=4, selection_rounds=selections)


def _budget(epsilon=5.0, accountant="paper_code", **changes):
    settings = {"delta": 1e-4, "adjacency": Adjacency.ADD_REMOVE} | changes
    return SiloBudget(epsilon=epsilon, accountant=SiloAccountant(accountant), **settings)


# Published to four digits by a search that stops within about a thousandth.
@pytest.mark.parametrize(
    ("n_rows", "epsilon", "algorithm", "published"),
    [
        (6600, 5.0, "r_dpcfl", 1.4454),
        (6600, 2.0, "r_dpcfl", 3.2064),
        (6600, 10.0, "r_dpcfl", 0.9013),
        (8000, 3.0, "r_dpcfl", 2.1210),
        (8000, 15.0, "r_dpcfl", 0.7128),
        (6600, 5.0, "global", 1.1655),
    ],
)
def test_published_noise(n_rows, epsilon, algorithm, published):
    plan = silo_plan(n_rows, _training(), _clustering(algorithm), _budget(epsilon))
    assert plan.noise_multiplier == pytest.approx(published, rel=1.5e-3)
    assert plan.epsilon <= epsilon


def test_modern_accountants_need_less_noise():
    plans = {name: silo_plan(6600, _training(), _clustering(), _budget(accountant=name)) for name in ("rdp", "pld")}
    assert plans["rdp"].noise_multiplier == pytest.approx(1.311, abs=1e-3)
    assert plans["pld"].noise_multiplier == pytest.approx(1.231, abs=2e-3)


def test_replacing_a_row_needs_more_noise():
    training = _training(rounds=40, batch_size=50)
    added, replaced = (
        silo_plan(1000, training, _clustering(), _budget(10.0, "pld", adjacency=adjacency)).noise_multiplier
        for adjacency in Adjacency
    )
    assert 1.5 < replaced / added < 2.0


def test_events_are_counted():
    training = _training(rounds=40, batch_size=300, local_epochs=2)
    budget = _budget(4.0, first_round_noise_ratio=2.0)
    assert silo_events(1000, training, _clustering(selections=4), budget, 1.5) == (
        SiloEvent(name="first_round_steps", count=2, noise_multiplier=3.0),
        SiloEvent(name="steps", count=2 * 39 * 4, noise_multiplier=1.5, sampling_rate=0.3),
        SiloEvent(name="selections", count=4, select_epsilon=0.12),
    )
    (steps,) = silo_events(1000, training, _clustering("local"), budget, 1.5)
    assert steps.count == 2 * 40 * 4


def test_batches_as_large_as_the_client_are_not_sampled():
    (_, later) = silo_events(100, _training(batch_size=100), _clustering(), _budget(), 1.0)
    assert (later.sampling_rate, later.count) == (1.0, 199)


def test_selections_are_concentrated():
    events = (SiloEvent(name="selections", count=8, select_epsilon=0.5),)
    alone = silo_epsilon(events, _budget(accountant="paper_code"))
    # rho = 8 * 0.25 / 8; the smallest over all orders is rho + 2 sqrt(rho log(1 / delta)), the grid's is a little more.
    assert alone == pytest.approx(0.25 + 2.0 * (0.25 * 9.2103) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_every_selection_counts_in_distributions(adjacency):
    def spent(count):
        events = (SiloEvent(name="selections", count=count, select_epsilon=0.5),)
        return silo_epsilon(events, _budget(accountant="pld", adjacency=adjacency))

    single = 0.25 if adjacency is Adjacency.ADD_REMOVE else 0.5
    assert spent(1) == pytest.approx(single, rel=2e-3)
    assert spent(4) == pytest.approx(4 * single, rel=2e-3)


def test_noise_of_the_first_round_buys_noise_of_the_others():
    plans = [
        silo_plan(1000, _training(40, 50), _clustering(), _budget(4.0, "rdp", first_round_noise_ratio=ratio))
        for ratio in (1.0, 2.0)
    ]
    assert plans[1].noise_multiplier < plans[0].noise_multiplier
    assert plans[1].first_round_multiplier == 2.0 * plans[1].noise_multiplier > plans[0].first_round_multiplier


def test_smaller_first_batches_are_accounted_as_samples():
    events = silo_events(1000, _training(first_batch_size=250), _clustering(), _budget(), 1.0)
    assert (events[0].count, events[0].sampling_rate) == (4, 0.25)


@pytest.mark.parametrize("accountant", ["rdp", "paper_code"])
def test_replace_one_needs_distributions(accountant):
    with pytest.raises(UnsupportedEventError, match="accountant must be pld for adjacency replace_one, got"):
        silo_plan(1000, _training(), _clustering(), _budget(accountant=accountant, adjacency=Adjacency.REPLACE_ONE))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0, got 0.0"),
        ({"delta": 1e-3}, "delta must be positive and below 1 / 1000, .* got 0.001"),
        ({"select_share": 0.0}, "first_round_noise_ratio and select_share must be > 0, got 1.0 and 0.0"),
        ({"select_share": 0.9}, "epsilon must leave some for training beside the selections, got 5"),
    ],
)
def test_bad_budgets(changes, message):
    with pytest.raises(ConfigError, match=message):
        silo_plan(1000, _training(40, 50), _clustering(selections=40), _budget(**({"accountant": "rdp"} | changes)))


def test_a_tenth_of_the_rounds_selects():
    assert [selection_rounds(FederatedAlgorithm.IFCA, rounds) for rounds in (1, 10, 40, 41)] == [1, 1, 4, 5]
    assert selection_rounds(FederatedAlgorithm.LOCAL, 40) == 0


def test_json_names_every_event():
    content = silo_plan(1000, _training(40, 50), _clustering(selections=4), _budget(4.0, "rdp")).to_json()
    assert [event["name"] for event in content["events"]] == ["first_round_steps", "steps", "selections"]
    assert content["adjacency"] == "add_remove"


def test_a_replaced_row_moves_sums_twice_as_far():
    def spent(adjacency, multiplier):
        events = (SiloEvent(name="first_round_steps", count=3, noise_multiplier=multiplier),)
        return silo_epsilon(events, _budget(accountant="pld", adjacency=adjacency))

    assert spent(Adjacency.REPLACE_ONE, 4.0) == pytest.approx(spent(Adjacency.ADD_REMOVE, 2.0), rel=1e-3)
