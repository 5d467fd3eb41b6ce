"""The compiled kernel gives the integers of the NumPy path, at every level of vectors, over the whole range of both."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import LatticeOverflowError
from dapple_dp.transforms.core.statistics import clients, lattice, row_pass, rows
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection, project
from dapple_dp.transforms.core.statistics.differences import MAX_CENTER_NORM, Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame
from tests.scenes import kernels

ONE = lattice.SUM_UNITS
SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 257, 500]
WIDTHS = [1, 2, 3, 5, 8, 16, 17, 50, 64, 100, 341, 342, 1000, 1025, 2000]
MOST_NUMBERS = 300_000
"""Of rows times centers times features of an example."""


class Case:
    """Rows on the lattice with centers, drawn from a few numbers.

    Rows lie near centers, midway between two of them, on the bound, at corners of the lattice, and on centers.
    """

    def __init__(self, seed: int, size: int, width: int, n_rows: int, reach: float):
        rng, self.reach = np.random.default_rng(seed), reach
        self.frame = Frame(Lattice(np.zeros(width), 1.0))
        self.known = QuantizedFrame.of(self.frame, lattice.SUM_BITS)
        directions = rng.normal(size=(size, width))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self.centers = np.trunc(directions * reach * rng.random((size, 1)) ** 0.5)
        self.centers[rng.integers(0, size)] = self.centers[0]
        self.centers[rng.integers(0, size)] *= rng.integers(0, 2)
        inside = self.centers / max(1.0, reach / ONE)
        pairs = rng.integers(0, size, (2, n_rows))
        spread = rng.normal(size=(n_rows, width)) * (ONE * 0.3 / np.sqrt(width))
        kinds = np.stack(
            [
                inside[pairs[0]] + spread,
                np.trunc((inside[pairs[0]] + inside[pairs[1]]) / 2.0),
                inside[pairs[0]],
                spread * 1e6,
                np.eye(width)[rng.integers(0, width, n_rows)] * ONE * rng.choice([-1, 1], (n_rows, 1)),
            ]
        )
        points = kinds[rng.integers(0, len(kinds), n_rows), np.arange(n_rows)] / ONE
        self.rows = lattice.quantize(points, self.frame.lattice, lattice.SUM_BITS).astype(np.int32)
        ends = np.sort(rng.integers(0, n_rows + 1, n_rows // 3)) if n_rows else np.zeros(0, dtype=np.int64)
        offsets = np.unique(np.concatenate([[0], ends, [n_rows]])).astype(np.int64)
        self.block = ClientBlock(self.rows, offsets)


def same(statistic: Callable[[], np.ndarray]) -> None:
    """All ways give one vector of integers."""
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for chosen in kernels.levels():
            kernels.use(patch, chosen)
            found.append(statistic())
        assert len(found) > 1
        for each in found[1:]:
            assert each.dtype == np.int64
            np.testing.assert_array_equal(each, found[0])


def check(case: Case, radius: int, shortens: bool, frame: Frame) -> None:
    block = case.block if frame is case.known else case.block._replace(points=case.rows / ONE)
    assigner, around = Assigner(case.centers), Neighborhoods(case.centers, radius, shortens)
    same(lambda: rows.relative_sums(block, frame, around, radius))
    same(lambda: clients.relative_sums(block, frame, around, max(1, radius // 2), 0.6))
    same(lambda: rows.histogram(block, frame, assigner, 1.0, relative=True))
    basis = np.linalg.qr(np.random.default_rng(radius).normal(size=(len(case.centers[0]), 9)))[0]
    projection = Projection.from_basis(basis)
    projected = Assigner(project(np.trunc(case.centers / max(1.0, case.reach / ONE)), projection), projection)
    same(lambda: rows.histogram(block, frame, projected, 1.0, relative=True))
    same(lambda: rows.sums_and_counts(block, frame, assigner, 1.0, 1.0))
    same(lambda: clients.histogram(block, frame, assigner, 0.4, relative=True))
    for statistic in (clients.mean_sums_and_counts, clients.means_of_means, clients.clipped_sums_and_counts):
        same(lambda form=statistic: form(block, frame, assigner, 0.6, 0.8))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from(SIZES) | st.integers(1, 500),
    width=st.sampled_from(WIDTHS) | st.integers(1, 200),
    share=st.floats(0.0, 1.0),
    reach=st.sampled_from([0.0, ONE / 2, ONE - 1.0, ONE, 1 << 22, MAX_CENTER_NORM - 1.0]),
    radius=st.sampled_from([1, 2, ONE // 3, ONE, 2 * ONE]) | st.integers(1, 2 * ONE),
    shortens=st.booleans(),
    fresh=st.booleans(),
)
def test_every_way_gives_the_same_integers(seed, size, width, share, reach, radius, shortens, fresh):
    n_rows = min(250, int(share * MOST_NUMBERS / (size * width)))
    case = Case(seed, size, width, n_rows, reach)
    check(case, radius, shortens, case.frame if fresh else case.known)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    width=st.sampled_from(WIDTHS),
    bits=st.sampled_from([16, 20]),
    norm=st.sampled_from([1e-3, 0.3, 1.0, 17.0, 1e9]),
    box=st.sampled_from([None, Box(-0.4, 0.3), Box(-1e300, 1e300)]),
    kind=st.sampled_from([np.float32, np.float64]),
    order=st.sampled_from("CF"),
)
def test_every_way_makes_the_same_integers_of_rows(seed, width, bits, norm, box, kind, order):
    """Rows of all magnitudes, up to the largest number, at the bound and at the edge of what is exact."""
    rng = np.random.default_rng(seed)
    magnitudes = rng.choice([0.0, 1e-320, 1e-9, 1e-3, 0.1, 1.0, 3.0, 2.0**16 / np.sqrt(width), 1e9, 1e37], 60)
    points = rng.normal(size=(60, width)) * magnitudes[:, None]
    points[:20] = (
        np.eye(width)[rng.integers(0, width, 20)] * norm * rng.choice([-1.0, 1.0, 1.0 + 1e-6, 2.0**32], (20, 1))
    )
    points[20:24] = np.array([1.0, -1.0, 1.0, -1.0])[:, None] * np.finfo(kind).max
    points = np.asarray(points, dtype=kind, order=order)
    frame = Frame(Lattice(rng.normal(size=width) * rng.choice([0.0, 1e-3]), norm), box)
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for chosen in kernels.levels():
            kernels.use(patch, chosen)
            found.append(frame.integers(points, bits))
    np.testing.assert_array_equal(found[0], frame.quantize(points, bits))
    for each in found[1:]:
        assert each.dtype == np.int32
        assert each.flags.c_contiguous
        np.testing.assert_array_equal(each, found[0])


def test_more_features_than_have_exact_norms_are_refused_every_way(monkeypatch):
    frame, points = Frame(Lattice(np.zeros(8193), 1.0)), np.zeros((1, 8193))
    for chosen in kernels.levels():
        kernels.use(monkeypatch, chosen)
        with pytest.raises(LatticeOverflowError, match="n_features must be at most 8192"):
            frame.integers(points, lattice.SUM_BITS)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    width=st.sampled_from(WIDTHS) | st.integers(1, 120),
    n_rows=st.sampled_from([0, 1, 63, 64, 65, 129]),
    share=st.sampled_from([1e-6, 0.5, 1.0, 1e3]),
)
def test_every_way_gives_the_same_outer_products(seed, width, n_rows, share):
    """Rows inside the ball, on its bound at corners and at one coordinate, and beyond."""
    rng = np.random.default_rng(seed)
    corners = np.concatenate([np.eye(width)[:1], -np.eye(width)[-1:], np.full((1, width), width**-0.5)])
    points = rng.normal(size=(n_rows, width)) * share / np.sqrt(width)
    points[::3] = corners[rng.integers(0, 3, len(points[::3]))]
    block, frame = ClientBlock(points), Frame(Lattice(np.zeros(width), 1.0))
    same(lambda: rows.outer_product(block, frame, 1.0, relative=False))


_HALVES = np.array([0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, np.inf, np.nan, 2.0**53, -(2.0**53), 1.0])
_WHOLE = np.array([0, 1, -1, 2**53 - 1, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63), 3, 20, ONE])


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("n_columns", [0, 1, 3, 8, 12])
@pytest.mark.parametrize("values", [_HALVES, _WHOLE, _WHOLE.astype(np.int32), np.ones(12, np.float32)])
def test_every_way_scales_the_same(values, n_columns, divided):
    """Numbers at all limits, those that are none, and such as the library doesn't know, which it leaves to NumPy."""
    factors = np.array([0.0, -0.0, 1.0, 1.0 / 3.0, 20.0, 1e-300, 1e300, 5e-324, -7.0, np.inf, np.nan, ONE / 7.0])
    rows_of = np.stack([np.roll(values, shift)[:n_columns] for shift in range(len(values))])
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        found = []
        for chosen in kernels.levels():
            kernels.use(patch, chosen)
            for some in (rows_of, np.asfortranarray(rows_of), rows_of[:0]):
                found.append(lattice.scaled(some, factors[: len(some)], divided=divided))
    for number, each in enumerate(found[3:]):
        assert each.dtype == np.float64
        np.testing.assert_array_equal(each, found[number % 3])


