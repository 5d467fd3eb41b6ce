"""Centers and assignments in tables: each run once, whatever is tried again, and private rows kept apart."""

import json
import pathlib
import sys

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from dapple_dp import ConfigError, RunnerError, write_delta, write_iceberg
from dapple_dp.integrations.table_out import read_rows
from tests.scenes import lake
from tests.scenes.models import run_model_job, write_model

CENTERS = lake.MEANS + 0.2
pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")


def finished(folder, run_id, centers=CENTERS):
    """A fit's folder that says which run it is of."""
    path = pathlib.Path(write_model(folder, centers)) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run_id": run_id}))
    return str(folder)


@pytest.fixture(scope="module")
def assigned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assigned")
    model = write_model(folder / "fit", CENTERS)
    rows = lake.write_lake(folder / "lake", lake.mixture(60), np.arange(60) // 10, n_files=2)
    settings = {"model": model, "data": {"path": rows, "features": "x", "client_id": "client_id"}}
    assert run_model_job("assign", settings, folder, "--run_id", "assign-1").code == 0
    return str(folder / "assign")


class Delta:
    def __init__(self, folder):
        self.path = str(folder / "delta")

    def write(self, run):
        return write_delta(run, self.path)

    def read(self):
        return deltalake.DeltaTable(self.path).to_pyarrow_table()


class Iceberg:
    def __init__(self, folder):
        self.catalog = InMemoryCatalog("test", warehouse=folder.as_uri())
        self.catalog.create_namespace("lake")
        self.table = None

    def write(self, run):
        if self.table is None:
            self.table = self.catalog.create_table("lake.out", read_rows(run).table.schema)
        return write_iceberg(run, self.table)

    def read(self):
        return self.catalog.load_table("lake.out").scan().to_arrow()


@pytest.fixture(params=[Delta, Iceberg])
def store(request, tmp_path):
    return request.param(tmp_path)


def test_each_run_comes_once(store, tmp_path):
    first, second = finished(tmp_path / "one", "night-1"), finished(tmp_path / "two", "night-2", CENTERS[::-1])
    assert [store.write(run) for run in (first, second, first, second)] == [3, 3, 0, 0]
    found = store.read()
    assert found.column_names == [
        "run_id",
        "run_digest",
        "cluster",
        "center",
        "noisy_size",
        "size_stddev",
        "center_stddev",
    ]
    for run_id, centers in (("night-1", CENTERS), ("night-2", CENTERS[::-1])):
        own = found.filter(pa.compute.equal(found["run_id"], run_id)).sort_by("cluster")
        np.testing.assert_array_equal(np.array(own["center"].to_pylist()), centers)


def test_another_run_of_the_same_name_is_refused_and_changes_nothing(store, tmp_path):
    store.write(finished(tmp_path / "one", "night-1"))
    before = store.read()
    with pytest.raises(
        ConfigError, match="run_id must be unique in a table, got 'night-1', which another run there has"
    ):
        store.write(finished(tmp_path / "two", "night-1", CENTERS + 1.0))
    assert repr(store.read().to_pylist()) == repr(before.to_pylist())


def test_assignments_come_with_their_ids(store, assigned):
    assert [store.write(assigned), store.write(assigned)] == [60, 0]
    found = store.read()
    assert found.column_names == ["run_id", "run_digest", "client_id", "cluster"]
    assert set(found["run_id"].to_pylist()) == {"assign-1"}
    assert found.num_rows == 60


def test_assignments_and_centers_do_not_mix(store, assigned, tmp_path):
    store.write(finished(tmp_path / "fit", "night-1"))
    before = store.read()
    with pytest.raises(RunnerError, match="the rows of run assign-1 weren't written to the table "):
        store.write(assigned)
    assert repr(store.read().to_pylist()) == repr(before.to_pylist())


def test_assignments_stay_out_of_released_folders(assigned, tmp_path):
    released = finished(tmp_path / "fit", "night-1")
    with pytest.raises(ConfigError, match="a table of assignments must be outside of released outputs"):
        write_delta(assigned, f"{released}/table")
    assert not (tmp_path / "fit" / "table").exists()


def test_a_file_that_is_not_the_jobs_is_refused(tmp_path):
    run = finished(tmp_path / "fit", "night-1")
    other = finished(tmp_path / "other", "night-1", CENTERS + 1.0)
    (tmp_path / "fit" / "centers.parquet").write_bytes((pathlib.Path(other) / "centers.parquet").read_bytes())
    with pytest.raises(ConfigError, match=r"centers.parquet in .* must be the file that the job wrote"):
        write_delta(run, str(tmp_path / "table"))


@pytest.mark.parametrize(
    ("manifest", "got"),
    [
        (None, "run.json"),
        ({"run_id": "a", "files": {}}, "got no format number instead of format 1"),
        ({"format": 1, "run_id": "a", "files": {}}, "neither centers.parquet nor"),
        ({"format": 1, "files": {}}, "run_id"),
        ({"format": 1, "run_id": "a' OR 'a' = 'a", "files": {}}, "run_id"),
    ],
)
def test_a_folder_without_such_rows_is_refused(tmp_path, manifest, got):
    if manifest is not None:
        (tmp_path / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="run must be the output folder of a finished fit") as caught:
        read_rows(str(tmp_path))
    assert got in str(caught.value)


def test_missing_tables_and_libraries_are_reported(tmp_path, monkeypatch):
    run = finished(tmp_path / "fit", "night-1")
    with pytest.raises(ConfigError, match="path must not contain '%'"):
        write_delta(run, str(tmp_path / "a%20b"))
    for module, call in (("deltalake", write_delta), ("pyiceberg.expressions", write_iceberg)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigError, match=r"run pip install '(deltalake|pyiceberg\[pyarrow\])[<>]"):
            call(run, str(tmp_path / "table"))
