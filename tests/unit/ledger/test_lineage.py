"""Events for OpenLineage: what a run spent, as it stands in its files and its ledger, and nothing else."""

import datetime
import hashlib
import importlib.util
import json
import uuid

import pytest

from dapple_dp import ConfigError, LedgerRefusedError, lineage_event
from tests.scenes.ledgers import basic_limit, charge, new_ledger

TIME = datetime.datetime(2026, 11, 20, 3, 0, tzinfo=datetime.UTC)
STATED = {
    "format": 1,
    "epsilon": 1.5,
    "delta": 1e-6,
    "unit": "record",
    "neighboring_relation": "add_or_remove_one",
    "trust": "central",
    "events": [],
}


@pytest.fixture
def run(tmp_path):
    """A run's folder, as far as the event looks into it."""
    folder = tmp_path / "fit"
    folder.mkdir()
    content = json.dumps(STATED).encode()
    (folder / "privacy.json").write_bytes(content)
    write_manifest(folder, {"privacy.json": hashlib.sha256(content).hexdigest()})
    return folder


def write_manifest(folder, files):
    content = {"format": 1, "run_id": "night-1", "config_digest": "a" * 64, "files": files}
    (folder / "run.json").write_text(json.dumps(content))


def facet(event):
    return event["run"]["facets"]["dapple_privacy"]


def test_the_event_says_what_the_run_states(run):
    event = lineage_event(str(run), "nightly_fit", ["s3://lake/clients/dt=1", "/lake/rows"], time=TIME)
    assert (event["eventType"], event["eventTime"]) == ("COMPLETE", "2026-11-20T03:00:00+00:00")
    assert event["job"] == {"namespace": "dapple", "name": "nightly_fit", "facets": {}}
    names = [(each["namespace"], each["name"]) for each in event["inputs"] + event["outputs"]]
    assert names == [("s3://lake", "clients/dt=1"), ("file", "/lake/rows"), ("file", str(run))]
    found = facet(event)
    assert {key: found[key] for key in ("private", "epsilon", "delta", "unit", "neighboringRelation", "trust")} == {
        "private": True,
        "epsilon": 1.5,
        "delta": 1e-6,
        "unit": "record",
        "neighboringRelation": "add_or_remove_one",
        "trust": "central",
    }
    assert (found["configDigest"], found["ledgerEntry"]) == ("a" * 64, None)
    json.dumps(event, allow_nan=False)


def test_events_of_one_run_have_one_id(run):
    ids = {lineage_event(str(run), job)["run"]["runId"] for job in ("one", "one", "two")}
    assert len(ids) == 2
    assert {uuid.UUID(each).version for each in ids} == {5}


def test_the_facet_names_the_runs_last_entry_in_the_ledger(run, tmp_path):
    ledger = new_ledger(tmp_path, basic_limit(10.0))
    ledger.reserve("night-1", charge(), {})
    ledger.commit("night-1", {})
    ledger.reserve("night-2", charge(), {})
    last = ledger.entries()[2]
    found = facet(lineage_event(str(run), "fit", ledger=ledger.path))["ledgerEntry"]
    assert found == {"sequence": 3, "kind": "commit", "digest": last.digest}


def test_a_ledger_without_the_run_is_refused(run, tmp_path):
    ledger = new_ledger(tmp_path, basic_limit(10.0))
    with pytest.raises(ConfigError, match="has no entry of run night-1"):
        lineage_event(str(run), "fit", ledger=ledger.path)
    with pytest.raises(LedgerRefusedError, match="no ledger at "):
        lineage_event(str(run), "fit", ledger=str(tmp_path / "absent"))


def test_an_output_of_the_trusted_zone_says_that_it_is_not_private(run):
    write_manifest(run, {})
    found = facet(lineage_event(str(run), "assign"))
    assert (found["private"], found["epsilon"], found["unit"]) == (False, None, None)


def test_a_changed_statement_is_refused(run):
    (run / "privacy.json").write_text(json.dumps(STATED | {"epsilon": 0.1}))
    with pytest.raises(ConfigError, match=r"privacy.json in .* was changed after the job wrote it"):
        lineage_event(str(run), "fit")


@pytest.mark.parametrize(
    "stated", [{}, STATED | {"format": 2}, STATED | {"epsilon": -1.0}, STATED | {"delta": 2.0}, [1]]
)
def test_a_statement_of_another_form_is_refused(run, stated):
    content = json.dumps(stated).encode()
    (run / "privacy.json").write_bytes(content)
    write_manifest(run, {"privacy.json": hashlib.sha256(content).hexdigest()})
    with pytest.raises(ConfigError, match="run must be the output folder of a finished job"):
        lineage_event(str(run), "fit")


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"run must be the output folder of a finished job, with run.json"):
        lineage_event(str(tmp_path), "fit")


@pytest.mark.skipif(importlib.util.find_spec("openlineage") is None, reason="openlineage-python is not installed")
def test_the_client_of_openlineage_sends_it(run, tmp_path):
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.transport.file import FileConfig, FileTransport

    event = lineage_event(str(run), "fit", time=TIME)
    sent = RunEvent(
        eventType=RunState(event["eventType"]),
        eventTime=event["eventTime"],
        run=Run(runId=event["run"]["runId"]),
        job=Job(namespace=event["job"]["namespace"], name=event["job"]["name"]),
        producer=event["producer"],
        outputs=[OutputDataset(namespace=each["namespace"], name=each["name"]) for each in event["outputs"]],
    )
    log = tmp_path / "events.json"
    OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(log), append=True))).emit(sent)
    written = json.loads(log.read_text())
    assert written["run"]["runId"] == event["run"]["runId"]
    assert written["schemaURL"] == event["schemaURL"]