@pytest.mark.parametrize("offsets", [[0], [0, 1], [0, 400], [0, 1, 2, 3, 399, 400], range(401)])
@pytest.mark.parametrize("spread", [0.0, 1e-7, 1.0])
def test_few_and_many_clients_are_clipped_the_same(offsets, spread):
    """No clients, one row, one client, a row each; all rows on one center, around it, and on the bound."""
    case = Case(5, 3, 4, 0, ONE)
    case.centers[:] = [[ONE / 2, 0, 0, 0], [-ONE, 0, 0, 0], [ONE, ONE, 0, 0]]
    points = np.array([0.5, 0.0, 0.0, 0.0]) + spread * np.random.default_rng(6).normal(size=(offsets[-1], 4))
    case.rows = lattice.quantize(points, case.frame.lattice, lattice.SUM_BITS).astype(np.int32)
    case.block = ClientBlock(case.rows, np.array(offsets))
    for bound in (1e-9, 0.6, 1e9):
        for statistic in (clients.mean_sums_and_counts, clients.means_of_means, clients.clipped_sums_and_counts):
            same(lambda form=statistic, most=bound: form(case.block, case.known, Assigner(case.centers), most, most))
    for radius in (1, ONE // 4, 2 * ONE):
        check(case, radius, True, case.known)


def test_a_client_without_rows_is_refused_every_way():
    """None occurs; no mean could be taken of its rows."""
    case, offsets = Case(5, 3, 4, 9, ONE), np.array([0, 4, 4, 9])
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for chosen in kernels.levels():
            kernels.use(patch, chosen)
            for form in (clients.mean_sums_and_counts, clients.clipped_sums_and_counts):
                with pytest.raises(LatticeOverflowError, match="clipping bounds"):
                    form(case.block._replace(offsets=offsets), case.known, Assigner(case.centers), 0.6, 0.8)


def test_a_row_that_is_too_long_for_exact_outer_products_is_refused():
    with pytest.MonkeyPatch.context() as patch:
        for chosen in kernels.levels():
            kernels.use(patch, chosen)
            total, long = np.zeros((2, 2), dtype=np.int64), np.array([[3, 4], [-(2**31), 2**31 - 1]], dtype=np.int32)
            for each in (long, long.astype(np.int64), long[:, :1]):
                with pytest.raises(LatticeOverflowError):
                    row_pass.add_outer(total, each, 5.0)
            total[:] = 0
            row_pass.add_outer(total, long[:1].copy(), 5.0)
            assert total[np.triu_indices(2)].tolist() == [9, 12, 16]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 8, 50, 200])
