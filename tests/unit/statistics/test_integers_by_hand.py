"""The arithmetic under the statistics, by hand: exact norms, factors that shrink, limits from both sides, far rows."""

import math

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import (
    assignment,
    clients,
    differences,
    distances,
    lattice,
    row_pass,
    rows,
)
from dapple_dp.transforms.core.statistics.client_chunks import client_chunks, clients_in_order, group_sums, owners
from dapple_dp.transforms.core.statistics.differences import Neighborhoods, stretch
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.kmeans.lloyd.specs import triangle_size
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound
from dapple_dp.transforms.numerics.kmeans.norms import noisy_quantile
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters, squared_distances
from dapple_dp.transforms.numerics.trusted_zone.exact_sum import ExactSum
from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame, frame_digest
from dapple_dp.transforms.trusted_zone.shared_frame import SharedFrame

UNIT = 1 << 20
SHRINK = 1.0 - 2.0**-20


def plain(n_features, norm=1.0):
    return Frame(Lattice(np.zeros(n_features), norm))


# Norms of scatters.


@pytest.mark.parametrize("shape", [(3, 5, 2), (2, 2, 7), (2, 60, 2), (2, 1, 1)])
def test_squared_norms_of_scatters_are_exact(shape):
    padded = np.random.default_rng(sum(shape)).integers(-(1 << 16), 1 << 16, size=shape).astype(float)
    padded[0] = (1 << 16) - 1
    found = clients._squared_scatter_norms(padded)
    for client, (high, middle, low) in zip(padded, found.tolist(), strict=True):
        exact = [[int(each) for each in row] for row in client]
        gram = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in exact] for one in exact]
        assert (high << 32) + (middle << 17) + low == sum(each * each for line in gram for each in line)
        assert 0 <= middle < 1 << 15
        assert 0 <= low < 1 << 17
    assert clients._as_float(np.array([[3, 5, 7], [0, 1, 2]])).tolist() == [3 * 2.0**32 + 5 * 2.0**17 + 7, 2.0**17 + 2]
    assert clients._scatter_factors(np.array([0.0, 1.0, 2.0**64, 2.0**68])).tolist() == [2.0**16, 2.0**16, 1.0, 0.5]


def test_clients_that_fill_a_block_to_its_last_row_are_bounded_one_by_one():
    points = np.random.default_rng(4).uniform(-0.7, 0.7, (clients.CLIENT_BLOCK_ROWS, 2))
    both, (first, second) = ClientBlock(points, np.array([0, 1024, 2048])), np.split(points, 2)
    assert [chunk.n_clients for chunk in client_chunks(both)] == [2]
    scatters = [
        clients.outer_product(ClientBlock(rows, np.array([0, len(rows)])), plain(2), 1.0, relative=False)
        for rows in (first, second)
    ]
    np.testing.assert_array_equal(clients.outer_product(both, plain(2), 1.0, relative=False), sum(scatters))


def test_a_large_client_is_shrunken_by_the_stated_steps(monkeypatch):
    """From a hair above the largest factor that keeps the bound: one step of 1 - 2**-20, then one of its square."""
    points = np.linspace(0.3, 0.9, 2500)[:, None]
    rows = np.trunc(points[:, 0] * 2**16)

    def scatter(factor):
        return int((np.trunc(rows * factor) ** 2).sum())

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if scatter(middle) <= 1 << 32 else (low, middle)
    for steps, factor in [(0, low), (1, low * (1 + 2.0**-21)), (2, low * (1 + 2.0**-19))]:
        monkeypatch.setattr(clients, "_scatter_factors", lambda _, factor=factor: np.array([factor]))
        for step in range(steps):
            factor *= SHRINK ** (1 << step)
        assert clients._large_scatter(points, plain(1), 10.0).tolist() == [[scatter(factor)]]
    assert clients._large_scatter(points, plain(1), 0.01).tolist() == [[scatter(0.01)]]


