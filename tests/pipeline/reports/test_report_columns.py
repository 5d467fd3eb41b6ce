"""Reports of clients whose rows are several mixed columns."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import load_encode_config
from dapple_dp.schemas.reports.parameters import ReportParameters
from dapple_dp.schemas.reports.record import features_of
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.reports.encode import keyed_reports
from tests.scenes import lake

N_CLIENTS = 1500
FEATURES = ["age", "hours", "education"]
ENCODINGS = {
    "age": {"kind": "standardize", "mean": 40.0, "stddev": 10.0},
    "hours": {"kind": "standardize", "from": "server"},
    "education": {"kind": "one_hot", "vocabulary": ["HS-grad", "Bachelors"]},
}


def columns(n_rows: int = N_CLIENTS, seed: int = 0) -> dict[str, list]:
    """Two kinds of people: young with few hours and HS-grad, old with many and Bachelors."""
    rng = np.random.default_rng(seed)
    old = np.arange(n_rows) % 2
    return {
        "client_id": np.arange(n_rows).tolist(),
        "age": (25.0 + 30.0 * old + rng.normal(0.0, 2.0, n_rows)).tolist(),
        "hours": (20 + 40 * old + rng.integers(-2, 3, n_rows)).tolist(),
        "education": np.array(["HS-grad", "Bachelors"])[old].tolist(),
    }


@pytest.fixture
def job(tmp_path):
    (tmp_path / "lake").mkdir()
    for index in range(2):
        part = {name: values[index::2] for name, values in columns().items()}
        pq.write_table(pa.table(part), tmp_path / "lake" / f"part-{index}.parquet", row_group_size=300)
    pq.write_table(pa.table(columns(60, 1)), tmp_path / "server.parquet")
    return {
        "data": {"path": str(tmp_path / "lake"), "features": FEATURES, "client_id": "client_id"},
        "server_data": {"path": str(tmp_path / "server.parquet")},
        "encode": ENCODINGS,
        "n_clusters": 2,
        "privacy": {"unit": "client", "epsilon": 8.0},
        "tree": {"radius": 3.0},
        "reports": {"variant": "points", "min_batch": 1000, "path": str(tmp_path / "encoded")},
        "key_uri": lake.write_key(tmp_path / "key"),
    }


def run(name: str, content: dict, folder, output: str) -> lake.Outcome:
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(content))
    return lake.run_command(name, "--config", str(folder / f"{output}.yaml"), "--output", str(folder / output))


def test_mixed_columns_are_reported_decoded_and_evaluated(tmp_path, job):
    for name, output in (("encode", "encoded"), ("decode", "decoded")):
        outcome = run(name, job, tmp_path, output)
        assert outcome.code == 0, outcome.err
    manifest = json.loads((tmp_path / "decoded" / "run.json").read_text())
    assert manifest["features"] == ["age", "hours", "education=HS-grad", "education=Bachelors"]
    centers = np.array(pq.read_table(tmp_path / "decoded" / "centers.parquet")["center"].to_pylist())
    rows = Encoder.from_json(manifest["encoding"]).encode(pa.table(columns()), "here")
    means = np.stack([rows[kind::2].mean(axis=0) for kind in (0, 1)])
    # 0.4 where the means are 4 apart; nonces and coins are fixed, but not the public key of the collection.
    assert np.linalg.norm(means - centers[:, None], axis=2).min(axis=0).max() < 0.4
    evaluation = {"model": str(tmp_path / "decoded"), "data": {"path": job["data"]["path"], "features": FEATURES}}
    assert run("evaluate", evaluation, tmp_path, "evaluation").code == 0
    assert json.loads((tmp_path / "evaluation" / "metrics.json").read_text())["n_rows"] == N_CLIENTS


def test_reports_are_those_of_the_records_one_by_one(tmp_path, job):
    assert run("encode", job, tmp_path, "encoded").code == 0
    public = ReportParameters.from_json((tmp_path / "encoded" / "parameters.json").read_text())
    table = columns()
    records = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    points = np.array([features_of(record, public) for record in records])
    wanted = keyed_reports(points, [f"integers{index}".encode() for index in range(N_CLIENTS)], public, lake.KEY)
    found = pq.read_table(tmp_path / "encoded" / "reports.parquet")
    order = np.argsort(wanted.nonces)
    np.testing.assert_array_equal(found["nonce"].to_numpy(), wanted.nonces[order])
    np.testing.assert_array_equal(found["index"].to_numpy(), wanted.indices[order])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encode": {"agee": ENCODINGS["age"]}}, "encode.agee must name a column of data.features"),
        ({"server_data": "none"}, "encode.hours must have public values if there is no server_data"),
        ({"encode": {"age": {"kind": "scale"}}}, "encode.age.kind must be 'standardize'"),
    ],
)
def test_encodings_that_do_not_fit_are_refused(job, change, message):
    with pytest.raises(ConfigError, match=message):
        load_encode_config(yaml.safe_dump(job | change))


def test_parameters_with_another_encoding_are_refused(tmp_path, job):
    assert run("encode", job, tmp_path, "encoded").code == 0
    other = job | {"encode": ENCODINGS | {"age": {"kind": "standardize", "mean": 41.0, "stddev": 10.0}}}
    other["reports"] = job["reports"] | {"parameters": str(tmp_path / "encoded" / "parameters.json")}
    outcome = run("encode", other, tmp_path, "other")
    assert (outcome.code, "reports.parameters must agree with the job" in outcome.err) == (2, True)
