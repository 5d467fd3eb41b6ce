import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import client_chunks, clients, lattice, rows
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.differences import Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Components, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound
from dapple_dp.transforms.numerics.kmeans.server_points import restore

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


def test_histogram_by_hand():
    assigner = Assigner(np.array([[0.0], [float(UNIT)]]), Projection.from_basis(np.array([[1.0], [0.0]])))
    points = np.array([[0.1, 0.9], [0.6, 0.0], [0.7, 0.1]])
    found = rows.histogram(ClientBlock(points), frame(2), assigner, 1.0, relative=False)
    np.testing.assert_array_equal(found, [1 * UNIT, 2 * UNIT])


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


@pytest.mark.parametrize("one_third", [False, True])
@pytest.mark.parametrize("n_clusters", [16, 17, 60])
def test_many_clusters_are_summed_another_way_to_the_same_integers(n_clusters, one_third):
    rng = np.random.default_rng(1)
    points, centers = rng.normal(size=(2500, 3)) * 0.3, rng.normal(size=(n_clusters, 3)) * 0.3
    assigner = Assigner(lattice.quantize(centers, frame(3).lattice, lattice.SUM_BITS), None, one_third)
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


def test_components_are_moved_before_clipping_and_centers_are_moved_back():
    wide = Lattice(np.array([50.0, 0.0]), 60.0)
    anchors = lattice.quantize(np.array([[0.0, 0.0], [100.0, 0.0]]), wide, lattice.SUM_BITS)
    shifts = np.array([[0.0, 0.0], [97.0, 0.0]])
    moved = Frame(Lattice(np.zeros(2), 8.0), Components(wide, anchors, shifts))
    rows = moved.quantize(np.array([[1.0, 1.0], [101.0, 1.0]]), lattice.SUM_BITS) * moved.lattice.unit(lattice.SUM_BITS)
    np.testing.assert_allclose(rows, [[1.0, 1.0], [4.0, 1.0]], atol=1e-4)
    np.testing.assert_allclose(restore(moved, np.array([[1.0, 1.0], [4.0, 1.0]])), [[1, 1], [101, 1]], atol=1e-9)


def test_client_scatter_by_hand():
    points = [[0.5, 0.0], [0.5, 0.0], [1.0, 0.0]]
    # first client: scatter 0.5 stays below the bound 0.5; second: 1.0 is clipped to 0.5; the bound is 2^32 units
    found = clients.outer_product(block(points, [2, 1]), frame(2), 0.5, relative=False) / 2.0**32
    np.testing.assert_allclose(found, [2.0, 0.0, 0.0], rtol=1e-4)
    assert found[0] <= 2.0


def test_relative_scatter_is_the_mean_over_clients_of_their_mean_scatter():
    rng = np.random.default_rng(2)
    sizes = [1, 7, 90, 3000]
    points = rng.normal(size=(sum(sizes), 2)) * 0.3
    found = clients.outer_product(block(points, sizes), frame(2), 1.0, relative=True) * 2.0**-32
    inside = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    parts = np.split(inside, np.cumsum(sizes)[:-1])
    expected = sum(part.T @ part / len(part) for part in parts)
    np.testing.assert_allclose(found, expected[np.triu_indices(2)], atol=5e-3)


def test_client_histogram_by_hand():
    assigner = Assigner(np.array([[0.0, 0.0], [float(UNIT), 0.0]]))
    grouped = block([[0, 0], [0, 0], [0.9, 0], [0.9, 0], [0.9, 0]], [4, 1])
    # fractions (.5, .5) and (0, 1): norms .7071 and 1, bound .8 = UNIT
    found = clients.histogram(grouped, frame(2), assigner, 0.8, relative=True) / UNIT
    np.testing.assert_allclose(found, [0.5 / 0.8, 0.5 / 0.8 + 1.0], rtol=1e-5)
    # counts (2, 2) and (0, 1), L1 bound 2: (1, 1) and (0, 1), 2 rows = UNIT
    found = clients.histogram(grouped, frame(2), assigner, 2.0, relative=False) / UNIT
    np.testing.assert_allclose(found, [0.5, 0.5 + 0.5], rtol=1e-5)