def test_factors_shrink_by_the_stated_steps():
    vectors, seen = np.array([[2.0**40], [2.0**40], [3.0]]), []

    def holds(scaled):
        seen.append(len(scaled))
        return np.abs(scaled[:, 0]) <= limit

    limit = 2.0**40 * SHRINK**7 + 1
    found = lattice.scale_until(vectors, np.array([1.0, SHRINK**7, 1.0]), holds)
    assert found[:, 0].tolist() == [math.trunc(2.0**40 * (SHRINK * SHRINK**2 * SHRINK**4)), math.trunc(limit - 1), 3.0]
    assert seen == [3, 1, 1, 1]
    factors = np.array([1.0])
    lattice.scale_until(vectors[:1], factors, holds)
    assert factors[0] == 1.0
    with pytest.raises(LatticeOverflowError, match="that no vector meets"):
        lattice.scale_until(vectors, np.ones(3), lambda scaled: np.zeros(len(scaled), dtype=bool))
    lattice.check_shrinking(0.0, pending=False)
    lattice.check_shrinking(5e-324, pending=True)


@pytest.mark.parametrize("clip", [lattice.clip_l2, lattice.clip_l1])
def test_clips_stretch_to_their_limit_and_no_further(clip):
    found = clip(np.array([[0.0], [1.0], [5.0], [20.0]]), 10.0)
    assert found[:, 0].tolist() == [0, 1, 5, 10]
    assert clip(np.array([[1.0], [5.0]]), 10.0, rescale=1.5)[:, 0].tolist() == [1, 7]
    assert clip(np.array([[1.0], [5.0]]), 10.0, rescale=math.inf)[:, 0].tolist() == [10, 10]
    assert clip(np.array([[4.0], [5.0]]), 10.0, rescale=np.array([0.5, 0.0]))[:, 0].tolist() == [2, 0]


# Limits.


@pytest.mark.parametrize(("bits", "most"), [(20, 8192), (16, 1 << 21), (24, 32)])
def test_ends_of_the_exact_range(bits, most):
    lattice.check_features(most, bits)
    with pytest.raises(LatticeOverflowError, match=f"n_features must be at most {most}"):
        lattice.check_features(most + 1, bits)


def test_rows_products_and_bounds_end_where_they_say():
    lattice.check_rows((1 << 31) - 1)
    with pytest.raises(LatticeOverflowError, match="there are more than 2147483647"):
        lattice.check_rows(1 << 31)
    lattice.check_product(2.0**26, 2.0**27 - 1)
    for right in (2.0**27, math.nan, math.inf):
        with pytest.raises(LatticeOverflowError, match="must stay below 2"):
            lattice.check_product(2.0**26, right)
    lattice.check_bounds(5e-324, 1e308)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(LatticeOverflowError, match="finite numbers above 0"):
            lattice.check_bounds(1.0, bad)
    lattice.check_whole((1.0, 1.0), (2.0, 2.0))
    with pytest.raises(LatticeOverflowError, match=r"must be \(1.0, 2.0\), which every row keeps, got \(1.0, 3.0\)"):
        lattice.check_whole((1.0, 1.0), (3.0, 2.0))
    assert (lattice.SUM_BITS, lattice.OUTER_BITS, lattice.SUM_UNITS, lattice.OUTER_UNITS) == (20, 16, 1 << 20, 1 << 16)
    assert Lattice(np.zeros(1), 3.0).unit(20) == 3.0 * 2.0**-20


def test_norms_of_rows_are_bounded_by_their_width_not_their_number():
    assert len(lattice.row_norms(np.ones((8193, 1)), np.zeros(1))) == 8193
    with pytest.raises(LatticeOverflowError, match="n_features must be at most 8192"):
        lattice.row_norms(np.ones((1, 8193)), np.zeros(8193))
    found = lattice.row_norms(np.array([[3.0, 4.0], [0.0, 0.0], [1e308, 1e308]]), np.zeros(2))
    np.testing.assert_allclose(found, [5.0, 0.0, 2**0.5 * 1e308], rtol=1e-5)
    assert lattice.row_norms(np.array([[1.7e308, 1.7e308]]), np.zeros(2)).tolist() == [math.inf]


def test_rows_are_cut_into_blocks():
    blocks = list(lattice.row_blocks(np.arange(2050)[:, None]))
    assert [len(each) for each in blocks] == [1024, 1024, 2]
    assert [int(each[0, 0]) for each in blocks] == [0, 1024, 2048]


# Centers.


@pytest.mark.parametrize("n_centers", [1, 2, 32, 33, 40])
def test_nearest_centers_by_brute_force(n_centers):
    rng = np.random.default_rng(n_centers)
    rows = rng.integers(-1000, 1000, size=(600, 3)).astype(float)
    centers = rng.integers(-900, 900, size=(n_centers, 3)).astype(float)
    centers[-1] = centers[0]
    squared = ((rows[:, None] - centers) ** 2).sum(axis=2)
    expected = squared.argmin(axis=1)
    np.testing.assert_array_equal(assignment.nearest(rows, centers, 2.0**20), expected)
    labels, squares = assignment.nearest_squared(rows, centers, 2.0**20)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(squares, squared.min(axis=1))


