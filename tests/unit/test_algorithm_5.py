"""Parts of FedDP-KMeans that benchmarks have, by hand: diameter reduction, thinning, and the rule of a third."""

import math

import numpy as np
import pytest

from benchmarks.papers import algorithm_5
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice


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
    assert algorithm_5.thinning_rounds(n_points, epsilon, w_min) == expected


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
    np.testing.assert_array_equal(algorithm_5.at_least(given, weights, n_points), mask(expected))
    np.testing.assert_array_equal(given, mask(active))


def test_equal_weights_are_topped_up_in_order():
    np.testing.assert_array_equal(algorithm_5.at_least(mask("...."), np.zeros(4), 2), mask("xx.."))


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
    found = algorithm_5.massive_points(points, np.array(weights), 2.0, 100.0, 0.5, epsilon)
    np.testing.assert_array_equal(found, mask(expected))


def two_blobs(gap: float) -> np.ndarray:
    blob = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    return np.concatenate([blob, blob + np.array([gap, 0.0])])


def framed(points: np.ndarray) -> Frame:
    center = points.mean(axis=0)
    return Frame(Lattice(center, float(np.linalg.norm(points - center, axis=1).max())))


def test_far_blobs_are_moved_nearer_and_restored():
    points = two_blobs(10000.0)
    before = framed(points)
    after = algorithm_5.reduce_diameter(points, np.ones(8, dtype=bool), 3.0, before)
    assert isinstance(after, algorithm_5.MovedFrame)
    # spacing 100 sqrt(2): the radius is about 142 around the origin
    assert after.lattice.clipping_norm == pytest.approx(142.4, abs=1.0)
    assert before.lattice.clipping_norm > 5000.0
    moved = after.quantize(points, lattice.SUM_BITS) * after.lattice.unit(lattice.SUM_BITS) + after.lattice.center
    np.testing.assert_allclose(moved[4:] - moved[:4], [[100 * math.sqrt(2), 0.0]] * 4, atol=1e-3)
    np.testing.assert_allclose(after.restored(moved), points, atol=1e-2)


def test_points_left_out_do_not_count():
    points = np.concatenate([two_blobs(10000.0), [[5000.0, 5000.0]]])
    kept = mask("xxxxxxxx.")
    after = algorithm_5.reduce_diameter(points, kept, 3.0, framed(points))
    assert isinstance(after, algorithm_5.MovedFrame)
    assert len(after.anchors) == 8


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
    after = algorithm_5.reduce_diameter(points, np.ones(8, dtype=bool), distance, before)
    assert after is before


def test_a_third_is_enough_and_a_little_more_is_not():
    clear = algorithm_5.ClearRows(np.array([[0.0], [12.0]]), None)
    # distances (3, 9) kept, (4, 8) not, (9, 3) kept, (8, 4) not, (100, 112) not
    assert clear.labels(np.array([[3.0], [4.0], [9.0], [8.0], [-100.0]])).tolist() == [0, -1, 1, -1, -1]
    assert algorithm_5.ClearRows(np.array([[0.0]]), None).labels(np.array([[3.0]])).tolist() == [0]


def test_halve_keeps_about_half_of_the_candidates_and_nothing_else():
    candidates = np.arange(20000) % 2 == 0
    kept = algorithm_5.halve(candidates, 0, 0)
    assert not kept[~candidates].any()
    # 10,000 coins: stddev 50, a fair coin fails with probability 1e-9
    assert abs(int(kept.sum()) - 5000) < 300


def test_halve_tosses_new_coins_in_every_step_and_for_every_seed():
    everything = np.ones(1000, dtype=bool)
    first = algorithm_5.halve(everything, 0, 0)
    np.testing.assert_array_equal(first, algorithm_5.halve(everything, 0, 0))
    assert not np.array_equal(first, algorithm_5.halve(everything, 0, 1))
    assert not np.array_equal(first, algorithm_5.halve(everything, 1, 0))
