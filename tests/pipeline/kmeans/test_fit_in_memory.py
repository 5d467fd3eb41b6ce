"""A fit of rows in memory and its ledger: entries in the order of a job's, and a run that stopped is lost."""

import json
import pathlib
import threading

import numpy as np
import pytest

from dapple_dp.api import DPKMeans
from dapple_dp.pipelines.kmeans import fit_in_memory
from dapple_dp.pipelines.run import in_process
from dapple_dp.schemas.errors import BudgetExceededError, ConfigError, InputError, LedgerRefusedError
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.rounds.memory_rows import Columns
from tests.scenes import lake, ledgers
from tests.scenes.protocol_jobs import settings_of

pytestmark = pytest.mark.filterwarnings("ignore::dapple_dp.schemas.errors.PrivacyWarning")
ROWS = np.random.default_rng(0).normal(size=(600, 2)) + np.repeat([[20.0, 10.0], [60.0, 80.0]], 300, axis=0)


@pytest.fixture
def book(tmp_path):
    return ledgers.new_ledger(tmp_path, ledgers.basic_limit(11.0, 1e-5), "people")


def model(book, **more):
    given = {"epsilon": 5.0, "delta": 1e-6, "domain": (0, 99), "ledger": book.path, "data_name": "people"}
    return DPKMeans(2, **given | more)


def stop(monkeypatch, error, *, after=0):
    """The rounds stop after so many blocks."""
    seen, measure = [], in_process.loop.measure

    def failing(*given):
        seen.append(1)
        if len(seen) > after:
            raise error
        return measure(*given)

    monkeypatch.setattr(in_process.loop, "measure", failing)


def test_key_and_input_are_in_the_ledger_before_noise_is_drawn(book, monkeypatch):
    seen, measure = [], in_process.loop.measure
    monkeypatch.setattr(
        in_process.loop, "measure", lambda *given: seen.append(ledgers.kinds(book)[-1]) or measure(*given)
    )
    for _ in range(2):
        run = model(book).fit(ROWS)._run
    assert set(seen) == {"start"}
    entries = book.entries()[1:]
    assert [each.kind for each in entries] == ["reserve", "start", "commit"] * 2
    assert entries[3].run == entries[4].run == entries[5].run == run.manifest["run_id"]
    first, second = (json.loads(entries[place].content) for place in (1, 4))
    assert second["input"] == run.manifest["input_fingerprint"]
    # Each run has a key of its own, which makes another digest of the same rows.
    assert first["input"] != second["input"]
    assert first["key"]["key_uri"] != second["key"]["key_uri"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError("a fault")])
def test_a_run_that_stopped_is_charged_and_lost(book, tmp_path, monkeypatch, error):
    with monkeypatch.context() as patched:
        stop(patched, error, after=1)
        with pytest.raises(BaseException, match="" if not str(error) else str(error)):
            model(book).fit(ROWS)
    assert ledgers.kinds(book) == ["limit", "reserve", "start"]
    run_id = book.entries()[-1].run
    shown = lake.run_command("ledger", "show", "--ledger", book.path)
    assert shown.code == 0
    assert "lost; charged, and nothing resumes a run in memory, unless its process still runs" in shown.out + shown.err
    summary = json.loads(shown.out.splitlines()[-1])
    assert summary["runs"][run_id]["state"] == "lost"
    assert summary["datasets"]["people"]["spent"]["epsilon"] == pytest.approx(5.0, rel=0.01)
    model(book).fit(ROWS)
    with pytest.raises(BudgetExceededError):
        model(book).fit(ROWS)
    # A job that asks for its id does not go on with it.
    np.save(tmp_path / "unused.npy", ROWS)
    job = lake.job(lake.write_lake(tmp_path / "lake", lake.mixture(200), n_files=1), None) | {"ledger": book.path}
    job["data"]["name"] = "people"
    (tmp_path / "job.json").write_text(json.dumps(job))
    words = ("--config", str(tmp_path / "job.json"), "--output", str(tmp_path / "out"), "--run_id", run_id)
    refused = lake.run_command("fit", *words)
    assert (refused.code, "was reserved with another config" in refused.err) == (3, True), refused.err


