"""Attacks on noise across runs: under one kept key, no two runs draw the same, and no digest compares their input.

Once a release was a function of the kept key and the exact sums. Runs on D, on D with one row more, and on D again then
published 5c00ff.., 7e85ce.. and 5c00ff..: whether a row had joined was known with probability 1.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from dapple_dp.pipelines.jobs.place import Place
from dapple_dp.pipelines.run import run_keys
from dapple_dp.pipelines.run.options import JobOptions, beam_options
from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.schemas.errors import ConfigError, RunnerError
from dapple_dp.schemas.privacy.release_table import releases_from_table
from dapple_dp.transforms.core import keys
from dapple_dp.transforms.files import new_file
from dapple_dp.transforms.privacy import key_files
from tests.scenes import crashes, federation, lake, ledgers, reports, toy_rounds
from tests.scenes.derived_keys import derived_key

ON_BEAM = "--runner=FnApiRunner"


@pytest.fixture(autouse=True)
def _keys_of_runs():
    with lake.keys_of_runs():
        yield


@pytest.fixture
def place(tmp_path):
    """A job with a ledger that its owner runs night after night under one key."""
    found = ledgers.Place(tmp_path, epsilon=20.0)
    found.job["key_uri"] = lake.write_key(tmp_path / "team.key")
    return found


def without_ledger(place):
    place.job = {name: value for name, value in place.job.items() if name != "ledger"}
    return place


def files_of(place, output):
    return lake.released(place.folder / output)


def fingerprint(place, output):
    return json.loads((place.folder / output / "run.json").read_text())["input_fingerprint"]


def one_row_more(place):
    pq.write_table(lake.table_of(np.full((1, 4), 2.0), [0]), pathlib.Path(place.lake) / "part-02.parquet")


# A1 and fingerprints.


@pytest.mark.parametrize("ledger", [True, False])
def test_d_then_one_row_more_then_d_are_three_draws(place, ledger):
    place = place if ledger else without_ledger(place)
    assert place.fit("out1", "k1").code == 0
    one_row_more(place)
    assert place.fit("out2", "k2").code == 0
    (pathlib.Path(place.lake) / "part-02.parquet").unlink()
    assert place.fit("out3", "k3").code == 0
    outputs = ("out1", "out2", "out3")
    for name in lake.RELEASED_FILES:
        assert len({files_of(place, output)[name] for output in outputs}) == 3
    assert len({fingerprint(place, output) for output in outputs}) == 3
    assert (place.folder / "team.key").read_bytes() == lake.KEY


def test_no_single_release_is_repeated(place):
    """Per round it was finer: each round's releases showed whether that sum had moved."""
    for output in ("out1", "out2"):
        assert lake.run_command(*place.words(output, output), ON_BEAM).code == 0
    tables = [pq.read_table(place.folder / output / "releases.parquet") for output in ("out1", "out2")]
    for first, second in zip(*map(releases_from_table, tables), strict=True):
        assert first.path == second.path
        assert (first.values != second.values).all()


def test_the_same_run_id_again_is_another_run(place):
    place = without_ledger(place)
    found = []
    for _ in range(2):
        assert place.fit("out", "same").code == 0
        found.append((files_of(place, "out"), fingerprint(place, "out")))
        shutil.rmtree(place.folder / "out")
    (first, fingerprint_1), (second, fingerprint_2) = found
    assert first["releases.parquet"] != second["releases.parquet"]
    assert fingerprint_1 != fingerprint_2


def test_a_kept_key_may_recur_and_its_derived_keys_are_in_the_ledger(place):
    for number in range(3):
        assert place.fit(f"out{number}", f"night{number}").code == 0
    entries = place.ledger.entries()
    starts = [entry.body["key"]["key_uri"] for entry in entries if entry.kind == "start"]
    nonces = [entry.body["nonce"] for entry in entries if entry.kind == "reserve"]
    assert len(set(starts)) == len(set(nonces)) == 3
    assert key_files.key_digest(place.job["key_uri"]) not in starts
    assert all(len(bytes.fromhex(nonce)) >= 16 for nonce in nonces)


def test_a_masked_run_repeats_neither_masks_nor_further_noise(place):
    secret = lake.write_key(place.folder / "secret", bytes(range(51, 83)))
    masked = {"trust": "masked", "masked": {"secret_uri": secret, "noise_by": "both"}}
    for output in ("out1", "out2"):
        assert place.fit(output, output, **masked).code == 0
    assert files_of(place, "out1")["releases.parquet"] != files_of(place, "out2")["releases.parquet"]
    starts = [entry.body["key"] for entry in place.ledger.entries() if entry.kind == "start"]
    assert len({digest for start in starts for digest in start.values()}) == 4


