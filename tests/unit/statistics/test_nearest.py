"""Labels and costs against brute force in float64 and in exact integers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.numerics.statistics import nearest
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters, squared_distances
from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import model_cost


def brute(points, centers):
    squared = ((points.astype(np.float64)[:, None] - centers[None]) ** 2).sum(axis=2)
    return squared.argmin(axis=1), squared.min(axis=1)


def mixture(rng, n_rows=2500, n_clusters=6, width=9, spread=0.3):
    centers = rng.normal(size=(n_clusters, width))
    return centers[rng.integers(0, n_clusters, n_rows)] + spread * rng.normal(size=(n_rows, width)), centers


def with_outliers(points):
    points = points.copy()
    points[::50] *= 10.0 ** (np.arange(len(points[::50])) % 12)[:, None]
    return points


CASES = {
    "plain": lambda points, centers: (points, centers),
    "offset": lambda points, centers: (points + 1e6, centers + 1e6),
    "single": lambda points, centers: (points.astype(np.float32), centers),
    "outliers": lambda points, centers: (with_outliers(points), centers),
    "far": lambda points, centers: (points * 1e6, centers),
    "large": lambda points, centers: (points * 1e150, centers * 1e150),
    "small": lambda points, centers: (points * 1e-120, centers * 1e-120),
    "one_center": lambda points, centers: (points + 3.0, centers[:1]),
    "one_feature": lambda points, centers: (points[:, :1], centers[:, :1]),
    "one_row": lambda points, centers: (points[:1], centers),
    "other_order": lambda points, centers: (np.asfortranarray(points), centers),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_brute_force(name):
    points, centers = CASES[name](*mixture(np.random.default_rng(2)))
    labels, squared = brute(points, centers)
    found = NearestCenters.of(centers).rows(points)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.squared, squared, rtol=1e-6)
    cost = model_cost(points, NearestCenters.of(centers))
    np.testing.assert_allclose(cost.cost, squared.mean(), rtol=1e-7)
    np.testing.assert_array_equal(cost.sizes, np.bincount(labels, minlength=len(centers)))


@pytest.mark.parametrize("spread", [1e-4, 1e-7])
def test_tight_clusters_keep_their_digits(spread):
    points, centers = mixture(np.random.default_rng(3), spread=spread)
    np.testing.assert_allclose(
        model_cost(points, NearestCenters.of(centers)).cost, brute(points, centers)[1].mean(), rtol=1e-6
    )
    one = model_cost(points[:1], NearestCenters.of(centers))
    np.testing.assert_allclose(one.cost, brute(points[:1], centers)[1][0], rtol=2e-6)


def test_ties_go_to_the_lowest_index():
    model = NearestCenters.of(np.array([[2.0, 0.0], [-2.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_array_equal(
        model.labels(np.array([[0.0, 5.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1e30]])), [0, 0, 1, 0]
    )


def test_far_rows_keep_their_ties():
    """Scores of rows this far out would be rounded on the lattice of the centers, each in its own way."""
    rng = np.random.default_rng(8)
    center = rng.integers(-(2**20), 2**20, 8).astype(np.float64)
    model = NearestCenters.of(np.stack([np.roll(center, shift) for shift in range(8)]))
    points = rng.integers(2**33, 2**37, (200, 1)) + np.zeros(8)
    np.testing.assert_array_equal(model.labels(points), 0)


def test_identical_centers_take_every_row():
    model = NearestCenters.of(np.ones((4, 3)))
    points = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1e200, 0.0, 0.0]])
    found = model.rows(points)
    np.testing.assert_array_equal(found.labels, 0)
    np.testing.assert_allclose(found.squared, [0.0, 3.0, np.inf])


def test_labels_are_those_of_exact_arithmetic_on_integers():
    rng = np.random.default_rng(4)
    centers = rng.integers(-50, 51, (12, 3)).astype(np.float64)
    centers[-1] = -centers[:-1].sum(axis=0)
    points = rng.integers(-800, 801, (500, 3)).astype(np.float64)
    exact = ((points.astype(object)[:, None] - centers.astype(object)[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(NearestCenters.of(centers).labels(points), exact.argmin(axis=1))


@pytest.mark.parametrize("magnitude", [1e-300, 1e20, 1e160, 1.7e308])
def test_any_magnitude_is_assigned(magnitude):
    model = NearestCenters.of(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
    points = magnitude * np.array([[1.0, 0.1], [-1.0, 0.2], [0.0, 1.0]])
    if magnitude > 1.0:
        np.testing.assert_array_equal(model.labels(points), [0, 1, 2])
    else:
        np.testing.assert_array_equal(model.labels(points), 0)
    assert not np.isnan(model.rows(points).squared).any()


def test_centers_at_the_end_of_float64():
    model = NearestCenters.of(np.array([[1.7e308, 0.0], [-1.7e308, 0.0]]))
    found = model.rows(np.array([[1.7e308, 0.0], [-1e308, 1e308], [0.0, 1.0]]))
    np.testing.assert_array_equal(found.labels, [0, 1, 0])
    np.testing.assert_array_equal(found.squared, [0.0, np.inf, np.inf])


def test_many_features():
    rng = np.random.default_rng(5)
    centers, points = rng.normal(size=(3, 20_000)), rng.normal(size=(20, 20_000))
    labels, squared = brute(points, centers)
    found = NearestCenters.of(centers).rows(points)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.squared, squared, rtol=1e-6)


def test_a_row_does_not_depend_on_its_block():
    points, centers = mixture(np.random.default_rng(6))
    points = with_outliers(points)
    model = NearestCenters.of(centers)
    whole = model.rows(points)
    for size in (1, 7, 1024):
        for start in range(0, 60, size):
            part = model.rows(np.asfortranarray(points[start : start + size]))
            np.testing.assert_array_equal(part.labels, whole.labels[start : start + size])
            np.testing.assert_array_equal(part.squared, whole.squared[start : start + size])


def test_the_bound_of_the_frame_holds():
    """Every operand of a score is an integer, and no sum of absolute values can reach 2**53."""
    rng = np.random.default_rng(7)
    for scale in (1e-12, 1.0, 3e7):
        model = NearestCenters.of(scale * rng.normal(size=(8, 40)) + 5 * scale)
        assert np.array_equal(model.doubled, np.rint(model.doubled))
        largest = np.sqrt(model.squared.max())
        assert 2.0**21 <= largest <= 2.0**22 + 40
        lattice.check_product(2 * 2.0**26 + largest, largest)
        np.testing.assert_array_equal(model.squared, lattice.squared_norms(model.doubled / 2))


def test_no_unit_is_finer_than_the_finest():
    """Centers 2**-895 apart would have units of 2**-917."""
    model = NearestCenters.of(np.array([[0.0], [2.0**-895]]))
    assert model.exponent == -900
    np.testing.assert_array_equal(model.labels(np.array([[-1.0], [0.0], [2.0**-895], [1.0]])), [0, 0, 1, 1])
    assert NearestCenters.of(np.zeros((2, 1))).exponent == -900
    assert NearestCenters.of(np.array([[0.0], [2.0**-870]])).exponent == -892


@pytest.mark.parametrize("middle", [0.0, 1.0])
def test_rows_beyond_the_lattice_are_worked_on_alone(middle):
    """A center at the middle of the model or one unit from it: nothing that is computed of far rows turns negative."""
    model = NearestCenters.of(np.array([[-(2.0**21)], [2.0**21 - middle], [middle]]))
    assert (model.exponent, model.squared[2]) == (0, middle**2)
    found = model.rows(np.array([[2.0**30], [-(2.0**30)], [middle]]))
    np.testing.assert_array_equal(found.labels, [1, 0, 2])
    np.testing.assert_allclose(found.squared, [(2.0**30 - 2.0**21 + middle) ** 2, (2.0**30 - 2.0**21) ** 2, 0.0], 1e-7)


def test_squared_distances_by_hand():
    points, centers = np.array([[3.0, 4.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_array_equal(squared_distances(points, centers, np.array([0, 1])), [25.0, 0.0])
    exact = (Fraction(0.1) - Fraction(0.7)) ** 2
    found = squared_distances(np.array([[0.1]]), np.array([[0.7]]), np.array([0]))
    assert abs(Fraction(float(found[0])) / exact - 1) < 2.0**-24


def test_no_rows():
    found = NearestCenters.of(np.eye(2)).rows(np.zeros((0, 2)))
    assert found.labels.shape == found.squared.shape == (0,)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9, 1e12])
def test_distances_keep_their_digits_far_from_zero(offset):
    rng = np.random.default_rng(4)
    points, centers = offset + rng.normal(size=(50, 3)), offset + rng.normal(size=(4, 3))
    expected = np.array([[math.dist(point, center) for center in centers] for point in points])
    model = NearestCenters.of(centers)
    np.testing.assert_allclose(model.distances(points), expected, rtol=1e-14)
    np.testing.assert_array_equal(model.labels(points), expected.argmin(axis=1))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200, 3e307])
def test_distances_neither_overflow_nor_vanish(scale):
    model = NearestCenters.of(scale * np.array([[0.0, 0.0], [1.0, 1.0]]))
    np.testing.assert_allclose(model.distances(scale * np.array([[3.0, 4.0]])) / scale, [[5.0, 13**0.5]], rtol=1e-14)


def test_distances_of_a_row_do_not_depend_on_others():
    rng = np.random.default_rng(5)
    points = rng.normal(size=(lattice.BLOCK_ROWS + 3, 5)).astype(np.float32)
    model = NearestCenters.of(rng.normal(size=(3, 5)))
    whole = model.distances(points)
    np.testing.assert_array_equal(whole[-2:], model.distances(points[-2:]))
    np.testing.assert_array_equal(whole[::-1], model.distances(points[::-1]))
    assert model.distances(points[:0]).shape == (0, 3)


def test_rows_have_a_unit_of_their_own_down_to_the_finest():
    integers, exponents = nearest._scaled(np.array([[1.0, 0.0], [2.0**-890, -(2.0**-902)]]))
    assert exponents.tolist() == [2 - nearest.ROW_BITS, -902]
    assert integers.tolist() == [[2.0 ** (nearest.ROW_BITS - 2), 0.0], [4096.0, -1.0]]
