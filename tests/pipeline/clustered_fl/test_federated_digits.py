"""R-DPCFL on digits: the whole protocol with its calibrated noise, in one process."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.papers.dp_clustered_fl import METHODS, SMALL, federation_of, run
from benchmarks.papers.federated_clients import SHIFTS, clients, load
from dapple_dp.schemas.choices import WhenScarce
from dapple_dp.transforms.core.keystream import KeyStream
from tests.scenes.federation import run_rounds

DIGITS = Path(__file__).parents[2] / "data" / "mnist_14.npz"


@pytest.fixture(autouse=True)
def _one_thread():
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="module")
def images():
    return load(DIGITS, 14)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_first_round_finds_the_clusters(images, shift, epsilon):
    data = clients(images, shift, 1000, seed=0)
    outcome = run(federation_of(METHODS["R-DPCFL"], SMALL, data, epsilon, seed=0), data, seed=0, rounds=1)
    assert outcome.first
    assert outcome.separation > 3.5


@pytest.mark.slow
def test_accuracy(images):
    data = clients(images, "rotation", 1000, seed=1)
    found = {
        name: run(federation_of(METHODS[name], SMALL, data, 4.0, seed=1), data, seed=1)
        for name in ("oracle", "R-DPCFL", "Local", "Global")
    }
    assert found["R-DPCFL"].last
    accuracy = {name: outcome.accuracy for name, outcome in found.items()}
    assert accuracy["R-DPCFL"] > accuracy["oracle"] - 2.0
    assert accuracy["R-DPCFL"] > accuracy["Local"] + 2.0
    assert accuracy["R-DPCFL"] > accuracy["Global"] + 10.0


def test_number_of_clusters_is_found(images):
    data = clients(images, "label flip", 1000, seed=2)
    federation = federation_of(METHODS["R-DPCFL"], SMALL, data, 4.0, seed=2, search=True)
    state = run_rounds(federation, data.rows, KeyStream(bytes(32), b""), rounds=1)
    assert state.models.shape == (4, 1970)


def test_too_much_noise_means_one_model(images):
    data = clients(images, "rotation", 100, seed=3)
    federation = federation_of(METHODS["R-DPCFL"], SMALL, data, 0.1, seed=3)
    guarded = dataclasses.replace(federation.clustering, min_separation=2.0, when_scarce=WhenScarce.ONE_MODEL)
    state = run_rounds(
        dataclasses.replace(federation, clustering=guarded), data.rows, KeyStream(bytes(32), b""), rounds=1
    )
    assert state.separation < 2.0
    np.testing.assert_array_equal(state.assignments, np.zeros(21))
