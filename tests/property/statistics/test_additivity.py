"""Every statistic adds up at the corners of its range: what is summed of a row or client depends on nothing else.

The statistic of a union is the sum of the statistics of its parts, the same integers for every split and order. So one
unit moves it by what it is alone, wherever it is inserted, and that keeps the stated bound.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import clients as by_client
from dapple_dp.transforms.core.statistics import differences, distances, lattice
from dapple_dp.transforms.core.statistics import rows as by_row
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.differences import MAX_CENTER_NORM, RELATIVE_UNITS, Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.numerics.kmeans.bounds import squared_bound
from dapple_dp.transforms.numerics.kmeans.starts.grid import Grid
from dapple_dp.transforms.numerics.kmeans.tree import Hyperplanes, Tree

ONE = lattice.SUM_UNITS
WIDEST = 8192
LARGEST = float(np.finfo(np.float64).max)
Units = Sequence[np.ndarray]
"""Matrices of rows, one for each unit."""


class Case(NamedTuple):
    """A statistic of units, and whether one unit may move it by a vector."""

    statistic: Callable[[Units], np.ndarray]
    within: Callable[[np.ndarray], bool]


def l1(vector: np.ndarray) -> int:
    return int(np.abs(vector).sum())


def squared(vector: np.ndarray) -> int:
    """Exact: no square of a half word and no sum of them leaves int64."""
    high, low = np.abs(vector) >> 16, np.abs(vector) & 0xFFFF
    parts = [int((a * b).sum()) for a, b in ((high, high), (high, low), (low, low))]
    return (parts[0] << 32) + (parts[1] << 17) + parts[2]


def frobenius(triangle: np.ndarray, width: int) -> int:
    diagonal = triangle[np.arange(width) * (2 * width + 1 - np.arange(width)) // 2]
    return 2 * squared(triangle) - squared(diagonal)


def together(units: Units) -> ClientBlock:
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in units])])
    return ClientBlock(np.concatenate(list(units)), offsets)


def of_rows(statistic, *arguments, **settings) -> Callable[[Units], np.ndarray]:
    return lambda units: statistic(ClientBlock(np.concatenate(list(units))), *arguments, **settings)


def of_clients(statistic, *arguments, **settings) -> Callable[[Units], np.ndarray]:
    return lambda units: statistic(together(units), *arguments, **settings)


def spikes(width: int, *values: float) -> np.ndarray:
    found = np.zeros((len(values), width))
    found[:, 0] = values
    return found


def some_rows(width: int, number: int) -> np.ndarray:
    """Runs of rows inside the ball of norm 1, on its edge, far outside, and at the corners of a box."""
    rng = np.random.default_rng(width)
    inside = rng.normal(size=(number // 4, width)) * (0.5 / math.sqrt(width))
    near = np.repeat(spikes(width, -0.25), number // 4, axis=0)
    edge = spikes(width, *np.resize([0.999, 1.0, -1.0, 1e-7], number // 4))
    corners = np.where(rng.integers(0, 2, (number - 3 * (number // 4), width)) == 1, 1.0, -1.0)
    corners[::5] *= 1e300
    return np.concatenate([near, inside, edge, corners])


def extreme_rows(width: int) -> list[np.ndarray]:
    """Units that are inserted at the front, in the middle and at the end."""
    return [spikes(width, 0.999), np.full((1, width), -LARGEST), np.ones((1, width))]


def clients(width: int, number: int) -> list[np.ndarray]:
    """Clients of one row, of a few, of many, and at few features of more rows than a block."""
    rows = some_rows(width, number)
    sizes = [1, 1, 2, 3, 40, 300] + ([2100] if width <= 64 else [])
    ends = np.cumsum(np.resize(sizes, number))
    return [part for part in np.split(rows, ends[ends < number]) if len(part)]


def extreme_clients(width: int) -> list[np.ndarray]:
    return [spikes(width, *[0.999] * 7), np.full((2, width), -LARGEST), np.concatenate(extreme_rows(width)[::2])]


def check(case: Case, units: list[np.ndarray], extreme: list[np.ndarray]) -> None:
    whole, cut, middle = case.statistic(units), len(units) // 3, len(units) // 2
    np.testing.assert_array_equal(case.statistic(units[:cut]) + case.statistic(units[cut:]), whole)
    moved = case.statistic([extreme[0], *units[:middle], extreme[1], *units[middle:], extreme[2]]) - whole
    alone = [case.statistic([unit]) for unit in extreme]
    np.testing.assert_array_equal(moved, sum(alone))
    assert all(case.within(each) for each in alone)
    np.testing.assert_array_equal(case.statistic([extreme[0], *units]) - whole, alone[0])


BALL = "ball"
BOX = "box"


def frame_of(kind: str, width: int) -> Frame:
    if kind == BOX:
        return Frame.of_box(Box(-1.0, 1.0), width, 0.75 * math.sqrt(width))
    return Frame(Lattice(np.zeros(width), 1.0))


def centers_of(kind: str, size: int, width: int) -> np.ndarray:
    """Integers: along the first feature, or in random directions, at the largest norm that is allowed."""
    norm = {"edge": ONE, "far": MAX_CENTER_NORM - 1.0}[kind]
    if size == 1:
        return spikes(width, -norm)
    directions = np.random.default_rng(size).normal(size=(size, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = np.trunc(directions * norm * np.linspace(0.01, 1.0, size)[:, None])
    found[1] = found[0]
    return found


def norm_of(frame: Frame) -> float:
    return frame.lattice.clipping_norm


def rows_for(width: int) -> int:
    """More than one block."""
    return 9000 if width == 1 else 2100 if width <= 64 else 1040


def sums_within(size: int, most_sum: int, most_count: int, norm=l1) -> Callable[[np.ndarray], bool]:
    return lambda moved: squared(moved[:-size]) <= most_sum**2 and norm(moved[-size:]) <= most_count


def l2(vector: np.ndarray) -> int:
    return math.isqrt(squared(vector) - 1) + 1 if squared(vector) else 0


HALF = ONE // 2


def check_relative_sums(width: int, around: Neighborhoods, kind: str) -> None:
    frame, number, size = frame_of(kind, width), rows_for(width), around.size
    case = Case(
        of_rows(differences.row_relative_sums, frame, around, around.radius), sums_within(size, RELATIVE_UNITS, ONE)
    )
    check(case, np.split(some_rows(width, number), number), extreme_rows(width))
    statistic = of_clients(differences.client_relative_sums, frame, around, max(1, around.radius // 2), 0.7)
    case = Case(statistic, sums_within(size, RELATIVE_UNITS, ONE, l2))
    check(case, clients(width, number), extreme_clients(width))


@pytest.mark.parametrize("shortens", [True, False])
@pytest.mark.parametrize("where", ["edge", "far"])
@pytest.mark.parametrize("radius", [1, HALF, 2 * ONE])
@pytest.mark.parametrize("width", [1, 64, 256, 1100])
def test_relative_sums(width, radius, where, shortens):
    check_relative_sums(width, Neighborhoods(centers_of(where, 1, width), radius, shortens), BALL)
    if width < 1100:
        check_relative_sums(width, Neighborhoods(centers_of(where, 3, width), radius, shortens), BOX)


@pytest.mark.parametrize("where", ["edge", "far"])
@pytest.mark.parametrize(("inner", "outer"), [(1, HALF), (HALF, HALF), (HALF, 2 * ONE), (1, 2 * ONE)])
@pytest.mark.parametrize("width", [1, 64, 1100])
def test_split_sums(width, inner, outer, where):
    frame, centers = frame_of(BALL, width), centers_of(where, 3 if width < 1100 else 1, width)
    statistic = of_rows(differences.row_split_sums, frame, centers, inner, outer)
    case = Case(statistic, sums_within(2 * len(centers), RELATIVE_UNITS, ONE))
    number = rows_for(width)
    check(case, np.split(some_rows(width, number), number), extreme_rows(width))


@pytest.mark.parametrize("radius", [1, HALF])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("width", [1, 64, 1100])
def test_direction_sums(width, size, radius):
    frame, centers, number = frame_of(BALL, width), centers_of("edge", size, width), rows_for(width)
    case = Case(
        of_rows(differences.row_direction_sums, frame, centers, radius, 1.0),
        sums_within(size, differences.DIRECTION_UNITS, ONE),
    )
    check(case, np.split(some_rows(width, number), number), extreme_rows(width))
    case = Case(
        of_clients(differences.client_direction_sums, frame, centers, radius, 0.7),
        sums_within(size, differences.DIRECTION_UNITS, ONE, l2),
    )
    check(case, clients(width, number), extreme_clients(width))


@pytest.mark.parametrize("where", ["edge", "far"])
@pytest.mark.parametrize("width", [1024, 1025, 2000, 4097, WIDEST])
def test_relative_sums_of_wide_rows(width, where):
    check_relative_sums(width, Neighborhoods(centers_of(where, 1, width), HALF, True), BALL)


def partitions(width: int) -> dict[str, object]:
    """Returns what sorts rows into bins."""
    basis = np.linalg.qr(np.random.default_rng(5).normal(size=(width, min(width, 6))))[0]
    projection = Projection.from_basis(basis)
    dims = basis.shape[1]
    hyperplanes = Hyperplanes(projection, np.zeros(dims))
    table = np.arange(2 ** min(dims, 5), dtype=np.int64)[None] % 3
    tree = Tree(hyperplanes, (np.where(table == 0, -1, -1 - table),) if dims <= 5 else (), 2, dims <= 5)
    return {
        "centers": Assigner(centers_of("edge", 3, width)),
        "many centers": Assigner(centers_of("edge", 40, width)),
        "projected": Assigner(np.trunc(centers_of("edge", 3, dims)), projection),
        "grid": Grid((3,) * dims, np.full(dims, ONE / 2.0), np.zeros(dims), projection),
        "tree": tree if tree.complete else tree._replace(size=32),
    }


@pytest.mark.parametrize(("width", "kind"), [*itertools.product((1, 2, 64), (BALL, BOX)), (WIDEST, BALL)])
def test_histograms_sums_and_counts(width, kind):
    frame, number = frame_of(kind, width), rows_for(width)
    rows, several = np.split(some_rows(width, number), number), clients(width, number)
    for partition in list(partitions(width).values())[: 1 if width == WIDEST else None]:
        case = Case(of_rows(by_row.histogram, frame, partition, 1.0, relative=True), lambda moved: l1(moved) <= ONE)
        check(case, rows, extreme_rows(width))
        if partition.size <= 40:
            case = Case(
                of_rows(by_row.sums_and_counts, frame, partition, norm_of(frame), 1.0),
                sums_within(partition.size, ONE, ONE),
            )
            check(case, rows, extreme_rows(width))
    partition = partitions(width)["centers"]
    for relative, norm in ((True, l2), (False, l1)):
        statistic = of_clients(by_client.histogram, frame, partition, 0.3, relative=relative)
        check(Case(statistic, lambda moved, norm=norm: norm(moved) <= ONE), several, extreme_clients(width))
    for statistic, norm in (
        (by_client.mean_sums_and_counts, l2),
        (by_client.means_of_means, l1),
        (by_client.clipped_sums_and_counts, l1),
    ):
        case = Case(of_clients(statistic, frame, partition, 0.6, 0.8), sums_within(3, ONE, ONE, norm))
        check(case, several, extreme_clients(width))


@pytest.mark.parametrize(("size", "width"), [(2048, 1), (2048, 2), (2048, 64), (500, 100)])
def test_many_clusters(size, width):
    rows, several = np.split(some_rows(width, 1100), 1100), clients(width, 1100)
    frame, centers = frame_of(BALL, width), centers_of("edge", size, width)
    around = Neighborhoods(centers, ONE // 4, True)
    case = Case(
        of_rows(differences.row_relative_sums, frame, around, around.radius), sums_within(size, RELATIVE_UNITS, ONE)
    )
    check(case, rows, extreme_rows(width))
    statistic = of_clients(differences.client_relative_sums, frame, around, ONE // 4)
    check(Case(statistic, sums_within(size, RELATIVE_UNITS, ONE, l2)), several, extreme_clients(width))
    case = Case(
        of_rows(by_row.sums_and_counts, frame, Assigner(centers), norm_of(frame), 1.0), sums_within(size, ONE, ONE)
    )
    check(case, rows, extreme_rows(width))
    statistic = of_clients(by_client.mean_sums_and_counts, frame, Assigner(centers), 1.0, 1.0)
    check(Case(statistic, sums_within(size, ONE, ONE, l2)), several, extreme_clients(width))


@pytest.mark.parametrize(("width", "number"), [(1, 2100), (2, 2100), (64, 2100), (300, 1040), (1025, 1040)])
def test_scatter(width, number):
    for kind in (BALL, BOX):
        frame = frame_of(kind, width)
        case = Case(
            of_rows(by_row.outer_product, frame, norm_of(frame) ** 2, relative=True),
            lambda moved: frobenius(moved, width) <= by_row.OUTER_SENSITIVITY**2,
        )
        check(case, np.split(some_rows(width, number), number), extreme_rows(width))
        if width > 300:
            continue
        for relative in (True, False):
            statistic = of_clients(by_client.outer_product, frame, 0.5, relative=relative)
            check(Case(statistic, case.within), clients(width, number), extreme_clients(width))


def test_scatter_of_the_widest_rows():
    """Two rows, whose squares alone fill half a gigabyte."""
    width, frame = WIDEST, frame_of(BALL, WIDEST)
    unit = extreme_rows(width)[1]
    statistic = of_rows(by_row.outer_product, frame, norm_of(frame) ** 2, relative=True)
    alone = statistic([unit])
    assert frobenius(alone, width) <= by_row.OUTER_SENSITIVITY**2
    rest = some_rows(width, 4)[1:2]
    moved = statistic([unit, rest]) - statistic([rest])
    np.testing.assert_array_equal(moved, alone)


@pytest.mark.parametrize("width", [1, 64, 1025, WIDEST])
def test_norms_and_quality(width):
    number, center = rows_for(width), np.full(width, 0.1)
    rows, several = np.split(some_rows(width, number), number), clients(width, number)
    case = Case(of_rows(distances.row_norm_histogram, center), lambda moved: l1(moved) <= ONE)
    check(case, rows, extreme_rows(width))
    check(Case(of_clients(distances.client_norm_histogram, center), case.within), several, extreme_clients(width))
    for size in (1, 40):
        centers, frame = centers_of("edge", size, width), frame_of(BALL, width)
        bound = squared_bound(centers, ONE * 1.5)
        within = sums_within(size, distances.SENSITIVITY, distances.SENSITIVITY)
        check(Case(of_rows(distances.row_quality, frame, centers, bound), within), rows, extreme_rows(width))
        statistic = of_clients(distances.client_quality, frame, centers, bound)
        check(Case(statistic, within), several, extreme_clients(width))
        others, gained = centers_of("edge", 3, width), lambda moved: l1(moved) <= distances.SENSITIVITY
        given = (frame, centers, others, bound // 4)
        check(Case(of_rows(distances.row_gain, *given), gained), rows, extreme_rows(width))
        check(Case(of_clients(distances.client_gain, *given), gained), several, extreme_clients(width))


def test_counts():
    rows = np.split(some_rows(2, 2100), 2100)
    check(Case(of_rows(by_row.count), lambda moved: l1(moved) <= ONE), rows, extreme_rows(2))
    case = Case(of_clients(by_client.count), lambda moved: l1(moved) <= ONE)
    check(case, clients(2, 2100), extreme_clients(2))


def test_every_statistic_is_here():
    """A statistic takes rows or clients and returns integers; this file names each."""
    modules = (by_row, by_client, differences, distances)
    statistics = {
        name
        for module in modules
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
        if next(iter(inspect.signature(found).parameters), "") in ("points", "block")
        if "int64" in str(found.__annotations__["return"])
    }
    named = inspect.getsource(inspect.getmodule(check))
    assert {name for name in statistics if f".{name}" not in named} == set()
    assert len(statistics) == 18
