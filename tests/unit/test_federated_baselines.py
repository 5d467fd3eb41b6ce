"""What R-DPCFL is compared with, which benchmarks have: what each trains, its noise, views, and released models."""

import numpy as np
import pytest

from benchmarks.papers import federated_baselines as baselines
from dapple_dp.transforms.clustered_fl import silo_accounting
from dapple_dp.transforms.numerics.clustered_fl.dp_sgd import model_of
from tests.scenes.federation import run_rounds
from tests.scenes.silos import silo_budget, training_params
from tests.unit.clustered_fl.test_federated_rounds import TRUTH, _clients, _federation, _stream
from tests.unit.clustered_fl.test_silo_accounting import published_epsilon
from tests.unit.clustered_fl.test_update_clusters import _updates


def baseline(algorithm, **changes):
    """Public terms of two clusters whose labels are opposite."""
    of = _federation()
    public = {name: getattr(of, name) for name in ("shape", "training", "silos", "public_seed", "clustering")}
    return baselines.Baseline(**public, algorithm=algorithm, truth=TRUTH, **changes)


def trained(algorithm, **changes):
    return baselines.run_rounds(baseline(algorithm, **changes), _clients(), _stream())


def accuracy(state):
    model = model_of(baseline("global").shape)
    found = zip(state.assignments, _clients(), strict=True)
    return [(model.predictions(state.models[own], rows.features) == rows.labels).mean() for own, rows in found]


@pytest.mark.parametrize("algorithm", ["oracle", "local", "ifca", "mr_mtl"])
def test_clients_with_known_clusters_learn(algorithm):
    assert min(accuracy(trained(algorithm))) > 0.9


def test_one_model_cannot_serve_opposite_clients():
    state = trained("global")
    assert state.models.shape == (1, 6)
    assert min(accuracy(state)) < 0.5


def test_models_of_ifca_start_alike_or_apart():
    alike, apart = (baselines.initial_state(baseline("ifca", random=random)).models for random in (False, True))
    np.testing.assert_array_equal(alike[0], alike[1])
    assert (apart[0] != apart[1]).any()


def test_clients_of_ifca_keep_the_model_that_they_selected_last():
    federation = baseline("ifca", random=True)
    early = baselines.run_rounds(federation, _clients(), _stream(), rounds=2)
    late = baselines.run_rounds(federation, _clients(), _stream(), early)
    np.testing.assert_array_equal(early.assignments, late.assignments)


def test_strong_pulls_make_models_alike_and_none_is_local():
    spreads = [trained("mr_mtl", pull=pull).models.std(axis=0).max() for pull in (0.0, 0.5)]
    assert spreads[1] < 0.5 * spreads[0]
    np.testing.assert_array_equal(trained("mr_mtl").models, trained("local").models)


def test_noise_of_baselines_is_what_the_paper_prints():
    budget = silo_budget(5.0)

    def spent_at(noise):
        return published_epsilon(baselines.events(6600, training_params(), 0, budget, noise), budget)

    assert silo_accounting._search(spent_at, 5.0)[0] == pytest.approx(1.1655, rel=1.5e-3)


def test_selections_take_a_part_of_the_budget():
    without, with_them = (baselines.multiplier(1000, training_params(), count, silo_budget()) for count in (0, 4))
    assert without < with_them < 1.2 * without


@pytest.mark.parametrize(("view", "width"), [("pca", 3), ("two_pc", 2), ("two_pc_scaled", 2), ("raw", 500)])
def test_views_have_a_mean_variance_of_one(view, width):
    points = baselines.project(_updates(100.0), 4, view)
    assert points.shape == (21, width)
    np.testing.assert_allclose([points.mean(), (points**2).mean()], [0.0, 1.0], atol=1e-9)
    ranges = np.ptp(points, axis=0)
    assert view != "two_pc_scaled" or ranges[0] == pytest.approx(ranges[1])
    assert not baselines.project(np.ones((5, 8)), 3, view).any()


def test_first_clusters_are_those_of_the_rounds():
    federation = _federation(min_separation=0.0)
    mixture = baselines.first_clusters(federation, _clients(), _stream(), "pca")
    state = run_rounds(federation, _clients(), _stream(), rounds=1)
    assert mixture.separation == state.separation
    np.testing.assert_array_equal(mixture.responsibilities.argmax(axis=1), state.responsibilities.argmax(axis=1))


@pytest.mark.parametrize(
    ("algorithm", "changes", "total"),
    [
        ("oracle", {}, 7.6059526921017095),
        ("global", {}, 0.8154816387221216),
        ("local", {}, 19.502464592456818),
        ("ifca", {}, 7.531068494892679),
        ("mr_mtl", {"pull": 0.05}, 14.026677943998948),
    ],
)
def test_models_are_those_of_the_jobs_that_dapple_had(algorithm, changes, total):
    """When these were algorithms of `clustered_fl`, they trained the same models under the same key."""
    assert np.abs(trained(algorithm, **changes).models).sum() == pytest.approx(total, rel=1e-13)
