"""Nets and their trees: decoding, nesting, Lemmas 14 to 16 and 19 of the one-round paper, and the law of the noise."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.papers import net_tree, net_trees, shuffle_trees
from benchmarks.papers.split_and_mix import gaussian_stddev
from dapple_dp.transforms.numerics.reports.mechanism import bit_choices
from dapple_dp.transforms.numerics.reports.published_protocol import sphere_norm

FEATURES = (1, 2, 3, 5)


def ball(n_features, n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, n_features))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(size=(n_rows, 1)) ** (1.0 / n_features)


def exact(rows):
    return net_trees.oracle(rows, len(rows), 0.0, np.random.default_rng(0))


@pytest.mark.parametrize(("n_features", "level"), list(itertools.product(FEATURES, (1, 2, 4))))
def test_a_point_is_decoded_to_the_nearest_of_the_net_within_the_covering_radius(n_features, level):
    rows = ball(n_features)
    cells = net_tree.cells_of(rows, level)
    apart = np.linalg.norm(rows - net_tree.positions(cells, level), axis=1)
    assert apart.max() <= 2.0**-level
    for step in (-1, 1):
        for axis in range(n_features):
            other = cells.copy()
            other[:, axis] += step
            assert (apart <= np.linalg.norm(rows - net_tree.positions(other, level), axis=1) + 1e-12).all()


@pytest.mark.parametrize("n_features", range(1, net_tree.MOST_FEATURES + 1))
def test_the_packing_radius_is_at_least_a_third_of_the_covering_radius(n_features):
    width = net_tree.side(3, n_features)
    assert 0.5 * width * math.sqrt(n_features) == pytest.approx(2.0**-3)
    assert 0.5 * width >= 2.0**-3 / 3.0 - 1e-12


@pytest.mark.parametrize("n_features", FEATURES)
def test_the_parent_of_a_cell_is_the_nearest_point_of_the_coarser_net(n_features):
    cells = net_tree.cells_of(ball(n_features), 4)
    by_position = net_tree.cells_of(net_tree.positions(cells, 4), 3)
    np.testing.assert_array_equal(by_position, cells // 2)


@pytest.mark.parametrize("n_features", FEATURES)
def test_children_cover_every_row_of_the_ball_once(n_features):
    rows = np.vstack([ball(n_features), np.eye(n_features), -np.eye(n_features)])
    found = net_tree.children(np.zeros((1, n_features), dtype=np.int64), 0)
    assert len(np.unique(found, axis=0)) == len(found)
    held = {cell.tobytes() for cell in found}
    assert all(cell.tobytes() in held for cell in net_tree.cells_of(rows, 1))
    deeper = net_tree.children(found, 1)
    assert len(np.unique(deeper, axis=0)) == len(deeper)
    held = {cell.tobytes() for cell in deeper}
    assert all(cell.tobytes() in held for cell in net_tree.cells_of(rows, 2))


def test_a_tree_splits_the_large_nodes_and_stands_for_every_row():
    angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False) + 0.1
    rim = 0.95 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rows = np.vstack([np.tile([[0.31, 0.31]], (50, 1)), np.tile([[-0.6, 0.2]], (50, 1)), rim])
    parameters = net_tree.Parameters(depth=3, ball=1, steps=8, theta=0.0)
    tree = net_tree.build(exact(rows), 2, 2, parameters, 10_000)
    owners = net_tree.leaves_of(rows, tree)
    assert (owners >= 0).all()
    assert tree.levels[owners[0]] == tree.levels[owners[60]] == 3
    assert (tree.levels[owners[100:]] == 1).sum() >= 5
    assert tree.sizes[owners[0]] == 50
    assert net_tree.transport(rows, tree) <= net_tree.transport_bound(rows, tree)


def test_noise_in_frequencies_enters_the_transport_cost():
    rows = ball(2)
    tree = net_tree.build(exact(rows), 2, 3, net_tree.Parameters(2, 1, 8, 0.0), 10_000)
    wrong = tree._replace(sizes=tree.sizes + 1.0)
    assert net_tree.transport(rows, wrong) == pytest.approx(net_tree.transport(rows, tree) + len(tree.sizes))


def test_a_tree_stops_before_it_has_too_many_nodes():
    tree = net_tree.build(exact(ball(3)), 3, 2, net_tree.printed(10**6, 3, 0.5), 2_000)
    assert tree.n_nodes <= 2_000


def test_the_threshold_is_that_of_algorithm_2():
    parameters = net_tree.Parameters(1, 1, 10, 0.0)
    assert net_tree.threshold(np.array(8 * [1.0] + [50.0, 60.0]), 2, parameters) == 2
    assert net_tree.threshold(np.array([1.0, 1.0, 1.0]), 1, parameters) == 0
    # Where no step stops, at most Gamma k a nodes are split, and never more than there are.
    assert net_tree.threshold(3.0 ** np.arange(20.0), 1, parameters._replace(steps=4)) == 4
    assert net_tree.threshold(np.ones(3), 2, parameters._replace(ball=2)) == 3


def test_printed_parameters_are_those_of_theorem_20():
    found = net_tree.printed(1 << 16, 2, 0.5)
    theta = 8.0 * math.sqrt(5.0 / 0.5)
    assert found == (8, math.ceil((1.0 + (2.0 + theta) * math.sqrt(2.0)) ** 2), 16, theta)
    with pytest.raises(ValueError, match="n_features must be from 1 to 9"):
        net_tree.printed(100, 10, 0.5)


def test_projections_keep_lengths_on_average_and_leave_the_ball_as_the_origin():
    rows = 0.4 * ball(50, 2_000)
    basis = net_tree.subspace(50, 10, 0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(10), atol=1e-12)
    kept = net_tree.projected(rows, basis, math.sqrt(5.0))
    ratio = (kept**2).sum() / (rows**2).sum()
    assert 0.9 < ratio < 1.1
    far = net_tree.projected(rows, basis, 100.0)
    assert (np.linalg.norm(far, axis=1) <= 1.0).all()
    assert (far == 0.0).all(axis=1).mean() > 0.9


def test_the_noise_of_a_frequency_has_the_law_of_the_published_reports():
    """One level per client: T cells of n / T reports of a bit that is true with its known odds."""
    n_clients, epsilon, depth = 40_000, 2.0, 4
    (_, histogram), _ = bit_choices(epsilon, 0.5)
    rng = np.random.default_rng(3)
    shrunk = math.tanh(histogram / 2.0)
    estimates = []
    for _ in range(300):
        signs = rng.choice([-1.0, 1.0], n_clients // depth)
        truth = rng.random(n_clients // depth) < 0.5 * (1.0 + shrunk)
        estimates.append(depth * (signs * np.where(truth, 1.0, -1.0)).sum() / shrunk)
    wanted = net_trees.law(n_clients, epsilon, 3, depth, False).frequency
    assert 0.85 < np.std(estimates) / wanted < 1.15


def test_all_levels_cost_more_than_one_level_unless_epsilon_is_large():
    for epsilon in (0.5, 1.0, 4.0):
        one, every = (net_trees.law(10_000, epsilon, 3, 5, all_levels) for all_levels in (False, True))
        assert every.frequency > one.frequency
        assert every.vector > one.vector
    assert net_trees.law(10_000, 60.0, 3, 5, True).frequency < net_trees.law(10_000, 60.0, 3, 5, False).frequency
    assert net_trees.law(100, 2.0, 3, 1, False).vector == pytest.approx(math.sqrt(100 / 3) * sphere_norm(1.0, 3))


def test_without_noise_the_centers_are_those_of_the_clusters():
    rows, means = net_trees.draw(0, 2)
    centers = net_trees.decoded(rows, rows, len(rows), net_trees.Law(0.0, 0.0), 0)
    apart = np.linalg.norm(means[:, None] - centers[None], axis=2).min(axis=1)
    assert np.median(apart) < 0.1


@pytest.mark.parametrize("n_features", [2, 3])
def test_leaves_with_rows_are_those_of_the_whole_tree(n_features):
    rows, parameters = ball(n_features), net_tree.Parameters(3, 50, 20, 0.0)
    whole = net_tree.build(exact(rows), n_features, net_trees.N_CLUSTERS, parameters, net_trees.MOST_NODES)
    found = net_trees.with_exact(rows, parameters)
    kept = whole.sizes > 0.0
    assert sorted(map(tuple, whole.cells[kept])) == sorted(map(tuple, found.cells))
    assert net_tree.transport(rows, found) == pytest.approx(net_tree.transport(rows, whole))
    assert net_trees.coreset_error(rows, found) == pytest.approx(net_trees.coreset_error(rows, whole))


def test_shuffled_oracles_are_exact_but_for_noise_and_collisions():
    rows, rng = ball(2), np.random.default_rng(0)
    cells = np.unique(net_tree.cells_of(rows, 3), axis=0)
    frequencies = shuffle_trees.sketch(rows, 10**9, 100.0, rng)(3, cells) * (len(rows) / 10**9)
    np.testing.assert_allclose(frequencies, exact(rows)(3, cells), atol=1e-4)
    sums = shuffle_trees.buckets(rows, net_tree.cells_of(rows, 3), cells, 10**9, rng) * (len(rows) / 10**9)
    np.testing.assert_allclose(sums.sum(axis=0), rows.sum(axis=0))
    few = shuffle_trees.buckets(rows, net_tree.cells_of(rows, 3), cells, 1, rng)
    assert len(np.unique(few, axis=0)) <= round(2 / shuffle_trees.FAILURE)


def test_a_replaced_client_moves_shuffled_sums_by_no_more_than_the_noise_is_for():
    of_one = gaussian_stddev(1.0 / 8.0, shuffle_trees.DELTA / 8.0)
    assert shuffle_trees.stddev(1.0, 1) == 2.0 * of_one  # in one bucket, from a vector to the opposite one
    assert shuffle_trees.stddev(1.0, 25) == 10.0 * of_one  # in 25 cells, each from one sign to the other
