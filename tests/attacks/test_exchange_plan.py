"""Masked aggregation believes nothing that it can check: plans, thresholds, nonces, and places that others can read.

Once a plan with 3,600 times less noise was taken from a folder, and the result still said epsilon 0.9994.
"""

import contextlib
import json
import os
import pathlib
import shutil
import stat
import threading

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.io.filesystems import FileSystems

from dapple_dp.pipelines.masked import upload as upload_job
from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.masked.exchange import ExchangePlan
from dapple_dp.transforms.files.file_bytes import write_once
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.masked.party_state import PartyState
from tests.pipeline.masked.test_masked_jobs import Parties
from tests.scenes import lake, object_store, stores
from tests.scenes.parties import Rewound, enroll, opened

pytestmark = pytest.mark.slow


@pytest.fixture
def parties(tmp_path):
    return opened(Parties(tmp_path))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run whose first round has two messages, and then their sum."""
    parties = opened(Parties(tmp_path_factory.mktemp("begun"), n_clients=2))
    found = Rewound(parties, tmp_path_factory.mktemp("kept"))
    for client in range(2):
        assert parties.upload(client).code == 0
    found.keep("sent")
    assert parties.aggregate().code == 0
    found.keep("summed")
    return found


def test_clients_have_one_content_of_the_server_data(parties):
    """It decides the frame in which rows are clipped and measured; places may differ, bytes may not."""
    assert parties.upload(0).code == 0
    job = yaml.safe_load((parties.folder / "client-1.yaml").read_text())
    job["server_data"] = {"path": str(shutil.copy(job["server_data"]["path"], parties.folder / "copy.parquet"))}
    (parties.folder / "client-1.yaml").write_text(yaml.safe_dump(job))
    assert parties.upload(1).code == 0
    lake.write_server(parties.folder / "copy.parquet", lake.mixture(60, seed=5))
    shutil.copy(parties.folder / "client-1.yaml", parties.folder / "client-2.yaml")
    outcome = parties.upload(2)
    assert (outcome.code, "differs from the job that opened the run in server_digest" in outcome.err) == (5, True)


def plan_file(parties):
    return pathlib.Path(parties.exchange, "plan.json")


def tamper(parties, change):
    plan = json.loads(plan_file(parties).read_text())
    change(plan)
    plan_file(parties).write_text(json.dumps(plan))


def of_releases(name, value):
    def change(plan):
        for each in plan["rounds"]:
            for release in each["releases"]:
                release[name] = value

    return change


def without_last_round(plan):
    plan["rounds"].pop()


def rounds_turned(plan):
    plan["rounds"].reverse()


def a_bit_less(plan):
    """Lowers a value by more than what another processor's arithmetic explains."""
    release = plan["rounds"][-1]["releases"][-1]
    release["noise_multiplier"] *= 1.0 - 2.0**-47


TAMPERED = {
    "next to no noise": of_releases("noise_multiplier", 0.002),
    "a bit less noise": a_bit_less,
    "more noise": of_releases("noise_multiplier", 100.0),
    "no noise": of_releases("noise_multiplier", 0.0),
    "noise that is no number": of_releases("noise_multiplier", float("nan")),
    "another sensitivity": of_releases("sensitivity", 1),
    "another law": of_releases("mechanism", "discrete_laplace"),
    "another geometry": of_releases("geometry", "symmetric"),
    "another share": of_releases("share", -1.0),
    "another shape": of_releases("shape", [3]),
    "rounds in another order": rounds_turned,
    "a round less": without_last_round,
    "no run": lambda plan: plan.update(run=None),
    "a run that is a number": lambda plan: plan.update(run=5),
    "no nonce": lambda plan: plan.pop("nonce"),
    "a short nonce": lambda plan: plan.update(nonce="00" * 31),
    "a nonce that is none": lambda plan: plan.update(nonce="zz" * 32),
    "pairwise masks": lambda plan: plan.update(pairwise={"corrupt": 0.0, "dropout": 0.5}),
}


@pytest.mark.parametrize("change", TAMPERED)
def test_a_plan_that_was_changed_is_refused_before_anything_is_sent(parties, change):
    tamper(parties, TAMPERED[change])
    outcome = parties.upload(0)
    assert outcome.code == 5, outcome.err
    assert "Traceback" not in outcome.err
    assert not list(pathlib.Path(parties.exchange).rglob("messages/*"))


@pytest.mark.parametrize("bits", [-2, 2])
def test_parties_on_processors_of_two_kinds_sum_one_release(parties, bits):
    """Last bits of the opener's plan are not theirs; each counts on its own noise, and all get one release."""
    own = [each["noise_multiplier"] for each in json.loads(plan_file(parties).read_text())["rounds"][0]["releases"]]

    def last_bits(plan):
        for release in (release for each in plan["rounds"] for release in each["releases"]):
            release["noise_multiplier"] *= 1.0 + bits * 2.0**-51

    tamper(parties, last_bits)
    for client in range(2):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == 0
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err
    released = pq.read_table(pathlib.Path(parties.released, "00.parquet"))["noise_multiplier"].to_pylist()
    assert released == own
    assert parties.unmask(1).code == 0


