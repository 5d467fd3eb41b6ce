"""A budget from Python is the one that the command has, and an estimator with it stays an estimator."""

import json
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from dapple_dp import BudgetExceededError, ConfigError, DPKMeans, Ledger, LedgerRefusedError, PrivacyWarning
from tests.scenes import lake


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).uniform(-1, 1, (400, 2))


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "budget.sqlite").limit("visits", epsilon=3, delta=1e-5)


def model(ledger, epsilon=1.0):
    return DPKMeans(2, epsilon=epsilon, delta=1e-6, domain=(-1, 1), ledger=ledger, data_name="visits")


def fitted(ledger, rows, epsilon=1.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return model(ledger, epsilon).fit(rows)


def shown(ledger):
    outcome = lake.run_command("ledger", "show", "--ledger", ledger.path)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out.splitlines()[-1])


def test_a_fit_is_charged_and_the_command_says_the_same(ledger, rows):
    assert ledger.remaining("visits") == (3.0, 1e-5)
    fitted(ledger, rows)
    fitted(ledger, rows)
    found = shown(ledger)
    assert len(found["runs"]) == 2
    spent = found["datasets"]["visits"]["spent"]["epsilon"]
    # Two Gaussian runs compose: less than their sum, at another delta than theirs.
    assert 0.0 < spent < 2.0
    assert ledger.remaining("visits").epsilon == 3.0 - spent


def test_a_larger_run_than_what_is_left_may_fit(ledger, rows):
    while ledger.remaining("visits").epsilon >= 1.0:
        fitted(ledger, rows)
    before = len(shown(ledger)["runs"])
    fitted(ledger, rows)
    assert before > 3
    assert len(shown(ledger)["runs"]) == before + 1


def test_a_fit_without_a_budget_or_a_cut_loads_neither():
    script = (
        "import sys, numpy as np\nfrom dapple_dp import DPKMeans\n"
        "DPKMeans(2, epsilon=1.0, delta=1e-6, domain=(-1, 1)).fit(np.zeros((9, 2)))\n"
        "print([name for name in sys.modules if name.endswith(('estimator.cut', 'estimator.ledger', 'ledger.store'))])"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_command_sets_a_limit_that_python_sees(tmp_path, rows):
    place = str(tmp_path / "budget.sqlite")
    words = ("--dataset", "visits", "--epsilon", "0.5", "--delta", "1e-6")
    assert lake.run_command("ledger", "limit", "--ledger", place, *words).code == 0
    assert Ledger(place).remaining("visits") == (0.5, 1e-6)
    with pytest.raises(BudgetExceededError, match=r"fits up to epsilon 0\.4\d+"):
        model(Ledger(place)).fit(rows)


def test_the_last_limit_counts_and_past_runs_stay_spent(ledger, rows):
    fitted(ledger, rows)
    before = ledger.remaining("visits").epsilon
    assert ledger.limit("visits", epsilon=4, delta=1e-5).remaining("visits").epsilon == pytest.approx(before + 1.0)
    assert ledger.limit("visits", epsilon=0.1, delta=1e-5).remaining("visits").epsilon == 0.0


@pytest.mark.parametrize("place", [str, Ledger])
def test_a_path_and_a_ledger_are_one_budget(ledger, rows, place):
    fitted(place(ledger.path), rows)
    assert len(shown(ledger)["runs"]) == 1


def test_clones_copies_and_parameters(ledger):
    estimator = model(ledger)
    assert estimator.get_params()["ledger"] is ledger
    assert clone(estimator).ledger == ledger
    assert pickle.loads(pickle.dumps(estimator)).ledger == ledger
    assert model(None).set_params(ledger=ledger).ledger is ledger


def test_a_pickle_holds_the_path_alone(ledger):
    assert vars(pickle.loads(pickle.dumps(ledger))) == {"path": ledger.path}
    assert b"sqlite3" not in pickle.dumps(ledger)


def test_what_is_shown(tmp_path, rows):
    ledger = Ledger(tmp_path / "<b>.sqlite").limit("a<i>\n", epsilon=3, delta=1e-5)
    # What an estimator prints must not open a file or a connection.
    assert repr(Ledger("nowhere.sqlite")) == "Ledger('nowhere.sqlite')"
    assert str(ledger).splitlines()[1:] == ["a<i>\\n: epsilon 3 of 3 left, at delta 1e-05; runs: 0"]
    page = ledger._repr_html_()
    assert "a&lt;i&gt;\\n" in page
    assert not {"<i>", "<b>"} & set(re.findall("<.*?>", page))
    assert "set a limit with Ledger.limit" in Ledger(tmp_path / "none.sqlite")._repr_html_()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0}, "epsilon must be a finite number > 0, got 0"),
        ({"epsilon": float("inf")}, "epsilon must be a finite number"),
        ({"epsilon": float("nan")}, "epsilon must be a finite number"),
        ({"epsilon": "3"}, "epsilon must be a number, got '3'"),
        ({"epsilon": True}, "epsilon must be a number, got True"),
        ({"delta": 1}, "delta must be strictly between 0 and 1"),
        ({"unit": "patient"}, "unit must be 'record' or 'client', got 'patient'"),
        ({"name": ""}, "name must be the name of a data set"),
    ],
)
def test_wrong_limits_are_refused_and_make_no_file(tmp_path, given, message):
    place = tmp_path / "budget.sqlite"
    words = {"name": "visits", "epsilon": 3, "delta": 1e-5} | given
    with pytest.raises(ConfigError, match=message):
        Ledger(place).limit(words.pop("name"), **words)
    assert not place.exists()


@pytest.mark.parametrize("place", [None, 7, b"budget.sqlite", ""])
def test_what_names_no_place_is_refused(place):
    with pytest.raises(ConfigError, match="path must be a path"):
        Ledger(place)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="without a password") as error:
        Ledger("postgresql://me:secret@db/privacy")
    assert "secret" not in str(error.value)


def test_a_missing_budget_says_what_to_call(ledger, tmp_path, rows):
    with pytest.raises(LedgerRefusedError, match=r"no limit for 'other', only for: 'visits'; set one with limit\("):
        ledger.remaining("other")
    with pytest.raises(LedgerRefusedError, match=r"set a limit with Ledger\.limit first"):
        Ledger(tmp_path / "none.sqlite").remaining("visits")
    with pytest.raises(LedgerRefusedError, match=r"data_name must be .* set one with Ledger\.limit"):
        model(ledger).set_params(data_name="other").fit(rows)
