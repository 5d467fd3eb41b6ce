"""Jobs whose columns are named by patterns: the same release as with the names, and every file compared."""

import json

import pyarrow as pa
import pytest
import yaml

from dapple_dp.schemas.errors import SchemaMismatchError
from tests.scenes import lake


def table(n_rows=120, seed=0, **others):
    points = lake.mixture(n_rows, seed)
    columns = {f"c{index}": points[:, index] for index in range(4)}
    return pa.table(columns | {"cluster": [0.0] * n_rows, "who": [str(row % 9) for row in range(n_rows)]} | others)


def job(path, key, features, **data):
    found = lake.job(path, None, key_uri=key)
    found["data"] |= {"features": features, "client_id": "who"} | data
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patterns")
    path = lake.write_files(folder / "rows", [table(), table(seed=1)])
    by_pattern = job(path, lake.write_key(folder / "key"), ["c*"], **{"except": ["clu*"]})
    assert lake.run_job(by_pattern, folder).code == 0
    return folder, by_pattern


def test_a_pattern_releases_what_its_columns_release(place, tmp_path):
    folder, by_pattern = place
    named = job(by_pattern["data"]["path"], by_pattern["key_uri"], ["c0", "c1", "c2", "c3"])
    lake.run_fit(named, tmp_path / "named")
    assert lake.released(tmp_path / "named") == lake.released(folder / "out")
    manifest = json.loads((folder / "out/run.json").read_text())
    assert manifest["features"] == ["c0", "c1", "c2", "c3"]
    assert json.loads((folder / "out/privacy.json").read_text())["features"] == ["c0", "c1", "c2", "c3"]


def test_assign_and_prepare_know_the_same_columns(place, tmp_path):
    folder, by_pattern = place
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"model": str(folder / "out"), "data": by_pattern["data"]}))
    out = ("--output", str(tmp_path / "assigned"))
    assert lake.run_command("assign", "--config", str(tmp_path / "job.yaml"), *out).code == 0
    out = ("--output", str(tmp_path / "prepared"))
    assert lake.run_command("prepare", "--config", str(folder / "job.yaml"), *out).code == 0
    manifest = json.loads((tmp_path / "prepared/manifest.json").read_text())
    assert manifest["features"] == ["c0", "c1", "c2", "c3"]


def test_a_pattern_that_catches_the_client_is_refused(place, tmp_path):
    _, by_pattern = place
    outcome = lake.run_job(job(by_pattern["data"]["path"], by_pattern["key_uri"], ["*"]), tmp_path)
    assert outcome.code == 2
    assert "got a pattern that matches 'who'; write data.except: [who]" in outcome.err


def test_a_file_with_another_schema_is_refused_when_it_is_read(place, tmp_path):
    _, by_pattern = place
    path = lake.write_files(tmp_path / "rows", [table(), table(c9=[1.0] * 120)])
    with pytest.raises(SchemaMismatchError, match=r"the same columns in every file, got others in .*part-01.* as 'c9'"):
        lake.run_fit(by_pattern | {"data": by_pattern["data"] | {"path": path}}, tmp_path / "out")
