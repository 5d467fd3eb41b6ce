"""The assign job: every row once, beside its ids, the same files again on every attempt."""

import hashlib
import json
import pathlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp import api
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.trusted_zone.job_configs import AssignConfig
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from tests.pipeline.tables.test_encode import census, job  # noqa: F401 - a fixture
from tests.scenes import job_text, lake
from tests.scenes.models import assert_job_refused, run_model_job, write_model

CENTERS = lake.MEANS + 0.2
REPLAY = ("--direct_runner_bundle_repeat=2",)
PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


class Desk:
    """A model, rows of clients, and their lake."""

    def __init__(self, folder):
        self.folder = folder
        self.points = lake.mixture(600, seed=1)
        self.clients = np.arange(600) // 10
        self.expected = NearestCenters.of(CENTERS).labels(self.points)
        self.model = write_model(folder / "fit", CENTERS)
        self.path = lake.write_lake(folder / "lake", self.points, self.clients, n_files=3, row_group_size=70)

    def settings(self, path=None, **options):
        return {"model": self.model, "data": {"path": path or self.path, "features": "x"}, "assign": options}

    def by_client(self, **options):
        settings = self.settings(**options)
        settings["data"]["client_id"] = "client_id"
        return settings


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("assign"))


@pytest.fixture(scope="module")
def done(desk):
    return run_model_job("assign", desk.by_client(id_columns=["x"]), desk.folder, "--run_id", "one")


def files_of(folder):
    return {path.name: path.read_bytes() for path in (pathlib.Path(folder) / "assignments.parquet").iterdir()}


def test_every_row_once_with_its_ids(desk, done):
    table = pq.read_table(desk.folder / "assign" / "assignments.parquet")
    assert table.column_names == ["client_id", "x", "cluster"]
    assert table.schema.field("cluster").type == pa.int32()
    points = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
    order = np.lexsort(points.T)
    expected = np.lexsort(desk.points.T)
    np.testing.assert_array_equal(points[order], desk.points[expected])
    np.testing.assert_array_equal(table["cluster"].to_numpy()[order], desk.expected[expected])
    np.testing.assert_array_equal(table["client_id"].to_numpy()[order], desk.clients[expected])


