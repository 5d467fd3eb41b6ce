"""DP-Lloyd: one privacy unit moves relative and absolute sums by at most the declared sensitivity; folding stays in."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.differences import RELATIVE_UNITS, Neighborhoods
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.numerics.kmeans import folding
from dapple_dp.transforms.numerics.kmeans.starts.grid import Grid

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=150)
settings.load_profile("ci")

ROWS, CLIENTS = of_unit(Rows()), of_unit(Clients())
D, K = 3, 4
anything = st.floats(allow_nan=False, allow_infinity=False, width=64)
ordinary = st.floats(-3.0, 3.0)
rows = hnp.arrays(np.float64, st.tuples(st.integers(1, 25), st.just(D)), elements=st.one_of(ordinary, anything))
boxes = st.builds(lambda low, side: Box(low, low + side), ordinary, st.floats(1e-3, 10.0))
norms = st.one_of(st.just(math.inf), st.floats(1e-3, 5.0))
frames = st.builds(lambda box, norm: Frame.of_box(box, D, norm), boxes, norms)
radii = st.integers(1, 1 << 21)


@st.composite
def neighborhoods(draw):
    """Centers in the domain, or far outside it, as without post-processing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    reach = draw(st.sampled_from([2**10, 2**19, 2**23]))
    centers = rng.integers(-reach, reach, (K, D)).astype(float)
    if draw(st.booleans()):
        centers[1] = centers[0]
    return Neighborhoods(centers, draw(radii), draw(st.booleans()))


def squared(vector):
    return sum(int(value) ** 2 for value in vector)


def record_change(statistic, points, at):
    at = at % len(points)
    return statistic(ClientBlock(points)) - statistic(ClientBlock(np.delete(points, at, axis=0)))


def client_change(statistic, points, cut):
    cut = cut % len(points)
    offsets = [0, cut, len(points)] if cut else [0, len(points)]
    both = ClientBlock(points, np.array(offsets, dtype=np.int64))
    rest = ClientBlock(points[:cut], np.array(offsets[:-1], dtype=np.int64))
    return statistic(both) - statistic(rest)


@given(rows, frames, neighborhoods(), st.integers(0, 24))
def test_one_row_moves_one_pair_of_relative_sum_and_count(points, frame, around, at):
    change = record_change(lambda b: ROWS.relative_sums(b, frame, around, around.radius), points, at)
    sums, counts = change[:-K].reshape(K, D), change[-K:]
    assert squared(change[:-K]) <= RELATIVE_UNITS**2
    assert np.abs(counts).sum() <= lattice.SUM_UNITS
    touched = np.flatnonzero(np.abs(sums).sum(axis=1))
    assert len(touched) <= 1
    assert set(touched) <= set(np.flatnonzero(counts))


@given(rows, frames, neighborhoods(), st.floats(0.01, 1.0), st.integers(0, 24))
def test_one_client_moves_its_clipped_means_only(points, frame, around, share, cut):
    bound = max(1, int(share * around.radius))
    change = client_change(lambda b: CLIENTS.relative_sums(b, frame, around, bound), points, cut)
    assert squared(change[:-K]) <= RELATIVE_UNITS**2
    assert squared(change[-K:]) <= lattice.SUM_UNITS**2


@given(rows, frames, neighborhoods(), st.floats(0.01, 1.0), st.floats(1e-3, 1.0), st.integers(0, 24))
def test_one_client_moves_sums_and_counts_by_their_bounds(points, frame, around, share, count_bound, cut):
    bound = max(1, int(share * around.radius))
    change = client_change(lambda b: CLIENTS.relative_sums(b, frame, around, bound, count_bound), points, cut)
    assert squared(change[:-K]) <= RELATIVE_UNITS**2
    assert squared(change[-K:]) <= lattice.SUM_UNITS**2


