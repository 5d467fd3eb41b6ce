"""Split and mix through the jobs: messages of clients, shuffled, decoded; whole clients or nothing."""

import json
import pathlib
import shutil

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import FixedWindows, IntervalWindow

from dapple_dp.schemas.reports.config import EncodeConfig
from dapple_dp.schemas.reports.split_parameters import SplitParameters
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.numerics.reports import split_reports
from dapple_dp.transforms.numerics.reports.split_and_mix import MessageTotals
from dapple_dp.transforms.reports.split_messages import DecodeMessages, MessageBatch, _EncodeFn
from tests.scenes import lake
from tests.scenes.report_uploads import arrived
from tests.scenes.reports import assert_key_stays_out, settings

pytestmark = pytest.mark.slow

MEANS = 8.0 * np.eye(3, 4)
N_CLIENTS = 300
KEY = bytes(range(1, 17))
"""Hyperplanes that part the means; others may cut through a cluster."""


def job(path: str = "lake", **sections) -> dict:
    content = settings(path, privacy={"unit": "client", "epsilon": 4.0, "delta": 1e-6}, tree__depth=4, **sections)
    content["reports"] = {"mode": "shuffle", "variant": "split_and_mix", "min_batch": N_CLIENTS}
    return content


def public() -> SplitParameters:
    names = tuple(f"x[{index}]" for index in range(4))
    return split_reports.design_split(EncodeConfig.model_validate(job()), names, KEY)


def points() -> np.ndarray:
    return lake.mixture(N_CLIENTS, 0, MEANS)


def run(name: str, content: dict, folder: pathlib.Path, output: str, *flags: str) -> lake.Outcome:
    (folder / f"{output}.yaml").write_text(yaml.safe_dump(content))
    return lake.run_command(name, "--config", str(folder / f"{output}.yaml"), "--output", str(folder / output), *flags)


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Folder with the shuffled messages of a lake in `encoded`, and the settings of the job; only read."""
    folder = tmp_path_factory.mktemp("sent")
    path = lake.write_lake(folder / "lake", points(), np.arange(N_CLIENTS), n_files=2, row_group_size=60)
    (folder / "public.json").write_text(public().to_json())
    content = job(path, key_uri=lake.write_key(folder / "key"))
    content["reports"] |= {"path": str(folder / "encoded"), "parameters": str(folder / "public.json")}
    outcome = run("encode", content, folder, "encoded")
    assert outcome.code == 0, outcome.err
    assert f"{public().messages_per_client:,} messages" in outcome.err
    return folder, content


@pytest.fixture
def encoded(tmp_path, sent):
    """Settings of all jobs on messages of the test's own, in `encoded`."""
    folder, content = sent
    shutil.copytree(folder / "encoded", tmp_path / "encoded")
    own = {"path": str(tmp_path / "encoded"), "arrived": str(tmp_path / "inbox")}
    return content | {"reports": content["reports"] | own}


def messages(folder: pathlib.Path) -> pa.Table:
    return pq.read_table(folder / "reports.parquet")


def test_a_lake_becomes_messages_and_messages_a_model(tmp_path, encoded):
    found = messages(tmp_path / "encoded")
    assert found.column_names == ["place", "share"]
    assert found.num_rows == N_CLIENTS * public().messages_per_client
    outcome = run("decode", encoded, tmp_path, "decoded")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["delta"] == 1e-6
    folder = tmp_path / "decoded"
    centers = np.array(pq.read_table(folder / "centers.parquet")["center"].to_pylist())
    # Noise of a coordinate is about 0.3 of 8; the key, nonces and coins are fixed.
    assert np.linalg.norm(MEANS - centers[:, None], axis=2).min(axis=0).max() < 1.0
    privacy = json.loads((folder / "privacy.json").read_text())
    assert (privacy["epsilon"], privacy["trust"], privacy["local_epsilon"]) == (4.0, "shuffle", None)
    assert {event["mechanism"] for event in privacy["events"]} == {"discrete_gaussian", "split_and_mix"}
    assert json.loads((folder / "run.json").read_text())["n_reports"] == N_CLIENTS
    page = (folder / "report.html").read_text()
    assert "messages of one client are not private before the shuffle" in page
    deployment = yaml.safe_load((folder / "deployment.yaml").read_text())["deployment"]
    assert deployment["deployment_model"]["model_name"] == "Shuffle"