def test_the_command_writes_a_marked_folder(desk, done):
    output = desk.folder / "assign"
    assert json.loads(done.out) == {"run_id": "one", "output": str(output), "epsilon": None, "delta": None}
    assert {path.name for path in output.iterdir()} == {"assignments.parquet", "run.json"}
    assert done.lines == [
        "dapple: run one: assigning rows, evaluation (not private)",
        f"dapple: done: {output}/assignments.parquet; it is as private as the input",
    ]
    manifest = json.loads((output / "run.json").read_text())
    assert (manifest["private"], manifest["label"]) == (False, "evaluation (not private)")
    digest = hashlib.sha256((desk.folder / "fit" / "centers.parquet").read_bytes()).hexdigest()
    assert manifest["model"]["digest"] == digest
    files = files_of(output)
    assert len(files) == 9
    found = {f"assignments.parquet/{name}": hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert manifest["files"] == found
    for name in files:
        metadata = pq.read_schema(output / "assignments.parquet" / name).metadata
        assert metadata[b"dapple.model"].decode() == digest
        assert metadata[b"dapple.private"] == b"false"


@pytest.mark.parametrize("flags", [REPLAY, pytest.param(PROCESSES, marks=pytest.mark.slow)])
def test_every_attempt_writes_the_same_files(desk, done, tmp_path, flags):
    assert run_model_job("assign", desk.by_client(id_columns=["x"]), tmp_path, *flags).code == 0
    assert files_of(tmp_path / "assign") == files_of(desk.folder / "assign")


def test_without_ids_rows_are_named_by_their_place(desk):
    table = api.assign(AssignConfig.model_validate(desk.settings()), beam_options([]))
    assert table.column_names == ["file", "row", "cluster"]
    for index in range(3):
        path = f"{desk.path}/part-{index:02d}.parquet"
        part = table.filter(pa.compute.equal(table["file"], path)).sort_by("row")
        np.testing.assert_array_equal(part["row"], np.arange(200))
        points = pq.read_table(path)["x"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
        np.testing.assert_array_equal(part["cluster"], NearestCenters.of(CENTERS).labels(points))


def test_dropped_rows_leave_a_gap(desk, tmp_path):
    points = desk.points.copy()
    points[[0, 75]] = np.nan
    settings = desk.settings(lake.write_lake(tmp_path / "lake", points, row_group_size=70))
    settings["data"]["on_invalid_rows"] = "drop"
    table = api.assign(AssignConfig.model_validate(settings)).sort_by("row")
    kept = np.delete(np.arange(600), [0, 75])
    np.testing.assert_array_equal(table["row"], kept)
    np.testing.assert_array_equal(table["cluster"], desk.expected[kept])
    settings["data"]["on_invalid_rows"] = "fail"
    assert_job_refused("assign", settings, tmp_path, "must hold finite numbers only, got a null, NaN or infinity")


def test_a_file_without_rows_and_a_shard_without_valid_ones(desk, tmp_path):
    tables = [lake.table_of(part) for part in (desk.points[:5], desk.points[:0], np.full((3, 4), np.nan))]
    settings = desk.settings(lake.write_files(tmp_path / "lake", tables))
    settings["data"]["on_invalid_rows"] = "drop"
    table = api.assign(AssignConfig.model_validate(settings))
    np.testing.assert_array_equal(table["cluster"], desk.expected[:5])


def test_ids_may_be_dictionaries_or_partition_folders(desk, tmp_path):
    for name in ("a", "b"):
        table = lake.table_of(desk.points[:4]).append_column("tag", pa.array(["u", "v", None, "u"]).dictionary_encode())
        lake.write_files(tmp_path / "lake" / f"site={name}", [table])
    settings = desk.settings(str(tmp_path / "lake"), id_columns=["site", "tag"])
    table = api.assign(AssignConfig.model_validate(settings))
    assert sorted(map(str, table["site"].to_pylist())) == ["a"] * 4 + ["b"] * 4
    assert table["tag"].to_pylist() == ["u", "v", None, "u"] * 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"assign": {"id_columns": ["nowhere"]}}, "column 'nowhere' not found in .*; its columns are"),
        ({"assign": {"id_columns": ["cluster"]}}, "assign.id_columns must be distinct, .* got 'cluster' twice"),
        ({"assign": {"id_column": ["a"]}}, "assign.id_column is not a setting; did you mean assign.id_columns?"),
        (
            {"model": "nowhere"},
            "model must be the output folder of a finished fit, with run.json and centers.parquet, ",
        ),
        (
            {"data": {"path": "lake", "features": "y"}},
            r"data.features must be the 4 features of .*, got 'y\[0\]' in place of",
        ),
        (
            {"data": {"path": "lake", "features": ["a"]}},
            "data.features must be the 4 features of .* order, got 1; name",
        ),
    ],
)
def test_unusable_input_is_refused_in_one_sentence(desk, tmp_path, change, sentence):
    refused = run_model_job("assign", desk.settings() | change, tmp_path)
    assert (refused.code, refused.out) == (2, "")
    last = refused.lines[-1].removeprefix("dapple: ")
    assert re.match(sentence.replace("?", r"\?"), last), last
    assert not (tmp_path / "assign").exists()


def test_released_outputs_are_kept_apart(desk, tmp_path):
    refused = run_model_job("assign", desk.settings(), tmp_path, "--output", f"{desk.model}/rows")
    assert refused.lines[-1].endswith("choose another one or set assign.beside_released to true.")
    allowed = desk.settings(beside_released=True)
    assert run_model_job("assign", allowed, tmp_path, "--output", f"{desk.model}/rows").code == 0


