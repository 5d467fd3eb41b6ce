"""Cells of clusters and terms: one unit moves them by at most the declared sensitivity, whatever terms it has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.privacy.unit import Clients, Rows
from schemas.tables.client_block import ClientBlock
from transforms.numerics.statistics.assignment import Assigner
from transforms.numerics.statistics.by_unit import of_unit
from transforms.numerics.statistics.frame import Frame
from transforms.numerics.statistics.lattice import Lattice
from transforms.numerics.statistics.term_cells import TERM_UNITS, CellLimits

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=100)
settings.load_profile("ci")

ROWS, CLIENTS = of_unit(Rows()), of_unit(Clients())
D, V, MOST = 3, 7, 4
FRAME = Frame(Lattice(np.zeros(D), 1.0))
CENTERS = Assigner(np.trunc(np.eye(D) * 2.0**20))
limits = st.builds(CellLimits, st.just(V), st.sampled_from([1, 2, 3, 5, 1000]), st.integers(0, 2**63 - 1))


@st.composite
def blocks(draw):
    """Rows with numbers of terms, some of which are none, in clients of several rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    n_rows = draw(st.integers(1, 30))
    codes = rng.integers(-2, V + 2, (n_rows, MOST)).astype(float)
    points = np.hstack([rng.normal(size=(n_rows, D)) * draw(st.sampled_from([1e-9, 1.0, 1e300])), codes])
    cuts = np.unique(rng.integers(0, n_rows + 1, draw(st.integers(0, 6))))
    return ClientBlock(points, np.unique(np.concatenate([[0], cuts, [n_rows]])).astype(np.int64))


def squared(vector):
    return sum(int(value) ** 2 for value in vector)


def cells(module, block, given_limits):
    return module.term_cells(block, FRAME, CENTERS, given_limits)


def without(block, client):
    """The block without one of its clients."""
    low, high = block.offsets[client : client + 2]
    sizes = np.delete(np.diff(block.offsets), client)
    return ClientBlock(np.delete(block.points, np.s_[low:high], axis=0), np.concatenate([[0], np.cumsum(sizes)]))


@given(blocks(), limits, st.integers(0, 29))
def test_one_client_moves_all_cells_by_the_sensitivity_at_most(block, given_limits, at):
    client = at % block.n_clients
    moved = cells(CLIENTS, block, given_limits) - cells(CLIENTS, without(block, client), given_limits)
    assert (moved >= 0).all()
    assert squared(moved) <= CLIENTS.TERMS_SENSITIVITY**2
    assert (moved > 0).sum() <= given_limits.per_unit
    assert set(moved.tolist()) <= {0, given_limits.cell_units}


@given(blocks(), limits, st.integers(0, 29))
def test_one_row_moves_all_cells_by_the_sensitivity_at_most(block, given_limits, at):
    rest = np.delete(block.points, at % len(block.points), axis=0)
    moved = cells(ROWS, ClientBlock(block.points), given_limits) - cells(ROWS, ClientBlock(rest), given_limits)
    assert (moved >= 0).all()
    assert squared(moved) <= ROWS.TERMS_SENSITIVITY**2


@given(blocks(), limits, st.integers(0, 30))
def test_any_split_of_rows_gives_the_same_cells(block, given_limits, cut):
    parts = (ClientBlock(block.points[:cut]), ClientBlock(block.points[cut:]))
    whole = cells(ROWS, ClientBlock(block.points), given_limits)
    np.testing.assert_array_equal(whole, sum(cells(ROWS, part, given_limits) for part in parts))


@given(blocks(), limits, st.integers(0, 2**16))
def test_neither_the_order_of_a_clients_rows_nor_that_of_clients_matters(block, given_limits, seed):
    rng, order, sizes = np.random.default_rng(seed), [], np.diff(block.offsets)
    clients = rng.permutation(block.n_clients)
    for client in clients:
        order += rng.permutation(np.arange(*block.offsets[client : client + 2])).tolist()
    moved = ClientBlock(block.points[order], np.concatenate([[0], np.cumsum(sizes[clients])]))
    np.testing.assert_array_equal(cells(CLIENTS, block, given_limits), cells(CLIENTS, moved, given_limits))


@given(blocks(), limits)
def test_a_client_of_one_row_has_as_many_cells_as_a_row(block, given_limits):
    each = ClientBlock(block.points, np.arange(len(block.points) + 1))
    found, rows = cells(CLIENTS, each, given_limits), cells(ROWS, ClientBlock(block.points), given_limits)
    assert found.sum() == rows.sum()
    unlimited = given_limits._replace(per_unit=1000)
    np.testing.assert_array_equal(cells(CLIENTS, each, unlimited), cells(ROWS, ClientBlock(block.points), unlimited))


def test_cells_equal_a_loop_over_units_in_sets():
    rng = np.random.default_rng(0)
    points = np.hstack([rng.normal(size=(400, D)), rng.integers(-1, V, (400, MOST))])
    offsets = np.arange(0, 401, 8)
    expected = np.zeros((D, V), dtype=np.int64)
    for start in offsets[:-1]:
        rows = points[start : start + 8]
        nearest = rows[:, :D].argmax(axis=1)
        for cell in {(int(j), int(t)) for j, row in zip(nearest, rows, strict=True) for t in row[D:] if t >= 0}:
            expected[cell] += 1
    given_limits = CellLimits(V, D * V, 0)
    found = cells(CLIENTS, ClientBlock(points, offsets), given_limits)
    np.testing.assert_array_equal(found, expected.ravel() * given_limits.cell_units)


def test_large_clients_are_counted_whole():
    points = np.hstack([np.ones((5000, D)), np.tile(np.arange(MOST), (5000, 1))])
    given_limits = CellLimits(V, 2, 0)
    found = cells(CLIENTS, ClientBlock(points, np.array([0, 5000])), given_limits)
    assert sorted(found[found > 0].tolist()) == [given_limits.cell_units] * 2


def test_which_cells_count_follows_from_the_unit_and_differs_between_units():
    """Equal terms of many units would otherwise be the same few of them everywhere."""
    rng = np.random.default_rng(1)
    near = np.abs(rng.normal(size=(4000, D))) + np.array([5.0, 0.0, 0.0])
    points = np.hstack([near, np.tile(np.arange(MOST), (4000, 1))])
    given_limits = CellLimits(V, 1, 0)
    found = cells(ROWS, ClientBlock(points), given_limits)[:MOST] / given_limits.cell_units
    assert found.sum() == 4000
    assert np.abs(found - 1000.0).max() < 6.0 * np.sqrt(4000 * 0.25 * 0.75)


@pytest.mark.parametrize("per_unit", [1, 2, 3, 7, 10, 999, 1000])
def test_the_units_of_a_cell_keep_the_sensitivity(per_unit):
    units = CellLimits(V, per_unit, 0).cell_units
    assert per_unit * units**2 <= TERM_UNITS**2 < per_unit * (units + 1) ** 2