@pytest.mark.parametrize("change", ["next to no noise", "a bit less noise", "another sensitivity", "no run"])
def test_a_plan_that_was_changed_after_the_sum_is_not_unmasked(begun, change):
    parties = begun.at("summed")
    tamper(parties, TAMPERED[change])
    outcome = parties.unmask()
    assert outcome.code == 5, outcome.err
    assert not pathlib.Path(parties.released, "00.parquet").exists()


def test_releases_have_the_noise_of_the_clients_own_plan(begun):
    """A plan that is false only while the sum is read changes nothing: the reader brings its own."""
    parties = begun.at("summed")
    own = Exchange(parties.exchange).plan().rounds[0]
    tamper(parties, of_releases("noise_multiplier", 1e-9))
    exchange = Exchange(parties.exchange)
    assert [each.plan for each in exchange.read_sum(0, own)[0].releases] == list(own.releases)


@pytest.mark.parametrize(("epsilon", "code"), [(0.5, 5), (1.9, 5), (2.0, 0), (50.0, 0)])
def test_the_aggregator_refuses_a_plan_beyond_its_own_limit(begun, epsilon, code):
    parties = begun.at("sent")
    parties.aggregator(threshold=2, limit={"epsilon": epsilon, "delta": 1e-6})
    outcome = parties.aggregate()
    assert outcome.code == code, outcome.err
    assert ("plan.json must spend at most epsilon" in outcome.err) == bool(code)
    assert Exchange(parties.exchange).is_closed(0) != bool(code)


def test_the_aggregators_limit_sees_noise_that_was_taken_away(begun):
    parties = begun.at("sent")
    parties.aggregator(threshold=2, limit={"epsilon": 2.0, "delta": 1e-6})
    tamper(parties, of_releases("noise_multiplier", 0.5))
    assert parties.aggregate().code == 5
    assert not Exchange(parties.exchange).is_closed(0)


def test_the_clients_threshold_is_the_clients_to_enforce(tmp_path):
    parties = Parties(tmp_path, masked={"threshold": 4})
    parties.aggregator(threshold=1)
    assert parties.unmask().code == 0
    assert parties.upload(0).code == parties.aggregate().code == 0
    outcome = parties.unmask()
    assert outcome.code == 5
    assert "the sum must cover at least 4 messages (masked.threshold)" in outcome.err
    assert not pathlib.Path(parties.released, "00.parquet").exists()


def reopened(parties, *, nonce=None):
    """A second attempt under the same run id, in folders of its own; `nonce` is that of the first to be replayed."""
    old = plan_file(parties).read_text()
    parties.exchange += "-again"
    parties.released += "-again"
    if nonce:
        pathlib.Path(parties.exchange).mkdir()
        plan_file(parties).write_text(old)
    assert parties.unmask().code == 0
    return parties


def test_two_runs_of_one_id_share_neither_sender_nor_mask(parties):
    assert parties.upload(0).code == 0
    first = Exchange(parties.exchange)
    one = parties.read(0, first.message_files(0)[0])
    second = Exchange(reopened(parties).exchange)
    assert first.plan().run == second.plan().run
    assert first.plan().nonce != second.plan().nonce
    assert parties.upload(0).code == 0
    other = parties.read(0, second.message_files(0)[0])
    assert not set(one.senders) & set(other.senders)
    assert not set(one.tags) & set(other.tags)
    assert not np.equal(one.values, other.values).any()


def test_a_sum_under_a_replayed_nonce_is_not_unmasked(parties):
    """Others are present in the second sum: their difference would be the statistic of one client."""
    for client in range(3):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == parties.unmask().code == 0
    reopened(parties, nonce="replayed")
    for client in range(2):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == 0
    outcome = parties.unmask()
    assert outcome.code == 5
    assert "a second sum has arrived for a round that has one, under the same nonce" in outcome.err
    assert not pathlib.Path(parties.released, "00.parquet").exists()


