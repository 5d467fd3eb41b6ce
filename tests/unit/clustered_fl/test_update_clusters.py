"""Clusters of updates: projections, mixtures, separation, and what follows from it."""

import math

import numpy as np
import pytest

from dapple_dp.transforms.core.keystream import KeyStream
from dapple_dp.transforms.numerics.clustered_fl.update_clusters import (
    Mixture,
    cluster_updates,
    fit_mixture,
    overlap,
    project,
    switch_round,
)

TRUTH = np.repeat([0, 1, 2, 3], [3, 6, 6, 6])


def _stream():
    return KeyStream(bytes(32), b"public")


def _updates(distance, n_parameters=500, seed=0):
    """Clients around four orthogonal directions, noise of stddev 1 per coordinate."""
    random = np.random.default_rng(seed)
    return distance * np.eye(n_parameters)[TRUTH] + random.normal(size=(len(TRUTH), n_parameters))


def _true(mixture):
    labels = mixture.responsibilities.argmax(axis=1)
    return len(set(zip(labels.tolist(), TRUTH.tolist(), strict=True))) == 4 == len(set(labels.tolist()))


def test_separation_by_hand():
    means = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 20.0]])
    mixture = Mixture(np.eye(3), means, np.array([1.0, 4.0, 0.25]), np.full(3, 1 / 3), 0.0, 1)
    assert mixture.separation == 5.0 / (2.0 * 2.0)


def test_overlap_and_switch_round():
    # Q(1.959964) = 0.025.
    assert overlap(1.959964) == pytest.approx(0.05, abs=1e-7)
    assert overlap(0.0) == 1.0
    assert switch_round(1.959964, 40) == 19
    assert switch_round(30.0, 40) == 20
    assert switch_round(0.0, 40) == 1


def test_projection_keeps_distances_between_clusters():
    updates = _updates(100.0)
    points = project(updates, 4)
    assert points.shape == (21, 3)
    np.testing.assert_allclose([points.mean(), (points**2).mean()], [0.0, 1.0], atol=1e-9)
    means = np.array([points[cluster == TRUTH].mean(axis=0) for cluster in range(4)])
    distances = np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(distances, distances.mean(), rtol=0.05)


def test_equal_updates_are_points_at_zero():
    assert not project(np.ones((5, 8)), 3).any()
    mixture = cluster_updates(np.ones((5, 8)), 3, _stream())
    assert mixture.separation == 0.0


def test_mixture_of_separated_points():
    random = np.random.default_rng(3)
    means = np.array([[-1.5, 0.0], [1.5, 0.0]])
    labels = np.repeat([0, 1], [100, 300])
    mixture = fit_mixture(means[labels] + random.normal(scale=0.3, size=(400, 2)), 2, _stream())
    order = np.argsort(mixture.means[:, 0])
    np.testing.assert_allclose(mixture.means[order], means, atol=0.1)
    np.testing.assert_allclose(np.sqrt(mixture.variances), 0.3, rtol=0.1)
    np.testing.assert_allclose(mixture.weights[order], [0.25, 0.75], atol=0.01)
    np.testing.assert_allclose(mixture.responsibilities.sum(axis=1), 1.0)
    assert mixture.separation == pytest.approx(3.0 / 0.6, rel=0.1)


def test_principal_components_find_what_raw_coordinates_hide():
    updates = _updates(18.0)
    assert _true(cluster_updates(updates, 4, _stream()))
    assert cluster_updates(updates, 4, _stream()).separation > 2.0


def test_noise_alone_is_not_separated_much():
    noise = np.random.default_rng(1).normal(size=(21, 500))
    assert cluster_updates(noise, 4, _stream()).separation < 2.0


def test_number_of_clusters_is_found():
    mixture = cluster_updates(_updates(60.0), 8, _stream(), search=True)
    assert len(mixture.means) == 4
    assert _true(mixture)
    assert mixture.separation > 3.5


def test_fewer_clients_than_clusters():
    mixture = cluster_updates(np.eye(3), 4, _stream())
    assert mixture.responsibilities.shape == (3, 3)
    alone = cluster_updates(np.ones((1, 4)), 4, _stream())
    assert alone.separation == math.inf


def test_noisier_updates_take_more_iterations():
    iterations = [
        np.mean([cluster_updates(_updates(d, seed=s), 4, _stream()).iterations for s in range(5)]) for d in (8.0, 100.0)
    ]
    assert iterations[0] > iterations[1]
