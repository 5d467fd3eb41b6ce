"""Relative sums, moves, folding and grids on cases worked out by hand."""

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import differences, lattice
from dapple_dp.transforms.core.statistics.assignment import Projection
from dapple_dp.transforms.core.statistics.differences import RELATIVE_UNITS, Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.numerics.kmeans import folding, moves
from dapple_dp.transforms.numerics.kmeans.starts import grid
from dapple_dp.transforms.numerics.kmeans.starts.grid import Grid

FRAME = Frame.of_box(Box(-1.0, 1.0), 4)
"""Half a diagonal is 2, so 2**19 units are one feature unit."""
ONE = 1 << 19


def centers(*rows):
    return np.array(rows) * float(ONE)


def decoded(statistic, size, unit):
    """Sums in feature units, and counts."""
    return statistic[:-size].reshape(size, -1) * unit, statistic[-size:] / lattice.SUM_UNITS


def test_differences_to_the_nearest_center_are_summed_inside_the_radius():
    around = Neighborhoods(centers([0.5, 0, 0, 0], [-0.5, 0, 0, 0]), ONE // 2)
    points = np.array([[0.75, 0.25, 0, 0], [0.5, -0.5, 0, 0], [0.5, 0.5, 0.125, 0], [-0.25, 0, 0, 0]])
    sums, counts = decoded(
        differences.row_relative_sums(ClientBlock(points), FRAME, around, around.radius), 2, 2.0**-19 / around.factor
    )
    np.testing.assert_array_equal(sums, [[0.25, -0.25, 0, 0], [0.25, 0, 0, 0]])
    np.testing.assert_array_equal(counts, [2, 1])
    assert around.factor * around.radius == RELATIVE_UNITS


def test_far_rows_may_be_shortened_to_the_radius():
    around = Neighborhoods(centers([0.5, 0, 0, 0]), ONE // 2, True)
    points = np.array([[0.5, 1.0, 0, 0], [-0.5, 0, 0, 0]])
    sums, counts = decoded(
        differences.row_relative_sums(ClientBlock(points), FRAME, around, around.radius), 1, 2.0**-19 / around.factor
    )
    np.testing.assert_array_equal(sums, [[-0.5, 0.5, 0, 0]])
    np.testing.assert_array_equal(counts, [2])


def test_split_cells_take_rows_within_and_beyond_a_radius():
    points = np.array([[0.75, 0, 0, 0], [0.5, 0.25, 0, 0], [0.5, 1.0, 0, 0], [-0.75, 0, 0, 0]])
    around, inner, outer = centers([0.5, 0, 0, 0], [-0.5, 0, 0, 0]), ONE // 4, ONE // 2
    found = differences.row_split_sums(ClientBlock(points), FRAME, around, inner, outer)
    sums, counts = found[:16].reshape(4, 4) * 2.0**-19, found[16:] / lattice.SUM_UNITS
    stretched = np.array([[differences.stretch(inner)]] * 2 + [[differences.stretch(outer)]] * 2)
    np.testing.assert_array_equal(sums / stretched, [[0.25, 0.25, 0, 0], [-0.25, 0, 0, 0], [0, 0.5, 0, 0], [0] * 4])
    np.testing.assert_array_equal(counts, [2, 1, 1, 0])
    with pytest.raises(ValueError, match="inner must be a radius"):
        differences.row_split_sums(ClientBlock(points), FRAME, around, outer, inner)


def test_ties_go_to_the_lowest_index():
    around = Neighborhoods(centers([0.5, 0, 0, 0], [-0.5, 0, 0, 0], [0, 0.5, 0, 0]), ONE)
    statistic = differences.row_relative_sums(ClientBlock(np.zeros((5, 4))), FRAME, around, around.radius)
    np.testing.assert_array_equal(statistic[-3:] / lattice.SUM_UNITS, [5, 0, 0])


def test_rows_outside_the_domain_are_clipped_to_it_coordinate_by_coordinate():
    around = Neighborhoods(centers([0, 0, 0, 0]), 2 * ONE)
    points = np.array([[50.0, 0.5, -1e300, 0]])
    sums, _ = decoded(
        differences.row_relative_sums(ClientBlock(points), FRAME, around, around.radius), 1, 2.0**-19 / around.factor
    )
    np.testing.assert_array_equal(sums, [[1.0, 0.5, -1.0, 0]])


@pytest.mark.parametrize("shortens", [False, True])
def test_empty_clusters_and_empty_blocks_report_zero(shortens):
    around = Neighborhoods(centers([0, 0, 0, 0], [1, 1, 1, 1]), ONE // 8, shortens)
    nothing = differences.row_relative_sums(ClientBlock(np.zeros((0, 4))), FRAME, around, around.radius)
    np.testing.assert_array_equal(nothing, np.zeros(10))
    one = differences.row_relative_sums(ClientBlock(np.zeros((3, 4))), FRAME, around, around.radius)
    np.testing.assert_array_equal(one / lattice.SUM_UNITS, [0] * 8 + [3, 0])


def test_a_client_counts_once_whatever_its_rows():
    around = Neighborhoods(centers([0.5, 0, 0, 0], [-0.5, 0, 0, 0]), ONE // 2)
    few = np.array([[0.75, 0, 0, 0], [-0.5, 0.25, 0, 0]])
    points = np.concatenate([few, np.repeat(few, 50, axis=0)])
    block = ClientBlock(points, np.array([0, 2, 102]))
    statistic = differences.client_relative_sums(block, FRAME, around, ONE // 2)
    sums, counts = decoded(statistic, 2, 2.0**-19 / (RELATIVE_UNITS // (ONE // 2)))
    np.testing.assert_array_equal(sums, [[0.25, 0, 0, 0], [0, 0.25, 0, 0]])
    np.testing.assert_array_equal(counts, [1, 1])


def test_a_client_over_its_bound_is_scaled_in_sums_and_counts_alike():
    around = Neighborhoods(centers([0, 0, 0, 0]), ONE)
    block = ClientBlock(np.array([[1.0, 0, 0, 0]]), np.array([0, 1]))
    statistic = differences.client_relative_sums(block, FRAME, around, ONE // 4)
    sums, counts = decoded(statistic, 1, 2.0**-19 / (RELATIVE_UNITS // (ONE // 4)))
    np.testing.assert_allclose(sums, [[0.25, 0, 0, 0]], rtol=1e-6)
    np.testing.assert_allclose(counts, [0.25], rtol=1e-5)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan])
@pytest.mark.parametrize("place", ["bound", "count", "radius", "direction"])
def test_bounds_of_clients_that_bound_nothing_are_refused(place, bad):
    block, around = ClientBlock(np.zeros((2, 4)), np.array([0, 2])), Neighborhoods(centers([0, 0, 0, 0]), ONE)
    call = {
        "bound": lambda: differences.client_relative_sums(block, FRAME, around, bad, 1.0),
        "count": lambda: differences.client_relative_sums(block, FRAME, around, ONE, bad),
        "radius": lambda: differences.client_direction_sums(block, FRAME, around.centers, bad, 1.0),
        "direction": lambda: differences.client_direction_sums(block, FRAME, around.centers, ONE, bad),
    }[place]
    with pytest.raises(LatticeOverflowError, match="clipping bounds must be finite numbers above 0, got"):
        call()


def test_folding_reflects_with_a_period_of_four_half_sides():
    folded = folding.fold(np.array([[0.3, 1.2, -1.2, 3.3], [5.0, -7.5, 1.0, -1.0]]), 1.0)
    np.testing.assert_allclose(folded, [[0.3, 0.8, -0.8, -0.7], [1.0, 0.5, 1.0, -1.0]], atol=1e-12)


def test_moves_are_divided_shrunken_and_clipped():
    sums = np.array([[6.0, 8.0], [0.0, 0.0]])
    np.testing.assert_array_equal(moves.divided(sums, np.array([2.0, 0.0])), [[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_array_equal(moves.divided(sums, np.array([-2.0, 1.0])), [[-3.0, -4.0], [0.0, 0.0]])
    # |move|^2 = 25, v = 2 (5 / 2)^2 = 12.5: half of the move is left; a move of pure noise is not made at all.
    shrunken = moves.shrunken(sums, np.array([2.0, 2.0]), 5.0)
    np.testing.assert_allclose(shrunken, [[1.5, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(moves.shrunken(sums, np.array([2.0, 2.0]), 500.0), np.zeros((2, 2)))
    np.testing.assert_allclose(folding.clip_moves(np.array([[3.0, 4.0], [0.1, 0.0]]), 2.5), [[1.5, 2.0], [0.1, 0.0]])


def test_noisy_counts_are_pulled_to_equal_ones():
    counts = np.array([90.0, 10.0, -10.0])
    np.testing.assert_allclose(moves.blended_counts(counts, 0.0, 90.0), [90.0, 10.0, 1.0])
    np.testing.assert_allclose(moves.blended_counts(np.array([900.0, 0.0]), 2.0, 900.0), [900.0, 6.0], rtol=1e-3)
    np.testing.assert_allclose(moves.blended_counts(counts, 1e9, 90.0), [30.0, 30.0, 30.0], rtol=1e-6)
    # Prior variance 30^2 * 2 / 4 = 450; with noise of the same variance the blend is half way.
    np.testing.assert_allclose(moves.blended_counts(counts, 450.0**0.5, 90.0), [60.0, 20.0, 10.0])
    np.testing.assert_array_equal(moves.blended_counts(np.array([7.0]), 3.0, 50.0), [50.0])
    assert moves.total_rows(counts, 1.0) == 90.0
    assert moves.total_rows(-counts, 2.0) == pytest.approx(2.0 * 3.0**0.5)


def test_a_grid_numbers_its_cells_and_knows_their_middles():
    cells = Grid((2, 4), np.array([8.0, 8.0]), np.array([0.0, 4.0]))
    rows = np.array([[-8.0, -4.0], [-1.0, 11.0], [0.0, 4.0], [100.0, -100.0]])
    np.testing.assert_array_equal(cells.labels(rows), [0, 3, 6, 4])
    np.testing.assert_array_equal(cells.midpoints()[[0, 3, 6]], [[-4, -6], [-4, 6], [4, 2]])
    np.testing.assert_array_equal(cells.labels(cells.midpoints() + cells.origin), np.arange(8))


def test_a_grid_along_a_direction_sees_only_that_direction():
    projection = Projection.from_basis(np.array([[0.6], [0.8]]))
    cells = Grid((4,), np.array([40.0]), np.array([0.0]), projection)
    np.testing.assert_array_equal(cells.labels(np.array([[30.0, 10.0], [-20.0, 20.0], [-30.0, -40.0]])), [3, 2, 0])


def test_the_size_of_a_grid_balances_position_and_noise():
    assert grid.n_cells(1000.0, 3, 2, 10.0) == 10
    assert grid.n_cells(1000.0, 15, 2, 10.0) == 30
    assert grid.n_cells(1e12, 3, 3, 1.0) == grid.MAX_CELLS
    assert grid.cube_shape(30, 2) == (5, 5)
    assert grid.cube_shape(3, 4) == (2, 2, 2, 2)
    # A direction that is 20 times as narrow gets no cell of its own; equal ones share the cells.
    assert len(grid.aligned_shape(np.array([1.0, 0.05]), 2000.0, 2, 10.0, 1 << 14)) == 1
    assert grid.aligned_shape(np.array([1.0, 1.0]), 2500.0, 2, 10.0, 1 << 14) == (5, 5)
    assert np.prod(grid.aligned_shape(np.array([1.0, 0.9, 0.8]), 1e9, 5, 1.0, 4096)) <= 4096


def test_what_clients_add_is_checked_on_integers_against_the_stated_sensitivities(monkeypatch):
    """The factors before hold the bounds up to the last bit; the last check must hold them exactly."""
    limits, clip = [], lattice.clip_l2

    def recorded(vectors, limit, *, rescale=1.0):
        limits.append(limit)
        return clip(vectors, limit, rescale=rescale * 4.0 if limit == RELATIVE_UNITS else rescale)

    monkeypatch.setattr(lattice, "clip_l2", recorded)
    rows = np.random.default_rng(0).normal(size=(40, 3)) * 10.0
    neighborhoods = Neighborhoods(np.zeros((2, 3)), lattice.SUM_UNITS, shortens=False)
    frame = Frame(lattice.Lattice(np.zeros(3), 1.0))
    found = differences.client_relative_sums(ClientBlock(rows, np.array([0, 40])), frame, neighborhoods, 1000)
    # Before these, rows outside of a neighborhood are shortened to its radius.
    assert limits[-2:] == [RELATIVE_UNITS, lattice.SUM_UNITS]
    assert np.linalg.norm(found[:-2].astype(float)) <= RELATIVE_UNITS
    assert np.linalg.norm(found[-2:].astype(float)) <= lattice.SUM_UNITS


@pytest.mark.parametrize("client_offsets", [None, np.array([0, 2])])
@pytest.mark.parametrize("far", [1 << 26, 93_860_000, 1 << 27])
def test_centers_so_far_out_that_a_score_or_a_distance_is_not_exact_are_refused(client_offsets, far):
    """The second is so far out that scores of rows stay below 2**53, but not their squared distances."""
    block = ClientBlock(np.zeros((2, 4)), client_offsets)
    sums = differences.row_relative_sums if client_offsets is None else differences.client_relative_sums
    around = Neighborhoods(np.array([[0.0] * 4, [0.0, far, 0.0, 0.0]]), ONE // 2)
    bound = float(RELATIVE_UNITS) if client_offsets is not None else around.radius
    if far == 1 << 26:
        assert sums(block, FRAME, around, bound).size == 10
        return
    with pytest.raises(LatticeOverflowError, match="must stay below 2"):
        sums(block, FRAME, around, bound)
