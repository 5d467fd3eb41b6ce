"""Public numbers decide how R-DPCFL begins, and the simulation has the law of the updates it stands for."""

import dataclasses

import numpy as np
import pytest

from dapple_dp.schemas.choices import Adjacency, SiloAccountant, WhenScarce
from dapple_dp.schemas.clustered_fl.config import ClusteringConfig
from dapple_dp.schemas.clustered_fl.plan import SiloBudget
from dapple_dp.schemas.clustered_fl.records import ClusteringParams, TrainingParams
from dapple_dp.transforms.clustered_fl.scarce_rows import begin, first_noise
from dapple_dp.transforms.clustered_fl.silo_accounting import silo_plan
from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.foresight import ASSUMED_DISTANCE, foresee, stand_ins

TRAINING = TrainingParams(rounds=20, local_epochs=1, batch_size=50, learning_rate=0.4, clipping_norm=1.0)
STREAM = KeyStream(bytes(32), b"foresight")


def _clustering(**changes):
    return ClusteringParams(
        **{
            "n_clusters": 4,
            "when_scarce": WhenScarce.AUTO,
        }
        | changes
    )


def _budget(epsilon, **changes):
    settings = {
        "epsilon": epsilon,
        "delta": 1e-4,
        "adjacency": Adjacency.ADD_REMOVE,
        "accountant": SiloAccountant.RDP,
    } | changes
    return SiloBudget(**settings)


def _begin(epsilon, n_rows=300, training=TRAINING, ratio=1.0, **changes):
    budget = _budget(epsilon, first_round_noise_ratio=ratio)
    return begin(training, _clustering(**changes), budget, (n_rows,) * 20, 1970, bytes(32))


def test_scarce_rows_begin_apart_and_many_rows_with_a_full_batch():
    scarce, many = _begin(0.5), _begin(8.0)
    assert scarce.clustering.when_scarce is WhenScarce.APART
    assert scarce.training.first_batch_size == TRAINING.batch_size
    assert many.clustering.when_scarce is WhenScarce.CLUSTER
    assert many.training == TRAINING
    assert scarce.foresight.share < 0.3 < 0.9 < many.foresight.share
    assert scarce.foresight.separation < 2.0 < many.foresight.separation
    assert scarce == _begin(0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"training": dataclasses.replace(TRAINING, first_batch_size=100)},
        {"ratio": 2.0},
        {"min_separation": 0.0},
        {"when_scarce": WhenScarce.CLUSTER},
        {"when_scarce": WhenScarce.ONE_MODEL},
    ],
)
def test_what_a_job_says_of_the_first_round_is_done(settings):
    found = _begin(0.5, **settings)
    assert found.foresight is None
    assert found.training == settings.get("training", TRAINING)
    asked = settings.get("when_scarce", WhenScarce.CLUSTER)
    assert found.clustering.when_scarce is asked
    assert found.to_json() == {"when_scarce": str(asked), "decided_by": "the job"}


def test_apart_can_be_asked_for():
    found = _begin(8.0, when_scarce=WhenScarce.APART)
    assert found.training.first_batch_size == TRAINING.batch_size
    assert found.foresight is None


def test_noise_of_the_first_gradient():
    clustering, budget = _clustering(when_scarce=WhenScarce.CLUSTER), _budget(1.0)
    multiplier = silo_plan(300, TRAINING, clustering, budget).first_round_multiplier
    assert first_noise(300, TRAINING, clustering, budget) == pytest.approx(multiplier / 300)
    sampled = dataclasses.replace(TRAINING, first_batch_size=50)
    multiplier = silo_plan(300, sampled, clustering, budget).first_round_multiplier
    # Six batches of 50 make an epoch of 300.
    assert first_noise(300, sampled, clustering, budget) == pytest.approx(multiplier / (50 * np.sqrt(6)))


@pytest.mark.parametrize("n_parameters", [5, 2000])
def test_products_of_stand_ins_are_those_of_noisy_updates(n_parameters):
    random, truth, noise = np.random.default_rng(0), np.array([0, 0, 1, 1]), np.array([0.5, 1.0, 0.5, 2.0])
    means = np.zeros((2, n_parameters))
    means[:, :2] = np.eye(2) * ASSUMED_DISTANCE / np.sqrt(2.0)
    grams = {"stand-ins": [], "updates": []}
    for _ in range(2000):
        found = stand_ins(noise, truth, n_parameters, random)
        updates = means[truth] + noise[:, None] * random.normal(size=(4, n_parameters))
        assert found.shape[1] == min(n_parameters, 6)
        grams["stand-ins"].append(found @ found.T)
        grams["updates"].append(updates @ updates.T)
    first, second = (np.array(each) for each in grams.values())
    spread = second.std(axis=0) / np.sqrt(2000)
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) < 6 * np.sqrt(2) * spread).all()
    np.testing.assert_allclose(first.std(axis=0), second.std(axis=0), rtol=0.2)


def test_few_clients_are_foreseen():
    assert foresee(np.full(3, 1e-3), 10, _clustering(n_clusters=5), STREAM).separation > 0.0
    assert np.isinf(foresee(np.ones(1), 10, _clustering(), STREAM).separation)


def test_clients_with_few_rows_are_looked_at_by_default():
    assert ClusteringConfig().when_scarce is WhenScarce.AUTO
    assert ClusteringConfig(when_scarce="apart").model_dump()["when_scarce"] == "apart"
