"""Frames: the box that clips rows, and integers shared by several statistics."""

import math

import numpy as np

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import clients, lattice
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.core.statistics.lattice import Lattice
from dapple_dp.transforms.trusted_zone.shared_frame import SharedFrame


def test_rows_are_clipped_to_the_box_before_the_ball():
    frame = Frame.of_box(Box(0.0, 4.0), 4)
    assert frame.lattice.clipping_norm == 4.0
    np.testing.assert_array_equal(frame.lattice.center, [2.0] * 4)
    rows = frame.quantize(np.array([[9.0, 3.0, -math.inf, 2.0], [1e308, -1e308, 2.0, 2.0]], dtype=np.float64), 4)
    np.testing.assert_array_equal(rows, [[8.0, 4.0, -8.0, 0.0], [8.0, -8.0, 0.0, 0.0]])


def test_a_smaller_norm_wins_over_the_box():
    frame = Frame.of_box(Box(-1.0, 1.0), 2, 0.5)
    np.testing.assert_array_equal(frame.quantize(np.array([[7.0, 0.0], [0.0, 0.25]]), 4), [[16.0, 0.0], [0.0, 8.0]])


def test_shared_integers_are_those_of_the_rows_also_where_memory_is_used_again():
    points = np.random.default_rng(0).normal(size=(20000, 4)).astype(np.float32)
    block = ClientBlock(points, np.arange(0, 20001, 10))
    frame = Frame(Lattice(np.zeros(4), 5.0))
    shared = SharedFrame(*frame)
    shared.hold(points)
    assigner = Assigner(np.random.default_rng(1).integers(-(2**18), 2**18, (5, 4)).astype(float))
    found = [clients.mean_sums_and_counts(block, each, assigner, 5.0, 1.0) for each in (frame, shared)]
    np.testing.assert_array_equal(*found)
    assert shared.quantize(points[:5], lattice.SUM_BITS) is shared.quantize(points[:5], lattice.SUM_BITS)