def test_a_client_answers_one_broadcast_under_a_nonce(parties, tmp_path):
    """A second history of the same run would ask for the second round's messages about other centers."""
    for client in range(3):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == parties.unmask().code == parties.upload(0).code == 0
    (sent,) = pathlib.Path(parties.exchange).glob("01_*/messages/*")
    reopened(parties, nonce="replayed")
    for client in (3, 4):
        job = yaml.safe_load((parties.folder / f"client-{client}.yaml").read_text())
        job["masked"]["state_uri"] = str(parties.folder / "other" / "state")
        (parties.folder / f"client-{client}.yaml").write_text(yaml.safe_dump(job))
        enroll(parties.folder / f"client-{client}.yaml", f"client-{client}", "")
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == parties.unmask(client=3).code == 0
    assert parties.upload(0).code == 0
    (again,) = pathlib.Path(parties.exchange).glob("01_*/messages/*")
    assert again.read_bytes() == sent.read_bytes()
    state = PartyState.of(f"{parties.folder}/state", f"{parties.folder}/secret", "client-0")
    for path in pathlib.Path(state.folder).rglob("*.sent"):
        path.unlink()
    outcome = parties.upload(0)
    assert outcome.code == 5
    assert "a second broadcast has arrived for a round that has one, under the same nonce" in outcome.err


def test_kept_files_are_the_owners_and_their_names_say_nothing(parties):
    assert parties.upload(0).code == 0
    state = parties.folder / "state"
    found = list(state.rglob("*"))
    assert [path for path in found if path.name.endswith(".sent")]
    for path in (state, *found):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
        assert "client-0" not in str(path.relative_to(state))
        assert path.is_dir() or path.suffix or len(path.read_bytes()) == 64


@pytest.mark.parametrize("where", ["exchange/secret", "released/secret", "x/../released/secret", "link/secret"])
def test_a_secret_in_a_folder_that_others_read_is_refused_however_it_is_spelled(parties, where):
    (parties.folder / "x").mkdir()
    (parties.folder / "link").symlink_to(parties.exchange)
    lake.write_key(parties.folder / where)
    job = parties.job | {"masked": parties.job["masked"] | {"secret_uri": str(parties.folder / where)}}
    (parties.folder / "client-0.yaml").write_text(yaml.safe_dump(job))
    outcome = parties.upload(0)
    assert outcome.code == 2
    assert "masked.secret_uri must be outside of --" in outcome.err


def split_lake(parties):
    """Clients of the first party are in two row groups each, so that rows must be grouped before they are read."""
    points, clients = lake.mixture(60), np.arange(60) % 6
    lake.write_files(parties.folder / "lake-0", [lake.table_of(points, clients)], 30)


def test_rows_are_staged_in_no_folder_that_is_shared(tmp_path, monkeypatch):
    parties, found = Parties(tmp_path, unit="client"), []
    split_lake(parties)
    assert parties.unmask().code == 0
    leftover = pathlib.Path(PartyState.of(f"{tmp_path}/state", f"{tmp_path}/secret", "client-0").folder, "rows.clients")
    leftover.mkdir(0o700)
    (leftover / "of-a-killed-run.parquet").write_bytes(b"rows")
    run = upload_job.run_graph

    def watching(add, options, promise):
        found.extend(tmp_path.rglob("*.clients/*.parquet"))
        shared = [*pathlib.Path(parties.released).rglob("*"), *pathlib.Path(parties.exchange).rglob("*")]
        assert not [path for path in shared if ".clients" in str(path)]
        return run(add, options, promise)

    monkeypatch.setattr(upload_job, "run_graph", watching)
    assert parties.upload(0).code == 0
    assert found
    assert {path.parent for path in found} == {leftover}
    assert "of-a-killed-run.parquet" not in {path.name for path in found}
    assert not leftover.exists()


def test_one_of_two_writers_at_once_decides(tmp_path):
    refused = []

    def write(number):
        try:
            write_once(str(tmp_path / "sum"), b"%d" % number)
        except ProtocolError:
            refused.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(refused) == 15
    assert int((tmp_path / "sum").read_text()) not in refused
    assert [path.name for path in tmp_path.iterdir()] == ["sum"]


def test_a_plan_is_what_was_written_to_the_last_digit(parties):
    text = plan_file(parties).read_text()
    assert ExchangePlan.from_json(text).to_json() == text
    assert len(ExchangePlan.from_json(text).nonce) == 32
    assert os.listdir(parties.exchange)


@contextlib.contextmanager
def amazon():
    """A store that speaks Amazon's protocol; its root."""
    pytest.importorskip("moto")
    with object_store.object_store():
        yield f"s3://{object_store.BUCKET}/"


@pytest.mark.parametrize("store", [stores.store, amazon])
def test_on_a_store_the_first_writer_decides(store):
    """The store is asked to make the file only where none is; nobody looks first and writes then."""
    with store() as root:
        write_once(f"{root}00.sum", b"one")
        write_once(f"{root}00.sum", b"one")
        with pytest.raises(ProtocolError, match="must be written once"):
            write_once(f"{root}00.sum", b"two")
        with FileSystems.open(f"{root}00.sum") as file:
            assert file.read() == b"one"


def test_a_store_that_cannot_tell_who_was_first_is_refused():
    with pytest.raises(ConfigError, match="where a file can be made by one run only"):
        write_once("abfss://bucket/00.sum", b"one")
