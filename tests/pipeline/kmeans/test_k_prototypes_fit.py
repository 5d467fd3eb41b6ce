"""Whole runs of k-prototypes: a pipeline releases what a loop does, rows are assigned by their codes, and the page."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.core.block import ClientBlock
from tests.scenes import lake

N_ROWS = 1200
UNITS = {"record": ("--rows", "1200"), "client": ("--clients", "200")}
SEXES, WARDS = ("f", "m"), ("a", "b", "c")


class Place:
    """A lake of ages, labs, sexes and wards in three clusters, and its key."""

    def __init__(self, folder):
        rng, which = np.random.default_rng(0), np.arange(N_ROWS) % 3
        ages = np.array([20.0, 50.0, 80.0])[which] + rng.normal(0.0, 2.0, N_ROWS)
        labs = np.array([2.0, 0.0, 2.0])[which] + rng.normal(0.0, 0.1, N_ROWS)
        wards = np.array(["a", "b", "c"], dtype=object)[which]
        wards[::30] = "elsewhere"
        self.which = which
        self.table = pa.table(
            {
                "age": ages,
                "sex": np.array(["f", "m", "f"])[which],
                "lab": labs,
                "ward": pa.array(wards.tolist()),
                "team": pa.array(["x", "y", "z"] + ["x", "y"] * ((N_ROWS - 3) // 2) + ["x"]),
                "who": np.arange(N_ROWS) // 6,
            }
        )
        self.data = lake.write_files(folder / "rows", [self.table.slice(0, 700), self.table.slice(700)], 200)
        self.key = lake.write_key(folder / "key")

    def job(self, unit="record", **settings):
        found = {
            "experimental": True,
            "algorithm": "k_prototypes",
            "data": {"path": self.data, "features": ["age", "sex", "lab", "ward"]},
            "n_clusters": 3,
            "privacy": {"unit": unit, "epsilon": 8.0, "delta": 1e-6},
            "encode": {
                "sex": {"kind": "one_hot", "vocabulary": list(SEXES)},
                "ward": {"kind": "one_hot", "vocabulary": list(WARDS)},
            },
            "k_prototypes": {"domain": {"age": [0, 100], "lab": [-1, 3]}},
            "seed": 3,
            "key_uri": self.key,
        }
        if unit == "client":
            found["data"]["client_id"] = "who"
            found["clipping"] = {"client_rows": 6}
        return found | settings

    def expected(self, job):
        planned = lake.planned(job)
        points = planned.contract.encoder.encode(self.table, "the lake")
        return lake.chain(planned, ClientBlock(points, np.arange(0, N_ROWS + 1, 6))).model()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("prototypes"))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_run_equals_its_rounds_on_one_block(place, tmp_path, unit):
    job = place.job(unit)
    result = lake.run_fit(job, tmp_path / "out")
    lake.assert_same(result.model, place.expected(job))
    assert 7.9 < result.privacy.epsilon <= 8.0


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_command_releases_verifies_plans_and_assigns_by_codes(place, tmp_path, unit):
    outcome = lake.run_job(place.job(unit), tmp_path)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "out"
    privacy = json.loads((folder / "privacy.json").read_text())
    assert [each["path"] for each in privacy["events"]][-2:] == [
        "k_prototypes/step_02/sums",
        "k_prototypes/step_02/cells",
    ]
    report = (folder / "report.html").read_text()
    assert "found by k-prototypes" in report
    assert "could not be written" not in report
    assert lake.run_command("verify", str(folder)).code == 0
    script = pathlib.Path(__file__).resolve().parents[3] / "docs" / "verify_release.py"
    checked = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All sensitivities, and 14 lattice units, follow from published bounds." in checked.stdout
    planned = lake.run_command("plan", "--config", str(tmp_path / "job.yaml"), *UNITS[unit])
    assert planned.code == 0, planned.err
    assert "A mode is clear if its code is ahead of the next one by about" in planned.out + planned.err
    config = tmp_path / "assign.yaml"
    config.write_text(
        f"data: {{path: {place.data}, features: [age, sex, lab, ward]}}\nmodel: {folder}\n", encoding="utf-8"
    )
    assigned = lake.run_command("assign", "--config", str(config), "--output", str(tmp_path / "assigned"))
    assert assigned.code == 0, assigned.err
    found = pq.read_table(tmp_path / "assigned" / "assignments.parquet").sort_by(
        [("file", "ascending"), ("row", "ascending")]
    )
    pairs = set(zip(place.which.tolist(), found.column("cluster").to_pylist(), strict=True))
    assert len(pairs) == 3


def test_the_page_says_how_frequent_modes_are_and_which_codes_noise_may_hide(place, tmp_path):
    """Of two teams of the same size neither is called the mode alone."""
    job = place.job()
    job["data"]["features"] = ["age", "sex", "ward", "team"]
    job["k_prototypes"]["domain"] = {"age": [0, 100]}
    job["encode"]["team"] = {"kind": "one_hot", "vocabulary": ["x", "y"]}
    outcome = lake.run_job(job, tmp_path)
    assert outcome.code == 0, outcome.err
    report = re.sub("<[^>]*>", "", (tmp_path / "out" / "report.html").read_text())
    assert len(re.findall(r"team x \((4|5)\d%\) or y|team y \((4|5)\d%\) or x", report)) == 3
    assert re.search(r"ward a \((8|9)\d%\)", report)