# The ledger.


def test_the_ledger_refuses_a_key_that_another_run_has_drawn_with(place):
    with lake.written_keys_draw():
        assert place.fit("out1", "k1").code == 0
        outcome = place.fit("out2", "k2")
    assert (outcome.code, "one that run k1 has drawn with" in outcome.err) == (3, True)
    assert not (place.folder / "out2").exists()
    assert ledgers.kinds(place.ledger)[-1] == "reserve"


@pytest.fixture
def charged(tmp_path):
    """Jobs other than fit that charge a ledger, whose kept key is the one that draws: two runs of each."""
    ledger = ledgers.new_ledger(tmp_path, ledgers.basic_limit(50.0, 1.0))
    rows = lake.write_lake(tmp_path / "lake", lake.mixture(60), np.arange(60))
    shared = {"ledger": ledger.path, "key_uri": lake.write_key(tmp_path / "team.key"), "data__name": "census"}
    training = federation.job(federation.write_lake(tmp_path / "silos"), **shared)
    training["training"]["rounds"] = 1
    jobs = {"encode": reports.settings(rows, **shared), "clustered_fl": training}
    with lake.written_keys_draw():
        yield tmp_path, jobs, ledger


@pytest.mark.parametrize("job", ["encode", "clustered_fl"])
def test_the_ledger_refuses_a_key_whatever_the_job(charged, job):
    folder, jobs, ledger = charged
    outcomes = []
    for run in ("k1", "k2"):
        (folder / "job.yaml").write_text(yaml.safe_dump(jobs[job]))
        words = ("--config", str(folder / "job.yaml"), "--output", str(folder / run), "--run_id", run)
        outcomes.append(lake.run_command(job, *words))
    assert outcomes[0].code == 0, outcomes[0].err
    assert (outcomes[1].code, "one that run k1 has drawn with" in outcomes[1].err) == (3, True), outcomes[1].err
    assert not (folder / "k2").exists()
    assert ledgers.kinds(ledger) == ["limit", "reserve", "start", "commit", "reserve"]


def test_every_job_that_charges_a_ledger_records_its_key():
    """`fit` announces it in an account of its own."""
    root = pathlib.Path(__file__).resolve().parents[2]
    charging = [path for path in root.glob("pipelines/**/*.py") if "reserve=" in path.read_text()]
    silent = [path.stem for path in charging if "draws_with" not in path.read_text()]
    assert (len(charging), silent) == (5, ["fit"])


def test_a_key_is_recorded_for_an_open_run_only(tmp_path):
    place = Place(JobOptions(config="", output=str(tmp_path / "out"), run_id="run", beam=beam_options([])))
    with pytest.raises(RuntimeError, match="inside of `opened`"):
        place.draws_with("key")


def test_a_fixed_source_of_randomness_does_not_join_two_runs(place, monkeypatch):
    """A virtual machine that is cloned gives two runs the same nonce; their ids still distinguish them."""
    monkeypatch.setattr("secrets.token_bytes", lambda size=32: bytes(range(size)))
    for output in ("out1", "out2"):
        assert place.fit(output, output).code == 0
    assert files_of(place, "out1")["releases.parquet"] != files_of(place, "out2")["releases.parquet"]


class Stopped(BaseException):
    """Ends a run as a signal would, but leaves the process."""


def interrupted(place, patch, run_id, output):
    def stop(*_):
        raise Stopped

    with patch.context() as patched, contextlib.suppress(Stopped):
        patched.setattr("dapple_dp.pipelines.kmeans.report.files.write_outputs", stop)
        place.fit(output, run_id)
        pytest.fail("the run was not stopped")
    return pathlib.Path(f"{place.folder / output}.partial-{run_id}")


def test_resuming_repeats_the_noise_and_nothing_else_does(place, monkeypatch):
    staging = interrupted(place, monkeypatch, "run", "out")
    drawn = lake.released(staging)
    assert place.fit("out", "run").code == 0
    assert files_of(place, "out") == drawn
    assert place.fit("other", "another").code == 0
    assert files_of(place, "other")["releases.parquet"] != drawn["releases.parquet"]


def test_resuming_does_not_depend_on_files_that_are_lost(place, monkeypatch):
    """The nonce is in the ledger: without the staging folder the run draws the same, under the kept key."""
    staging = interrupted(place, monkeypatch, "run", "out")
    drawn = lake.released(staging)
    shutil.rmtree(staging)
    assert place.fit("out", "run").code == 0
    assert files_of(place, "out") == drawn


