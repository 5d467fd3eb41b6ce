"""Thinning, weights and diameter reduction of the server points, by hand."""

import math

import numpy as np
import pytest

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans import server_points
from dapple_dp.transforms.numerics.kmeans.starts import seeding


def mask(text: str) -> np.ndarray:
    return np.array([letter == "x" for letter in text])


@pytest.mark.parametrize(
    ("n_points", "epsilon", "w_min", "expected"),
    [
        (300, 1.0, 0.1, 55),
        (10, 0.5, 0.2, 46),  # 10 log(4 * 2.302585 / 0.1) = 45.2
        (2, 100.0, 1.0, 1),
        (1, 1.0, 0.5, 1),
    ],
)
def test_thinning_rounds(n_points, epsilon, w_min, expected):
    assert server_points.thinning_rounds(n_points, epsilon, w_min) == expected


def test_thin_freezes_heavy_points_and_halves_the_light_ones():
    rng = np.random.default_rng(0)
    active, weights = rng.random(1000) < 0.8, rng.random(1000)
    frozen = np.zeros(1000, dtype=bool)
    frozen[active.argmax()] = True
    weights[active.argmax()] = 0.0
    next_active, next_frozen = server_points.thin(active, frozen, weights, 0.5, seed=0, step=3)
    np.testing.assert_array_equal(next_frozen, frozen | (active & (weights > 0.5)))
    light = active & ~next_frozen
    np.testing.assert_array_equal(next_active, next_frozen | seeding.halve(light, 0, 3))
    assert not next_active[~active].any()
    # about 400 light points, stddev about 10
    assert abs(int((next_active & light).sum()) - int(light.sum()) / 2) < 60


def test_a_weight_at_the_threshold_is_light():
    active, frozen = server_points.thin(mask("xx"), mask(".."), np.array([2.0, 2.1]), 2.0, seed=0, step=0)
    np.testing.assert_array_equal(frozen, mask(".x"))
    assert active[1]


@pytest.mark.parametrize(
    ("active", "n_points", "expected"),
    [
        ("xx..", 2, "xx.."),
        ("xxx.", 2, "xxx."),
        ("x...", 2, "x..x"),
        ("....", 3, ".xxx"),
        ("x...", 4, "xxxx"),
    ],
)
def test_at_least_tops_up_with_the_heaviest(active, n_points, expected):
    weights = np.array([-1.0, 1.0, 5.0, 7.0])
    given = mask(active)
    np.testing.assert_array_equal(server_points.at_least(given, weights, n_points), mask(expected))
    np.testing.assert_array_equal(given, mask(active))


def test_equal_weights_are_topped_up_in_order():
    np.testing.assert_array_equal(server_points.at_least(mask("...."), np.zeros(4), 2), mask("xx.."))


def test_printed_weights_are_not_negative():
    found = server_points.printed_weights(np.array([-3.0, 1.0, 2.5]), 2.0)
    np.testing.assert_array_equal(found, [0.0, 1.0, 2.5])


def test_weights_beyond_noise_leave_one_percent_to_empty_bins():
    rng = np.random.default_rng(3)
    noise = rng.normal(0.0, 10.0, 100_000)
    kept = server_points.weights_beyond_noise(noise, 10.0, 1e6, 10)
    # A normal number above t adds phi(t): t = 2.715 leaves 10,000 rows of 100,000 empty bins.
    assert kept.sum() == pytest.approx(0.01 * 1e6, rel=0.1)
    assert kept[kept > 0.0].min() == pytest.approx(27.15, abs=0.05)


@pytest.mark.parametrize(("n_rows", "least"), [(2_999.0, 10.0), (3_000.0, 35.0), (1e9, 10.0)])
def test_few_rows_have_the_threshold_of_one_stddev_and_no_threshold_is_above_three_and_a_half(n_rows, least):
    noisy = np.concatenate([np.linspace(0.0, 40.0, 401), np.zeros(10_000_000 if n_rows == 3_000.0 else 0)])
    kept = server_points.weights_beyond_noise(noisy, 10.0, n_rows, 10)
    assert kept[kept > 0.0].min() == pytest.approx(least, abs=0.11)


def test_significant_weights_are_above_one_stddev():
    found = server_points.significant_weights(np.array([-3.0, 1.0, 2.0, 2.5]), 2.0)
    np.testing.assert_array_equal(found, [0, 0, 0, 2.5])


