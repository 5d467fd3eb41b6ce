import json
import os
import pathlib
import re
import shutil

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.testing import test_pipeline, test_stream
from apache_beam.testing.util import assert_that
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark, DefaultTrigger, Repeatedly
from apache_beam.transforms.window import FixedWindows, IntervalWindow, SlidingWindows

from dapple_dp import api
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.config import load_decode_config
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.numerics.reports.decoding import decode_leaves
from dapple_dp.transforms.numerics.reports.encoder import Reports
from dapple_dp.transforms.numerics.reports.sums import ReportSums
from dapple_dp.transforms.reports.batches import ReportBatch
from dapple_dp.transforms.reports.decode import DecodeParams, DecodeReports
from dapple_dp.transforms.reports.encode import _EncodeFn, keyed_reports
from dapple_dp.transforms.reports.shuffle import ShuffleReports
from tests.scenes import lake
from tests.scenes.reports import assert_key_stays_out, parameters, settings

pytestmark = pytest.mark.slow

MEANS = 8.0 * np.eye(3, 4)
N_CLIENTS = 3000


def points(n_rows: int = N_CLIENTS, seed: int = 0) -> np.ndarray:
    return lake.mixture(n_rows, seed, MEANS)


def command(job: str, content: dict, folder: pathlib.Path, output: str, *flags: str) -> lake.Outcome:
    """A job from `folder`/`output`.yaml to `folder`/`output`."""
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(content))
    return lake.run_command(job, "--config", str(folder / f"{output}.yaml"), "--output", str(folder / output), *flags)


