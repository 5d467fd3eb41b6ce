"""Cells of clusters and terms: one unit moves them by at most the declared sensitivity, whatever terms it has."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.transforms.core.statistics import term_cells
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.core.statistics.term_cells import TERM_UNITS, CellLimits

settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=100)
settings.load_profile("ci")

ROWS, CLIENTS = of_unit(Rows()), of_unit(Clients())
D, V, MOST = 3, 7, 4
FRAME = Frame(Lattice(np.zeros(D), 1.0))
CENTERS = Assigner(np.trunc(np.eye(D) * 2.0**20))
limits = st.builds(CellLimits, st.just(V), st.sampled_from([1, 2, 3, 5, 1000]))


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
    assert squared(moved) <= CLIENTS.TERMS_SENSITIVITY**2
    assert moved.min() >= 0
    assert moved.max() <= given_limits.cell_units
    assert moved.sum() <= given_limits.per_row * given_limits.cell_units


class Loose(CellLimits):
    """Limits whose cells are finer than the bound allows."""

    cell_units = property(lambda self: 3 * TERM_UNITS)


@given(blocks(), st.integers(0, 29))
def test_a_client_over_the_bound_is_shrunk_as_a_whole(block, at):
    """Whatever bounds the cells one by one: the norm of all that a client adds is checked on these integers."""
    client, loose = at % block.n_clients, Loose(V, MOST)
    moved = cells(CLIENTS, block, loose) - cells(CLIENTS, without(block, client), loose)
    assert squared(moved) <= TERM_UNITS**2
    low, high = block.offsets[client : client + 2]
    whole = cells(ROWS, ClientBlock(block.points[low:high]), loose) / (high - low)
    if (length := np.linalg.norm(whole)) > 1.001 * TERM_UNITS:
        np.testing.assert_allclose(moved / TERM_UNITS, whole / length, atol=1e-5)


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
def test_a_client_of_one_row_has_the_cells_of_the_row(block, given_limits):
    each = ClientBlock(block.points, np.arange(len(block.points) + 1))
    np.testing.assert_array_equal(
        cells(CLIENTS, each, given_limits), cells(ROWS, ClientBlock(block.points), given_limits)
    )


@given(blocks(), limits, st.integers(0, V - 1))
def test_what_a_term_gets_does_not_depend_on_the_others_beside_it(block, given_limits, term):
    """Neither with a list that is not cut."""
    alone = block.points.copy()
    alone[:, D:] = np.where(alone[:, D:] == term, term, -1)
    whole = given_limits._replace(most=MOST)
    for module in (ROWS, CLIENTS):
        found, expected = (cells(module, each, whole).reshape(-1, V) for each in (block, block._replace(points=alone)))
        assert np.abs(found[:, term] - expected[:, term]).max() <= (0 if module is ROWS else block.n_clients)


@given(blocks(), st.sampled_from([1, 2, 3, 50]))
def test_a_term_that_all_rows_have_counts_as_clusters_do(block, k):
    """Rows in the middle between centers, and equal ones, are in one cluster for both."""
    rng = np.random.default_rng(k)
    centers = Assigner(np.trunc(np.repeat(rng.normal(size=(k + 1, D)), 2, axis=0)[:k] * 2.0**19))
    points = np.hstack([np.round(np.clip(block.points[:, :D], -1.0, 1.0)), np.zeros((len(block.points), 1))])
    for module, given_block in ((ROWS, ClientBlock(points)), (CLIENTS, ClientBlock(points, block.offsets))):
        sizes = module.histogram(given_block._replace(points=points[:, :D]), FRAME, centers, 1.0, relative=True)
        found = module.term_cells(given_block, FRAME, centers, CellLimits(1, 1))
        assert np.abs(found - sizes).max() <= (0 if module is ROWS else block.n_clients)


def test_cells_equal_a_loop_over_rows_in_fractions():
    """A cell of clients, and all cells of a term, are within one lattice unit for each of them."""
    rng = np.random.default_rng(0)
    points = np.hstack([rng.normal(size=(400, D)), rng.integers(-1, V, (400, MOST))])
    offsets = np.concatenate([np.arange(0, 351, 7), [357, 400]])
    of_rows, of_clients = np.full((2, D, V), Fraction(0))
    for start, stop in itertools.pairwise(offsets):
        for row in points[start:stop]:
            for term in {int(term) for term in row[D:] if term >= 0}:
                of_rows[row[:D].argmax(), term] += 1
                of_clients[row[:D].argmax(), term] += Fraction(1, int(stop - start))
    given_limits = CellLimits(V, MOST)
    found = cells(ROWS, ClientBlock(points), given_limits).reshape(D, V)
    assert (found == of_rows * given_limits.cell_units).all()
    errors = cells(CLIENTS, ClientBlock(points, offsets), given_limits).reshape(D, V) - of_clients * (
        given_limits.cell_units
    )
    n_clients = len(offsets) - 1
    assert np.abs(errors).max() < n_clients
    assert np.abs(errors.sum(axis=0)).max() < n_clients


def test_large_clients_are_counted_whole(monkeypatch):
    """They are, also if their rows don't fit into one part."""
    rng = np.random.default_rng(0)
    points = np.hstack([rng.normal(size=(5000, D)), rng.integers(-1, V, (5000, MOST))])
    block, given_limits = ClientBlock(points, np.array([0, 5000])), CellLimits(V, MOST)
    found = cells(CLIENTS, block, given_limits)
    assert found.sum() > 0
    monkeypatch.setattr(term_cells, "CLIENT_BLOCK_ROWS", 10_000)
    np.testing.assert_array_equal(found, cells(CLIENTS, block, given_limits))


def test_the_longest_client_reaches_the_bound_and_no_client_passes_it():
    full = np.hstack([np.tile(np.eye(D)[0], (9, 1)), np.tile(np.arange(MOST), (9, 1))])
    given_limits = CellLimits(V, MOST)
    units = given_limits.cell_units
    found = cells(CLIENTS, ClientBlock(full, np.array([0, 9])), given_limits)
    assert squared(found) == MOST * units**2
    # One row of nine elsewhere: shares that no integer is equal to, in more cells than a row may have.
    other = np.vstack([full, np.append(np.eye(D)[1], np.arange(MOST) + 3)])
    moved = cells(CLIENTS, ClientBlock(other, np.array([0, 10])), given_limits)
    assert squared(moved) < squared(found)
    assert moved.sum() == MOST * units


def test_of_a_list_that_is_cut_the_first_terms_count():
    points = np.array([[1.0, 0.0, 0.0, 2.0, 5.0, 0.0, 1.0]])
    found = cells(ROWS, ClientBlock(points), CellLimits(V, 2))
    assert np.flatnonzero(found).tolist() == [2, 5]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 10, 999, 1000])
def test_the_units_of_a_cell_keep_the_sensitivity(most):
    units = CellLimits(2000, most).cell_units
    assert most * units**2 <= TERM_UNITS**2 < most * (units + 1) ** 2
    assert CellLimits(2, most).cell_units == CellLimits(2, min(most, 2)).cell_units
