"""Fits without privacy: pooled k-means over a lake, marked as such, and used by other jobs."""

import json
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from sklearn.cluster import KMeans

from dapple_dp.transforms.trusted_zone import pooled_kmeans
from tests.scenes import lake
from tests.scenes.models import run_model_job, write_model

pytestmark = pytest.mark.slow

N_ROWS = 900
GROUPS = "grouping rows by client where a client's rows are apart"
REPLAY = ("--direct_runner_bundle_repeat=2",)


class Desk:
    """Rows that overlap a little, far from the origin, whose clients have two of three clusters each."""

    def __init__(self, folder):
        self.folder = folder
        self.points = 1e4 + 0.6 * lake.mixture(N_ROWS, seed=2) + np.random.default_rng(0).normal(size=(N_ROWS, 4))
        label = np.arange(N_ROWS) % 3
        self.clients = (np.arange(N_ROWS) // 3 % 25) * 3 + (label + np.arange(N_ROWS) // 75 % 2) % 3
        order = np.random.default_rng(1).permutation(N_ROWS)
        self.data = lake.write_files(folder / "lake", [self.table(order[:500]), self.table(order[500:])], 130)
        best = KMeans(3, n_init=10, random_state=0).fit(self.points)
        self.best, self.least = best.cluster_centers_, best.inertia_ / N_ROWS

    def table(self, rows):
        return lake.table_of(self.points[rows], self.clients[rows])

    def settings(self, **changes):
        data = {"path": self.data, "features": "x", "client_id": "client_id"}
        return {"algorithm": "optimal", "data": data, "n_clusters": 3} | changes

    def centers(self, folder, *flags, **changes):
        outcome = lake.run_job(self.settings(**changes), folder, *flags)
        assert outcome.code == 0, outcome.err
        table = pq.read_table(folder / "out" / "centers.parquet")
        return np.array(table.column("center").to_pylist())

    def cost(self, centers):
        return ((self.points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean()


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("pooled"))


def sorted_rows(centers):
    return centers[np.lexsort(centers.T)]


def test_optimal_finds_the_optimum(desk, tmp_path):
    found = desk.centers(tmp_path)
    np.testing.assert_allclose(desk.cost(found), desk.least, rtol=1e-6)
    np.testing.assert_allclose(sorted_rows(found), sorted_rows(desk.best), atol=0.02)


def test_optimal_finds_it_from_a_sample(desk, tmp_path, monkeypatch):
    monkeypatch.setattr(pooled_kmeans, "SAMPLE_ROWS", 90)
    found = desk.centers(tmp_path, *REPLAY)
    np.testing.assert_allclose(desk.cost(found), desk.least, rtol=1e-4)


def test_far_rows_do_not_blur_the_others(desk, tmp_path):
    """One row 1e6 away is a cluster of its own; the others are found as without it."""
    data = lake.write_files(
        tmp_path / "lake", [desk.table(np.arange(N_ROWS)), lake.table_of(np.full((1, 4), 1e6), [1])]
    )
    found = desk.centers(tmp_path, data={"path": data, "features": "x"}, n_clusters=4)
    near = found[found[:, 0] < 1e5]
    assert len(near) == 3
    np.testing.assert_allclose(desk.cost(near), desk.least, rtol=1e-3)


def test_the_same_rows_in_other_files_give_the_same_centers(desk, tmp_path):
    found = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        parts = np.array_split(np.random.default_rng(seed).permutation(N_ROWS), seed + 2)
        data = lake.write_files(folder / "lake", [desk.table(part) for part in parts])
        data = {"path": data, "features": "x", "client_id": "client_id"}
        found.append(desk.centers(folder, data=data))
    assert len({each.tobytes() for each in found}) == 1


@pytest.fixture(scope="module", params=["all rows", "few rows of each client"])
def done(request, desk):
    folder = desk.folder / request.param.replace(" ", "_")
    folder.mkdir()
    settings = desk.settings()
    if request.param != "all rows":
        settings["data"]["max_rows_per_client"] = 8
    return folder, settings, lake.run_job(settings, folder, "--run_id", "one")


def test_outputs_are_marked_not_private(done):
    folder, settings, outcome = done
    output = folder / "out"
    assert json.loads(outcome.out) == {"run_id": "one", "output": str(output), "epsilon": None, "delta": None}
    assert outcome.lines == [
        "dapple: run one: evaluation (not private)",
        *([f"dapple: {GROUPS}"] if "max_rows_per_client" in settings["data"] else []),
        f"dapple: done: {output}; it is as private as the input",
    ]
    assert {path.name for path in output.iterdir()} == {"centers.parquet", "run.json"}
    manifest = json.loads((output / "run.json").read_text())
    assert (manifest["private"], manifest["label"]) == (False, "evaluation (not private)")
    assert manifest["algorithm"] == settings["algorithm"]
    metadata = pq.read_schema(output / "centers.parquet").metadata
    assert metadata[b"dapple.private"] == b"false"
    assert {path.name for path in folder.iterdir()} == {"job.yaml", "out"}


@pytest.mark.parametrize("job", ["evaluate", "assign"])
def test_its_folder_is_a_model_for_other_jobs(desk, done, tmp_path, job):
    folder, _, _ = done
    outcome = run_model_job(job, desk.settings() | {"model": str(folder / "out")}, tmp_path)
    assert outcome.code == 0, outcome.err
    if job == "evaluate":
        centers = np.array(pq.read_table(folder / "out" / "centers.parquet").column("center").to_pylist())
        found = json.loads((tmp_path / job / "metrics.json").read_text())
        np.testing.assert_allclose(found["cost"], desk.cost(centers), rtol=1e-6)


def test_a_model_of_rows_brought_together_says_how_they_were_encoded(tmp_path):
    table = lake.table_of(lake.mixture(60), np.arange(60) % 7)
    table = table.append_column("work", [np.array(["clerk", "smith"])[np.arange(60) % 2]])
    data = {"path": lake.write_files(tmp_path / "lake", [table.slice(0, 30), table.slice(30)]), "features": ["work"]}
    data |= {"client_id": "client_id", "max_rows_per_client": 5}
    job = {"algorithm": "optimal", "data": data, "n_clusters": 2}
    encode = {"work": {"kind": "one_hot", "vocabulary": ["clerk", "smith"]}}
    outcome = lake.run_job(job | {"encode": encode}, tmp_path)
    assert outcome.code == 0, outcome.err
    manifest = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (len(manifest["features"]), manifest["encoding"] is None) == (2, False)


def test_a_privacy_section_is_refused(desk, tmp_path):
    outcome = lake.run_job(desk.settings(privacy={"unit": "client", "epsilon": 1.0}), tmp_path)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.lines[0].startswith("dapple: privacy isn't supported for algorithm optimal")
    assert not (tmp_path / "out").exists()


def test_more_clusters_than_rows(desk, tmp_path):
    outcome = lake.run_job(desk.settings(n_clusters=1000), tmp_path)
    assert outcome.code == 2
    assert outcome.lines[-1].startswith("dapple: n_clusters must be at most the number of rows, got 1000")
    assert not (tmp_path / "out").exists()


def test_released_outputs_are_kept_apart(desk, tmp_path):
    model = write_model(tmp_path / "fit", lake.MEANS)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(desk.settings()))
    output = str(pathlib.Path(model) / "below")
    outcome = lake.run_command("fit", "--config", str(tmp_path / "job.yaml"), "--output", output)
    assert outcome.code == 2
    assert outcome.lines[-1] == (
        f"dapple: --output must be a folder outside of released outputs, got {output} with centers.parquet in {model}; "
        "choose another one."
    )