def test_projections_round_and_floor():
    projection = assignment.Projection.from_basis(np.array([[0.6], [0.8]]))
    assert projection.matrix.tolist() == [[round(0.6 * 2**24)], [round(0.8 * 2**24)]]
    np.testing.assert_allclose(projection.basis, [[0.6], [0.8]], atol=2.0**-25)
    assert assignment.project(np.array([[5.0, 10.0], [-5.0, -10.0]]), projection).tolist() == [[11.0], [-12.0]]
    assert assignment.project(np.array([[1.0, 1.0], [-1.0, -1.0]]), projection).tolist() == [[1.0], [-2.0]]
    with pytest.raises(LatticeOverflowError, match="must stay below 2"):
        assignment.project(np.ones((1, 1)), assignment.Projection(np.array([[2.0**33]])))


def test_scores_are_refused_where_they_are_not_exact():
    largest = (math.sqrt(2.0**40 + 2.0**53) - 2.0**20) / (1 + 2.0**-20)
    assignment.check_scores(np.array([[math.floor(largest) - 2.0]]), 2.0**20)
    with pytest.raises(LatticeOverflowError, match="must stay below 2"):
        assignment.check_scores(np.array([[math.ceil(largest) + 100.0]]), 2.0**20)
    assert assignment.largest_norm(np.array([[3.0, 4.0], [1.0, 0.0]])) == 5.0 * (1 + 2.0**-20)
    assert assignment.largest_norm(np.zeros((0, 2))) == 0.0


def test_far_rows_go_to_their_nearest_center():
    """So far out that each has a unit of its own, where squared norms of centers still decide many."""
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(8, 2))
    model = NearestCenters.of(centers)
    angles = rng.uniform(0.0, 2.0 * math.pi, size=4000)
    for distance in (40.0, 80.0, 700.0):
        points = distance * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        squared = ((points[:, None] - centers) ** 2).sum(axis=2)
        found = model.rows(points)
        np.testing.assert_array_equal(found.labels, squared.argmin(axis=1))
        np.testing.assert_allclose(found.squared, squared.min(axis=1), rtol=1e-6)
        np.testing.assert_array_equal(model.labels(points), found.labels)


