"""The ledger's file: states, many writers at once, and the commands."""

import csv
import dataclasses
import json
import os
import stat

import pytest

from dapple_dp.pipelines.ledger.remaining import remaining
from dapple_dp.pipelines.ledger.spending import left_words
from dapple_dp.pipelines.ledger.store import Ledger, charges_of
from dapple_dp.schemas.errors import BudgetExceededError, ConfigError, LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Charge, Limit
from tests.scenes import crashes
from tests.scenes.lake import run_command
from tests.scenes.ledgers import basic_limit, charge, gaussian, kinds, new_ledger

N_WRITERS, N_FIT = 100, 60


@pytest.fixture
def ledger(tmp_path):
    return new_ledger(tmp_path, basic_limit(2.0))


def words(ledger, *more):
    return ("ledger", more[0], "--ledger", ledger.path, *more[1:])


def test_reserved_and_committed_runs_count_and_void_ones_do_not(ledger):
    for run in ("a", "b"):
        ledger.reserve(run, charge(1.0), {})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("c", charge(1.0), {})
    ledger.commit("a", {})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("c", charge(1.0), {})
    ledger.void("b", "InputError")
    ledger.reserve("c", charge(1.0), {})
    states = {run: ledger.status(run).state for run in "abc"}
    assert states == {"a": "committed", "b": "void", "c": "reserved"}


def test_a_report_says_what_the_ledger_leaves(tmp_path):
    """Reserved and committed runs count; what is left is the limit without what `ledger show` calls spent."""
    ledger = new_ledger(tmp_path, basic_limit(2.0, 1e-6))
    ledger.reserve("a", charge(0.5, 1e-7), {})
    ledger.reserve("b", charge(0.25, 1e-7), {})
    ledger.commit("a", {})
    left = remaining(ledger.path, "census")
    assert left == pytest.approx((1.25, 8e-7))
    assert left_words(ledger.path, left) == "epsilon 1.25, delta 8e-07 after this run, as the ledger composes"


def test_a_ledger_that_cannot_be_read_does_not_cost_the_report(tmp_path, caplog):
    assert remaining(None, "census") is None
    assert remaining(str(tmp_path / "none.sqlite"), "census") is None
    assert remaining(new_ledger(tmp_path, basic_limit(2.0)).path, "other") is None
    assert caplog.text.count("what is left of the budget") == 2
    assert left_words(None, None) == "no ledger"
    assert "dapple ledger show" in left_words("ledger.sqlite", None)


@pytest.mark.parametrize("state", ["reserved", "committed"])
def test_an_id_is_charged_once(ledger, state):
    ledger.reserve("a", charge(0.1), {})
    if state == "committed":
        ledger.commit("a", {})
    with pytest.raises(LedgerRefusedError, match="choose another run_id"):
        ledger.reserve("a", charge(0.1), {})
    assert ledger.reserve("a", charge(0.1), {}, again=True) == "a~2"
    assert ledger.reserve("a", charge(0.1), {}, again=True) == "a~3"


def test_a_void_id_may_be_used_again(ledger):
    ledger.reserve("a", charge(2.0), {})
    ledger.void("a", "InputError")
    ledger.reserve("a", charge(2.0), {})
    assert kinds(ledger) == ["limit", "reserve", "void", "reserve"]


@pytest.mark.parametrize("end", ["commit", "void"])
def test_a_run_ends_once(ledger, end):
    for state in ("unknown", "committed"):
        with pytest.raises(LedgerRefusedError, match="choose another run_id"):
            getattr(ledger, end)("a", {} if end == "commit" else "why")
        if state == "unknown":
            ledger.reserve("a", charge(1.0), {})
            ledger.commit("a", {})


def test_a_run_draws_from_one_key_and_one_input(ledger):
    ledger.reserve("a", charge(1.0), {})
    for _ in range(2):
        ledger.start("a", {"key": {"key_uri": "k"}, "input": "i"})
    assert kinds(ledger) == ["limit", "reserve", "start"]
    with pytest.raises(LedgerRefusedError, match="must be resumed with the same input"):
        ledger.start("a", {"key": {"key_uri": "k"}, "input": "j"})
    ledger.commit("a", {})
    with pytest.raises(LedgerRefusedError, match="must be reserved to draw noise"):
        ledger.start("a", {"key": {"key_uri": "k"}, "input": "i"})


