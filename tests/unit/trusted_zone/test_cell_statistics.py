"""Sums of a worker over a shard for every run of a sweep: each run its own statistic, each bundle from nothing."""

import dataclasses

import numpy as np
from apache_beam.transforms.window import GlobalWindow

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.core.statistics.frame import Box, Frame
from dapple_dp.transforms.files.signals.progress import PROGRESS
from dapple_dp.transforms.trusted_zone import sweep_cells
from dapple_dp.transforms.trusted_zone.shared_frame import SharedFrame
from dapple_dp.transforms.trusted_zone.sweep_cells import _CellStatisticsFn
from tests.scenes.gaussian_rounds import round_of

PLAN = round_of(sums=4)
NARROW, WIDE = Frame.of_box(Box(-1.0, 1.0), 2), Frame.of_box(Box(-2.0, 2.0), 2)


@dataclasses.dataclass(frozen=True)
class State:
    frame: Frame
    weight: int


def statistic(block, state):
    """Number of rows, weight of the run, and what its frame makes of the rows."""
    found = np.zeros(PLAN.size, dtype=np.int64)
    found[:2] = len(block.points), state.weight
    found[2] = np.abs(state.frame.integers(block.points, 4)).sum()
    return found


def test_each_run_has_its_own_sum_and_each_bundle_starts_from_nothing(monkeypatch):
    blocks = [ClientBlock(np.full((n, 2), 0.5), None) for n in (3, 1)]
    asked, said = [], []
    monkeypatch.setattr(sweep_cells, "prefetched_blocks", lambda *given: asked.append(given) or iter(blocks))
    monkeypatch.setattr(PROGRESS, "step", said.append)
    states = {0: State(NARROW, 1), 1: State(NARROW, 5), 2: State(WIDE, 7), 3: State(WIDE, 100)}
    rounds = {number: Round(PLAN, statistic, None) for number in (0, 1, 2)}
    function, shards = (
        _CellStatisticsFn("contract", rounds, "news"),
        [ShardRef("a", row_group, 4) for row_group in (0, 1)],
    )
    for used in (shards, shards[:1], []):
        function.start_bundle()
        assert [function.process(shard, states) for shard in used] == [None] * len(used)
        found = list(function.finish_bundle())
        assert all(each.windows == [GlobalWindow()] for each in found)
        sums = {number: vector.tolist() for number, vector in (each.value for each in found)}
        # A coordinate of 0.5 is 8 / sqrt(2) units of the narrow frame and half as many of the wide one, toward zero.
        rows, n_blocks = 4 * len(used), 2 * len(used)
        expected = {0: (1, 5), 1: (5, 5), 2: (7, 2)}
        assert sums == {
            number: [rows, weight * n_blocks, 2 * rows * units] + [0] * 7
            for number, (weight, units) in expected.items()
        }
    assert asked == [(shard, "contract") for shard in (*shards, shards[0])]
    assert said == ["news"] * 3


def test_equal_frames_are_shared_and_others_are_not():
    found = sweep_cells._share_frames(
        {0: State(NARROW, 1), 1: State(Frame.of_box(Box(-1.0, 1.0), 2), 2), 2: State(WIDE, 3)}
    )
    assert isinstance(found[0].frame, SharedFrame)
    assert found[0].frame is found[1].frame
    assert found[2].frame is WIDE
    assert [found[number].weight for number in range(3)] == [1, 2, 3]
