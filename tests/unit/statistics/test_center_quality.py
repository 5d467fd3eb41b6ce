"""Cost and sizes of given centers, on cases worked out by hand."""

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import distances, lattice
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound

UNIT = lattice.SUM_UNITS
FRAME = Frame(Lattice(np.zeros(2), 1.0))
CENTERS = np.array([[0.0, 0.0], [float(UNIT), 0.0]])
BOUND = 4 * UNIT**2
POINTS = np.array([[0.25, 0.0], [0.0, 0.5], [0.75, 0.0], [5.0, 0.0], [0.0, -9.0]])
"""Squared distances 1/16, 1/4, 1/16, 0 (clipped onto a center), 1 (clipped): 11/8; a bound of 4 is 2**20 units."""


def test_rows_by_hand():
    found = distances.row_quality(ClientBlock(POINTS), FRAME, CENTERS, BOUND)
    np.testing.assert_array_equal(found, [11 * UNIT // 32, 3 * UNIT, 2 * UNIT])


def test_clients_by_hand():
    # means 5/32 and 17/48 of squared distances; all rows of one client near one center, a third of the other's not
    block = ClientBlock(POINTS, np.array([0, 2, 5]))
    found = distances.client_quality(block, FRAME, CENTERS, BOUND)
    cost = round(UNIT * 5 / 128) + round(UNIT * 17 / 192)
    np.testing.assert_array_equal(found, [cost, UNIT + UNIT // 3, 2 * UNIT // 3])


def test_the_bound_is_what_a_row_of_the_ball_can_be_away_from_the_innermost_center():
    assert squared_bound(CENTERS) == (UNIT + 1) ** 2
    assert squared_bound(CENTERS[1:]) == (2 * UNIT + 1) ** 2
    assert squared_bound(CENTERS, UNIT / 2) == UNIT**2 // 4
    assert squared_bound(CENTERS, 1e-9) == 1
    assert squared_bound(CENTERS, 1e300) == (UNIT + 1) ** 2


@pytest.mark.parametrize("seed", range(3))
def test_no_row_of_the_ball_is_beyond_the_bound(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(4000, 2)) * 3.0
    centers = np.trunc(rng.uniform(-0.7, 0.7, (2, 2)) * UNIT)
    bound = squared_bound(centers)
    found = distances.row_quality(ClientBlock(points), FRAME, centers, bound)[0] / UNIT * bound / UNIT**2
    inside = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    squared = ((inside[:, None] - centers / UNIT) ** 2).sum(axis=2).min(axis=1)
    assert squared.max() <= bound / UNIT**2
    assert found == pytest.approx(squared.sum(), rel=1e-5)


def test_a_cap_counts_far_rows_as_far_as_it_goes():
    bound = squared_bound(CENTERS, UNIT / 2)
    # in units of a quarter: 1/4, 1, 1/4, 0, 1 (capped)
    found = distances.row_quality(ClientBlock(POINTS), FRAME, CENTERS, bound)
    assert found[0] == 5 * UNIT // 2
    # The client of the last row alone is worth no more than the cap.
    alone = distances.client_quality(ClientBlock(POINTS[4:], np.array([0, 1])), FRAME, CENTERS, bound)
    np.testing.assert_array_equal(alone, [UNIT, UNIT, 0])


def test_a_client_of_many_rows_counts_like_one_of_few():
    few = ClientBlock(POINTS, np.array([0, 5]))
    many = ClientBlock(np.tile(POINTS, (3000, 1)), np.array([0, 15000]))
    np.testing.assert_array_equal(
        distances.client_quality(few, FRAME, CENTERS, BOUND),
        distances.client_quality(many, FRAME, CENTERS, BOUND),
    )


def test_the_gain_of_other_centers_by_hand():
    # Squared distances to the first center alone: 1/16, 1/4, 9/16, 1 (clipped), 1; to both 1/16, 1/4, 1/16, 0, 1.
    block, alone = ClientBlock(POINTS), CENTERS[:1]
    found = distances.row_gain(block, FRAME, alone, CENTERS, UNIT**2)
    np.testing.assert_array_equal(found, [3 * UNIT // 2])
    np.testing.assert_array_equal(distances.row_gain(block, FRAME, CENTERS, alone, UNIT**2), -found)
    # A difference of 1/2 and one of 1 both count as a quarter, which is what its units are of.
    np.testing.assert_array_equal(distances.row_gain(block, FRAME, alone, CENTERS, UNIT**2 // 4), [2 * UNIT])


def test_the_gain_of_clients_is_that_of_their_mean_rows():
    clients = ClientBlock(POINTS, np.array([0, 2, 5]))
    for before, after, sign in ((CENTERS[:1], CENTERS, 1), (CENTERS, CENTERS[:1], -1)):
        found = distances.client_gain(clients, FRAME, before, after, UNIT**2)
        np.testing.assert_array_equal(found, [sign * UNIT // 2])
        found = distances.client_gain(clients, FRAME, before, after, UNIT**2 // 4)
        np.testing.assert_array_equal(found, [sign * round(2 * UNIT / 3)])


def test_no_rows_give_zeros():
    empty = np.zeros((0, 2))
    assert not distances.row_quality(ClientBlock(empty), FRAME, CENTERS, BOUND).any()
    assert not distances.client_quality(ClientBlock(empty, np.array([0])), FRAME, CENTERS, BOUND).any()
    np.testing.assert_array_equal(distances.row_gain(ClientBlock(empty), FRAME, CENTERS, CENTERS, 1), [0])
    clients = ClientBlock(empty, np.array([0]))
    np.testing.assert_array_equal(distances.client_gain(clients, FRAME, CENTERS, CENTERS, 1), [0])