def read_reports(folder: pathlib.Path) -> pa.Table:
    return pq.read_table(folder / "reports.parquet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder and settings of a lake whose reports are in `encoded`, and what they decode to in `decoded`; only read."""
    folder = tmp_path_factory.mktemp("finished")
    path = lake.write_lake(folder / "lake", points(), np.arange(N_CLIENTS), n_files=3, row_group_size=400)
    job = settings(path, key_uri=lake.write_key(folder / "key"), reports__path=str(folder / "encoded"))
    for name in ("encode", "decode"):
        assert command(name, job, folder, f"{name}d").code == 0
    return folder, job


@pytest.fixture
def encoded(tmp_path, finished):
    """Settings of the same job on reports of the test's own, in `encoded`."""
    folder, job = finished
    shutil.copytree(folder / "encoded", tmp_path / "encoded")
    return job | {"reports": job["reports"] | {"path": str(tmp_path / "encoded")}}


def farthest(folder: pathlib.Path) -> float:
    centers = np.array(pq.read_table(folder / "centers.parquet")["center"].to_pylist())
    return float(np.linalg.norm(MEANS - centers[:, None], axis=2).min(axis=0).max())


@pytest.mark.parametrize("variant", ["leaves", "nested", "points", "privunit", "paper"])
def test_a_lake_becomes_reports_and_reports_a_model(tmp_path, variant):
    path = lake.write_lake(tmp_path / "lake", points(), np.arange(N_CLIENTS), n_files=3, row_group_size=400)
    sections = {"privacy__epsilon": 8.0, "reports__variant": variant}
    (tmp_path / "public.json").write_text(parameters(**sections).to_json())
    job = settings(path, key_uri=lake.write_key(tmp_path / "key"), **sections)
    job["reports"] |= {"path": str(tmp_path / "encoded"), "parameters": str(tmp_path / "public.json")}
    outcome = command("encode", job, tmp_path, "encoded")
    assert outcome.code == 0, outcome.err
    reports = read_reports(tmp_path / "encoded")
    assert reports.column_names == ["nonce", "codeword" if variant == "privunit" else "index"]
    assert reports.num_rows == N_CLIENTS
    outcome = command("decode", job, tmp_path, "decoded")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["epsilon"] == 8.0
    # The origin is 8 away from every mean. Nonces and coins are fixed, so this holds or not for good.
    assert farthest(tmp_path / "decoded") < {"points": 0.5, "paper": 9.0, "leaves": 9.0}.get(variant, 4.0)


def test_the_jobs_equal_the_pure_functions_on_the_same_rows(finished):
    folder, public = finished[0], parameters()
    text = (folder / "encoded" / "parameters.json").read_text()
    public = type(public).from_json(text)
    ids = [f"integers{index}".encode() for index in range(N_CLIENTS)]
    wanted = keyed_reports(points(), ids, public, lake.KEY)
    found = read_reports(folder / "encoded")
    order = np.argsort(wanted.nonces)
    np.testing.assert_array_equal(found["nonce"].to_numpy(), wanted.nonces[order])
    np.testing.assert_array_equal(found["index"].to_numpy(), wanted.indices[order])
    model = pq.read_table(folder / "decoded" / "centers.parquet")
    decoded = decode_leaves.decode(ReportSums.of(wanted, public), public, 0)
    np.testing.assert_array_equal(np.array(model["center"].to_pylist()), decoded.centers * public.radius)
    np.testing.assert_array_equal(model["noisy_size"].to_numpy(), decoded.sizes)


def test_reports_are_in_the_order_of_nonces_and_files_say_nothing_else(finished):
    encoded = finished[0] / "encoded"
    nonces = read_reports(encoded)["nonce"].to_numpy()
    assert (nonces[1:] > nonces[:-1]).all()
    for name in os.listdir(encoded / "reports.parquet"):
        file = pq.ParquetFile(encoded / "reports.parquet" / name)
        assert set(file.schema_arrow.names) == {"nonce", "index"}
        assert set(file.metadata.metadata or {}) <= {b"ARROW:schema"}


@pytest.mark.parametrize("flags", [(), ("--direct_runner_bundle_repeat=2",)])
def test_another_layout_of_the_lake_and_repeated_bundles_send_the_same_reports(tmp_path, encoded, flags):
    again = lake.write_lake(tmp_path / "again", points(), np.arange(N_CLIENTS), n_files=2, shuffle=5)
    job = encoded | {"data": encoded["data"] | {"path": again}}
    job["reports"] = {"min_batch": 1000, "parameters": str(tmp_path / "encoded" / "parameters.json")}
    outcome = command("encode", job, tmp_path, "repeated", *flags)
    assert outcome.code == 0, outcome.err
    assert read_reports(tmp_path / "repeated").equals(read_reports(tmp_path / "encoded"))


def test_a_client_with_another_point_keeps_its_nonce_and_draws_other_coins():
    public = parameters(privacy__epsilon=0.5)
    ids = [str(index).encode() for index in range(400)]
    first, same = (keyed_reports(points(400), ids, public, lake.KEY) for _ in range(2))
    np.testing.assert_array_equal(first.indices, same.indices)
    moved = keyed_reports(points(400) * (1.0 + 1e-15), ids, public, lake.KEY)
    np.testing.assert_array_equal(first.nonces, moved.nonces)
    # A changed point draws its report again: two of 64 indices agree now and then, not nearly always.
    assert (first.indices == moved.indices).mean() < 0.2
    other = keyed_reports(points(400), ids, public, bytes(32))
    assert not set(first.nonces.tolist()) & set(other.nonces.tolist())


def test_only_one_row_of_a_client_is_reported(tmp_path):
    owners = np.arange(600) // 3
    path = lake.write_lake(tmp_path / "lake", points(600), owners, row_group_size=150)
    assert command("encode", settings(path), tmp_path, "encoded").code == 0
    assert read_reports(tmp_path / "encoded").num_rows == 200


def unstamped(folder):
    """The report of a run without what distinguishes it from another one: its stamp, on screen and in print."""
    text = (folder / "report.html").read_text()
    assert json.loads((folder / "run.json").read_text())["run_id"] in text
    stamps = r'@page \{.*|<dl class="stamp".*?</dl>|<footer>\n<p>run .*'
    return re.sub(stamps, "", text)


def test_duplicates_and_rows_that_are_no_reports_do_not_count(tmp_path, encoded, finished):
    table = read_reports(tmp_path / "encoded")
    extra = pa.table({"index": pa.array([40_000, None, 0], pa.uint16()), "nonce": pa.array([1, 2, None], pa.uint64())})
    pq.write_table(table, tmp_path / "encoded" / "reports.parquet" / "twice.parquet")
    pq.write_table(extra, tmp_path / "encoded" / "reports.parquet" / "extra.parquet")
    assert command("decode", encoded, tmp_path, "after").code == 0
    assert json.loads((tmp_path / "after" / "run.json").read_text())["n_reports"] == N_CLIENTS
    for name in ("centers.parquet", "privacy.json"):
        assert (tmp_path / "after" / name).read_bytes() == (finished[0] / "decoded" / name).read_bytes()
    assert unstamped(tmp_path / "after") == unstamped(finished[0] / "decoded")


def test_outputs_say_what_is_promised(finished):
    folder = finished[0] / "decoded"
    names = {"centers.parquet", "privacy.json", "deployment.yaml", "report.html", "run.json"}
    assert {path.name for path in folder.iterdir()} == names
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["unit"] == "client"
    assert privacy["neighboring_relation"] == "replace_one"
    assert (privacy["epsilon"], privacy["delta"], privacy["trust"]) == (4.0, 0.0, "local")
    deployment = yaml.safe_load((folder / "deployment.yaml").read_text())["deployment"]
    assert deployment["deployment_model"]["model_name"] == "Local"
    assert deployment["privacy_loss"]["number_of_privacy_units"] == N_CLIENTS
    page = (folder / "report.html").read_text()
    assert "Clustering of private reports" in page
    assert "<script" not in page
    assert "could not be written" not in page


def test_the_python_api_gives_the_same_model(finished):
    folder, job = finished
    result = api.decode(load_decode_config(yaml.safe_dump(job)))
    assert result.n_reports == N_CLIENTS
    stored = pq.read_table(folder / "decoded" / "centers.parquet")["center"].to_pylist()
    np.testing.assert_array_equal(result.model.centers, np.array(stored))


def test_a_worker_keeps_the_key_out_of_the_job_graph(tmp_path):
    contract = TableContract(feature_list="x", client_id="client_id", n_features=4, by_client=True)
    assert_key_stays_out(_EncodeFn(parameters(), contract, lake.write_key(tmp_path / "key")))


def test_evaluate_takes_a_decoded_model(tmp_path, finished):
    folder, decoded = finished
    job = {"model": str(folder / "decoded"), "data": {key: decoded["data"][key] for key in ("path", "features")}}
    outcome = command("evaluate", job, tmp_path, "evaluation")
    assert outcome.code == 0, outcome.err
    assert json.loads((tmp_path / "evaluation" / "metrics.json").read_text())["n_rows"] == N_CLIENTS


SHUFFLED = {"privacy": {"unit": "client", "epsilon": 1.0, "delta": 1e-4}}


def test_a_shuffled_batch_below_its_minimum_is_refused(tmp_path):
    path = lake.write_lake(tmp_path / "lake", points(), np.arange(N_CLIENTS))
    options = {"mode": "shuffle", "path": str(tmp_path / "encoded")}
    job = settings(path, reports=options | {"min_batch": N_CLIENTS}, **SHUFFLED)
    assert command("encode", job, tmp_path, "encoded").code == 0
    assert command("decode", job, tmp_path, "decoded").code == 0
    privacy = json.loads((tmp_path / "decoded" / "privacy.json").read_text())
    assert (privacy["epsilon"], privacy["trust"]) == (1.0, "shuffle")
    assert privacy["local_epsilon"] > 1.5
    first = next((tmp_path / "encoded" / "reports.parquet").iterdir())
    pq.write_table(pq.read_table(first).slice(1), first)
    outcome = command("decode", job, tmp_path, "refused")
    assert outcome.code == 2
    assert f"must have at least {N_CLIENTS} reports" in outcome.err
    assert not (tmp_path / "refused").exists()


def test_reports_without_parameters_and_empty_folders_are_refused(tmp_path, encoded):
    outcome = command("decode", {"reports": {"path": str(tmp_path)}}, tmp_path, "decoded")
    assert (outcome.code, "must be a folder with parameters.json" in outcome.err) == (2, True)
    for file in (tmp_path / "encoded" / "reports.parquet").iterdir():
        file.unlink()
    assert command("decode", encoded, tmp_path, "decoded").code == 2


def test_parameters_of_another_job_are_refused(tmp_path, encoded):
    job = encoded | {"n_clusters": 5}
    job["reports"] = {"min_batch": 1000, "parameters": str(tmp_path / "encoded" / "parameters.json")}
    outcome = command("encode", job, tmp_path, "other")
    assert (outcome.code, "reports.parameters must agree with the job" in outcome.err) == (2, True)


def batch_of(reports: Reports, public) -> ReportBatch:
    return ReportBatch.of(reports, public)


@pytest.mark.parametrize("variant", ["nested", "points"])
def test_every_window_of_a_stream_gets_a_model_of_its_own(variant):
    public = parameters(privacy__epsilon=8.0, reports__variant=variant)
    ids = [str(index).encode() for index in range(1200)]
    reports = keyed_reports(points(1200), ids, public, lake.KEY)
    first, second = reports.take(slice(0, 700)), reports.take(slice(700, 1200))
    stream = test_stream.TestStream().advance_watermark_to(0)
    for start in range(0, 700, 100):
        part = batch_of(first.take(slice(start, start + 100)), public)
        stream = stream.add_elements([beam.window.TimestampedValue(part, 10)])
    # The same reports twice in a window count once; reports of the next window stay apart.
    stream = stream.add_elements([beam.window.TimestampedValue(batch_of(first, public), 50)])
    stream = stream.add_elements([beam.window.TimestampedValue(batch_of(second, public), 70)])
    stream = stream.advance_watermark_to_infinity()
    options = PipelineOptions()
    options.view_as(StandardOptions).streaming = True

    def check(found):
        by_window = {each.windows[0]: each.value for each in found}
        assert {window: batch.n_reports for window, batch in by_window.items()} == {
            IntervalWindow(0, 60): 700,
            IntervalWindow(60, 120): 500,
        }
        for part, window in ((first, IntervalWindow(0, 60)), (second, IntervalWindow(60, 120))):
            if variant == "nested":
                wanted = decode_leaves.decode(ReportSums.of(part, public), public, 0).centers * public.radius
                np.testing.assert_array_equal(by_window[window].model.centers, wanted)
            assert by_window[window].model.centers.shape == (3, 4)

    with test_pipeline.TestPipeline(options=options) as pipeline:
        decoded = (
            pipeline
            | stream
            | "Minutes" >> beam.WindowInto(FixedWindows(60))
            | DecodeReports(params=DecodeParams(parameters=public))
        )
        assert_that(decoded, check, reify_windows=True)


MORE_PANES = {
    "lateness": {"allowed_lateness": 100},
    "late firings": {"trigger": AfterWatermark(late=AfterCount(1)), "accumulation_mode": AccumulationMode.ACCUMULATING},
    "early firings": {"trigger": AfterWatermark(early=AfterCount(1)), "accumulation_mode": AccumulationMode.DISCARDING},
    "firings by number": {"trigger": AfterCount(500), "accumulation_mode": AccumulationMode.DISCARDING},
    "repeated firings": {
        "trigger": Repeatedly(AfterCount(500)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
        "allowed_lateness": 5,
    },
}
TRANSFORMS = {
    "decode": lambda public: DecodeReports(params=DecodeParams(parameters=public)),
    "shuffle": lambda public: ShuffleReports(parameters=public, folder="out", listing="list"),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("windowing", MORE_PANES)
def test_windows_of_more_than_one_pane_are_refused(transform, windowing):
    """1,200 reports once counted as 1,900, in a second model of the same window."""
    batches = beam.Pipeline() | beam.Create([]) | beam.WindowInto(FixedWindows(60), **MORE_PANES[windowing])
    with pytest.raises(ConfigError, match=r"a window of reports must have one pane, .* without allowed_lateness\.$"):
        _ = batches | TRANSFORMS[transform](parameters())


@pytest.mark.parametrize("trigger", [DefaultTrigger(), AfterWatermark()])
def test_windows_of_one_pane_pass_whatever_they_were_before(trigger):
    discarding = AccumulationMode.DISCARDING
    early = beam.Pipeline() | beam.Create([]) | beam.WindowInto(FixedWindows(60), **MORE_PANES["late firings"])
    anew = early | "Anew" >> beam.WindowInto(FixedWindows(60), trigger=trigger, accumulation_mode=discarding)
    _ = anew | DecodeReports(params=DecodeParams(parameters=parameters()))


@pytest.mark.parametrize("windows", [SlidingWindows(60, 10), SlidingWindows(60, 59)])
def test_windows_that_overlap_are_refused_where_a_batch_is_the_guarantee(windows):
    """Two of them would separate the reports of ten seconds from the rest."""
    shuffled = parameters(reports={"mode": "shuffle", "min_batch": 1000}, **SHUFFLED)
    batches = beam.Pipeline() | beam.Create([]) | beam.WindowInto(windows)
    with pytest.raises(ConfigError, match=r"^windows of shuffled reports must be fixed windows or sessions"):
        _ = batches | TRANSFORMS["decode"](shuffled)
    _ = batches | "Local" >> TRANSFORMS["decode"](parameters())
    _ = batches | "Anew" >> beam.WindowInto(FixedWindows(60)) | "Fixed" >> TRANSFORMS["decode"](shuffled)


def test_files_of_windows_do_not_take_the_place_of_each_other():
    batches = beam.Pipeline() | beam.Create([]) | beam.WindowInto(FixedWindows(60))
    with pytest.raises(ConfigError, match=r"^reports must be shuffled in the global window"):
        _ = batches | TRANSFORMS["shuffle"](parameters())


def test_a_small_window_of_shuffled_reports_has_no_model():
    public = parameters(reports={"mode": "shuffle", "min_batch": 1000}, **SHUFFLED)
    reports = keyed_reports(points(40), [str(index).encode() for index in range(40)], public, lake.KEY)

    def check(found):
        assert [(batch.n_reports, batch.model) for batch in found] == [(40, None)]

    with test_pipeline.TestPipeline() as pipeline:
        batches = pipeline | beam.Create([batch_of(reports, public)])
        _ = batches | DecodeReports(params=DecodeParams(parameters=public)) | beam.combiners.ToList() | beam.Map(check)
