"""Runs in step equal runs alone, bit for bit; no two of them share noise; bundles and processes do not matter."""

import dataclasses
import functools
import itertools

import apache_beam as beam
import numpy as np
import pytest

from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.trusted_zone import sweep
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.trusted_zone.sweep_config import sweep_config
from dapple_dp.transforms.core import loop, noise
from dapple_dp.transforms.core.noise import draw_release
from dapple_dp.transforms.tables.read import ListShards
from dapple_dp.transforms.trusted_zone.sweep_cells import Cell, RunCells
from tests.scenes import lake, sweeps

N_ROWS = 600
REPLAY = ("--direct_runner_bundle_repeat=2",)
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
PRIVATE = {name: changes for name, changes in sweeps.METHODS.items() if name in ("rows", "clients", "full")}
PRIVATE["norm"] = {"algorithm": "feddp_kmeans", "clipping": {"norm": "private"}, "lloyd": {"steps": 1}}


class Desk:
    """A lake of whole clients, and cells of both levels and of different lengths, ready to run."""

    def __init__(self, folder):
        points = lake.mixture(N_ROWS, seed=3)
        clients = np.arange(N_ROWS) // 10
        path = lake.write_lake(folder / "lake", points, clients, n_files=3, row_group_size=50)
        job = sweeps.settings(path, lake.write_server(folder / "server.parquet"), PRIVATE, epsilons=[1.0, 4.0])
        self.block = ClientBlock(points, np.arange(0, N_ROWS + 1, 10))
        self.key = lake.write_key(folder / "key")
        self.cells = sweep.plan_cells(sweep_config(job).cells)
        self.runs = tuple(Cell(each.number, sweep._own_rounds(each), each.fit.initial) for each in self.cells)

    def together(self, folder, *flags):
        """Centers of all cells by number."""
        folder.mkdir()
        lake.run_unchecked(functools.partial(self.build, folder=str(folder)), beam_options(flags))
        return {int(path.stem): np.load(path) for path in folder.glob("*.npy")}

    def build(self, root, folder):
        rows = sweep.job_rows(self.cells)
        source = lake.staged(rows.source, folder)
        shards = root | "List" >> ListShards(source=source, contract=rows.contract)
        models = shards | "Run" >> RunCells(cells=self.runs, contract=rows.contract, key_uri=self.key)

        def save(keyed):  # a local function travels to workers by value
            np.save(f"{folder}/{keyed[0]}.npy", keyed[1].centers)

        _ = models | "Save" >> beam.Map(save)

    def alone(self, run):
        """The model of a cell's rounds on one block, without Beam."""
        return loop.simulate(run.initial, run.rounds, [self.block], lake.KEY).model()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="module")
def alone(desk):
    return {run.number: desk.alone(run) for run in desk.runs}


@pytest.mark.parametrize(
    "flags", [(), REPLAY, pytest.param(PROCESSES, marks=pytest.mark.slow)], ids=["plain", "replay", "processes"]
)
def test_cells_in_step_are_the_same_runs_as_alone(desk, alone, tmp_path, flags):
    found = desk.together(tmp_path / "models", *flags)
    assert found.keys() == alone.keys()
    for number, centers in found.items():
        np.testing.assert_array_equal(centers, alone[number].centers)


def test_what_ran_is_a_mix(desk):
    assert {len(run.rounds) for run in desk.runs} == {3, 4, 5}
    assert {run.initial.settings.unit.kind for run in desk.runs} == {"record", "client"}


def test_a_cell_keeps_the_plan_of_its_own_job(desk):
    for each, run in zip(desk.cells, desk.runs, strict=True):
        assert each.fit.plan.epsilon <= each.cell.epsilon
        for own, plain in zip(run.rounds, each.fit.plan.rounds, strict=True):
            assert own.plan.path == f"sweep/{each.cell.digest}/{plain.path}"
            assert dataclasses.replace(own.plan, path=plain.path) == plain


def test_no_two_releases_share_noise(desk, monkeypatch):
    """Also where cells have equal plans and equal sums: two seeds of one method, in their first round."""
    found = []

    def record(key, plan, exact_sum):
        releases = draw_release(key, plan, exact_sum)
        values = np.concatenate([each.values.ravel() for each in releases])
        found.append((plan.path, values - exact_sum))
        return releases

    methods = {"rows": PRIVATE["rows"], "twin": PRIVATE["rows"]}
    first = desk.cells[0].cell.config
    job = sweeps.settings(first.data.path, first.server_data.path, methods, seeds=2)
    cells = sweep.plan_cells(sweep_config(job).cells)
    monkeypatch.setattr(noise, "draw_release", record)
    for cell in cells:
        loop.simulate(cell.fit.initial, sweep._own_rounds(cell), [desk.block], lake.KEY)
    assert len({path for path, _ in found}) == len(found) == 12
    for (left, one), (right, other) in itertools.combinations(found, 2):
        size = min(one.size, other.size)
        assert not np.equal(one[:size], other[:size]).any(), (left, right)