def test_client_means_by_hand():
    assigner = Assigner(np.array([[0.0, 0.0], [float(UNIT), 0.0]]))
    grouped = block([[0.2, 0], [0.4, 0], [1.0, 0], [1.0, 0]], [3, 1])
    # means of means: (.3, 1.0) and (-, 1.0); presence (1, 1) and (0, 1)
    found = clients.means_of_means(grouped, frame(2), assigner, 2.0, 2.0) / UNIT
    np.testing.assert_allclose(found, [0.15, 0.0, 1.0, 0.0, 0.5, 1.0], rtol=1e-4)
    # relative: sums (.2, 1/3) and (0, 1), counts (2/3, 1/3) and (0, 1); bounds 2 do not bind
    found = clients.mean_sums_and_counts(grouped, frame(2), assigner, 2.0, 2.0) / UNIT
    np.testing.assert_allclose(found, [0.1, 0.0, 2 / 3, 0.0, 1 / 3, 2 / 3], rtol=1e-4)
    # absolute: sums (.6, 1.0) and (0, 1), counts (2, 1) and (0, 1); count bound 3
    found = clients.clipped_sums_and_counts(grouped, frame(2), assigner, 2.0, 3.0) / UNIT
    np.testing.assert_allclose(found, [0.3, 0.0, 1.0, 0.0, 2 / 3, 2 / 3], rtol=1e-4)


