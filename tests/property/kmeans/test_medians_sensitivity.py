"""Sums of directions: one privacy unit moves them by at most the declared sensitivity, wherever its rows are."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.differences import DIRECTION_UNITS
from dapple_dp.transforms.core.statistics.frame import Box, Frame

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=150)
settings.load_profile("ci")

ROWS, CLIENTS = of_unit(Rows()), of_unit(Clients())
D, K = 3, 4
anything = st.floats(allow_nan=False, allow_infinity=True, width=64)
ordinary = st.one_of(st.floats(-3.0, 3.0), st.sampled_from([5e-324, -5e-324, 1e-300, 1e300, 0.0]))
rows = hnp.arrays(np.float64, st.tuples(st.integers(1, 25), st.just(D)), elements=st.one_of(ordinary, anything))
boxes = st.builds(lambda low, side: Box(low, low + side), st.floats(-3.0, 3.0), st.floats(1e-3, 10.0))
frames = st.builds(lambda box: Frame.of_box(box, D), boxes)
radii = st.one_of(st.just(1), st.integers(1, 1 << 20))


@st.composite
def centers(draw):
    """Centers in the domain; two in one place, and close ones."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    reach = draw(st.sampled_from([2, 2**10, 2**19]))
    found = rng.integers(-reach, reach, (K, D)).astype(float)
    if draw(st.booleans()):
        found[1] = found[0]
    return found


def squared(vector):
    return sum(int(value) ** 2 for value in vector)


@given(rows, frames, centers(), radii, st.integers(0, 24))
def test_one_row_moves_one_sum_and_its_count(points, frame, around, radius, at):
    at = at % len(points)
    change, rest = (
        ROWS.direction_sums(ClientBlock(part), frame, around, radius, 1.0)
        for part in (points, np.delete(points, at, axis=0))
    )
    change = change - rest
    assert squared(change[:-K]) <= ROWS.DIRECTION_SENSITIVITY**2
    assert np.abs(change[-K:]).sum() == lattice.SUM_UNITS
    touched = np.flatnonzero(np.abs(change[:-K].reshape(K, D)).sum(axis=1))
    assert set(touched) <= set(np.flatnonzero(change[-K:]))


@given(rows, frames, centers(), radii, st.floats(1e-3, 1.0), st.integers(0, 24))
def test_one_client_moves_stacked_sums_and_counts_by_their_bounds(points, frame, around, radius, bound, cut):
    cut = cut % len(points)
    offsets = np.array([0, cut, len(points)] if cut else [0, len(points)], dtype=np.int64)
    both = CLIENTS.direction_sums(ClientBlock(points, offsets), frame, around, radius, bound)
    rest = CLIENTS.direction_sums(ClientBlock(points[:cut], offsets[:-1]), frame, around, radius, bound)
    assert squared((both - rest)[:-K]) <= CLIENTS.DIRECTION_SENSITIVITY**2
    assert squared((both - rest)[-K:]) <= lattice.SUM_UNITS**2


@given(rows, frames, centers(), radii, st.integers(0, 25))
def test_any_split_of_rows_gives_the_same_sums(points, frame, around, radius, cut):
    whole, *parts = [
        ROWS.direction_sums(ClientBlock(part), frame, around, radius, 1.0)
        for part in (points, points[:cut], points[cut:])
    ]
    np.testing.assert_array_equal(whole, sum(parts))


@given(rows, frames, centers(), radii)
def test_sums_equal_a_loop_over_rows_in_whole_numbers(points, frame, around, radius):
    found = np.zeros((K, D + 1), dtype=np.int64)
    for row in frame.quantize(points, lattice.SUM_BITS):
        differences = [[int(a) - int(b) for a, b in zip(row, center, strict=True)] for center in around]
        distances = [squared(each) for each in differences]
        nearest = distances.index(min(distances))
        found[nearest, D] += lattice.SUM_UNITS
        if distances[nearest] >= radius**2:
            exact = [value * DIRECTION_UNITS / math.sqrt(distances[nearest]) for value in differences[nearest]]
            found[nearest, :D] += np.array([math.trunc(value) for value in exact])
    sums = ROWS.direction_sums(ClientBlock(points), frame, around, radius, 1.0)
    np.testing.assert_array_equal(sums[-K:], found[:, D])
    # Where the truncated norm is a unit too long, all coordinates are scaled down by one part in a million.
    np.testing.assert_allclose(sums[:-K].reshape(K, D), found[:, :D], atol=3 * len(points))