def test_an_interrupted_run_on_other_rows_draws_nothing(place, monkeypatch):
    interrupted(place, monkeypatch, "run", "out")
    one_row_more(place)
    outcome = place.fit("out", "run")
    assert (outcome.code, "the same input" in outcome.err) == (3, True)
    assert not (place.folder / "out").exists()


def test_a_run_that_was_void_has_another_nonce(place):
    points = lake.mixture(30)
    points[3, 2] = float("nan")
    bad = pathlib.Path(place.lake) / "bad.parquet"
    pq.write_table(lake.table_of(points, [0] * 30), bad)
    assert place.fit().code == 2
    bad.unlink()
    assert place.fit().code == 0
    assert ledgers.kinds(place.ledger).count("void") == 1
    nonces = [entry.body["nonce"] for entry in place.ledger.entries() if entry.kind == "reserve"]
    assert len(nonces) == len(set(nonces)) == 2


# Weak keys.

WEAK = {
    "zeros": bytes(32),
    "ones": b"\xff" * 32,
    "letters": b"k" * 32,
    "two bytes": b"ab" * 16,
    "eight bytes": bytes(range(8)) * 4,
    "padded": b"secret" + bytes(26),
}


@pytest.mark.parametrize("content", WEAK.values(), ids=WEAK)
def test_a_weak_key_is_refused_before_anything_is_read(place, content):
    lake.write_key(place.folder / "team.key", content)
    outcome = place.fit()
    assert (outcome.code, "key_uri must hold 32 random bytes, but its bytes repeat" in outcome.err) == (2, True)
    assert content.hex() not in outcome.err
    assert repr(content)[2:-1] not in outcome.err
    assert place.spent() == 0
    assert not list(place.folder.glob("out*/**/*"))


@pytest.mark.parametrize("content", [b"", b"short", bytes(range(31)), bytes(range(33))])
def test_a_key_of_another_length_is_refused(place, content):
    lake.write_key(place.folder / "team.key", content)
    assert without_ledger(place).fit().code == 2


def test_a_weak_secret_of_masks_is_refused(place):
    secret = lake.write_key(place.folder / "secret", bytes(32))
    outcome = place.fit(trust="masked", masked={"secret_uri": secret})
    assert (outcome.code, "masked.secret_uri must hold 32 random bytes" in outcome.err) == (2, True)


def test_random_keys_pass():
    generator = np.random.default_rng(0)
    fewest = min(len(set(generator.bytes(32))) for _ in range(20_000))
    assert fewest > 2 * keys._FEWEST_VALUES


# The derivation.


def test_every_part_matters_and_none_runs_into_another():
    kept = [lake.KEY, bytes(range(32))]
    runs = ["", "a", "ab", "a\x00"]
    nonces = [b"b" + bytes(15), bytes(16), bytes(17), b"\x00b" + bytes(14)]
    found = {derived_key(*each) for each in itertools.product(kept, runs, nonces)}
    assert len(found) == 32
    assert not found & set(kept)
    assert {len(key) for key in found} == {32}


def test_a_place_is_that_of_the_derived_key(tmp_path):
    uri, nonce = lake.write_key(tmp_path / "key"), RunNonce(run="run", raw=bytes(range(16)))
    place = nonce.place(uri)
    assert key_files.read_key(place) == derived_key(lake.KEY, "run", nonce.raw)
    assert key_files.read_key(uri) == lake.KEY
    assert lake.KEY.hex() not in place
    assert nonce.raw.hex() not in place


def test_a_setting_that_is_spelled_as_a_place_names_a_file(tmp_path):
    """Otherwise a writer of the config could choose what takes the place of the nonce."""
    uri = lake.write_key(tmp_path / "key")
    spelled = f"{uri}#run={'0' * 64}"
    with pytest.raises(ConfigError, match="must be a readable file"):
        key_files.read_key(RunNonce.new("run").place(spelled))


@pytest.mark.parametrize("size", [0, 1, 15])
def test_short_nonces_are_refused(size):
    with pytest.raises(ValueError, match="nonce must be at least 16 bytes"):
        keys.run_place("key", "run", bytes(size))


# Other jobs under a key that is kept.


def run(folder, job, settings, *words):
    folder.mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    return lake.run_command(job, "--config", str(folder / "job.yaml"), "--output", str(folder / "out"), *words)


