"""One row or client moves sums of numbers and cells of codes no farther than stated, and cells know all sizes."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.differences import RELATIVE_UNITS
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.kmeans.k_prototypes.columns import Columns
from dapple_dp.transforms.kmeans.k_prototypes.rounds import prototypes_statistic
from dapple_dp.transforms.kmeans.k_prototypes.state import PrototypeSettings, PrototypeState

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=150)
settings.load_profile("ci")

WIDTH = 8
COLUMNS = Columns(WIDTH, (0, 4), ((1, 3), (5, 1), (6, 2)), 0.5)
UNITS, CELL = lattice.SUM_UNITS, COLUMNS.limits.cell_units
anything = st.one_of(
    st.sampled_from([0.0, 0.25, 0.5]), st.floats(-2.0, 2.0), st.floats(allow_nan=False, allow_infinity=False, width=64)
)
rows = hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.just(WIDTH)), elements=anything)


@st.composite
def states(draw, unit):
    """Any prototypes, as a server step places them."""
    size, rng = draw(st.integers(1, 4)), np.random.default_rng(draw(st.integers(0, 2**16)))
    empty = PrototypeState(
        settings=PrototypeSettings(unit=unit, n_clusters=size, columns=COLUMNS, seed=0),
        frame=Frame.of_box(Box(-1.0, 1.0), WIDTH),
        server=np.zeros((0, WIDTH)),
        centers=np.zeros((1, WIDTH)),
    )
    modes = np.stack([rng.integers(0, width, size) for width in COLUMNS.widths], axis=1)
    centers = empty.placed(rng.uniform(-1.0, 1.0, (size, 2)), modes)
    return PrototypeState(settings=empty.settings, frame=empty.frame, server=empty.server, centers=centers)


of_rows, of_clients = states(Rows()), states(Clients(3))


def split(vector, state):
    sums, cells = np.split(vector, [state.centers.size])
    return sums.reshape(-1, WIDTH), cells.reshape(-1, COLUMNS.n_cells)


def squared(part):
    return sum(int(each) ** 2 for each in part.ravel())


@given(rows, of_rows, st.integers(0, 29))
def test_a_row_moves_one_cluster_by_its_bounds(points, state, at):
    """Whatever its features are, it has one code in each column: the root of the number of columns, in L2."""
    at %= len(points)
    rest = ClientBlock(np.delete(points, at, axis=0))
    sums, cells = split(prototypes_statistic(ClientBlock(points), state) - prototypes_statistic(rest, state), state)
    assert squared(sums) <= RELATIVE_UNITS**2
    assert np.count_nonzero(sums.any(axis=1)) <= 1
    cluster, places = np.nonzero(cells)
    assert cells[cluster, places].tolist() == [CELL] * 3
    assert len(set(cluster.tolist())) == 1
    assert (np.searchsorted(COLUMNS.starts, places, side="right") == [1, 2, 3]).all()
    assert UNITS**2 - 4 * UNITS <= squared(cells) <= UNITS**2


@given(rows, of_clients, st.integers(0, 29))
def test_a_client_moves_all_of_them_by_the_same_bounds(points, state, cut):
    cut %= len(points)
    offsets = np.array([0, cut, len(points)] if cut else [0, len(points)])
    both = prototypes_statistic(ClientBlock(points, offsets), state)
    rest = prototypes_statistic(ClientBlock(points[:cut], offsets[:-1]), state)
    sums, cells = split(both - rest, state)
    assert squared(sums) <= RELATIVE_UNITS**2
    assert squared(cells) <= UNITS**2
    assert (cells >= 0).all()
    # Cells of a column are shares of the client's rows, which add up to 1 but for rounding.
    totals = np.stack([part.sum() for part in COLUMNS.by_column(cells)])
    assert (np.abs(totals - CELL) <= 30).all()


@given(rows, of_rows, st.integers(0, 30))
def test_any_split_of_rows_has_the_same_sums(points, state, cut):
    parts = [prototypes_statistic(ClientBlock(each), state) for each in (points, points[:cut], points[cut:])]
    np.testing.assert_array_equal(parts[0], parts[1] + parts[2])


@given(rows, of_rows)
def test_the_cells_of_every_column_add_up_to_the_size_of_a_cluster(points, state):
    _, cells = split(prototypes_statistic(ClientBlock(points), state), state)
    totals = np.stack([part.sum(axis=1) for part in COLUMNS.by_column(cells)], axis=1)
    assert (totals == totals[:, :1]).all()
    assert totals[:, 0].sum() == len(points) * CELL


ordinary = st.tuples(
    st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), st.integers(0, 3), st.integers(0, 1), st.integers(0, 2)
)


@given(st.lists(ordinary, min_size=1, max_size=20), of_rows)
def test_a_row_belongs_to_the_prototype_of_the_least_distance_of_huangs(given_rows, state):
    """gamma for each code that differs, half of it if one of both is not listed."""
    table = np.array(given_rows)
    numbers, codes, gamma = table[:, :2], table[:, 2:].astype(int), 2.0 * COLUMNS.length**2
    _, cells = split(prototypes_statistic(ClientBlock(COLUMNS.features(numbers, codes)), state), state)
    differ = codes[:, None] != state.modes
    other = (codes[:, None] == COLUMNS.widths - 1) | (state.modes == COLUMNS.widths - 1)
    far = gamma * np.where(differ, np.where(other, 0.5, 1.0), 0.0).sum(axis=2)
    far += ((numbers[:, None] - state.numbers) ** 2).sum(axis=2)
    near = far <= far.min(axis=1, keepdims=True) + 1e-4
    sizes = cells[:, : COLUMNS.widths[0]].sum(axis=1) / CELL
    sure = near.sum(axis=1) == 1
    assert (sizes >= np.bincount(far[sure].argmin(axis=1), minlength=len(sizes))).all()
    assert (sizes <= near.sum(axis=0)).all()


def test_cells_are_as_fine_as_the_bound_allows():
    for m in (1, 2, 3, 9, 100):
        units = COLUMNS._replace(codes=((0, 2),) * m).limits.cell_units
        assert m * units**2 <= UNITS**2 < m * (units + 1) ** 2
        assert units == math.isqrt(UNITS**2 // m)