def test_squared_distances_need_no_bound():
    points, centers = np.array([[1e200, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])
    found = squared_distances(points, centers, np.zeros(2, dtype=int))
    assert found[0] == math.inf
    assert found[1] == pytest.approx(25.0, rel=1e-7)


# Clients.


def test_chunks_hold_whole_clients_of_similar_size():
    sizes = [700, 1, 2049, 3, 2048, 1, 500, 700, 500]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    block = ClientBlock(np.arange(sum(sizes), dtype=float)[:, None], offsets)
    chunks = list(client_chunks(block))
    found = [np.diff(each.client_offsets).tolist() for each in chunks]
    assert found == [[1, 1, 3, 500], [500, 700], [700], [2048], [2049]]
    assert sorted(np.concatenate([each.points[:, 0] for each in chunks]).tolist()) == list(range(sum(sizes)))
    ordered = list(clients_in_order(block, 4))
    assert [np.diff(each.client_offsets).tolist() for each in ordered] == [sizes[:4], sizes[4:8], sizes[8:]]
    assert np.concatenate([each.points[:, 0] for each in ordered]).tolist() == list(range(sum(sizes)))
    assert [each.tolist() for each in owners(chunks[0]._replace(points=chunks[0].points[:5]))] == [
        [1, 1, 3, 500],
        [0, 1, 2, 2, 2, *[3] * 500],
    ]
    totals, rows = group_sums(
        ClientBlock(np.array([[1.0], [2.0], [4.0], [8.0]]), np.array([0, 1, 4])),
        2,
        1,
        lambda points: (points, np.where(points[:, 0] < 3, 0, np.where(points[:, 0] < 5, 1, -1))),
        by_client=True,
    )
    assert (totals.tolist(), rows.tolist()) == ([[1], [0], [2], [4]], [1, 0, 1, 1])


def test_common_factors_keep_the_direction_of_a_client():
    """Sums twice over their bound, or counts: both are halved."""
    block = ClientBlock(np.array([[0.5, 0.0], [0.5, 0.0]]), np.array([0, 2]))
    assigner = assignment.Assigner(np.zeros((1, 2)))
    found = clients.mean_sums_and_counts(block, plain(2), assigner, 0.25, 1.0)
    assert found.tolist() == [UNIT, 0, UNIT // 2]
    found = clients.mean_sums_and_counts(block, plain(2), assigner, 0.5, 0.25)
    assert found.tolist() == [UNIT // 4, 0, UNIT]
    found = clients.mean_sums_and_counts(block, plain(2), assigner, 1.0, 2.0)
    assert found.tolist() == [UNIT // 2, 0, UNIT // 2]


def test_costs_are_rounded_and_capped():
    block = ClientBlock(np.array([[0.5], [0.25], [1.0]]), np.array([0, 2, 3]))
    centers = np.array([[0.0]])
    bound = squared_bound(centers)
    assert bound == (UNIT + 1) ** 2
    assert squared_bound(centers, 0.5) == 1
    assert squared_bound(centers, 3.0) == 9
    assert squared_bound(np.array([[3.0, 4.0], [60.0, 80.0]])) == (UNIT + 6) ** 2
    half = UNIT * UNIT // 4
    found = distances.row_quality(block, plain(1), centers, half)
    assert found.tolist() == [UNIT + UNIT // 4 + UNIT, 3 * UNIT]
    found = distances.client_quality(block, plain(1), centers, half)
    assert found.tolist() == [(UNIT + UNIT // 4) // 2 + UNIT, 2 * UNIT]
    odd = ClientBlock(np.array([[1.0], [0.0]]), np.array([0, 2]))
    assert distances.client_quality(odd, plain(1), centers, UNIT * UNIT)[0] == UNIT // 2


def test_directions_begin_at_the_least_radius():
    rows = np.array([[99.0, 0.0], [100.0, 0.0], [0.0, -300.0]])
    found, labels = differences.directions(rows, np.zeros((1, 2)), 100)
    assert found.tolist() == [[0.0, 0.0], [UNIT, 0.0], [0.0, -UNIT]]
    assert labels.tolist() == [0, 0, 0]
    block = ClientBlock(np.array([[0.5], [0.25]]), np.array([0, 2]))
    sums = differences.client_direction_sums(block, plain(1), np.zeros((1, 1)), 1, 0.5)
    assert sums.tolist() == [UNIT, UNIT // 2]
    assert differences.client_direction_sums(block, plain(1), np.zeros((1, 1)), 1, 1.0).tolist() == [UNIT, UNIT]


def test_norms_fall_into_quarter_octaves():
    assert len(distances.NORM_GRID) == 161
    assert distances.NORM_BINS == 162
    assert distances.NORM_GRID[[0, 80, 84, 160]].tolist() == [2.0**-20, 1.0, 2.0, 2.0**20]
    counts = np.zeros(162)
    counts[[10, 90]] = 5.0, 4.0
    assert noisy_quantile(counts, 1.0, 0.5) == distances.NORM_GRID[10]
    assert noisy_quantile(counts, 1.0, 0.6) == distances.NORM_GRID[90]
    assert noisy_quantile(counts, 2.0, 0.9) == distances.NORM_GRID[10]
    assert noisy_quantile(counts, 2.5, 0.9) == distances.NORM_GRID[10]
    counts[161] = 100.0
    assert noisy_quantile(counts, 1.0, 0.9) == distances.NORM_GRID[160]
    assert noisy_quantile(counts, 1e9, 0.5) == distances.NORM_GRID[160]


def test_sums_of_floats_are_exact_in_any_place():
    values = np.array([[1e300, 2.0**-900], [1.0, -(2.0**-950)], [-1e300, 0.0], [math.inf, 0.0]])
    found = ExactSum.of(values)
    assert found.infinite.tolist() == [1, 0]
    assert found.value.tolist() == [math.inf, 2.0**-900 - 2.0**-950]
    finite = ExactSum.of(values[:3])
    assert finite.value[0] == 1.0
    assert finite.over(np.array([4, 0]))[0] == 0.25
    assert math.isnan(finite.over(np.array([4, 0]))[1])
    assert ExactSum.of(np.array([2.0**-961])).value == 0.0
    assert ExactSum.of(np.array([2.0**-960])).value == 2.0**-960
    huge = ExactSum.of(np.array([1.7e308, 1.7e308, -1.7e308, -1.7e308, -1.7e308, -1.7e308]))
    assert huge.value == -math.inf
    grouped = ExactSum.grouped(values, np.array([1, 0, 1, 1]), 2)
    assert grouped.value.tolist() == [[1.0, -(2.0**-950)], [math.inf, 2.0**-900]]
    assert grouped.total().value.tolist() == found.value.tolist()
    both = ExactSum.of(values[:1]).merge(ExactSum.of(values[1:]))
    assert both.value.tolist() == found.value.tolist()
    assert max(int(np.abs(limb).max()) for limb in found.limbs.values()) < 4 << 24


class Halves:
    """The last of three bins has rows above zero; all others are left out."""

    size = 3

    def labels(self, rows):
        return np.where(rows[:, 0] > 0, 2, -1)


def test_bins_of_any_kind_are_summed():
    points = np.array([[0.5, 0.25], [0.25, -0.5], [0.0, 1.0]])
    found = rows.sums_and_counts(ClientBlock(points), plain(2), Halves(), 1.0, 1.0)
    assert found.tolist() == [0] * 4 + [3 * UNIT // 4, -UNIT // 4, 0, 0, 2 * UNIT]


# Frames.


def test_frames_by_hand():
    box = Frame.of_box(Box(-1.0, 3.0), 4)
    assert (box.lattice.center.tolist(), box.lattice.clipping_norm) == ([1.0] * 4, 4.0)
    assert Frame.of_box(Box(-1.0, 3.0), 4, 2.5).lattice.clipping_norm == 2.5
    assert box.quantize(np.array([[9.0, -9.0, 1.0, 1.0]]), 4).tolist() == [[8.0, -8.0, 0.0, 0.0]]
    others = [box, Frame.of_box(Box(-1.0, 3.0), 4, 2.5), Frame(Lattice(np.zeros(1), 2.0))]
    assert len({frame_digest(each) for each in others}) == len(others)
    assert len(frame_digest(box)) == 16


def test_kept_rows_are_checked_again():
    kept = QuantizedFrame.of(plain(2), 4)
    rows = np.array([[16, 0], [0, -16], [11, 11]], dtype=np.int32)
    np.testing.assert_array_equal(kept.quantize(rows, 4), rows)
    for other, bits in [(rows, 5), (rows.astype(np.int64), 4), (rows + np.int32(1), 4)]:
        with pytest.raises(LatticeOverflowError, match="run the job again with --cache_megabytes 0"):
            kept.quantize(other, bits)
    for bits in (4, 0):
        with pytest.raises(LatticeOverflowError, match="run the job again"):
            QuantizedFrame(*plain(2)).quantize(np.zeros_like(rows), bits)


def test_parts_of_held_rows_are_quantized_once():
    frame, points = SharedFrame(*plain(1)), np.linspace(-1.0, 1.0, 10)[:, None]
    assert frame.quantize(points[:3], 4) is not frame.quantize(points[:3], 4)
    frame.hold(points)
    first = frame.quantize(points[:3], 4)
    assert frame.quantize(points[:3], 4) is first
    assert not first.flags.writeable
    for other in (points[1:4], points[:4], points[::2][:3], points.copy()[:3], points[:0]):
        np.testing.assert_array_equal(frame.quantize(other, 4), plain(1).quantize(other, 4))
        assert frame.quantize(other, 4) is not first
    np.testing.assert_array_equal(frame.quantize(points[:3], 5), plain(1).quantize(points[:3], 5))
    copy = points[:3].copy()
    assert frame.quantize(copy, 4).flags.writeable
    assert frame.quantize(points[-1:], 4) is frame.quantize(points[-1:], 4)
    frame.hold(points.copy())
    assert frame.quantize(points[:3], 4) is not first


def test_triangles_are_whole():
    assert [repr(triangle_size(each)) for each in (1, 4, 5)] == ["1", "10", "15"]


def test_radii_stretch_to_one_sensitivity():
    assert [stretch(each) for each in (1, 3, 1 << 20, 1 << 26)] == [1 << 26, (1 << 26) // 3, 64, 1]
    for bound in (0, -3, 0.5, 1.5, (1 << 26) + 1, math.nan, math.inf):
        with pytest.raises(LatticeOverflowError, match="a radius must be an integer"):
            stretch(bound)
    found = Neighborhoods(np.zeros((2, 1)), 1 << 19)
    assert (found.size, found.factor, found.shortens) == (2, 128, False)


def test_centers_with_fractions_are_refused():
    """Their scores would be rounded, and a row could decide on the label of another."""
    rows_, block = np.zeros((2, 3)), ClientBlock(np.zeros((2, 3)))
    for odd in (0.5, math.nan):
        centers = np.array([[0.0, odd, 0.0]])
        with pytest.raises(LatticeOverflowError, match="centers must be lattice integers"):
            assignment.nearest(rows_, centers, 2.0**20)
        with pytest.raises(LatticeOverflowError, match="centers must be lattice integers"):
            rows.histogram(block, plain(3), assignment.Assigner(centers), 1.0, relative=False)


@pytest.mark.parametrize("bound", [0, math.nan, math.inf, -1])
def test_costs_need_a_bound(bound):
    block, centers = ClientBlock(np.zeros((2, 2)), np.array([0, 2])), np.zeros((1, 2))
    for quality in (distances.row_quality, distances.client_quality):
        with pytest.raises(LatticeOverflowError, match="clipping bounds must be finite"):
            quality(block, plain(1), centers, bound)
    for gain in (distances.row_gain, distances.client_gain):
        with pytest.raises(LatticeOverflowError, match="clipping bounds must be finite"):
            gain(block, plain(1), centers, centers, bound)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["mean_sums_and_counts", "means_of_means", "clipped_sums_and_counts"])
def test_totals_of_clients_need_two_bounds(name, bad):
    block, assigner = ClientBlock(np.zeros((2, 1)), np.array([0, 2])), assignment.Assigner(np.zeros((1, 1)))
    for bounds in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(LatticeOverflowError, match="run the rounds that release them first"):
            getattr(clients, name)(block, plain(1), assigner, *bounds)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("relative", [False, True])
def test_scatters_and_histograms_of_clients_need_a_bound(relative, bad):
    block, assigner = ClientBlock(np.zeros((2, 1)), np.array([0, 2])), assignment.Assigner(np.zeros((1, 1)))
    with pytest.raises(LatticeOverflowError, match="run the rounds that release them first"):
        clients.outer_product(block, plain(1), bad, relative=relative)
    with pytest.raises(LatticeOverflowError, match="run the rounds that release them first"):
        clients.histogram(block, plain(1), assigner, bad, relative=relative)


@pytest.mark.parametrize("other", [0.5, 2.0, math.nan])
def test_single_rows_keep_no_other_bound(other):
    block, centers = ClientBlock(np.zeros((2, 1))), np.zeros((1, 1))
    assigner, around = assignment.Assigner(centers), Neighborhoods(centers, 3)
    for statistic, *arguments in (
        (rows.sums_and_counts, assigner, other, 1.0),
        (rows.sums_and_counts, assigner, 1.0, other),
        (rows.relative_sums, around, other, 1.0),
        (rows.relative_sums, around, around.radius, other),
        (rows.direction_sums, centers, 1, other),
    ):
        with pytest.raises(LatticeOverflowError, match="bounds of single rows must be"):
            statistic(block, plain(1), *arguments)
    with pytest.raises(LatticeOverflowError, match="bounds of single rows must be"):
        rows.histogram(block, plain(1), assigner, other, relative=False)
    with pytest.raises(LatticeOverflowError, match="bounds of single rows must be"):
        rows.outer_product(block, plain(1), other, relative=False)


def test_outer_products_of_many_rows_are_exact():
    """More rows than have a sum below 2**53 are added in parts."""
    total, points = np.zeros((1, 1), dtype=np.int64), np.full(((1 << 18) + 1, 1), 1 << 18, dtype=np.int32)
    points[-1] = 1
    row_pass.add_outer(total, points, 2.0**18)
    assert total.tolist() == [[(1 << 54) + 1]]


def test_outer_products_need_a_square_matrix_and_a_norm_whose_sums_are_exact():
    row = np.zeros((1, 2), dtype=np.int32)
    for norm in (0.0, 2.0**18):
        row_pass.add_outer(np.zeros((2, 2), dtype=np.int64), row, norm)
    for shape, norm in (((2, 2), -1.0), ((2, 2), 2.0**18 + 1.0), ((2, 2), math.nan), ((1, 2), 1.0), ((2, 1), 1.0)):
        with pytest.raises(ValueError, match="must be added to a square matrix"):
            row_pass.add_outer(np.zeros(shape, dtype=np.int64), row, norm)
