"""Jobs with an `encode` section release what jobs on vectors that were encoded beforehand release."""

import importlib.util
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dapple_dp.pipelines.jobs.run_job import run_job
from dapple_dp.pipelines.kmeans import fit as fit_job
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.errors import ConfigError, InputError, SchemaMismatchError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.kmeans.jobs.model_job import load_prepare_config
from tests.scenes import job_text, lake

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINNED = ("age", "capital_gain", "hours_per_week")
CATEGORICAL = ("education", "marital_status", "sex")
ENCODE = {name: {"kind": "one_hot", "vocabulary": "server"} for name in CATEGORICAL} | {
    name: {"kind": "quantile_bins", "bins": 5} for name in BINNED
}


def census_rules():
    """The module that encodes the census example before it is clustered."""
    spec = importlib.util.spec_from_file_location("make_lake", ROOT / "examples" / "census" / "make_lake.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vectors(matrix):
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])})


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    """A census lake as it is stored and as vectors, with silos, and its server rows."""
    folder = tmp_path_factory.mktemp("census")
    rules = census_rules()
    rows = pq.read_table(rules.SOURCE).take(np.random.default_rng(0).permutation(4000))
    server, clients = rows.slice(0, 400), rows.slice(400).sort_by("occupation")
    coder = rules.FeatureCoder(
        levels={name: sorted(pc.unique(server[name]).to_pylist()) for name in CATEGORICAL},
        edges={name: np.unique(np.quantile(server[name].to_numpy(), np.arange(1, 5) / 5)) for name in BINNED},
    )
    for part, table in {"server": server, "clients": clients}.items():
        encoded = vectors(coder.encode(table)).append_column("occupation", table["occupation"])
        sizes = np.unique(table["occupation"].to_numpy(), return_counts=True)[1] if part == "clients" else [len(table)]
        for kind, content in {"raw": table, "vectors": encoded}.items():
            (folder / kind).mkdir(exist_ok=True)
            write_groups(folder / kind / f"{part}.parquet", content, sizes)
    return folder


def write_groups(path, table, sizes):
    """One row group per size."""
    with pq.ParquetWriter(path, table.schema) as writer:
        start = 0
        for size in sizes:
            writer.write_table(table.slice(start, size), row_group_size=int(size))
            start += size


def job(folder, unit="record", **settings):
    raw = folder.name == "raw"
    data = {"path": str(folder / "clients.parquet"), "client_id": "occupation"}
    return validated(
        {
            "algorithm": "feddp_kmeans",
            "data": data | {"features": [*CATEGORICAL, *BINNED] if raw else "x"},
            "server_data": {"path": str(folder / "server.parquet")},
            "n_clusters": 4,
            "privacy": {"unit": unit, "epsilon": 4.0, "delta": 1e-5},
            "clipping": {"norm": "server_radius", "client_rows": 300},
            "feddp_kmeans": {"restarts": 20},
        }
        | ({"encode": ENCODE} if raw else {})
        | settings
    )


def fitted(config, folder):
    """A run whose noise key is known."""
    key = lake.write_key(folder.with_suffix(".key"))
    return lake.run_fit(config.model_dump(mode="json") | {"key_uri": key}, folder)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "client"])
def test_encoded_in_the_job_or_beforehand_is_the_same(census, tmp_path, unit):
    inside = fitted(job(census / "raw", unit), tmp_path / "inside")
    before = fitted(job(census / "vectors", unit), tmp_path / "before")
    assert inside.model.centers.shape[0] == 4
    np.testing.assert_array_equal(inside.model.centers, before.model.centers)
    np.testing.assert_array_equal(inside.model.noisy_sizes, before.model.noisy_sizes)
    for one, other in zip(inside.model.releases, before.model.releases, strict=True):
        np.testing.assert_array_equal(one.decoded, other.decoded)


@pytest.mark.slow
def test_split_clients_are_grouped_after_their_rows_are_encoded(census, tmp_path):
    whole = job(census / "raw", "client")
    rows = pq.read_table(whole.data.path).take(np.random.default_rng(1).permutation(3600))
    pq.write_table(rows, tmp_path / "mixed.parquet", row_group_size=900)
    mixed = whole.model_copy(update={"data": whole.data.model_copy(update={"path": str(tmp_path / "mixed.parquet")})})
    one, other = fitted(whole, tmp_path / "whole").model, fitted(mixed, tmp_path / "split").model
    np.testing.assert_array_equal(one.centers, other.centers)
    for expected, found in zip(one.releases, other.releases, strict=True):
        np.testing.assert_array_equal(expected.values, found.values)


