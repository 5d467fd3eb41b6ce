"""Jobs as transforms of Beam YAML: one run however often it is tried, and errors without values."""

import importlib.util
import json
import pathlib
import sys

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.internal import pickler

from dapple_dp import ConfigError, DappleAssign, DappleFit, RunnerError
from dapple_dp.integrations import beam_yaml
from dapple_dp.integrations.beam_yaml import Center
from dapple_dp.pipelines.run.options import beam_options
from examples.beam_yaml import __main__ as example
from tests.scenes import lake
from tests.scenes.models import write_model

CENTERS = np.array([[20.0, 10.0], [60.0, 40.0]])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("yaml")
    lake.write_lake(folder / "lake", lake.mixture(300))
    lake.write_server(folder / "server.parquet")
    return folder


def step(transform):
    """The transform's step, as a worker gets it."""
    return pickler.loads(pickler.dumps(transform._step))


def test_a_retry_is_the_same_run(world, monkeypatch):
    job = lake.job(str(world / "lake"), str(world / "server.parquet"))
    fit = DappleFit(job, str(world / "fit"), "night-1")
    first = list(step(fit).process(0))
    assert {type(row) for row in first} == {Center}
    assert [row.cluster for row in first] == [0, 1, 2]
    manifest = (world / "fit" / "run.json").read_bytes()
    monkeypatch.setattr(beam_yaml, "run_job", None)
    assert list(step(fit).process(0)) == first
    assert (world / "fit" / "run.json").read_bytes() == manifest
    for other in (
        DappleFit(job, str(world / "fit"), "night-2"),
        DappleFit(job | {"n_clusters": 2}, str(world / "fit"), "night-1"),
    ):
        with pytest.raises(
            ConfigError, match=r"output must be new, or hold run night-. of the same settings, got another"
        ):
            step(other).process(0)


def test_an_unforeseen_error_reveals_no_value(world, monkeypatch):
    def fail(*_):
        raise ValueError("the row of Ada Lovelace")

    monkeypatch.setattr(beam_yaml, "run_job", fail)
    with pytest.raises(RunnerError, match="unexpected ValueError at") as told:
        step(DappleFit(lake.job("nowhere", None), str(world / "failed"), "one")).process(0)
    assert "Ada" not in str(told.value)
    assert told.value.__suppress_context__


def test_wrong_settings_are_refused_when_the_pipeline_is_built(world):
    with pytest.raises(ConfigError, match="n_cluster is not a setting"):
        DappleFit(lake.job("lake", None) | {"n_cluster": 3}, "out", "one")


def test_settings_are_plain_whatever_the_reader_makes_of_them():
    class Text(str):
        __slots__ = ()

    class Number(int):
        __slots__ = ()

    found = beam_yaml._plain({Text("a"): [Number(1), True, 0.5, None, Text("b")], "__line__": 3})
    assert yaml.safe_load(yaml.safe_dump(found)) == {"a": [1, True, 0.5, None, "b"]}


def test_rows_keep_their_columns_and_get_a_cluster(tmp_path):
    model = write_model(tmp_path / "fit", CENTERS, ["age", "hours"])
    rows = [beam.Row(name="ada", age=61.0, hours=38.0), beam.Row(name="bob", age=float("nan"), hours=1.0)]
    with beam.Pipeline(options=beam_options([])) as pipeline:
        people = pipeline | beam.Create(rows)
        assigned = people | DappleAssign(model, on_invalid_rows="drop", into="group")
        _ = assigned | beam.io.WriteToParquet(str(tmp_path / "assigned"))
        with pytest.raises(ConfigError, match="into must be a new column, got 'age'"):
            _ = people | "Again" >> DappleAssign(model, into="age")
    table = pq.read_table(next(tmp_path.glob("assigned*"))).sort_by("name")
    assert table.column_names == ["name", "age", "hours", "group"]
    assert table["group"].to_pylist() == [1, None]


def test_the_file_of_providers_names_transforms_that_are_there():
    (provider,) = yaml.safe_load((example.HERE / "providers.yaml").read_text())
    import dapple_dp

    for name, path in provider["transforms"].items():
        module, _, member = path.partition(".")
        assert (module, member) == ("dapple_dp", name)
        assert issubclass(getattr(dapple_dp, member), beam.PTransform)


@pytest.mark.parametrize("name", example.PIPELINES)
def test_jobs_in_the_pipelines_load(name):
    text = (example.HERE / f"{name}.yaml").read_text().replace("{{ FOLDER }}", "lake")
    transforms = yaml.safe_load(text)["pipeline"]["transforms"]
    for each in transforms:
        kind = getattr(beam_yaml, each["type"], None)
        if kind is not None and issubclass(kind, beam_yaml._JobTransform):
            kind(**each["config"])


def test_the_example_says_what_it_lacks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example, "OUTPUT", tmp_path / "out")
    monkeypatch.setitem(sys.modules, "apache_beam.yaml", None)
    assert example.main() == 3
    assert "pip install 'apache-beam[yaml]' first" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(each) is None for each in ("docstring_parser", "pandas", "jsonschema")),
    reason="apache-beam[yaml] is not installed",
)
def test_the_example_runs_and_finds_what_the_jobs_find(tmp_path):
    example.run(tmp_path / "out")
    centers = pq.read_table(next((tmp_path / "out").glob("centers*")))
    written = pq.read_table(tmp_path / "out" / "fit" / "centers.parquet")
    assert centers["center"].to_pylist() == written["center"].to_pylist()
    assigned = pq.read_table(next((tmp_path / "out" / "trusted").glob("assigned*")))
    assert assigned.num_rows == 3000
    manifest = json.loads((tmp_path / "out" / "decoded" / "run.json").read_text())
    assert manifest["run_id"] == "decoding-1"
    assert pathlib.Path(tmp_path / "out" / "reports" / "reports.parquet").exists()
