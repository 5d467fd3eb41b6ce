"""Whole runs of k-medians: against its rounds on one block, under masks, after an earlier run, and all it writes."""

import json

import numpy as np
import pytest

from dapple_dp import DPKMeans
from dapple_dp.schemas.core.block import ClientBlock
from tests.scenes import lake, ledgers

N_ROWS = 1200
CENTERS = 0.6 * np.array([[1, 1, 1, 0], [-1, -1, 1, 0], [1, -1, -1, 1]])
MASKS = {"shared": {}, "pairwise": {"scheme": "pairwise", "threshold": 2, "corrupt": 0.0, "dropout": 0.01}}
"""Where few drop out, a client has few neighbors; graphs of more are in `pipeline/masked/test_masked_rounds.py`."""


class Place:
    """A lake with outliers in one corner, keys, and jobs of it."""

    def __init__(self, folder):
        noise = np.random.default_rng(0).normal(0.0, 0.1, (N_ROWS, 4))
        self.points = np.clip(CENTERS[np.arange(N_ROWS) % 3] + noise, -1.0, 1.0)
        self.points[::40] = 1.0
        self.offsets = np.arange(0, N_ROWS + 1, 10)
        clients = np.arange(N_ROWS) // 10
        self.data = lake.write_lake(folder / "rows", self.points, clients, n_files=3, row_group_size=200)
        self.server = lake.write_server(folder / "server.parquet", CENTERS)
        self.key, self.secret = lake.write_key(folder / "key"), lake.write_key(folder / "secret", bytes(range(51, 83)))

    def job(self, unit="record", init="best", **settings):
        by_server = init == "feddp_init"
        found = {
            "experimental": True,
            "algorithm": "dp_medians",
            "data": {"path": self.data, "features": "x", "public_rows": N_ROWS if unit == "record" else N_ROWS // 10},
            "server_data": {"path": self.server} if by_server else "none",
            "n_clusters": 3,
            "privacy": {"unit": unit, "epsilon": 8.0, "delta": 1e-6},
            "dp_lloyd": {"domain": [-1.0, 1.0], "init": init, "steps": 4},
            "key_uri": self.key,
        }
        if unit == "client":
            found["data"]["client_id"] = "client_id"
            found["clipping"] = {"client_rows": 10}
        return found | settings

    def masked(self, scheme, unit="record"):
        return self.job(unit, trust="masked", masked={"secret_uri": self.secret} | MASKS[scheme])

    def expected(self, job):
        return lake.chain(lake.planned(job), ClientBlock(self.points, self.offsets)).model()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("medians"))


STARTS = ("best", "candidates", "sphere_packing", "feddp_init", "central_tree")


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("init", STARTS)
def test_every_start_leads_to_finite_centers_in_the_domain(place, init, unit):
    model = place.expected(place.job(unit, init))
    assert (np.abs(model.centers) <= 1.0).all()
    assert np.isfinite([each.lattice_unit for each in model.releases]).all()
    assert [each.path for each in model.releases][-2:] == [
        "dp_medians/median_03/directions",
        "dp_medians/median_03/counts",
    ]


@pytest.mark.parametrize(("unit", "init"), [("record", "best"), ("client", "candidates"), ("record", "feddp_init")])
def test_a_run_equals_its_rounds_on_one_block(place, tmp_path, unit, init):
    job = place.job(unit, init)
    result = lake.run_fit(job, tmp_path / "out")
    lake.assert_same(result.model, place.expected(job))
    assert 7.9 < result.privacy.epsilon <= 8.0


@pytest.mark.parametrize("scheme", MASKS)
def test_masked_jobs_release_medians(place, tmp_path, scheme):
    result = lake.run_fit(place.masked(scheme, "client"), tmp_path / "out")
    assert np.linalg.norm(result.model.centers[:, None] - CENTERS[None], axis=2).min(axis=0).max() < 0.4
    assert result.privacy.epsilon <= 8.0


def test_outliers_move_centers_less_than_means(place):
    found = {name: place.expected(place.job(algorithm=name)).centers for name in ("dp_medians", "dp_lloyd")}
    far = {
        name: np.linalg.norm(centers[:, None] - CENTERS[None], axis=2).min(axis=0).max()
        for name, centers in found.items()
    }
    assert far["dp_medians"] < 0.15
    assert far["dp_medians"] < far["dp_lloyd"]


def test_the_command_plans_charges_releases_reports_and_verifies(place, tmp_path):
    ledger = ledgers.new_ledger(tmp_path, ledgers.Limit(epsilon=9.0, delta=1e-5), "rows")
    job = place.job(ledger=ledger.path)
    job["data"]["name"] = "rows"
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "out"
    privacy = json.loads((folder / "privacy.json").read_text())
    moved = [each for each in privacy["events"] if each["path"].endswith("/directions")]
    assert len(moved) == 4
    assert len({each["noise_multiplier"] for each in moved}) == 1
    report = (folder / "report.html").read_text()
    for text in (
        "found by DP-Medians",
        "in which direction from each center its rows lie",
        "release how well the centers fit",
    ):
        assert text in report
    for text in ("could not be written", "random points in the clipping ball"):
        assert text not in report
    assert lake.run_command("verify", str(folder)).code == 0
    again = lake.run_command("fit", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "again"))
    assert again.code == 3
    width = ("--width", "4")
    planned = lake.run_command(
        "plan", "--config", str(tmp_path / "job.yaml"), "--rows", "1200", "--accuracy", "0.5", *width
    )
    assert planned.code == 0, planned.err


def test_the_next_run_starts_from_the_last_centers_with_the_whole_budget(place, tmp_path):
    assert lake.run_job(place.job(), tmp_path).code == 0
    second = tmp_path / "second"
    second.mkdir()
    outcome = lake.run_job(place.job(recurring={"previous": str(tmp_path / "out")}), second)
    assert outcome.code == 0, outcome.err
    privacy = json.loads((second / "out" / "privacy.json").read_text())
    assert {each["path"].split("/")[0] for each in privacy["events"]} == {"dp_medians"}
    drift = json.loads((second / "out" / "drift.json").read_text())["clusters"]
    assert all(each["movement"] < 0.2 and each["movement_score"] is None for each in drift)


def test_an_estimator_finds_medians(place):
    given = {"epsilon": 8.0, "delta": 1e-6, "domain": (-1.0, 1.0), "lloyd_steps": 5, "random_state": 0}
    model = DPKMeans(3, algorithm="dp_medians", settings={"experimental": True}, **given)
    centers = model.fit(place.points).cluster_centers_
    assert np.linalg.norm(centers[:, None] - CENTERS[None], axis=2).min(axis=0).max() < 0.2
