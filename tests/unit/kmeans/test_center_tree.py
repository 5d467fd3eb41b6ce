"""The tree of released centers: Ward linkage with weights, what noise explains, where to cut."""

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.cluster.hierarchy import cut_tree, linkage

from dapple_dp.transforms.numerics.kmeans.center_tree import CenterTree, joined_below, union_sums, ward_tree

LINE = np.array([[0.0], [1.0], [10.0], [12.0]])


def test_merges_of_four_centers_on_a_line():
    # 0 and 1 weigh 1 each: cost 1/2. 10 and 12 weigh 3 and 1: cost 3/4 * 4 = 3, mean 10.5. Then 2 * 4 / 6 * 10^2.
    tree = ward_tree(LINE, np.array([1.0, 1.0, 3.0, 1.0]))
    np.testing.assert_allclose(tree[:, :2], [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_allclose(tree[:, 2] ** 2 / 2.0, [0.5, 3.0, 2.0 * 4.0 / 6.0 * 100.0])
    assert tree[:, 3].tolist() == [2.0, 2.0, 4.0]
    assert union_sums(tree, np.array([1.0, 1.0, 3.0, 1.0])).tolist() == [2.0, 4.0, 6.0]


def _tied(k):
    """Centers and sizes with ties: all the same, on a lattice, and noisy sizes that are zero or negative."""
    lattice = np.stack(np.meshgrid(*[np.arange(4.0)] * 4), axis=-1).reshape(-1, 4)[:k]
    return [
        (np.zeros((k, 3)), np.full(k, 50.0)),
        (lattice, np.full(k, 1e6)),
        (lattice[::-1] * 1e200, np.linspace(-500.0, 2e9, k)),
        (np.random.default_rng(k).normal(size=(k, 5)), np.full(k, -3.0)),
    ]


@pytest.mark.parametrize("k", [2, 3, 20, 200])
@pytest.mark.parametrize("case", range(4))
def test_scipy_takes_every_tree(k, case):
    centers, sizes = _tied(k)[case]
    tree = ward_tree(centers, sizes)
    assert hierarchy.is_valid_linkage(tree, throw=True)
    assert hierarchy.is_monotonic(tree)
    assert tree[:, 3].tolist() == union_sums(tree, np.ones(k)).tolist()
    assert tree[-1, 3] == k
    drawn = hierarchy.dendrogram(tree, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(k))
    for n_groups in (1, 2, k):
        found = hierarchy.fcluster(tree, n_groups, "maxclust")
        assert len(np.unique(found)) <= n_groups
    assert union_sums(tree, sizes)[-1] == pytest.approx(sizes.sum(), rel=1e-12)


def test_the_groups_of_scipy_are_those_of_a_cut():
    rng = np.random.default_rng(9)
    centers, sizes = rng.normal(size=(40, 3)), rng.exponential(500.0, 40) - 50.0
    tree = CenterTree.of(centers, sizes)
    for n_groups in (2, 5, 40):
        theirs, own = hierarchy.fcluster(tree.merges, n_groups, "maxclust"), tree.cut(n_groups)
        np.testing.assert_array_equal(own[:, None] == own, theirs[:, None] == theirs)


def test_one_center_has_no_tree():
    tree = CenterTree.of(LINE[:1], np.array([7.0]))
    assert tree.merges.shape == (0, 4)
    assert union_sums(tree.merges, np.array([7.0])).shape == tree.rises.shape == (0,)


@pytest.mark.parametrize(("k", "d"), [(2, 1), (3, 2), (30, 4), (200, 7)])
def test_without_weights_it_is_scipys(k, d):
    centers = np.random.default_rng(k).normal(size=(k, d))
    np.testing.assert_allclose(ward_tree(centers, np.ones(k)), linkage(centers, "ward"))


def test_a_weight_is_as_many_equal_points():
    rng = np.random.default_rng(5)
    centers, weights = rng.normal(size=(20, 3)), rng.integers(1, 9, 20)
    repeated = linkage(np.repeat(centers, weights, axis=0), "ward")
    np.testing.assert_allclose(ward_tree(centers, weights.astype(float))[:, 2], np.sort(repeated[-19:, 2]))


@pytest.mark.parametrize("n_groups", [1, 2, 7, 30])
def test_a_cut_is_that_of_scipy(n_groups):
    centers = np.random.default_rng(8).normal(size=(30, 4))
    tree = CenterTree.of(centers, np.ones(30))
    found, theirs = tree.cut(n_groups), cut_tree(tree.merges, n_groups).ravel()
    assert len(np.unique(found)) == n_groups
    np.testing.assert_array_equal(found[:, None] == found, theirs[:, None] == theirs)
    assert all(found[first] == first for first in np.unique(found))


@pytest.mark.parametrize("size", [-50.0, 0.0, float("nan")])
def test_a_size_that_noise_made_negative_weighs_one(size):
    sizes = np.array([10.0, 10.0, size, 10.0])
    np.testing.assert_allclose(ward_tree(LINE, sizes), ward_tree(LINE, np.array([10.0, 10.0, 1.0, 10.0])))


def test_merges_in_the_noise():
    # Of 0 and 1 the squared distance is 1; of noise alone 2 * variance * (1 + 2 sqrt 2), so .13 does not explain it
    # and .14 does.
    for variance, explained in ((0.13, False), (0.14, True)):
        tree = CenterTree.of(LINE, np.ones(4), np.full(4, variance))
        assert tree.in_noise.tolist() == [explained, False, False]
    assert not CenterTree.of(LINE, np.ones(4), np.full(4, np.nan)).in_noise.any()


def test_the_widest_gap_is_where_clusters_end():
    rng = np.random.default_rng(2)
    means = 20.0 * np.eye(5)
    centers = np.repeat(means, [1, 2, 3, 2, 4], axis=0) + rng.normal(0.0, 0.5, (12, 5))
    tree = CenterTree.of(centers, rng.uniform(500.0, 2000.0, 12))
    assert tree.widest_gap() == 5
    assert tree.gap(5) > 50.0
    assert tree.rises[-5] < tree.between(5) < tree.rises[-4]


def test_two_centers_that_coincide_are_no_gap_where_noise_is_known():
    centers = np.array([[0.0], [1e-9], [5.0], [5.5], [30.0], [31.0]])
    sizes = np.full(6, 100.0)
    assert CenterTree.of(centers, sizes).widest_gap() == 5
    assert CenterTree.of(centers, sizes, np.full(6, 0.05)).widest_gap() in (2, 3)


def test_no_gap_stands_out_of_equal_distances_or_of_noise():
    assert CenterTree.of(np.eye(4), np.ones(4)).widest_gap() is None
    assert CenterTree.of(LINE, np.ones(4), np.full(4, 1e3)).widest_gap() is None
    assert CenterTree.of(LINE[:2], np.ones(2)).widest_gap() is None
    assert CenterTree.of(LINE[:1], np.ones(1)).widest_gap() is None


def test_branches_do_not_cross():
    centers = np.random.default_rng(3).normal(size=(40, 2))
    tree = CenterTree.of(centers, np.ones(40))
    order, branches = tree.branches(40)
    assert sorted(order) == list(range(40))
    assert len(branches) == 39
    order, branches = tree.branches(6)
    assert sorted(order) == sorted(np.unique(tree.cut(6)).tolist())
    assert [each.height for each in branches] == tree.rises[-5:].tolist()
    assert all(max(each.ends) <= each.height for each in branches)


def test_huge_centers_do_not_overflow():
    tree = ward_tree(LINE * 1e200, np.ones(4))
    assert np.isfinite(tree).all()
    np.testing.assert_allclose(tree[:, :2], ward_tree(LINE, np.ones(4))[:, :2])


def test_small_clusters_join_their_nearest_relatives():
    # 10 and 12 cost 3/4 * 4 = 3 together; 1 and 10 cost 3/4 * 81 more than 0 and 1.
    sizes = np.array([2.0, 1.0, 3.0, 1.0])
    assert joined_below(LINE, sizes, 1.0).tolist() == [0, 1, 2, 3]
    assert joined_below(LINE, sizes, 1.5).tolist() == [0, 0, 2, 2]
    assert joined_below(LINE, sizes, 3.5).tolist() == [0, 0, 0, 0]
    assert joined_below(LINE, sizes, 1e9).tolist() == [0, 0, 0, 0]
    assert joined_below(LINE[:1], sizes[:1], 1e9).tolist() == [0]


def test_a_small_cluster_far_off_leaves_all_others_as_they_are():
    centers, sizes = np.vstack([LINE, [[100.0]]]), np.array([50.0, 50.0, 50.0, 50.0, -3.0])
    assert CenterTree.of(centers, sizes).cut(2).tolist() == [0, 0, 0, 0, 4]
    assert joined_below(centers, sizes, 10.0).tolist() == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1e200, 1.7e306])
def test_no_unit_of_the_centers_changes_who_joins_whom(unit):
    centers, sizes = np.vstack([LINE, [[100.0]]]), np.array([50.0, 50.0, 50.0, 50.0, -3.0])
    assert joined_below(unit * centers, sizes, 10.0).tolist() == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("least", [5.0, 40.0, 150.0])
def test_groups_are_as_large_as_asked_and_named_by_their_lowest(least):
    rng = np.random.default_rng(7)
    centers, sizes = rng.normal(size=(40, 3)), rng.exponential(20.0, 40) - 5.0
    groups = joined_below(centers, sizes, least)
    assert (np.bincount(groups, sizes)[np.unique(groups)] >= least).all()
    assert all((groups[: first + 1] == first).tolist() == [False] * first + [True] for first in np.unique(groups))
    np.testing.assert_array_equal(groups[sizes >= 1e9], np.flatnonzero(sizes >= 1e9))
