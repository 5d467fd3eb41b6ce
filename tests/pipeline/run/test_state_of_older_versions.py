"""State that Dapple 0.2.0 left: ledgers, epochs, exchanges and outputs go on, and unfinished rounds are refused."""

import fcntl
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

import pyarrow as pa
import pytest

from dapple_dp import DappleModelHandler, DPKMeans
from dapple_dp.pipelines.ledger.store import Ledger
from tests.scenes import lake, ledgers

pytestmark = pytest.mark.slow

ARCHIVE = pathlib.Path(__file__).resolve().parents[2] / "data" / "state_of_0.2.0" / "state.tar.xz"
PLACE = pathlib.Path("/tmp/dapple-state-of-0.2.0")
"""Where the state was made: ledgers and checkpoints hold absolute paths."""
_SECONDS = 600.0


@pytest.fixture(scope="module")
def _alone():
    """No other process of tests has the place."""
    end = time.monotonic() + _SECONDS
    with open(f"{PLACE}.lock", "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < end, f"another process keeps {PLACE}"
                time.sleep(0.2)
        yield


@pytest.fixture
def state(_alone, monkeypatch):
    """The state, as it was left, but for a setting that jobs are told to leave out now."""
    shutil.rmtree(PLACE, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(PLACE, filter="tar")
    for config in PLACE.rglob("*.yaml"):
        told = config.read_text().replace('"variant": "fast",', "")
        config.write_text(told)
    monkeypatch.chdir(PLACE)
    yield PLACE
    shutil.rmtree(PLACE)


def digests():
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in PLACE.rglob("*") if path.is_file()}


def fit(config, name):
    return lake.run_command("fit", "--config", config, "--output", name, "--run_id", name)


def stream(name):
    words = ("--config", f"{name}/stream.yaml", "--output", str(PLACE / name / "january"), "--once")
    return lake.run_command("stream", *words)


def summary(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out.splitlines()[-1])


BEGUN = (
    "run_id {} was begun by dapple-dp 0.2.0 or older, whose rounds this version cannot continue; "
    "install dapple-dp 0.2.0 and repeat the command to finish it, or {}."
)
FREE, CHARGED = "start over with another --run_id", "choose another run_id, which is charged again"
EPOCH = "begin another epoch under another stream.name"


@pytest.mark.parametrize(
    ("run", "code", "sentence"),
    [
        (lambda: fit("free.yaml", "free"), 2, BEGUN.format("free", FREE)),
        (lambda: fit("charged.yaml", "half"), 3, BEGUN.format("half", CHARGED)),
        (lambda: stream("middle"), 3, BEGUN.format("january-2026-01-03", EPOCH)),
        (
            lambda: lake.run_command(
                "clustered_fl", "--config", "training.yaml", "--output", "trained", "--run_id", "trained"
            ),
            2,
            BEGUN.format("trained", FREE),
        ),
    ],
    ids=["fit", "charged fit", "window", "training"],
)
def test_unfinished_rounds_are_refused_and_left_to_the_version_that_began_them(state, run, code, sentence):
    before = digests()
    for _ in range(2):
        outcome = run()
        assert outcome.code == code, outcome.err
        assert outcome.lines[-1].endswith(sentence)
    assert digests() == before


def test_a_ledger_goes_on(state):
    """Ended runs are complete, runs that never drew continue, unfinished ones are charged, and the limit holds."""
    assert summary(lake.run_command("ledger", "verify", "--ledger", "ledger.sqlite", "--outputs", "whole"))
    runs = summary(lake.run_command("ledger", "show", "--ledger", "ledger.sqlite"))["runs"]
    assert {name: run["state"] for name, run in runs.items()} == {
        "whole": "committed",
        "half": "reserved",
        "reserved": "reserved",
    }
    before = digests()
    whole = fit("charged.yaml", "whole")
    assert (summary(whole)["run_id"], "is complete" in whole.err) == ("whole", True)
    assert digests() == before
    reserved = fit("charged.yaml", "reserved")
    assert "resuming without a further charge" in reserved.err
    assert summary(reserved)["run_id"] == "reserved"
    entries = ledgers.kinds(Ledger("ledger.sqlite"))
    assert entries.count("reserve") == 3
    assert entries[-2:] == ["start", "commit"]
    job = json.loads((state / "charged.yaml").read_text())
    (state / "large.yaml").write_text(json.dumps(job | {"privacy": job["privacy"] | {"epsilon": 6.9}}))
    large = fit("large.yaml", "large")
    assert (large.code, "the budget of census is too small" in large.err) == (3, True)
    summary(fit("charged.yaml", "fourth"))


def test_an_epoch_goes_on_with_its_next_window(state):
    job = json.loads((state / "between" / "stream.yaml").read_text())
    job["stream"]["until"] = "2026-01-03"
    (state / "between" / "stream.yaml").write_text(json.dumps(job))
    old = digests()
    assert summary(stream("between"))["released"] == ["2026-01-03"]
    changed = {path for path, digest in digests().items() if old.get(path, digest) != digest}
    assert changed <= {str(state / "between" / name) for name in ("ledger.sqlite", "january/index.html")}
    kinds = [(each.kind, each.run) for each in Ledger("between/ledger.sqlite").entries()][-3:]
    assert kinds == [(kind, "january-2026-01-03") for kind in ("reserve", "start", "commit")]


def test_a_masked_exchange_goes_on_to_its_result(state):
    """Parties compare plans and bits with those of the round before, so they sum what they would have summed."""
    places = ("--exchange", str(state / "exchange"), "--released", str(state / "released"))
    sent = {path: digest for path, digest in digests().items() if "/exchange/" in path}
    for name in ("north", "south"):
        uploaded = lake.run_command("upload", "--config", f"{name}.yaml", *places, "--client", name)
        assert summary(uploaded)["round"] == 1
    summary(lake.run_command("aggregate", "--config", "aggregate.yaml", *places[:2]))
    result = summary(lake.run_command("unmask", "--config", "north.yaml", *places, "--run_id", "run"))
    assert (result["rounds"], result["output"]) == (2, str(state / "released" / "result"))
    assert sent.items() <= digests().items()


def test_outputs_are_read(state):
    """Jobs that use a model, fits that start from one, and Python read them."""
    data = {"path": str(state / "rows"), "features": ["a", "b"]}
    (state / "use.yaml").write_text(json.dumps({"data": data, "model": "whole"}))
    for job in ("assign", "evaluate"):
        summary(lake.run_command(job, "--config", "use.yaml", "--output", job))
    job = json.loads((state / "free.yaml").read_text()) | {"recurring": {"previous": "whole", "memory": 3}}
    (state / "again.yaml").write_text(json.dumps(job))
    summary(fit("again.yaml", "again"))
    assert (state / "again" / "drift.json").exists()
    model = DPKMeans.load("whole")
    assert model.predict(pa.table({"a": [2.0, 8.0], "b": [2.0, 7.0]})).tolist() in ([0, 1], [1, 0])
    assert DappleModelHandler("whole").load_model() is not None
    summary(lake.run_command("verify", "whole"))


def test_a_pickled_estimator_is_not_read(state):
    """It names modules that are under `dapple_dp` now. docs/upgrades.md says how to save it by 0.2.0 instead."""
    script = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
    words = [sys.executable, "-P", "-c", script, "estimator.pickle"]
    done = subprocess.run(words, cwd=state, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'schemas'\n")