def test_the_jobs_equal_the_pure_functions_whatever_the_layout(tmp_path, encoded):
    ids = [f"integers{index}".encode() for index in range(N_CLIENTS)]
    wanted = split_reports.encode_clients(points(), ids, public(), lake.KEY).shuffled()
    found = messages(tmp_path / "encoded").sort_by([("place", "ascending"), ("share", "ascending")])
    np.testing.assert_array_equal(found["place"].to_numpy(), wanted.places)
    np.testing.assert_array_equal(found["share"].to_numpy().astype(np.int64), wanted.shares)
    totals = MessageTotals.of(wanted, public().n_places, public().modulus)
    decoded = split_reports.decode_totals(totals, public(), 0)
    assert run("decode", encoded, tmp_path, "decoded").code == 0
    model = pq.read_table(tmp_path / "decoded" / "centers.parquet")
    np.testing.assert_array_equal(np.array(model["center"].to_pylist()), decoded.centers * 10.0)
    np.testing.assert_array_equal(model["noisy_size"].to_numpy(), decoded.sizes)


def test_messages_that_arrive_are_shuffled_as_the_lakes_are(tmp_path, encoded):
    table = arrived(points(), public())
    order = pa.array(np.random.default_rng(0).permutation(table.num_rows))
    (tmp_path / "inbox").mkdir()
    stamped = table.take(order).append_column("time", pa.array(np.arange(table.num_rows)))
    pq.write_table(stamped, tmp_path / "inbox" / "all.parquet", row_group_size=10_000)
    outcome = run("shuffle", encoded, tmp_path, "shuffled")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["n_clients"] == N_CLIENTS
    for path in (tmp_path / "encoded" / "reports.parquet").iterdir():
        assert (tmp_path / "shuffled" / "reports.parquet" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("fault", ["missing", "foreign", "few"])
def test_parts_of_clients_foreign_messages_and_small_batches_are_refused(tmp_path, encoded, fault):
    table = arrived(points(), public())
    if fault == "missing":
        table, said = table.slice(0, table.num_rows - 1), "must have at least 300 reports, got 299"
    elif fault == "foreign":
        extra = pa.table(
            {
                "upload": pa.array([7], pa.uint64()),
                "place": pa.array([10**6], pa.uint32()),
                "share": pa.array([1], pa.uint64()),
            }
        )
        table, said = pa.concat_tables([table, extra.cast(table.schema)]), "must have a place and a share"
    else:
        table, said = table.slice(0, public().messages_per_client), "must have at least 300 reports, got 1;"
    (tmp_path / "inbox").mkdir()
    pq.write_table(table, tmp_path / "inbox" / "all.parquet")
    outcome = run("shuffle", encoded, tmp_path, "shuffled")
    assert (outcome.code, said in outcome.err) == (2, True), outcome.err
    assert not (tmp_path / "shuffled").exists()


def test_shuffled_messages_that_are_not_whole_clients_are_not_decoded(tmp_path, encoded):
    first = next(iter(sorted((tmp_path / "encoded" / "reports.parquet").iterdir())))
    table = pq.read_table(first)
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), first)
    outcome = run("decode", encoded, tmp_path, "decoded")
    assert (outcome.code, "must be all messages of at most 1200 clients" in outcome.err) == (2, True), outcome.err


def test_large_trees_are_refused_with_their_price(tmp_path):
    path = lake.write_lake(tmp_path / "lake", points(), np.arange(N_CLIENTS))
    content = job(path)
    content["tree"] = {"radius": 10.0, "depth": 12}
    outcome = run("encode", content, tmp_path, "encoded")
    assert outcome.code == 2
    assert "a client must send at most 100,000 messages by split and mix, got 368,640 for 4096 leaves" in outcome.err


def test_a_worker_keeps_the_key_out_of_the_job_graph(tmp_path):
    contract = TableContract(feature_list="x", client_id="client_id", n_features=4, by_client=True)
    assert_key_stays_out(_EncodeFn(public(), contract, lake.write_key(tmp_path / "key")))


def test_every_window_of_a_stream_gets_a_model_of_its_own():
    ids = [str(index).encode() for index in range(N_CLIENTS)]
    batch = MessageBatch.of(split_reports.encode_clients(points(), ids, public(), lake.KEY))
    few = MessageBatch.of(split_reports.encode_clients(points()[:5], ids[:5], public(), lake.KEY))

    def check(found):
        assert {each.windows[0]: (each.value.n_reports, each.value.model is None) for each in found} == {
            IntervalWindow(0, 60): (N_CLIENTS, False),
            IntervalWindow(60, 120): (5, True),
        }

    with test_pipeline.TestPipeline() as pipeline:
        batches = pipeline | beam.Create([(batch, 10), (few, 70)]) | beam.MapTuple(beam.window.TimestampedValue)
        decoded = batches | beam.WindowInto(FixedWindows(60)) | DecodeMessages(parameters=public())
        assert_that(decoded, check, reify_windows=True)