def test_the_ledger_refuses_before_rows_become_blocks(book, monkeypatch):
    model(book).fit(ROWS)
    model(book).fit(ROWS)
    monkeypatch.setattr(in_process, "MemoryRows", lambda *_: pytest.fail("rows were looked at"))
    with pytest.raises(BudgetExceededError, match="people"):
        model(book).fit(ROWS)
    assert ledgers.kinds(book)[-1] == "commit"


def test_rows_that_cannot_be_used_cost_nothing(book):
    with pytest.raises(InputError, match="server_data must be public and no copy of X, got the rows of X"):
        model(book).fit(ROWS, server_data=ROWS.copy())
    assert ledgers.kinds(book) == ["limit", "reserve", "void"]


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("", "key_uri", "/keys/key"),
        ("data", "max_rows_per_client", 3),
        ("", "recurring", {"previous": "/runs/first"}),
        ("", "trust", "masked"),
    ],
)
def test_what_needs_files_or_others_is_refused_by_name(section, name, value):
    job = lake.job("X", None, "client", **settings_of("dp_lloyd"))
    job["clipping"] |= {"client_rows": 4}
    (job[section] if section else job)[name] = value
    if name == "trust":
        job["masked"] = {"scheme": "pairwise", "threshold": 2}
    setting = f"{section}.{name}".lstrip(".")
    with pytest.raises(ConfigError, match=f"^{setting} is not available for rows in memory"):
        fit_in_memory.fit_in_memory(validated(job), Columns(ROWS), None, "run")


def test_rows_that_change_while_rounds_run_change_nothing(book, monkeypatch):
    """The fingerprint of the input is that of what all rounds have read."""
    rows, measure = ROWS.copy(), in_process.loop.measure

    def writing(round_, block, state):
        rows[:] = 0.0
        return measure(round_, block, state)

    monkeypatch.setattr(in_process.loop, "measure", writing)
    monkeypatch.setattr(fit_in_memory.run_keys, "memory_key", lambda: in_process.RunKey(lake.KEY))
    changed = model(book, ledger=None).fit(rows)
    monkeypatch.setattr(in_process.loop, "measure", measure)
    monkeypatch.setattr(fit_in_memory.run_keys, "memory_key", lambda: in_process.RunKey(lake.KEY))
    np.testing.assert_array_equal(changed.cluster_centers_, model(book, ledger=None).fit(ROWS).cluster_centers_)


def test_a_ledger_that_goes_while_a_fit_is_planned_lets_no_noise_be_drawn(book, monkeypatch):
    """A new file in its place would know no limit and no reservation."""
    drawn, make = [], fit_in_memory.run_keys.memory_key

    def gone():
        pathlib.Path(book.path).unlink()
        return make()

    monkeypatch.setattr(fit_in_memory.run_keys, "memory_key", gone)
    monkeypatch.setattr(in_process.loop, "measure", lambda *given: drawn.append(given))
    with pytest.raises(LedgerRefusedError):
        model(book).fit(ROWS)
    assert drawn == []


def test_fits_at_the_same_time_share_one_limit(book):
    """Two fits of epsilon 5 fit into 11, in as many threads as there are."""
    refused, done = [], []

    def fit():
        try:
            done.append(model(book).fit(ROWS))
        except BudgetExceededError as error:
            refused.append(error)

    threads = [threading.Thread(target=fit) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    spent = [each.kind for each in book.entries()].count("commit")
    assert (spent, len(refused)) == (len(done), 4 - len(done))
    assert 1 <= len(done) < 4
    assert len({each.cluster_centers_.tobytes() for each in done}) == len(done)


def test_what_fails_after_noise_was_drawn_stays_charged(book, monkeypatch):
    monkeypatch.setattr(fit_in_memory, "model_from_tables", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        model(book, epsilon=9.0).fit(ROWS)
    monkeypatch.undo()
    with pytest.raises(BudgetExceededError):
        model(book, epsilon=9.0).fit(ROWS)