@given(rows, frames, st.integers(0, 2**16), st.integers(0, 24))
def test_absolute_sums_keep_both_norms(points, frame, seed, at):
    centers = np.random.default_rng(seed).integers(-(2**19), 2**19, (K, D)).astype(float)
    limit, norm = math.isqrt(D * lattice.SUM_UNITS**2), frame.lattice.clipping_norm
    change = record_change(lambda b: ROWS.mean_sums_and_counts(b, frame, Assigner(centers), norm, 1.0), points, at)
    assert squared(change[:-K]) <= lattice.SUM_UNITS**2
    assert np.abs(change[:-K]).sum() <= limit
    change = client_change(lambda b: CLIENTS.mean_sums_and_counts(b, frame, Assigner(centers), norm, 1.0), points, at)
    assert squared(change[:-K]) <= lattice.SUM_UNITS**2
    assert np.abs(change[:-K]).sum() <= limit
    assert np.abs(change[-K:]).sum() <= lattice.SUM_UNITS


@given(rows, frames, neighborhoods(), st.integers(0, 25))
def test_any_split_of_rows_gives_the_same_relative_sums(points, frame, around, cut):
    whole, *parts = [
        ROWS.relative_sums(ClientBlock(part), frame, around, around.radius)
        for part in (points, points[:cut], points[cut:])
    ]
    np.testing.assert_array_equal(whole, sum(parts))


@given(rows, frames, neighborhoods())
def test_relative_sums_equal_a_loop_over_rows(points, frame, around):
    expected = np.zeros((K, D + 1), dtype=object)
    for row in frame.quantize(points, lattice.SUM_BITS):
        differences = [[int(a) - int(b) for a, b in zip(row, center, strict=True)] for center in around.centers]
        distances = [squared(each) for each in differences]
        nearest = distances.index(min(distances))
        if distances[nearest] <= around.radius**2:
            expected[nearest, :D] += np.array(differences[nearest], dtype=object) * around.factor
            expected[nearest, D] += lattice.SUM_UNITS
    found = ROWS.relative_sums(ClientBlock(points), frame, around._replace(shortens=False), around.radius)
    np.testing.assert_array_equal(found[:-K].reshape(K, D), expected[:, :D].astype(np.int64))
    np.testing.assert_array_equal(found[-K:], expected[:, D].astype(np.int64))


@given(rows, frames, st.integers(0, 2**16), st.integers(1, 9), st.integers(0, 24))
def test_one_unit_moves_one_cell_of_a_grid(points, frame, seed, along, at):
    rng = np.random.default_rng(seed)
    projection = Projection.from_basis(np.linalg.qr(rng.normal(size=(D, 2)))[0])
    cells = Grid(
        (along, 3), rng.integers(1, 2**20, 2).astype(float), rng.integers(-(2**19), 2**19, 2) * 1.0, projection
    )
    change = record_change(lambda b: ROWS.histogram(b, frame, cells, 1.0, relative=True), points, at)
    assert np.abs(change).sum() == lattice.SUM_UNITS
    change = client_change(lambda b: CLIENTS.histogram(b, frame, cells, 1.0, relative=True), points, at)
    assert squared(change) <= lattice.SUM_UNITS**2


@given(hnp.arrays(np.float64, (4, D), elements=st.floats(-1e6, 1e6)), st.floats(1e-2, 1e3))
def test_folding_stays_in_the_domain_and_changes_nothing_inside(centers, half_side):
    folded = folding.fold(centers, half_side)
    assert (np.abs(folded) <= half_side).all()
    inside = np.abs(centers) <= half_side
    np.testing.assert_array_equal(folded[inside], centers[inside])
    np.testing.assert_array_equal(folding.fold(folded, half_side), folded)


@given(hnp.arrays(np.float64, (4, D), elements=st.floats(-1e6, 1e6)), st.floats(1e-3, 1e3))
def test_clipped_moves_keep_their_direction_and_the_limit(moves, longest):
    clipped = folding.clip_moves(moves, longest)
    lengths = np.linalg.norm(clipped, axis=1)
    assert (lengths <= longest * (1.0 + 1e-12)).all()
    short = np.linalg.norm(moves, axis=1) <= longest
    np.testing.assert_array_equal(clipped[short], moves[short])
    np.testing.assert_allclose(np.cross(clipped, moves), 0.0, atol=1e-6 * max(1.0, np.abs(moves).max() ** 2))
