import numpy as np
import pytest

from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import assignment
from dapple_dp.transforms.core.statistics.assignment import PROJECTED_NORM, ROW_NORM, Assigner, Projection


def test_ties_go_to_the_lowest_index():
    centers = np.array([[2.0, 0.0], [-2.0, 0.0], [2.0, 0.0]])
    labels = assignment.nearest(np.array([[0.0, 5.0], [1.0, 0.0], [-1.0, 0.0]]), centers, ROW_NORM)
    np.testing.assert_array_equal(labels, [0, 0, 1])


def test_nearest_agrees_with_exact_integer_distances():
    rng = np.random.default_rng(3)
    rows = rng.integers(-(2**19), 2**19, (200, 3)).astype(np.float64)
    centers = rows[:20] + rng.integers(-1, 2, (20, 3))
    exact = ((rows.astype(object)[:, None] - centers.astype(object)[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(assignment.nearest(rows, centers, ROW_NORM), exact.argmin(axis=1))


def test_scores_that_could_reach_2_53_are_refused():
    with pytest.raises(LatticeOverflowError, match=r"2\*\*53"):
        assignment.nearest(np.zeros((1, 2)), np.full((1, 2), 2.0**27), ROW_NORM)


def test_projection_floors_to_lattice_units():
    projection = Projection.from_basis(np.array([[1.0], [0.0]]))
    np.testing.assert_array_equal(assignment.project(np.array([[5.0, 9.0], [-5.0, 9.0]]), projection), [[5], [-5]])
    tilted = Projection.from_basis(np.array([[0.6], [0.8]]))
    np.testing.assert_array_equal(assignment.project(np.array([[1.0, 1.0], [-1.0, -1.0]]), tilted), [[1], [-2]])


def test_projected_rows_keep_their_norm_bound():
    rng = np.random.default_rng(5)
    basis = np.linalg.qr(rng.normal(size=(40, 10)))[0]
    rows = np.trunc((basis @ rng.normal(size=(10, 100))).T * 1e5)
    rows = np.trunc(rows * (2.0**20 / np.linalg.norm(rows, axis=1, keepdims=True)))
    projected = assignment.project(rows, Projection.from_basis(basis))
    assert np.linalg.norm(projected, axis=1).max() <= PROJECTED_NORM


def test_scores_in_a_space_of_columns_that_are_not_orthonormal_are_refused_where_they_are_not_exact():
    """Twenty equal columns make a row sqrt(20) times as long; a center fits in an orthonormal space of 20."""
    equal = Projection.from_basis(np.eye(20)[:, [0] * 20])
    rows, centers = np.eye(20) * 2.0**20, np.full((1, 20), 20_468_000.0)
    assert np.linalg.norm(assignment.project(rows, equal), axis=1).max() > 2.0 * PROJECTED_NORM
    assert 20**0.5 * ROW_NORM < equal.norm < 21**0.5 * ROW_NORM
    orthonormal = Projection.from_basis(np.eye(20))
    assert orthonormal.norm == PROJECTED_NORM
    assert Assigner(centers, orthonormal).labels(rows).tolist() == [0] * 20
    with pytest.raises(LatticeOverflowError, match="must stay below 2"):
        Assigner(centers, equal).labels(rows)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("spread", [2, 40, 2**18])
def test_of_centers_that_tie_the_first_has_the_row(spread, projected):
    """Rows of few values lie at the same distance of several centers, and some centers are there twice."""
    rng = np.random.default_rng(spread)
    rows = rng.integers(-spread, spread + 1, (400, 4)).astype(np.float64)
    projection = Projection.from_basis(np.linalg.qr(rng.normal(size=(4, 2)))[0]) if projected else None
    centers = rng.integers(-spread, spread + 1, (6, 2 if projected else 4)).astype(np.float64)
    assigner = Assigner(np.concatenate([centers, centers[:2]]), projection)
    squared = ((assigner.compared(rows)[:, None] - assigner.centers) ** 2).sum(axis=2)
    np.testing.assert_array_equal(assigner.labels(rows), squared.argmin(axis=1))
    assert assigner.labels(rows[:0]).shape == (0,)


def test_labels_need_exact_scores():
    with pytest.raises(LatticeOverflowError, match=r"2\*\*53"):
        Assigner(np.full((1, 2), 2.0**27)).labels(np.zeros((1, 2)))
    with pytest.raises(LatticeOverflowError):
        Assigner(np.full((1, 2), np.nan)).labels(np.zeros((1, 2)))