@pytest.mark.slow
def test_census_rows_are_encoded_as_the_model_was(census, tmp_path):  # noqa: F811 - a fixture
    """A fit on raw census columns, then its model on the same columns and on vectors that were encoded beforehand."""
    raw = job(census / "raw")
    (tmp_path / "fit.yaml").write_text(job_text.rendered(raw))
    words = ("--config", str(tmp_path / "fit.yaml"), "--output", str(tmp_path / "fit"))
    assert lake.run_command("fit", *words).code == 0
    text = job_text.rendered(raw) + f"model: {tmp_path / 'fit'}\nassign: {{id_columns: [sex]}}\n"
    assert run_model_job("assign", text, tmp_path).code == 0
    found = pq.read_table(tmp_path / "assign" / "assignments.parquet")
    assert found.column_names == ["occupation", "sex", "cluster"]
    vectors = pq.read_table(census / "vectors" / "clients.parquet")["x"].combine_chunks()
    centers = pq.read_table(tmp_path / "fit" / "centers.parquet")["center"].combine_chunks().flatten().to_numpy()
    model = NearestCenters.of(centers.reshape(4, -1))
    expected = model.labels(vectors.flatten().to_numpy().reshape(len(vectors), -1))
    np.testing.assert_array_equal(found["cluster"], expected)


def test_fewer_clusters_by_the_tree_of_centers(desk, tmp_path):
    model = write_model(tmp_path / "fit", np.vstack([CENTERS, CENTERS + 0.01]))
    settings = desk.settings() | {"model": model}
    assert run_model_job("assign", settings, tmp_path, "--level", str(len(CENTERS))).code == 0
    found = pq.read_table(tmp_path / "assign" / "assignments.parquet").column("cluster").to_numpy()
    np.testing.assert_array_equal(np.sort(found), np.sort(desk.expected))
    assert json.loads((tmp_path / "assign" / "run.json").read_text())["level"] == len(CENTERS)


def test_the_level_of_the_settings_is_that_of_the_flag(desk):
    config = AssignConfig.model_validate(desk.settings(level=1))
    assert set(api.assign(config).column("cluster").to_pylist()) == {0}


def test_a_level_above_the_clusters_of_the_model_is_refused(desk, tmp_path):
    assert_job_refused("assign", desk.settings(level=99), tmp_path, "must be at most the number of clusters")


def test_small_clusters_join_their_nearest_relatives(desk, tmp_path):
    sizes = np.array([300.0] * len(CENTERS) + [-2.0] * len(CENTERS))
    model = write_model(tmp_path / "fit", np.vstack([CENTERS, CENTERS + 0.01]), sizes=sizes)
    settings = desk.settings() | {"model": model}
    assert run_model_job("assign", settings, tmp_path, "--least_size", "100").code == 0
    found = pq.read_table(tmp_path / "assign" / "assignments.parquet").column("cluster").to_numpy()
    np.testing.assert_array_equal(np.sort(found), np.sort(desk.expected))
    manifest = json.loads((tmp_path / "assign" / "run.json").read_text())
    assert (manifest["level"], manifest["least_size"]) == (None, 100.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"least_size": 10.0}, "must be left out where no sizes were released, got 10 for"),
        ({"least_size": 10.0, "level": 2}, "assign.least_size and assign.level must not be given together"),
        ({"least_size": 0.0}, "> 0"),
    ],
)
def test_a_least_size_is_refused_where_it_says_nothing(desk, tmp_path, options, words):
    model = write_model(tmp_path / "fit", CENTERS, sizes=np.full(len(CENTERS), np.nan))
    assert_job_refused("assign", desk.settings(**options) | {"model": model}, tmp_path, words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--least_size", "nan"), "must be a finite number, got nan"),
        (("--least_size", "1e400"), "must be a finite number, got inf"),
        (("--least_size", "-1"), "is not in the range x>0.0"),
        (("--least_size", "10", "--level", "2"), "assign.level must not be given together"),
    ],
)
def test_no_spelling_of_a_least_size_passes_that_a_job_would_refuse(desk, tmp_path, words, said):
    refused = run_model_job("assign", desk.settings(), tmp_path, *words)
    assert refused.code == 2
    assert said in refused.lines[-1]
    assert not (tmp_path / "assign").exists()


def test_a_flag_beside_the_other_setting_is_refused(desk, tmp_path):
    refused = run_model_job("assign", desk.settings(level=2), tmp_path, "--least_size", "10")
    assert refused.code == 2
    assert "must not be given together" in refused.lines[-1]
