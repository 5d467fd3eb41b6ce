"""The tree: cells and leaves of rows by hand, and how noisy counts grow it."""

import numpy as np
import pytest

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Projection
from dapple_dp.transforms.numerics.kmeans import tree
from dapple_dp.transforms.numerics.kmeans.tree import Hyperplanes, Nodes, Rule, Tree

DEPTH = 7
UNIT = float(lattice.SUM_UNITS)


def axis_planes(depth: int = DEPTH, offset: float = 0.0) -> Hyperplanes:
    """Level l asks for the sign of coordinate l."""
    return Hyperplanes(Projection.from_basis(np.eye(depth)), np.full(depth, offset))


def rows_of(codes: list[str]) -> np.ndarray:
    """Rows whose coordinates have the given signs, inside the clipping ball."""
    signs = np.array([[1.0 if bit == "1" else -1.0 for bit in code] for code in codes])
    return np.trunc(signs * UNIT / 8.0)


@pytest.mark.parametrize(("depth", "expected"), [(1, (1,)), (5, (5,)), (7, (5, 2)), (20, (5, 5, 5, 5))])
def test_levels_are_spread_over_rounds(depth, expected):
    assert tree.widths(depth) == expected


def test_a_row_on_the_hyperplane_is_above_it():
    planes = Hyperplanes(Projection.from_basis(np.eye(2)), np.array([3.0, -2.0]))
    np.testing.assert_array_equal(planes.bits(np.array([[3.0, -3.0], [2.0, -2.0]])), [[1, 0], [0, 1]])


def test_cells_of_the_root_are_codes_of_the_first_levels():
    found = Tree(axis_planes(), (), 32).labels(rows_of(["0000000", "0000111", "1000000", "1111100"]))
    np.testing.assert_array_equal(found, [0, 1, 16, 31])


def test_rows_follow_the_tables_to_open_nodes_and_leaves():
    table = np.full((1, 32), -1, dtype=np.int64)
    table[0, 31], table[0, 16], table[0, 0] = 1, -2, -3
    rows = rows_of(["1111110", "1111101", "1000000", "0000011", "0100000"])
    grown = Tree(axis_planes(), (table,), 8)
    # Open node 1 has cells 4 to 7; leaves and dropped cells are outside.
    np.testing.assert_array_equal(grown.labels(rows), [6, 5, -1, -1, -1])
    done = np.array([[-4, -1, -4, -4], [-5, -5, -6, -1]])
    finished = Tree(axis_planes(), (table, done), 9, complete=True)
    np.testing.assert_array_equal(finished.labels(rows), [4, 3, 0, 1, -1])


def test_labels_of_no_rows():
    assert Tree(axis_planes(), (), 32).labels(np.zeros((0, DEPTH))).shape == (0,)


def divided(counts: list[float], keep: float, stddev: float = 0.0) -> Nodes:
    return tree.divide(np.array([counts]), Rule(keep, stddev))


def test_light_children_are_dropped_and_heavy_ones_divided():
    # Sums (40, 11), then (36, 4) and (0, 11): 40 is divided, 11 < 3 * 10 is a leaf, 4 is dropped.
    found = divided([36.0, 4.0, 0.0, 11.0], keep=10.0)
    np.testing.assert_array_equal(found.owner, [[1, -1, 0, 0]])
    np.testing.assert_array_equal(found.counts, [11.0, 36.0])
    np.testing.assert_array_equal(found.divisible, [False, True])


def test_a_node_without_a_child_to_keep_is_a_leaf():
    found = divided([9.0, 9.0, 9.0, 9.0], keep=10.0)
    # Both halves of the root have 18: kept, and below 3 * 10, so leaves.
    np.testing.assert_array_equal(found.owner, [[0, 0, 1, 1]])
    whole = divided([4.0, 4.0, 4.0, 4.0], keep=10.0)
    np.testing.assert_array_equal(whole.owner, [[0, 0, 0, 0]])
    np.testing.assert_array_equal(whole.counts, [16.0])


def test_the_noise_of_a_sum_of_cells_counts():
    # Half of the root: 4 * 5 * sqrt(2) = 28.3 is needed, where a cell needs 20.
    found = divided([14.0, 14.0, 15.0, 15.0], keep=20.0, stddev=5.0)
    np.testing.assert_array_equal(found.owner, [[-1, -1, 0, 0]])


def test_several_open_nodes_are_divided_apart():
    cells = np.array([[50.0, 50.0], [1.0, 50.0]])
    found = tree.divide(cells, Rule(10.0, 0.0))
    np.testing.assert_array_equal(found.owner, [[0, 1], [-1, 2]])
    assert found.divisible.all()


def test_no_open_nodes():
    found = tree.divide(np.zeros((0, 32)), Rule(10.0, 1.0))
    assert found.owner.shape == (0, 32)
    fringe = tree.settle(found, Rule(10.0, 1.0), 4, 256)
    assert fringe.table.shape == (0, 32)
    assert len(fringe.open_counts) == len(fringe.leaf_counts) == 0


def test_the_largest_nodes_stay_open_and_the_others_are_leaves():
    nodes = Nodes(
        np.array([[0, 1], [2, -1], [3, 4]]),
        np.array([99.0, 31.0, 29.0, 60.0, 40.0]),
        np.array([False, True, True, True, True]),
    )
    fringe = tree.settle(nodes, Rule(10.0, 0.0), n_leaves=7, max_open=2)
    np.testing.assert_array_equal(fringe.open_counts, [60.0, 40.0])
    np.testing.assert_array_equal(fringe.leaf_counts, [99.0, 31.0, 29.0])
    np.testing.assert_array_equal(fringe.table, [[-9, -10], [-11, -1], [0, 1]])


def test_only_the_largest_leaves_are_numbered_in_the_end():
    tables = (np.array([[0, -2]]), np.array([[-4, -3], [-1, -1]]))
    found = tree.complete(Tree(axis_planes(), tables, 4), np.array([5.0, 9.0, 7.0]), max_leaves=2)
    np.testing.assert_array_equal(found.tables[0], [[0, -1]])
    np.testing.assert_array_equal(found.tables[1], [[-3, -2], [-1, -1]])
    assert (found.size, found.complete) == (2, True)


@pytest.mark.parametrize("n_dims", [1, 3, 30])
def test_directions_are_orthonormal_bases(n_dims):
    found = tree.spread_directions(n_dims, 8, seed=1)
    assert found.shape == (n_dims, 8)
    first = found[:, : min(n_dims, 8)]
    np.testing.assert_allclose(first.T @ first, np.eye(first.shape[1]), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1.0)
    np.testing.assert_array_equal(found, tree.spread_directions(n_dims, 8, seed=1))


def test_offsets_stay_within_a_stddev():
    stddevs = np.array([0.0, 1.0, 5.0] * 10)
    found = tree.spread_offsets(stddevs, seed=2)
    assert (np.abs(found) <= stddevs).all()
    assert np.abs(found[stddevs == 5.0]).max() > 1.0
