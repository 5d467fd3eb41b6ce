"""The clustered_fl job: its outputs equal the loop's, it resumes when killed, bad input is refused in a sentence."""

import json
import os
import pathlib
import signal
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.clustered_fl.planned import plan_federation
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.schemas.clustered_fl.config import ClusteredFLConfig
from dapple_dp.schemas.clustered_fl.records import FederatedState
from dapple_dp.schemas.settings import rejection
from dapple_dp.transforms.files.checkpoint import MANIFEST_FILE
from tests.scenes import crashes, federation, ledgers
from tests.scenes.lake import KEY, Outcome, run_command, write_files, write_key

pytestmark = pytest.mark.slow

FILES = ["assignments.parquet", "deployment.yaml", "models.parquet", "privacy.json", "report.html", "run.json"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return federation.write_lake(tmp_path_factory.mktemp("data") / "lake")


def words_for(settings: dict, folder: pathlib.Path, *flags: str) -> list[str]:
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    return ["clustered_fl", "--config", str(folder / "job.yaml"), "--output", str(folder / "out"), *flags]


def run_job(settings: dict, folder: pathlib.Path, *flags: str) -> Outcome:
    return run_command(*words_for(settings, folder, *flags))


def expected(settings: dict, folder: pathlib.Path, key: bytes = KEY) -> FederatedState:
    """Returns what the loop without Beam makes of the job."""
    config = rejection.check_config(ClusteredFLConfig, settings)
    folder.mkdir(exist_ok=True)
    return federation.looped(plan_federation(config, beam_options([]), str(folder)).federation, key)


def manifest_of(folder: pathlib.Path) -> dict:
    return json.loads((folder / "out" / "run.json").read_text())


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> pathlib.Path:
    """A run with evaluation, under the key of the tests."""
    folder = tmp_path_factory.mktemp("finished")
    test = federation.write_lake(folder / "test", seed=1)
    settings = federation.job(data, data__group="kind", evaluation={"path": test}, key_uri=write_key(folder / "key"))
    outcome = run_job(settings, folder)
    assert outcome.code == 0, outcome.err
    return folder


def test_models_are_those_of_the_loop(finished, data, tmp_path):
    settings = yaml.safe_load((finished / "job.yaml").read_text())
    state = expected(settings, tmp_path / "run")
    assert manifest_of(finished)["models_digest"] == state.digest()
    table = pq.read_table(finished / "out" / "models.parquet")
    np.testing.assert_array_equal(np.stack(table["parameters"].to_numpy()), state.models)
    assert json.loads(table.schema.metadata[b"model"])["n_features"] == federation.N_FEATURES


def test_outputs_are_those_of_the_contract(finished):
    assert sorted(os.listdir(finished / "out")) == FILES
    table = pq.read_table(finished / "out" / "assignments.parquet")
    assert table["client_id"].to_pylist() == list(federation.NAMES)
    clusters = table["cluster"].to_pylist()
    assert table.schema.field("cluster").type == pa.int32()
    assert clusters[0] == clusters[2] == clusters[4] != clusters[1] == clusters[3] == clusters[5]


def test_the_guarantee_is_one_list_of_events_per_client(finished):
    privacy = json.loads((finished / "out" / "privacy.json").read_text())
    assert privacy["trust"] == "per-silo DP-SGD"
    assert (privacy["unit"], privacy["adjacency"]) == ("record", "add_remove")
    assert privacy["neighboring_relation"] == "add_or_remove_one"
    assert privacy["epsilon"] <= 8.0
    own = [event for event in privacy["events"] if event["client_id"] == "silo-3"]
    assert {event["name"]: event["count"] for event in own} == {
        "first_round_steps": 1,
        "steps": 5 * 4,
        "selections": 1,
        "choices": 2,
    }


def test_the_deployment_is_that_of_a_client(finished):
    entry = yaml.safe_load((finished / "out" / "deployment.yaml").read_text())["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] <= 8.0
    assert "one row of one client added or removed" in entry["privacy_loss"]["privacy_unit_details"]
    assert entry["privacy_loss"]["number_of_privacy_units"] == 480


def test_the_report_labels_accuracy_as_evaluation(finished):
    report = (finished / "out" / "report.html").read_text()
    assert "evaluation (not private)" in report
    assert "Accuracy by group of clients" in report
    assert all(name in report for name in ("even", "odd", "all clients"))


def test_without_evaluation_nothing_is_judged(data, tmp_path):
    outcome = run_job(federation.job(data, training__rounds=1), tmp_path)
    assert outcome.code == 0, outcome.err
    assert "Accuracy by group" not in (tmp_path / "out" / "report.html").read_text()
    assert json.loads(outcome.out.splitlines()[-1])["epsilon"] <= 8.0


def test_clusters_may_be_searched_and_models_be_deep(data, tmp_path):
    choice = {"max": 4, "choose": "mss"}
    settings = federation.job(data, n_clusters=choice, training__model="mlp", training__hidden_units=8)
    outcome = run_job(settings, tmp_path)
    assert outcome.code == 0, outcome.err


def killed(settings: dict, folder: pathlib.Path, rounds: int, delay: float = 0.0) -> bytes:
    """A job in chunks of two rounds that dies `delay` seconds after this many are done; returns the key of the run."""
    save = "dapple_dp.transforms.files.checkpoint:CheckpointFolder.save"  # first of all for a run without rounds
    point = crashes.Point(save, after=True, call=1 + rounds // 2, delay=delay)
    words = words_for(settings, folder, "--run_id", "r")
    assert crashes.run(words, os.devnull, key=bytes(range(7, 39)), point=point) == -signal.SIGKILL
    assert json.loads((folder / "out.partial-r" / MANIFEST_FILE).read_text())["rounds"] >= rounds
    return (folder / "out.partial-r" / "run.key").read_bytes()


@pytest.mark.parametrize(("rounds", "delay"), [(4, 0.0), (4, 0.1)])
def test_a_killed_run_goes_on_to_the_same_models(data, tmp_path, rounds, delay):
    settings = federation.job(data, training__rounds=12, chunks__rounds=2)
    key = killed(settings, tmp_path, rounds, delay)
    assert not (tmp_path / "out").exists()
    outcome = run_job(settings, tmp_path, "--run_id", "r")
    assert outcome.code == 0, outcome.err
    assert manifest_of(tmp_path)["models_digest"] == expected(settings, tmp_path / "loop", key).digest()
    assert sorted(os.listdir(tmp_path / "out")) == FILES
    assert not (tmp_path / "out.partial-r").exists()


def test_a_ledger_is_charged_once_whatever_kills_the_run(data, tmp_path):
    ledger = ledgers.new_ledger(tmp_path, ledgers.basic_limit(9.0, 3e-3), "digits")
    settings = federation.job(data, training__rounds=12, chunks__rounds=2, data__name="digits")
    settings |= {"ledger": str(tmp_path / "ledger.sqlite")}
    killed(settings, tmp_path, 2)
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start"]
    outcome = run_job(settings, tmp_path, "--run_id", "r")
    assert outcome.code == 0, outcome.err
    done = run_job(settings, tmp_path, "--run_id", "r")
    assert (done.code, done.out) == (0, outcome.out)
    assert "dapple: run r is complete: nothing is read or charged" in done.lines
    other = run_job(settings | {"seed": 5}, tmp_path, "--run_id", "r")
    assert other.code == 2
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit"]
    again = tmp_path / "again"
    again.mkdir()
    outcome = run_job(settings | {"data": settings["data"] | {"path": "nowhere"}}, again)
    assert outcome.code == 3
    assert os.listdir(again) == ["job.yaml"]


STOPS = {
    "commit": mock.patch("dapple_dp.pipelines.ledger.store.Ledger.commit", side_effect=KeyboardInterrupt),
    "move": mock.patch("dapple_dp.pipelines.run.folder.RunFolder.move", side_effect=KeyboardInterrupt),
}


@pytest.mark.parametrize("stopped", list(STOPS))
def test_a_run_that_is_stopped_once_its_models_are_staged_is_put_in_place_and_committed(data, tmp_path, stopped):
    """Its key has gone by then, and another one is never made."""
    ledger = ledgers.new_ledger(tmp_path, ledgers.basic_limit(9.0, 3e-3), "digits")
    settings = federation.job(data, data__name="digits") | {"ledger": str(tmp_path / "ledger.sqlite")}
    with STOPS[stopped]:
        assert run_job(settings, tmp_path, "--run_id", "r").code == 130
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start"]
    outcome = run_job(settings, tmp_path, "--run_id", "r")
    assert outcome.code == 0, outcome.err
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit"]
    assert sorted(os.listdir(tmp_path / "out")) == FILES
    assert run_job(settings, tmp_path, "--run_id", "r").code == 0
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit"]


def test_another_config_or_input_is_refused(tmp_path):
    path = federation.write_lake(tmp_path / "lake")
    settings = federation.job(path, training__rounds=12, chunks__rounds=2)
    killed(settings, tmp_path, 2)
    changed = federation.job(path, training__rounds=12, chunks__rounds=2, training__learning_rate=0.25)
    outcome = run_job(changed, tmp_path, "--run_id", "r")
    assert outcome.code == 2
    assert outcome.lines[-1].startswith(
        "dapple: This --run_id belongs to an interrupted run, and the config has changed"
    )
    table = pq.read_table(tmp_path / "lake" / "part-00.parquet")
    labels = table["y"].to_numpy().copy()
    labels[0] = (labels[0] + 1) % federation.N_CLASSES
    pq.write_table(table.set_column(1, "y", pa.array(labels)), tmp_path / "lake" / "part-00.parquet")
    outcome = run_job(settings, tmp_path, "--run_id", "r")
    assert outcome.code == 2
    assert outcome.lines[-1].startswith(
        "dapple: This --run_id belongs to an interrupted run, and the input has changed"
    )
    assert (tmp_path / "out.partial-r" / MANIFEST_FILE).exists()


def spoiled(folder: pathlib.Path, change) -> str:
    """The lake with its second file changed."""
    tables = [federation.table_of([index, index + 1]) for index in (0, 2, 4)]
    tables[1] = change(tables[1])
    return write_files(folder / "lake", tables)


def with_nan(table: pa.Table) -> pa.Table:
    points = np.stack(table["x"].to_numpy()).copy()
    points[3, 2] = np.nan
    flat = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), federation.N_FEATURES)
    return table.set_column(0, "x", flat)


def with_label(table: pa.Table, label: int | None) -> pa.Table:
    labels = table["y"].to_pylist()
    return table.set_column(1, "y", pa.array([*labels[:-1], label], pa.int64()))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.drop_columns("y"), "column 'y' not found in"),
        (with_nan, "column 'x' of"),
        (lambda table: with_label(table, None), "column 'y' of"),
        (lambda table: with_label(table, 3), "must hold integers from 0 to 2 only"),
        (lambda table: with_label(table, -1), "must hold integers from 0 to 2 only"),
        (lambda table: table.slice(0, 90), "client silo-3 must have at least training.batch_size = 20 rows, got 10"),
        (lambda table: table.set_column(1, "y", table["y"].cast(pa.float64())), "must hold integer classes"),
        (lambda table: table.drop_columns("client_id"), "column 'client_id' not found in"),
    ],
    ids=["no labels", "NaN", "null label", "large label", "negative label", "small client", "float label", "no ids"],
)
def test_bad_input_is_refused_in_one_sentence(tmp_path, change, sentence):
    outcome = run_job(federation.job(spoiled(tmp_path, change)), tmp_path)
    assert outcome.code == 2
    assert sentence in outcome.lines[-1]
    assert sorted(os.listdir(tmp_path)) == ["job.yaml", "lake"]


