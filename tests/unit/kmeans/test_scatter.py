"""From a packed noisy scatter to a subspace."""

import math

import numpy as np
import pytest

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.kmeans import scatter

PUBLIC = np.array([[1.0, 0.0], [0.0, 1.0]])
"""Scatter per row diag(1/2, 1/2); v_public = (1/2)^2 / 2 = 1/8."""
PRIVATE = np.array([[2.0, 1.0], [1.0, 4.0]])


def test_unpack_by_hand():
    found = scatter.unpack_symmetric(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    np.testing.assert_array_equal(found, [[1, 2, 3], [2, 4, 5], [3, 5, 6]])


@pytest.mark.parametrize("n_features", [1, 2, 3, 50, 200])
def test_unpack_inverts_the_upper_triangle(n_features):
    matrix = np.random.default_rng(n_features).normal(size=(n_features, n_features))
    symmetric = matrix + matrix.T
    triangle = symmetric[np.triu_indices(n_features)]
    np.testing.assert_array_equal(lattice.upper_triangle(symmetric), triangle)
    np.testing.assert_array_equal(lattice.upper_triangle(symmetric, 1), symmetric[np.triu_indices(n_features, 1)])
    np.testing.assert_array_equal(scatter.unpack_symmetric(triangle), symmetric)
    np.testing.assert_allclose(scatter.trace_of(triangle), np.trace(symmetric))


def test_without_noise_the_private_scatter_stays():
    np.testing.assert_array_equal(scatter.shrink_to_public(PRIVATE, 0.0, PUBLIC), PRIVATE)
    np.testing.assert_array_equal(scatter.shrink_to_public(PRIVATE, 0.0, np.zeros((3, 2))), PRIVATE)


def test_with_vanishing_noise_the_private_scatter_is_reached():
    np.testing.assert_allclose(scatter.shrink_to_public(PRIVATE, 1e-15, PUBLIC), PRIVATE, atol=1e-12)


def test_with_growing_noise_the_private_scatter_fades_out():
    np.testing.assert_allclose(scatter.shrink_to_public(PRIVATE, 1e15, PUBLIC), 0.5 * np.eye(2), atol=1e-12)


def test_equal_variances_give_the_middle():
    found = scatter.shrink_to_public(PRIVATE - [[0.0, 0.5], [0.5, 0.0]], 1 / 8, PUBLIC)
    np.testing.assert_allclose(found, [[1.25, 0.25], [0.25, 2.25]])


def test_a_difference_that_noise_does_not_explain_counts_against_the_public_scatter():
    # one entry off the diagonal, 1 apart where noise of variance 1 / 8 and two of its stddevs explain less
    public_variance = 1.0 - (1.0 + 2.0 * np.sqrt(2.0)) / 8.0
    weight = (1 / 8) / (1 / 8 + public_variance)
    found = scatter.shrink_to_public(PRIVATE, 1 / 8, PUBLIC)
    np.testing.assert_allclose(found, (1 - weight) * PRIVATE + weight * 0.5 * np.eye(2))


def test_top_eigenvectors_are_the_largest_with_the_largest_last():
    found = scatter.top_eigenvectors(np.diag([1.0, 5.0, 3.0]), 2)
    np.testing.assert_allclose(np.abs(found), [[0, 0], [0, 1], [1, 0]], atol=1e-12)


def test_top_eigenvectors_span_the_plane_of_the_data_and_are_orthonormal():
    rng = np.random.default_rng(1)
    plane = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    rows = rng.normal(size=(100, 2)) @ plane.T
    found = scatter.top_eigenvectors(rows.T @ rows, 2)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found @ found.T, plane @ plane.T, atol=1e-9)


def test_negative_eigenvalues_of_a_noisy_matrix_come_last():
    found = scatter.top_eigenvectors(np.diag([-9.0, 1.0]), 1)
    np.testing.assert_allclose(np.abs(found), [[0], [1]], atol=1e-12)


@pytest.mark.parametrize("signal", [0.0, 3.0])
def test_few_eigenvectors_of_a_large_matrix_are_those_of_all(signal):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1100, 1100)) / np.sqrt(2 * 1100)
    noise[:3] += signal * np.eye(1100)[:3]
    matrix = noise + noise.T
    values, vectors = scatter.top_eigenpairs(matrix, 4)
    every, all_vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(values, every[-4:], rtol=1e-6)
    np.testing.assert_allclose(np.abs((vectors * all_vectors[:, -4:]).sum(axis=0)), 1.0, atol=1e-4)
    np.testing.assert_array_equal(scatter.top_eigenpairs(matrix, 4)[1], vectors)


def test_a_top_eigenvector_at_right_angles_to_the_start_is_found():
    """Lanczos' method starts from ones, in whose direction the second one lies."""
    top, second = np.zeros(1024), np.full(1024, 1.0 / 32.0)
    top[:2] = math.sqrt(0.5), -math.sqrt(0.5)
    values, vectors = scatter.top_eigenpairs(5.0 * np.outer(top, top) + np.outer(second, second), 2)
    np.testing.assert_allclose(values, [1.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(np.abs(vectors[:, 1] @ top), 1.0, rtol=1e-6)


def test_a_large_matrix_of_zeros_has_eigenvectors_too():
    values, vectors = scatter.top_eigenpairs(np.zeros((1024, 1024)), 2)
    np.testing.assert_array_equal(values, 0.0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), atol=1e-12)