@given(rows, frames, centers(), radii)
def test_a_client_of_one_row_is_a_row(points, frame, around, radius):
    each = ClientBlock(points, np.arange(len(points) + 1))
    np.testing.assert_array_equal(
        CLIENTS.direction_sums(each, frame, around, radius, 1.0),
        ROWS.direction_sums(ClientBlock(points), frame, around, radius, 1.0),
    )


def test_large_and_small_blocks_and_layouts_give_the_same_sums():
    rng = np.random.default_rng(1)
    points, around = rng.normal(size=(5000, D)), rng.integers(-(2**19), 2**19, (K, D)).astype(float)
    frame = Frame.of_box(Box(-1.0, 1.0), D)
    expected = ROWS.direction_sums(ClientBlock(points), frame, around, 100, 1.0)
    for layout in (np.asfortranarray(points), points[::-1], points[rng.permutation(len(points))]):
        np.testing.assert_array_equal(ROWS.direction_sums(ClientBlock(layout), frame, around, 100, 1.0), expected)
    parts = [ROWS.direction_sums(ClientBlock(part), frame, around, 100, 1.0) for part in np.array_split(points, 37)]
    np.testing.assert_array_equal(sum(parts), expected)


def test_rows_at_or_near_their_center_have_no_direction_and_ties_go_to_the_lowest():
    frame, around = Frame.of_box(Box(-1.0, 1.0), D), np.zeros((2, D))
    unit = frame.lattice.unit(lattice.SUM_BITS)
    near, at_radius = [9.5 * unit, 0.0, 0.0], [10.5 * unit, 0.0, 0.0]
    found = ROWS.direction_sums(ClientBlock(np.array([[0.0] * D, near, at_radius])), frame, around, 10, 1.0)
    np.testing.assert_array_equal(found, [DIRECTION_UNITS, 0, 0, 0, 0, 0, 3 * lattice.SUM_UNITS, 0])


@pytest.mark.parametrize("unit", [ROWS, CLIENTS])
def test_non_numbers_are_refused_before_they_are_summed(unit):
    frame, block = Frame.of_box(Box(-1.0, 1.0), D), ClientBlock(np.full((1, D), np.nan), np.array([0, 1]))
    with pytest.raises(LatticeOverflowError):
        unit.direction_sums(block, frame, np.zeros((K, D)), 1, 1.0)


def test_bounds_that_bound_nothing_are_refused():
    frame, block = Frame.of_box(Box(-1.0, 1.0), D), ClientBlock(np.zeros((1, D)), np.array([0, 1]))
    with pytest.raises(LatticeOverflowError, match="bounds of single rows must be"):
        ROWS.direction_sums(block, frame, np.zeros((K, D)), 1, 0.5)
    for radius, bound in ((0, 1.0), (1, 0.0), (1, math.nan)):
        with pytest.raises(LatticeOverflowError, match="clipping bounds must be"):
            CLIENTS.direction_sums(block, frame, np.zeros((K, D)), radius, bound)


def test_clients_may_not_add_more_than_whole_directions():
    frame, block = Frame.of_box(Box(-1.0, 1.0), D), ClientBlock(np.ones((1, D)), np.array([0, 1]))
    found = CLIENTS.direction_sums(block, frame, np.zeros((1, D)), 1, 0.25)
    assert squared(found[:-1]) <= DIRECTION_UNITS**2
    # Sums are in units of the bound: this client has a quarter of a direction, and a quarter of a count.
    assert squared(found[:-1]) > 0.999 * DIRECTION_UNITS**2
    assert found[-1] == pytest.approx(0.25 * lattice.SUM_UNITS, rel=1e-5)