def test_prepare_leaves_encoding_to_fit(census):
    with pytest.raises(ConfigError, match="encode isn't supported for prepare"):
        load_prepare_config(job_text.rendered(job(census / "raw", "client")))


@pytest.mark.slow
def test_the_command_names_the_encoded_features(census, tmp_path):
    config = job(census / "raw")
    (tmp_path / "job.yaml").write_text(job_text.rendered(config))
    run_job(fit_job.JOB, ["--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "result")])
    manifest = json.loads((tmp_path / "result" / "run.json").read_text())
    names = manifest["features"]
    assert [each["column"] for each in manifest["encoding"]] == [*CATEGORICAL, *BINNED]
    centers = pq.read_table(tmp_path / "result" / "centers.parquet")["center"]
    assert len(names) == centers.type.list_size
    assert names[: len(CATEGORICAL)][0].startswith("education=")
    assert names[-1].startswith("hours_per_week>")
    assert names[0].replace("=", " ") in (tmp_path / "result" / "report.html").read_text()


def test_public_encodings_need_no_server_data(census, tmp_path):
    planned = plan_files(
        job(
            census / "raw",
            data={"path": str(census / "raw" / "clients.parquet"), "features": ["age", "sex"]},
            server_data=None,
            clipping={"norm": 3.0, "center": "none"},
            encode={
                "age": {"kind": "standardize", "mean": 40, "stddev": 13},
                "sex": {"kind": "one_hot", "vocabulary": ["Female", "Male"], "weight": 2.0},
            },
        )
    )
    assert planned.feature_names == ("age", "sex=Female", "sex=Male")
    assert planned.initial.server.shape[1] == planned.contract.n_features == 3


def server_of(folder, *tables):
    folder.mkdir()
    for index, table in enumerate(tables):
        pq.write_table(table, folder / f"{index}.parquet")
    return folder


def small_job(census, server, kind="one_hot"):
    entry = {"kind": "one_hot", "vocabulary": "server"} if kind == "one_hot" else {"kind": kind, "from": "server"}
    features = ["sex"] if kind == "one_hot" else ["age"]
    data = {"path": str(census / "raw" / "clients.parquet"), "features": features}
    return job(census / "raw", data=data, server_data={"path": str(server)}, n_clusters=1, encode={features[0]: entry})


def test_server_files_of_several_types_are_one_table(census, tmp_path):
    ages = [pa.array([20, 40], pa.int8()), pa.array([30.0]), pa.array([30]).dictionary_encode()]
    server = server_of(tmp_path / "server", *[pa.table({"age": each, "other": each}) for each in ages])
    planned = plan_files(small_job(census, server, "standardize"))
    assert planned.contract.encoder.columns[0].mean == 30.0
    np.testing.assert_allclose(planned.initial.server[:, 0], np.array([-10, 10, 0, 0]) / np.sqrt(50.0))


@pytest.mark.parametrize(
    ("tables", "kind", "error", "start"),
    [
        (
            [{"age": [1, 2]}],
            "one_hot",
            SchemaMismatchError,
            "column 'sex' not found in {}/0.parquet",
        ),
        (
            [{"sex": ["a", "b"]}, {"sex": [1]}],
            "one_hot",
            InputError,
            "a column of server_data has different types",
        ),
        (
            [{"sex": ["a", "b", None]}],
            "one_hot",
            InputError,
            "column 'sex' of {}/0.parquet, row group 0 must hold a value",
        ),
        (
            [{"age": [3, 3]}],
            "standardize",
            InputError,
            "column 'age' of {} must have a positive finite standard deviation",
        ),
        ([{"age": pa.array([], pa.int8())}], "standardize", InputError, "server_data must "),
    ],
)
def test_server_data_that_cannot_be_learned_from_are_refused(census, tmp_path, tables, kind, error, start):
    server = server_of(tmp_path / "server", *map(pa.table, tables))
    with pytest.raises(error) as caught:
        plan_files(small_job(census, server, kind))
    assert str(caught.value).startswith(start.format(server))


def test_a_private_column_of_another_type_stops_the_run(census, tmp_path):
    pq.write_table(pa.table({"sex": [1, 2, 3]}), tmp_path / "clients.parquet")
    config = job(
        census / "raw",
        data={"path": str(tmp_path / "clients.parquet"), "features": ["sex"]},
        encode={"sex": {"kind": "one_hot", "vocabulary": "server"}},
        n_clusters=2,
    )
    with pytest.raises(SchemaMismatchError, match=r"column 'sex' of .*clients.parquet must hold strings like its voc"):
        fitted(config, tmp_path / "run")