def test_large_client_takes_the_blockwise_path_with_the_same_law():
    rng = np.random.default_rng(7)
    size = client_chunks.CLIENT_BLOCK_ROWS + 1
    points = rng.normal(size=(size, 3)) * 0.1
    found = clients.outer_product(block(points, [size]), frame(3), 5.0, relative=False) / 2.0**32
    scatter = points.T @ points
    expected = scatter * min(1.0, 5.0 / np.linalg.norm(scatter)) / 5.0
    np.testing.assert_allclose(found, expected[np.triu_indices(3)], atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_clients_do_not_depend_on_order_of_rows_clients_or_shards(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 60, 40)
    points = rng.normal(size=(sizes.sum(), 5)) * 0.5
    assigner = Assigner(lattice.quantize(rng.normal(size=(4, 5)), frame(5).lattice, lattice.SUM_BITS))
    whole = block(points, sizes)
    parts = np.split(points, np.cumsum(sizes)[:-1])
    order = rng.permutation(40)
    shuffled = block(np.concatenate([rng.permutation(parts[i]) for i in order]), sizes[order])
    for statistic in (
        lambda b: clients.outer_product(b, frame(5), 3.0, relative=False),
        lambda b: clients.histogram(b, frame(5), assigner, 0.4, relative=True),
        lambda b: clients.histogram(b, frame(5), assigner, 20.0, relative=False),
        lambda b: clients.mean_sums_and_counts(b, frame(5), assigner, 0.2, 0.5),
        lambda b: clients.means_of_means(b, frame(5), assigner, 0.5, 3.0),
        lambda b: clients.clipped_sums_and_counts(b, frame(5), assigner, 5.0, 30.0),
    ):
        np.testing.assert_array_equal(statistic(whole), statistic(shuffled))
        one_by_one = sum(statistic(block(part, [len(part)])) for part in parts)
        np.testing.assert_array_equal(statistic(whole), one_by_one)


@pytest.mark.parametrize("bound", [float("nan"), 0.0, -1.0, float("inf")])
def test_a_bound_of_clients_that_bounds_nothing_is_refused(bound):
    """States begin with bounds that are no numbers; with these, what a client adds would be cast from NaN."""
    block, frame = ClientBlock(np.ones((3, 2)), np.array([0, 3])), Frame(Lattice(np.zeros(2), 1.0))
    assigner = Assigner(np.zeros((1, 2)))
    forms = (
        lambda: clients.outer_product(block, frame, bound, relative=False),
        lambda: clients.histogram(block, frame, assigner, bound, relative=True),
        lambda: clients.histogram(block, frame, assigner, bound, relative=False),
        lambda: clients.mean_sums_and_counts(block, frame, assigner, 1.0, bound),
        lambda: clients.means_of_means(block, frame, assigner, bound, 1.0),
        lambda: clients.clipped_sums_and_counts(block, frame, assigner, 1.0, bound),
    )
    for form in forms:
        with pytest.raises(LatticeOverflowError, match="clipping bounds must be finite numbers above 0"):
            form()


@pytest.mark.parametrize("bound", [float("nan"), 0.0, 0.5, 2.0, float("inf")])
def test_rows_are_clipped_to_no_bound_of_their_own(bound):
    """A state of clients would have its releases read in units of a bound that rows were not clipped to."""
    block, frame, assigner = ClientBlock(np.ones((3, 2))), Frame(Lattice(np.zeros(2), 1.0)), Assigner(np.zeros((1, 2)))
    around = Neighborhoods(np.zeros((1, 2)), 8)
    forms = (
        lambda: rows.outer_product(block, frame, bound, relative=True),
        lambda: rows.histogram(block, frame, assigner, bound, relative=True),
        lambda: rows.mean_sums_and_counts(block, frame, assigner, 1.0, bound),
        lambda: rows.means_of_means(block, frame, assigner, bound, 1.0),
        lambda: rows.relative_sums(block, frame, around, 8, bound),
        lambda: rows.relative_sums(block, frame, around, 7),
    )
    for form in forms:
        with pytest.raises(LatticeOverflowError, match=r"bounds of single rows must be .*, which every row keeps"):
            form()


def test_a_client_of_one_row_adds_what_the_row_adds():
    """Both modules have the same functions; where nothing is cut they agree, but for what truncation takes."""
    points = np.random.default_rng(3).normal(size=(50, 2)) * 0.3
    alone, around = block(points, [1] * 50), Neighborhoods(np.trunc(points[:3] * UNIT), UNIT, True)
    assigner = Assigner(around.centers)

    def everything(by):
        yield by.count(alone)
        yield by.outer_product(alone, frame(2), 1.0, relative=True)
        yield by.histogram(alone, frame(2), assigner, 1.0, relative=True)
        yield by.mean_sums_and_counts(alone, frame(2), assigner, 1.0, 1.0)
        yield by.means_of_means(alone, frame(2), assigner, 1.0, 1.0)
        yield by.clipped_sums_and_counts(alone, frame(2), assigner, 1.0, 1.0)
        yield by.relative_sums(alone, frame(2), around, UNIT)
        yield by.norm_histogram(alone, np.zeros(2))
        yield by.quality(alone, frame(2), around.centers, squared_bound(around.centers))
        yield by.gain(alone, frame(2), around.centers, around.centers[:1], UNIT**2 // 9)

    for of_rows, of_clients in zip(everything(of_unit(Rows())), everything(of_unit(Clients())), strict=True):
        np.testing.assert_array_equal(of_rows, of_clients)


def test_fractions_of_clients_are_truncated():
    """Rounded to the nearest, the norm of many fractions could pass that of their sum."""
    totals = np.array([[5.0, -5.0, 1.0], [2.0, 1.0, 0.0]])
    found = clients._fractions(totals, np.array([3, 3]), 1)
    np.testing.assert_array_equal(found, [[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(clients._fractions(totals[1:], np.array([3])), [[699050.0, 349525.0, 0.0]])


@pytest.mark.parametrize("sizes", [[1], [5], [1, 1, 1], [1, 7, 2]])
def test_a_client_counts_once_whatever_its_rows(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    block = ClientBlock(np.ones((offsets[-1], 2)), offsets)
    np.testing.assert_array_equal(clients.count(block), [len(sizes) * lattice.SUM_UNITS])


@pytest.mark.parametrize(
    ("n_rows", "n_groups", "size"), [(300, 4, 5), (300, 40, 5), (40, 30, 3), (10, 4000, 2), (0, 3, 2)]
)
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_sums_by_group_are_exact_however_many_groups_there_are(n_rows, n_groups, size, dtype):
    rng = np.random.default_rng(n_rows + n_groups)
    rows = rng.integers(-(2**42), 2**42, (n_rows, size))
    groups = rng.integers(0, n_groups, n_rows)
    start = rng.integers(-5, 5, (n_groups, size))
    wanted = start.copy()
    for row, group in zip(rows, groups, strict=True):
        wanted[group] += row
    found = start.astype(dtype)
    lattice.add_by_group(found, rows.astype(np.float64), groups)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.int64), wanted)
