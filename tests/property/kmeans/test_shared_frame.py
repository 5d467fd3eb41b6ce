"""A shared frame changes nothing but the time: every statistic is the same integer for integer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.core.unit import Clients, Rows
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner, Projection
from dapple_dp.transforms.core.statistics.by_unit import of_unit
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.trusted_zone.shared_frame import SharedFrame

CHECKED = settings(max_examples=25, deadline=None, derandomize=True)


def frames(n_features):
    return Frame(Lattice(np.zeros(n_features), 3.0))


def everything(block, frame):
    """Statistics of both levels, those of clients on rows in another order."""
    n_features = block.points.shape[1]
    centers = Frame(frame.lattice).quantize(np.eye(n_features)[:3], lattice.SUM_BITS)
    flat = Assigner(centers[:, :2] * 1.0, Projection.from_basis(np.eye(n_features)[:, :2]))
    rows, clients, norm = of_unit(Rows()), of_unit(Clients()), frame.lattice.clipping_norm
    yield rows.outer_product(block, frame, norm**2, relative=False)
    yield rows.histogram(block, frame, flat, 1.0, relative=False)
    yield rows.mean_sums_and_counts(block, frame, Assigner(centers), norm, 1.0)
    yield clients.outer_product(block, frame, 4.0, relative=False)
    yield clients.histogram(block, frame, flat, 0.9, relative=True)
    yield clients.histogram(block, frame, Assigner(centers), 5.0, relative=False)
    yield clients.mean_sums_and_counts(block, frame, Assigner(centers), 1.0, 1.0)


@CHECKED
@given(
    sizes=st.lists(st.integers(1, 60) | st.integers(2040, 2100), min_size=1, max_size=12),
    n_features=st.integers(3, 6),
    single=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_it_gives_the_same_integers(sizes, n_features, single, seed):
    points = np.random.default_rng(seed).normal(size=(sum(sizes), n_features))
    points = points.astype(np.float32) if single else points
    block = ClientBlock(points, np.concatenate([[0], np.cumsum(sizes)]))
    frame = frames(n_features)
    shared = SharedFrame(*frame)
    for held in (block, ClientBlock(points[::-1].copy(), block.client_offsets)):
        expected = list(everything(held, frame))
        shared.hold(held.points)
        for _ in range(2):
            for found, wanted in zip(everything(held, shared), expected, strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("unheld", [False, True])
def test_copies_never_stand_for_each_other(unheld):
    """Copies of one size, one after the other: the allocator gives many of them the same place."""
    points, frame = np.random.default_rng(0).normal(size=(50, 4)), frames(4)
    shared = SharedFrame(*frame)
    if not unheld:
        shared.hold(points)
    for shift in range(200):
        found = shared.quantize(points + shift / 100.0, lattice.SUM_BITS)
        np.testing.assert_array_equal(found, frame.quantize(points + shift / 100.0, lattice.SUM_BITS))


def test_parts_of_the_held_rows_are_shared_until_others_are_held():
    points, shared = np.random.default_rng(0).normal(size=(50, 4)), SharedFrame(*frames(4))
    shared.hold(points)
    first = shared.quantize(points[10:20], lattice.SUM_BITS)
    assert shared.quantize(points[10:20], lattice.SUM_BITS) is first
    assert not first.flags.writeable
    assert shared.quantize(points[10:20], lattice.OUTER_BITS) is not first
    shared.hold(points)
    assert shared.quantize(points[10:20], lattice.SUM_BITS) is not first
    assert shared.quantize(points[:0], lattice.SUM_BITS).shape == (0, 4)
