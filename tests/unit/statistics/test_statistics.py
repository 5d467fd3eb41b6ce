import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import clients, lattice, rows
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice

UNIT = lattice.SUM_UNITS


def frame(n_features: int, norm: float = 1.0) -> Frame:
    return Frame(Lattice(np.zeros(n_features), norm))


def block(points, sizes) -> ClientBlock:
    return ClientBlock(np.asarray(points, dtype=float), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def test_outer_product_by_hand():
    points = np.array([[0.5, 0.0], [0.5, -0.25]])
    # units of 1 / 2^32: 2 * 0.25, -0.125, 0.0625
    expected = [2**31, -(2**29), 2**28]
    np.testing.assert_array_equal(rows.outer_product(ClientBlock(points), frame(2), 1.0, relative=False), expected)


def test_rows_or_clients_are_counted():
    three = block(np.zeros((7, 2)), [1, 4, 2])
    np.testing.assert_array_equal(rows.count(three), [7 * UNIT])
    np.testing.assert_array_equal(clients.count(three), [3 * UNIT])


def test_histogram_by_hand():
    assigner = Assigner(np.array([[0.0], [float(UNIT)]]), Projection.from_basis(np.array([[1.0], [0.0]])))
    points = np.array([[0.1, 0.9], [0.6, 0.0], [0.7, 0.1]])
    found = rows.histogram(ClientBlock(points), frame(2), assigner, 1.0, relative=False)
    np.testing.assert_array_equal(found, [1 * UNIT, 2 * UNIT])


class Strips:
    """Bins of a row by its first number; rows below zero are in none."""

    size = 50

    def labels(self, points):
        return np.floor(points[:, 0] / UNIT * self.size).astype(np.int64).clip(-1)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("bins", [Strips(), Assigner(np.rint(np.linspace(-UNIT, UNIT, 60))[:, None])])
def test_histograms_of_clients_are_those_over_all_bins(bins, relative):
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.integers(1, 12, 400), [1] * 2500, [5000]])
    points = rng.uniform(-0.5, 0.99, size=(sizes.sum(), 1))
    labels = bins.labels(frame(1).quantize(points, lattice.SUM_BITS))
    counts = np.zeros((len(sizes), bins.size))
    np.add.at(counts, (np.repeat(np.arange(len(sizes)), sizes)[labels >= 0], labels[labels >= 0]), 1)
    if relative:
        kept = lattice.clip_l2(np.trunc(counts * (UNIT / sizes[:, None])), UNIT, rescale=1 / 0.7)
    else:
        kept = lattice.clip_l1(counts, UNIT, rescale=UNIT / 3.0)
    found = clients.histogram(block(points, sizes), frame(1), bins, 0.7 if relative else 3.0, relative=relative)
    np.testing.assert_array_equal(found, kept.sum(axis=0).astype(np.int64))


def test_clients_without_a_row_in_any_bin_add_nothing():
    assert not clients.histogram(block([[-0.5], [-0.1]], [1, 1]), frame(1), Strips(), 1.0, relative=True).any()


def test_sums_and_counts_by_hand():
    assigner = Assigner(np.array([[0.0, 0.0], [float(UNIT), 0.0]]))
    points = np.array([[0.25, 0.5], [0.75, 0.0], [0.75, 0.125]])
    found = rows.sums_and_counts(ClientBlock(points), frame(2), assigner, 1.0, 1.0)
    np.testing.assert_array_equal(found, [UNIT // 4, UNIT // 2, 3 * UNIT // 2, UNIT // 8, UNIT, 2 * UNIT])


def test_statistics_agree_with_numpy_on_many_rows():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5000, 6)) * 0.2
    scatter = rows.outer_product(ClientBlock(points), frame(6), 1.0, relative=False) * 2.0**-32
    inside = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    np.testing.assert_allclose(scatter, (inside.T @ inside)[np.triu_indices(6)], atol=5000 * 1e-5)
    centers = rng.normal(size=(4, 6)) * 0.1
    integers = lattice.quantize(centers, frame(6).lattice, lattice.SUM_BITS)
    found = rows.sums_and_counts(ClientBlock(points), frame(6), Assigner(integers), 1.0, 1.0) / UNIT
    labels = ((inside[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    sums = np.array([inside[labels == r].sum(axis=0) for r in range(4)])
    np.testing.assert_allclose(found[:24].reshape(4, 6), sums, atol=1e-2)
    np.testing.assert_array_equal(found[24:], np.bincount(labels, minlength=4))


@pytest.mark.parametrize("n_clusters", [16, 17, 60])
def test_many_clusters_are_summed_another_way_to_the_same_integers(n_clusters):
    rng = np.random.default_rng(1)
    points, centers = rng.normal(size=(2500, 3)) * 0.3, rng.normal(size=(n_clusters, 3)) * 0.3
    assigner = Assigner(lattice.quantize(centers, frame(3).lattice, lattice.SUM_BITS))
    integers = lattice.quantize(points, frame(3).lattice, lattice.SUM_BITS)
    labels = assigner.labels(integers)
    sums = np.array([integers[labels == each].sum(axis=0) for each in range(n_clusters)])
    found = rows.sums_and_counts(ClientBlock(points), frame(3), assigner, 1.0, 1.0)
    np.testing.assert_array_equal(found[: 3 * n_clusters].reshape(-1, 3), sums)
    np.testing.assert_array_equal(
        found[3 * n_clusters :], [UNIT * (labels == each).sum() for each in range(n_clusters)]
    )


def test_no_rows_give_zeros():
    empty = np.zeros((0, 2))
    assigner = Assigner(np.zeros((3, 2)))
    assert not rows.outer_product(ClientBlock(empty), frame(2), 1.0, relative=False).any()
    assert not rows.histogram(ClientBlock(empty), frame(2), assigner, 1.0, relative=False).any()
    assert not rows.sums_and_counts(ClientBlock(empty), frame(2), assigner, 1.0, 1.0).any()
    none = block(empty, [])
    assert not clients.outer_product(none, frame(2), 1.0, relative=False).any()
    assert not clients.histogram(none, frame(2), assigner, 1.0, relative=True).any()
    assert not clients.mean_sums_and_counts(none, frame(2), assigner, 1.0, 1.0).any()
