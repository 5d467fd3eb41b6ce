"""Whole runs of the central tree: equal to the chain of their rounds in any layout, and sane where data are few."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from tests.scenes import lake

N_ROWS, CLIENT_ROWS = 6000, 10
LARGE_EPSILON = 8.0
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


def tree_job(data, unit="record", **settings):
    found = lake.job(
        data, None, unit, algorithm="central_tree", tree={"radius": 7.0}, privacy__epsilon=LARGE_EPSILON, **settings
    )
    found["clipping"].pop("norm")
    return found


class Desk:
    """One lake in two layouts, a key, and blocks of the same rows."""

    def __init__(self, folder):
        self.points = lake.mixture(N_ROWS)
        clients = np.arange(N_ROWS) // CLIENT_ROWS
        self.plain = lake.write_lake(folder / "plain", self.points, clients)
        layout = {"n_files": 4, "row_group_size": 300, "shuffle": 1}
        self.shuffled = lake.write_lake(folder / "shuffled", self.points, clients, **layout)
        self.key = lake.write_key(folder / "key")
        self.blocks = {
            "record": ClientBlock(self.points),
            "client": ClientBlock(self.points, np.arange(0, N_ROWS + 1, CLIENT_ROWS)),
        }

    def job(self, unit, layout="plain", **settings):
        return tree_job(getattr(self, layout), unit, key_uri=self.key, **settings)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("tree"))


def distances(centers):
    return np.linalg.norm(lake.MEANS[:, None] - centers[None], axis=2).min(axis=1)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_run_equals_the_chain_of_its_rounds(desk, tmp_path, unit):
    settings = desk.job(unit, lloyd={"steps": 1})
    result = lake.run_fit(settings, tmp_path / "out")
    lake.assert_same(result.model, lake.chain(lake.planned(settings), desk.blocks[unit]).model())
    assert [each.path.partition("/")[2] for each in result.model.releases] == [
        *("shape/scatter", "shape/sums", "shape/rows"),
        *(f"splits_{step:02d}/cells" for step in range(4)),
        *("leaves/sums", "leaves/counts", "lloyd_00/sums", "lloyd_00/counts"),
    ]
    assert result.privacy.epsilon <= LARGE_EPSILON
    assert distances(result.model.centers).max() < 0.5


@pytest.mark.parametrize("unit", ["record", "client"])
def test_layout_does_not_matter(desk, tmp_path, unit):
    for layout in ("plain", "shuffled"):
        lake.run_fit(desk.job(unit, layout), tmp_path / layout)
    assert lake.released(tmp_path / "plain") == lake.released(tmp_path / "shuffled")


@pytest.mark.slow
def test_two_processes_release_what_one_does(desk, tmp_path):
    lake.run_fit(desk.job("record"), tmp_path / "one")
    lake.run_fit(desk.job("record", "shuffled"), tmp_path / "two", *PROCESSES)
    assert lake.released(tmp_path / "one") == lake.released(tmp_path / "two")


def test_the_elbow_finds_the_number_of_clusters(desk, tmp_path):
    settings = desk.job("record", n_clusters={"max": 7, "choose": "elbow"}, lloyd={"steps": 1})
    model = lake.run_fit(settings, tmp_path / "out").model
    assert model.n_clusters == 3
    assert model.proxy_costs.shape == (7,)
    assert distances(model.centers).max() < 0.5


def test_feddp_lloyds_start_with_the_tree(desk, tmp_path):
    settings = desk.job("record", lloyd={"steps": 2}, feddp_kmeans={"restarts": 20})
    model = lake.run_fit(settings, tmp_path / "out").model
    lake.assert_same(model, lake.chain(lake.planned(settings), desk.blocks["record"]).model())
    paths = [each.path for each in model.releases]
    assert [path.split("/")[1] for path in paths[-4:]] == ["lloyd_00", "lloyd_00", "lloyd_01", "lloyd_01"]
    assert any(path == "central_tree/leaves/sums" for path in paths)
    assert distances(model.centers).max() < 0.2


@pytest.mark.parametrize("steps", [0, 1])
def test_the_last_round_may_judge_the_centers(desk, tmp_path, steps):
    settings = desk.job("record", quality={"share": 0.05}, lloyd={"steps": steps})
    model = lake.run_fit(settings, tmp_path / "out").model
    lake.assert_same(model, lake.chain(lake.planned(settings), desk.blocks["record"]).model())
    assert model.releases[-1].path == "central_tree/quality/sizes"
    squared = ((desk.points[:, None] - model.centers[None]) ** 2).sum(axis=2).min(axis=1)
    assert abs(model.noisy_cost.mean - squared.mean()) < 5 * model.noisy_cost.stddev


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("n_rows", [1, 12])
def test_few_rows_release_everything_all_the_same(tmp_path, n_rows, unit):
    points = lake.mixture(n_rows)
    clients = np.arange(n_rows) // 4
    settings = tree_job(lake.write_lake(tmp_path / "lake", points, clients), unit, n_clusters=5, lloyd={"steps": 1})
    model = lake.run_fit(settings, tmp_path / "run").model
    assert model.centers.shape == (5, 4)
    assert np.isfinite(model.centers).all()
    assert np.isfinite(model.noisy_sizes).all()
    for release in model.releases:
        assert release.values.shape == release.plan.spec.shape
        assert np.count_nonzero(release.values)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_only_invalid_rows_release_noise(tmp_path, unit):
    points = np.full((30, 4), np.nan)
    data = lake.write_lake(tmp_path / "lake", points, np.arange(30) // 10)
    key = lake.write_key(tmp_path / "key")
    settings = tree_job(data, unit, data__on_invalid_rows="drop", key_uri=key)
    model = lake.run_fit(settings, tmp_path / "run").model
    offsets = np.zeros(1, dtype=np.int64) if unit == "client" else None
    lake.assert_same(model, lake.chain(lake.planned(settings), ClientBlock(np.zeros((0, 4)), offsets)).model())


def test_the_command_writes_a_whole_report(desk, tmp_path):
    outcome = lake.run_job(desk.job("record", lloyd={"steps": 1}), tmp_path)
    assert outcome.code == 0, outcome.err
    assert "calibrating noise" in outcome.err
    assert "server data" not in outcome.err
    page = (tmp_path / "out" / "report.html").read_text()
    assert "found by CentralTree from noised sums" in page
    assert "could not be written" not in page
    assert "splits_00/cells" in page
    assert json.loads((tmp_path / "out" / "privacy.json").read_text())["epsilon"] <= LARGE_EPSILON
    assert pq.read_table(tmp_path / "out" / "centers.parquet").num_rows == 3


def test_rows_that_cannot_be_used_stop_the_run(desk, tmp_path):
    points = lake.mixture(30)
    points[7, 2] = np.inf
    outcome = lake.run_job(tree_job(lake.write_lake(tmp_path / "lake", points)), tmp_path)
    assert outcome.code == 2
    assert "finite numbers only" in outcome.err
    assert not (tmp_path / "out").exists()


def test_cells_of_a_sweep_share_their_passes(desk, tmp_path):
    settings = desk.job("record") | {
        "sweep": {
            "methods": {"tree": {}, "deep": {"tree": {"depth": 12}}, "lloyd": {"lloyd": {"steps": 1}}},
            "epsilons": [LARGE_EPSILON],
            "seeds": [0, 1],
        }
    }
    settings.pop("key_uri")
    (tmp_path / "job.yaml").write_text(json.dumps(settings))
    outcome = lake.run_command("sweep", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out"))
    assert outcome.code == 0, outcome.err
    costs = pq.read_table(tmp_path / "out" / "results.parquet").column("cost").to_numpy()
    assert len(costs) == 6
    assert (costs < 4.0).all()