def test_reports_of_two_runs_have_other_nonces_and_coins(tmp_path):
    data = lake.write_lake(tmp_path / "lake", lake.mixture(40), np.arange(40))
    job = reports.settings(data, key_uri=lake.write_key(tmp_path / "key"), reports__min_batch=40)
    found = []
    for name in "ab":
        assert run(tmp_path / name, "encode", job).code == 0
        job["reports"]["parameters"] = str(tmp_path / "a" / "out" / "parameters.json")
        found.append(pq.read_table(tmp_path / name / "out" / "reports.parquet").to_pylist())
    assert not {row["nonce"] for row in found[0]} & {row["nonce"] for row in found[1]}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return federation.write_lake(tmp_path_factory.mktemp("silos") / "lake")


def test_federated_runs_train_other_models(silos, tmp_path):
    job = federation.job(silos, training__rounds=2, key_uri=lake.write_key(tmp_path / "key"))
    manifests = []
    for name in "ab":
        outcome = run(tmp_path / name, "clustered_fl", job, "--run_id", "same")
        assert outcome.code == 0, outcome.err
        manifests.append(json.loads((tmp_path / name / "out" / "run.json").read_text()))
        assert not (tmp_path / name / "out" / "run.nonce").exists()
    assert manifests[0]["models_digest"] != manifests[1]["models_digest"]
    assert manifests[0]["input_fingerprint"] != manifests[1]["input_fingerprint"]


CONFIG = toy_rounds.ToyConfig(rounds=5)


def _toy(folder, die_in):
    with lake.keys_of_runs():
        toy_rounds.run(CONFIG, str(folder / "out"), "r", die_in=die_in)


def test_rounds_that_go_on_repeat_the_noise(tmp_path):
    assert crashes.call(_toy, tmp_path, 4) != 0
    staging = tmp_path / "out.partial-r"
    nonce, kept = (staging / "run.nonce").read_bytes(), (staging / "run.key").read_bytes()
    total = toy_rounds.run(CONFIG, str(tmp_path / "out"), "r")
    key = derived_key(kept, "r", nonce)
    np.testing.assert_array_equal(total, toy_rounds.ToyProtocol(5, "").expected(key))
    assert not {"run.nonce", "run.key"} & set(os.listdir(tmp_path / "out"))


@pytest.mark.parametrize("content", [None, b"", b"torn", bytes(range(32))])
def test_rounds_do_not_go_on_under_another_nonce(tmp_path, content):
    assert crashes.call(_toy, tmp_path, 4) != 0
    path = tmp_path / "out.partial-r" / "run.nonce"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"(must be the nonce of the|belongs to an) interrupted run"):
        toy_rounds.run(CONFIG, str(tmp_path / "out"), "r")
    assert not (tmp_path / "out").exists()


def test_a_nonce_that_is_carried_to_another_run_gives_another_key(tmp_path):
    """The ids of runs are part of the derivation, so copying a staging folder's nonce copies no noise."""
    kept, nonce = lake.write_key(tmp_path / "key"), bytes(range(32))
    first, second = (key_files.read_key(RunNonce(run=run, raw=nonce).place(kept)) for run in ("r1", "r2"))
    assert first != second


def test_the_nonce_is_private_and_whole_before_the_first_draw(place, monkeypatch):
    seen = []

    def look(*_):
        path = pathlib.Path(f"{place.folder / 'out'}.partial-run") / "run.nonce"
        seen.append((path.stat().st_mode & 0o777, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size))
        raise Stopped

    monkeypatch.setattr("dapple_dp.pipelines.run.round_driver.run_graph", look)
    with pytest.raises(Stopped):
        lake.run_command(*without_ledger(place).words("out", "run"), ON_BEAM)
    assert [(mode, size) for mode, _, size in seen] == [(0o600, 32)]
    assert not list(place.folder.glob("out*/**/*"))


def test_a_full_disk_is_reported_if_the_nonce_finds_no_room(tmp_path, monkeypatch):
    """Another place on the same disk would not help."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(new_file, "create", refuse)
    with (
        pytest.raises(RunnerError, match="The disk of --output, or one for temporary files, is full"),
        run_keys.own_key(str(tmp_path)),
    ):
        pass


def test_an_attempt_that_left_its_nonce_is_not_taken_up_without_a_ledger(tmp_path):
    settings = lake.job(lake.write_lake(tmp_path / "lake", lake.mixture(60)), lake.write_server(tmp_path / "server"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.nonce").write_bytes(bytes(range(32)))
    with pytest.raises(ConfigError, match="--run_id must be new"):
        lake.execute(lake.planned(settings), lake.beam_options([]), str(tmp_path / "run"))