def test_a_limit_is_needed_and_the_last_one_counts(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    with pytest.raises(LedgerRefusedError, match="no ledger at "):
        ledger.reserve("a", charge(1.0), {})
    assert not os.path.exists(ledger.path)
    ledger.set_limit("other", basic_limit(5.0))
    with pytest.raises(LedgerRefusedError, match=r"data.name must be a data set with a limit, got census"):
        ledger.reserve("a", charge(1.0), {})
    ledger.set_limit("census", basic_limit(0.5))
    with pytest.raises(BudgetExceededError):
        ledger.reserve("a", charge(1.0), {})
    ledger.set_limit("census", basic_limit(1.0))
    ledger.reserve("a", charge(1.0), {})


def test_data_sets_have_budgets_of_their_own(ledger):
    ledger.set_limit("other", basic_limit(1.0))
    ledger.reserve("a", charge(2.0), {})
    ledger.reserve("b", charge(1.0, dataset="other"), {})


def test_one_file_is_one_ledger_however_it_is_spelled(ledger, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    spellings = ["ledger.sqlite", "./ledger.sqlite", str(tmp_path / "link" / "ledger.sqlite"), f"file://{ledger.path}"]
    for number, path in enumerate(spellings):
        Ledger(path).reserve(str(number), charge(0.5), {})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("more", charge(0.1), {})


def test_the_file_is_its_owners(ledger):
    assert stat.S_IMODE(os.stat(ledger.path).st_mode) == 0o600


def test_a_file_that_is_not_a_ledger_is_refused(tmp_path):
    (tmp_path / "text").write_text("no database, but long enough to be taken for one" * 50)
    with pytest.raises(LedgerRefusedError, match="could not be read or written"):
        Ledger(str(tmp_path / "text")).entries()
    with pytest.raises(ConfigError, match="ledger must be a file on a local disk"):
        Ledger("gs://bucket/ledger.sqlite")
    with pytest.raises(ConfigError, match="could not be created"):
        Ledger(str(tmp_path / "none" / "ledger")).set_limit("census", basic_limit(1.0))


def test_a_writer_that_was_killed_half_way_left_nothing(ledger):
    def fail(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dapple_dp.pipelines.ledger.store.run_states", fail)
        with pytest.raises(KeyboardInterrupt):
            ledger.reserve("a", charge(1.0), {})
    assert kinds(ledger) == ["limit"]


def _reserve(path, run):
    """The body of a writer: 0 if it was charged, 3 if refused."""
    try:
        Ledger(path).reserve(run, charge(0.25), {})
    except BudgetExceededError as error:
        os._exit(error.exit_code)
    os._exit(0)


@pytest.mark.slow
def test_a_hundred_writers_at_once_lose_nothing_and_pass_no_limit(tmp_path):
    ledger = new_ledger(tmp_path, basic_limit(0.25 * N_FIT))
    writers = [crashes.started(_reserve, ledger.path, f"run{number}") for number in range(N_WRITERS)]
    for writer in writers:
        writer.join(1200)
    codes = [writer.exitcode for writer in writers]
    assert (codes.count(0), codes.count(3)) == (N_FIT, N_WRITERS - N_FIT)
    charged = {entry.run for entry in ledger.entries() if entry.kind == "reserve"}
    assert charged == {f"run{number}" for number, code in enumerate(codes) if code == 0}
    assert sum(each.epsilon for each in charges_of(ledger.entries(), "census")) == 0.25 * N_FIT


def test_a_limit_says_how_many_runs_fit(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    limit = ("limit", "--dataset", "census", "--epsilon", "4", "--delta", "1e-5")
    (told, summary) = run_command(*words(ledger, *limit)).out.splitlines()
    runs = [each["runs"] for each in json.loads(summary)["runs"]]
    assert sorted(runs, reverse=True) == runs
    assert told == (
        "census: room for this many runs of one Gaussian release, delta 1e-06 each: "
        f"{runs[0]:,} at epsilon 0.1, {runs[1]:,} at epsilon 0.5, {runs[2]:,} at epsilon 1, {runs[3]:,} at epsilon 3"
    )
    ledger.reserve("a", gaussian(5.0, epsilon=0.75, delta=1e-6), {})
    (_, told, summary) = run_command(*words(ledger, *limit)).out.splitlines()
    more = json.loads(summary)["runs"][-1]["runs"]
    assert told == f"census: room for {more:,} more runs like the last one, test with epsilon 0.75"
    for index in range(more):
        ledger.reserve(f"b{index}", gaussian(5.0, epsilon=0.75, delta=1e-6), {})
    with pytest.raises(BudgetExceededError):
        ledger.reserve("c", gaussian(5.0, epsilon=0.75, delta=1e-6), {})


def test_limit_show_verify_and_export(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    limit = ("limit", "--dataset", "census", "--epsilon", "2", "--delta", "1e-6", "--basic_epsilon", "0.5")
    *told, summary = run_command(*words(ledger, *limit, "--basic_delta", "1e-7")).out.splitlines()
    assert json.loads(summary)["epsilon"] == 2.0
    assert [each.split(":")[0] for each in told] == ["census"]
    assert ledger.require_limit("census") == Limit(epsilon=2.0, delta=1e-6, basic_epsilon=0.5, basic_delta=1e-7)
    ledger.reserve("a", gaussian(5.0), {})
    ledger.reserve("b", charge(0.5), {})
    ledger.commit("b", {})
    shown = run_command(*words(ledger, "show")).out.splitlines()
    assert shown[0].startswith("census: epsilon 1.3")
    assert "of 2 spent, stated at delta 9e-07 of 1e-06" in shown[0]
    found = json.loads(shown[-1])
    assert {run: each["state"] for run, each in found["runs"].items()} == {"a": "reserved", "b": "committed"}
    assert 1.3 < found["datasets"]["census"]["spent"]["epsilon"] < 1.4
    verified = json.loads(run_command(*words(ledger, "verify")).out)
    assert verified == {"entries": 4, "head": ledger.entries()[-1].digest, "verified": True}
    lines = run_command(*words(ledger, "export")).out.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == kinds(ledger)
    out = str(tmp_path / "ledger.csv")
    assert run_command(*words(ledger, "export", "--format", "csv", "--output", out)).code == 0
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["digest"] for row in rows] == [entry.digest for entry in ledger.entries()]


def _sums(path, width, **more):
    named = {"path": path, "mechanism": "discrete_gaussian", "sensitivity_lattice": 1 << 26, "shape": [3, width]}
    return named | {"noise_multiplier": 5.0} | more


@pytest.mark.parametrize(
    ("event", "known", "told"),
    [
        (_sums("dp_lloyd/lloyd_00/sums", 1025), 0, "its epsilon is too small: a row changed"),
        (_sums("windows/window/weighted_sums", 1536), 0, "its epsilon is too small: a row changed"),
        (_sums("dp_lloyd/mean/sums", 4097), 0, "its epsilon is too small: a row changed"),
        (_sums("dp_lloyd/mean/sums", 4096), 0, "too small if centers could lie far"),
        (_sums("dp_lloyd/lloyd_00/sums", 1024), 0, "too small if centers could lie far"),
        (_sums("dp_lloyd/lloyd_00/sums", 1025), 1, None),
        (_sums("lloyd/step_00/sums", 1025, sensitivity_lattice=1 << 20), 0, None),
        (_sums("dp_lloyd/lloyd_00/sums", 8192, mechanism="discrete_laplace"), 0, None),
    ],
)
def test_show_names_runs_whose_epsilon_was_wrong(event, known, told, tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.set_limit("census", Limit(epsilon=3.0, delta=1e-6, basic_epsilon=1.5))
    given = dataclasses.replace(gaussian(5.0), events=(event,), corrections=known)
    ledger.reserve("a", given, {})
    *lines, summary = run_command(*words(ledger, "show")).out.splitlines()
    found = json.loads(summary)["runs"]["a"].get("correction")
    assert (found is None) == (told is None)
    line = next(each for each in lines if each.startswith("  a: "))
    assert (found or "") in line
    assert (told or "") in line


OLD, NEW = {"versions": {"dapple-dp": "0.2.0"}}, {"versions": {"dapple-dp": "0.3.0"}}


@pytest.mark.parametrize(
    ("path", "job", "about", "known", "words"),
    [
        ("spherical/names/terms", "fit", OLD, 1, ["names of clusters", "tree_", "sure"]),
        ("dp_medians/median_00/directions", "fit", OLD, 1, ["center_stddev", "could not see", "tree_", "sure"]),
        ("dp_lloyd/lloyd_00/sums", "fit", OLD, 1, ["eigenvectors", "could not see", "tree_", "sure"]),
        ("dp_lloyd/lloyd_00/sums", "fit", {}, 1, ["eigenvectors", "could not see", "tree_", "sure"]),
        ("dp_lloyd/lloyd_00/sums", "fit", OLD, 2, []),
        ("dp_lloyd/lloyd_00/sums", "fit", NEW, 1, []),
        ("x", "sweep", OLD, 1, []),
    ],
)
def test_show_names_runs_whose_statements_were_wrong(path, job, about, known, words, tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.set_limit("census", Limit(epsilon=9.0, delta=1e-6, basic_epsilon=9.0))
    event = {"path": path, "mechanism": "discrete_gaussian", "noise_multiplier": 5.0, "shape": [2, 2]}
    for run in ("a", "b"):
        ledger.reserve(run, dataclasses.replace(gaussian(5.0, job=job, corrections=known), events=(event,)), about)
    *lines, summary = run_command("ledger", "show", "--ledger", ledger.path).out.splitlines()
    found = json.loads(summary)["runs"]["a"].get("wrong_statements", [])
    assert len(found) == len(words)
    assert all(word in each for word, each in zip(words, found, strict=True))
    start = lines.index("Wrong in outputs of earlier versions; see CHANGELOG.md:") if words else len(lines)
    assert lines[start + 1 :] == [f"  {each} (a, b)" for each in found]


def test_clients_that_add_the_noise_and_void_runs(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.set_limit("census", Limit(epsilon=9.0, delta=1e-6, basic_epsilon=9.0))
    for run in ("a", "b"):
        ledger.reserve(run, gaussian(5.0, neighboring_relation="zeroed_out", corrections=1), OLD)
    ledger.void("b", "stopped")
    runs = json.loads(run_command("ledger", "show", "--ledger", ledger.path).out.splitlines()[-1])["runs"]
    assert runs["a"]["wrong_statements"] == ["report and deployment.yaml: clients add the noise, not the aggregator"]
    assert "wrong_statements" not in runs["b"]


def test_charges_of_versions_that_knew_no_correction_are_read():
    content = gaussian(5.0).to_json()
    del content["corrections"]
    assert Charge.from_json(content).corrections == 0
    assert gaussian(5.0).corrections == 2


def test_verify_knows_a_ledger_that_was_started_over(ledger, tmp_path):
    head = json.loads(run_command(*words(ledger, "verify")).out)["head"]
    ledger.reserve("a", charge(1.0), {})
    assert run_command(*words(ledger, "verify", "--head", head)).code == 0
    (tmp_path / "new").mkdir()
    other = new_ledger(tmp_path / "new", basic_limit(3.0))
    outcome = run_command(*words(other, "verify", "--head", head))
    assert outcome.code == 3
    assert "it was replaced or cut since" in outcome.err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["show"], "the command line must be `dapple ledger limit|show|plan|verify|export|copy --ledger FILE`"),
        (["limit", "--ledger", "F"], "the following arguments are required"),
        (["shw", "--ledger", "F"], "No such command 'shw'"),
        (["show", "--ledger", "F", "--datset", "x"], "No such option '--datset'"),
        (["limit", "--ledger", "F", "--dataset", "x", "--epsilon", "0", "--delta", "1e-6"], "--epsilon must be"),
        (["limit", "--ledger", "F", "--dataset", "x", "--epsilon", "inf", "--delta", "1e-6"], "--epsilon must be"),
        (["limit", "--ledger", "F", "--dataset", "x", "--epsilon", "1", "--delta", "1"], "--delta must be"),
        (["limit", "--ledger", "F", "--dataset", "", "--epsilon", "1", "--delta", "0.1"], "--dataset must be"),
        (
            ["limit", "--ledger", "F", "--dataset", "x", "--epsilon", "1", "--delta", "0.1", "--basic_epsilon", "2"],
            "must be parts of the limit",
        ),
    ],
)
def test_wrong_words_are_refused(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = run_command("ledger", *given)
    assert outcome.code == 2
    assert message in outcome.err
    assert not list(tmp_path.iterdir())
