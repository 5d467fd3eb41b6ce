"""Public server rows that are off in every way, beside a public box: a run says so, or keeps its promise."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.scenes import lake

D, K = 5, 4
MEANS = np.random.default_rng(0).uniform(-0.5, 0.5, (K, D))
ROWS = np.concatenate([np.random.default_rng(index).normal(mean, 0.05, (300, D)) for index, mean in enumerate(MEANS)])
NAMES = [f"x{index}" for index in range(D)]


def written(path, rows):
    pq.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True))), path)
    return str(path)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return written(tmp_path_factory.mktemp("rows") / "rows.parquet", ROWS)


def run(folder, rows, server, **more):
    job = {
        "algorithm": "auto",
        "data": {"path": rows, "features": NAMES},
        "server_data": {"path": server},
        "n_clusters": K,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": [-1, 1]},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job | more))
    return lake.run_command("fit", "--config", str(folder / "job.yaml"), "--output", str(folder / "out"))


@pytest.mark.parametrize(
    "server",
    [
        np.full((50, D), 0.1),
        np.full((50, D), 1e300),
        1e6 + ROWS[:50],
        ROWS[:1],
        ROWS[: 2 * K - 1],
        np.repeat(ROWS[:2], [1, 400], axis=0),
    ],
    ids=["all equal", "the largest numbers", "far outside", "one", "too few to be split", "two places"],
)
def test_odd_server_rows_cost_no_more_and_move_no_center_out_of_the_box(tmp_path, rows, server):
    outcome = run(tmp_path, rows, written(tmp_path / "server.parquet", server))
    assert outcome.code == 0, outcome.err
    centers = np.array(pq.read_table(tmp_path / "out" / "centers.parquet")["center"].to_pylist())
    assert centers.shape == (K, D)
    assert np.abs(centers).max() <= 1.0
    said = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert 0.9 < said["epsilon"] <= 1.0
    assert [each["path"] for each in said["events"]].count("dp_lloyd/server/cost") == 1
    assert lake.run_command("verify", str(tmp_path / "out")).code == 0


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_server_rows_that_are_no_numbers_are_refused(tmp_path, rows, number):
    server = ROWS[:50].copy()
    server[7, 2] = number
    outcome = run(tmp_path, rows, written(tmp_path / "server.parquet", server))
    assert (outcome.code, "must hold finite numbers" in outcome.err) == (2, True)


def test_private_rows_are_no_server_rows(tmp_path, rows):
    outcome = run(tmp_path, rows, rows)
    assert (outcome.code, "server_data.path must be public" in outcome.err) == (2, True)