def test_shrunken_weights_by_hand():
    # mean 2, variance 4, noise variance 2: half of the spread is signal
    found = server_points.shrunken_weights(np.array([0.0, 4.0]), math.sqrt(2.0))
    np.testing.assert_allclose(found, [1.0, 3.0])


def test_shrunken_weights_without_noise_are_the_weights():
    np.testing.assert_array_equal(server_points.shrunken_weights(np.array([0.0, 1.0, 5.0]), 0.0), [0, 1, 5])
    np.testing.assert_allclose(server_points.shrunken_weights(np.array([0.0, 1.0, 5.0]), 1e-9), [0, 1, 5])


def test_shrunken_weights_under_much_noise_are_equal():
    np.testing.assert_allclose(server_points.shrunken_weights(np.array([0.0, 1.0, 5.0]), 100.0), [2.0] * 3)


def test_shrunken_weights_are_never_negative_and_never_all_zero():
    found = server_points.shrunken_weights(np.array([-10.0, 0.0, 4.0]), 1.0)
    assert (found >= 0).all()
    assert found.any()
    negative = server_points.shrunken_weights(np.array([-10.0, -9.0]), 20.0)
    assert (negative > 0).all()


@pytest.mark.parametrize(
    ("weights", "epsilon", "expected"),
    [
        # 100 rows, w_min 1/2: 50 / 3 rows must be near; at epsilon 100 no number of points does it
        ([9.0, 9.0, 1.0], 100.0, "xx."),
        ([9.0, 7.0, 17.0], 100.0, "..x"),
        ([0.0, 0.0, 0.0], 100.0, "xxx"),
        # at epsilon 5, 5 * 100 * 0.5 / (200 log 3) = 1.14 points are enough
        ([0.0, 0.0, 0.0], 5.0, "xx."),
    ],
)
def test_massive_points_by_hand(weights, epsilon, expected):
    points = np.array([[0.0], [1.0], [10.0]])
    found = server_points.massive_points(points, np.array(weights), 2.0, 100.0, 0.5, epsilon)
    np.testing.assert_array_equal(found, mask(expected))


def two_blobs(gap: float) -> np.ndarray:
    blob = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    return np.concatenate([blob, blob + np.array([gap, 0.0])])


def framed(points: np.ndarray) -> Frame:
    center = points.mean(axis=0)
    return Frame(Lattice(center, float(np.linalg.norm(points - center, axis=1).max())))


@pytest.mark.parametrize("centered", [True, False])
def test_far_blobs_are_moved_nearer_and_restored(centered):
    points = two_blobs(10000.0)
    before = framed(points)
    after = server_points.reduce_diameter(points, np.ones(8, dtype=bool), 3.0, before, centered=centered)
    assert after.components is not None
    # spacing 100 sqrt(2): the radius is about 71 around the middle, 142 around the origin
    assert after.lattice.clipping_norm == pytest.approx(71.5 if centered else 142.4, abs=1.0)
    assert before.lattice.clipping_norm > 5000.0
    moved = after.quantize(points, lattice.SUM_BITS) * after.lattice.unit(lattice.SUM_BITS) + after.lattice.center
    np.testing.assert_allclose(moved[4:] - moved[:4], [[100 * math.sqrt(2), 0.0]] * 4, atol=1e-3)
    np.testing.assert_allclose(server_points.restore(after, moved), points, atol=1e-2)


def test_points_left_out_do_not_count():
    points = np.concatenate([two_blobs(10000.0), [[5000.0, 5000.0]]])
    kept = mask("xxxxxxxx.")
    after = server_points.reduce_diameter(points, kept, 3.0, framed(points), centered=True)
    assert after.components is not None
    assert len(after.components.anchors) == 8


@pytest.mark.parametrize(
    ("gap", "distance"),
    [
        (10000.0, 20000.0),  # one component
        (20.0, 3.0),  # two, but a spacing of 141 would drive them apart
        (130.0, 3.0),
    ],
)
def test_the_frame_stays_where_moving_does_not_make_it_smaller(gap, distance):
    points = two_blobs(gap)
    before = framed(points)
    after = server_points.reduce_diameter(points, np.ones(8, dtype=bool), distance, before, centered=True)
    assert after is before
    np.testing.assert_array_equal(server_points.restore(after, points), points)