def test_invalid_rows_may_be_dropped(tmp_path):
    path = spoiled(tmp_path, lambda table: with_label(with_nan(table), None))
    settings = federation.job(path, training__rounds=1, data__on_invalid_rows="drop")
    outcome = run_job(settings, tmp_path)
    assert outcome.code == 0, outcome.err
    privacy = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert {event["client_id"]: event["public_rows"] for event in privacy["events"]}["silo-2"] == 79


def test_a_client_that_declared_rows_and_has_none_sends_noise(data, tmp_path):
    declared = dict.fromkeys((*federation.NAMES, "silo-9"), 80)
    settings = federation.job(data, training__rounds=1, data__public_rows=declared, clustering__when_scarce="apart")
    outcome = run_job(settings, tmp_path)
    assert outcome.code == 0, outcome.err
    table = pq.read_table(tmp_path / "out" / "models.parquet")
    assert table.num_rows == 7
    assert np.abs(np.stack(table["parameters"].to_numpy())[6]).max() > 0.0


def test_every_client_declares_its_rows_or_none(data, tmp_path):
    outcome = run_job(federation.job(data, data__public_rows={"silo-0": 80}), tmp_path)
    assert outcome.code == 2
    assert "data.public_rows must name every client, got none for silo-1" in outcome.lines[-1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_clusters": 9}, "n_clusters must be at most the number of clients, 6, got 9"),
        ({"training__first_copies": 5}, "training.first_copies was removed; leave it out"),
        ({"n_clusters": None}, "n_clusters must be an integer, got nothing; give the number of clusters"),
        ({"n_clusters": {"max": 3, "choose": "elbow"}}, "n_clusters must be an integer, or a section of max"),
        ({"algorithm": "oracle"}, "algorithm no longer accepts oracle; use r_dpcfl"),
        ({"privacy__accountant": "paper_code"}, "privacy.accountant no longer accepts paper_code; leave"),
        ({"data__label": "x"}, "data.label must differ from data.features and data.client_id"),
        ({"privacy__delta": 0.5}, "delta must be above 0 and below 1 / 80"),
        ({"privacy__adjacency": "both"}, "privacy.adjacency must be"),
        ({"training__momentum": 0.9}, "training.momentum is not a setting"),
        ({"training__model": "cnn"}, "training.model no longer accepts cnn; use mlp"),
        ({"key_uri": "no/such/key"}, "key_uri must be a readable file"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(data, tmp_path, settings, sentence):
    outcome = run_job(federation.job(data, **settings), tmp_path)
    assert outcome.code == 2
    assert sentence in outcome.lines[-1]
    assert os.listdir(tmp_path) == ["job.yaml"]