@pytest.mark.parametrize("size", [2, 10, 64])
def test_many_rows(size, width):
    """Several blocks of every level, and clients larger than a chunk."""
    case = Case(size + width, size, width, 9000, ONE)
    case.block = case.block._replace(offsets=np.array([0, 1, 3, 300, 2500, 9000]))
    check(case, ONE // 3, True, case.known)


@pytest.mark.parametrize("size", [1, 10, 40])
def test_of_equal_centers_the_first_counts(size):
    """Ten rows midway between all centers: truth is by hand."""
    centers, points = np.zeros((size, 3)), np.full((10, 3), 7, dtype=np.int32)
    known = QuantizedFrame.of(Frame(Lattice(np.zeros(3), 1.0)), lattice.SUM_BITS)
    for chosen in kernels.levels():
        with pytest.MonkeyPatch.context() as patch:
            kernels.use(patch, chosen)
            found = rows.sums_and_counts(ClientBlock(points), known, Assigner(centers), 1.0, 1.0)
        truth = np.zeros(size * 4, dtype=np.int64)
        truth[:3], truth[3 * size] = 70, 10 * ONE
        np.testing.assert_array_equal(found, truth)


@pytest.mark.parametrize("place", [0, 95, 96, 199])
@pytest.mark.parametrize("row", [(ONE, 1), (-ONE - 1, 0), (2**31 - 1, -(2**31)), (-(2**31), -(2**31))])
def test_a_row_beyond_its_bound_is_refused_wherever_it_lies(place, row, monkeypatch):
    points = np.zeros((200, 2), dtype=np.int32)
    points[place] = row
    known = QuantizedFrame.of(Frame(Lattice(np.zeros(2), 1.0)), lattice.SUM_BITS)
    around = Neighborhoods(np.zeros((3, 2)), 1, True)
    block = ClientBlock(points, np.arange(201))
    for chosen in kernels.levels():
        kernels.use(monkeypatch, chosen)
        for statistic in (
            lambda: rows.sums_and_counts(block, known, Assigner(around.centers), 1.0, 1.0),
            lambda: rows.histogram(block, known, Assigner(around.centers), 1.0, relative=True),
            lambda: rows.relative_sums(block, known, around, 1),
            lambda: clients.relative_sums(block, known, around, 1),
            lambda: clients.means_of_means(block, known, Assigner(around.centers), 1.0, 1.0),
        ):
            with pytest.raises(LatticeOverflowError, match="kept from an earlier round"):
                statistic()


def test_scores_that_could_reach_the_limit_are_left_to_numpy(monkeypatch):
    """16 centers of norm 2**24 fit, 17 do not; 2,048 in the ball do."""
    from dapple_dp.transforms.numerics.kernel.row_pass import CompiledPass

    kernels.use(monkeypatch, kernels.compiled())

    def fits(size: int, norm: float) -> bool:
        centers = np.zeros((size, 2))
        centers[:, 0] = norm
        return CompiledPass.of(centers, float(ONE)) is not None

    far = MAX_CENTER_NORM - 20.0
    assert fits(16, far)
    assert not fits(17, far)
    assert fits(2048, float(ONE - 2))
    assert not fits(4097, float(ONE))
    assert not fits(2, float("nan"))
    assert not fits(2, float("inf"))
