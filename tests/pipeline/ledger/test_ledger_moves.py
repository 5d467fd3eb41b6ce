"""A ledger that was copied takes no more charges: one data set has one budget, wherever a copy is stopped."""

import contextlib
import json
import os
import signal
import sqlite3

import pytest

from dapple_dp.pipelines.ledger.remaining import Budget
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.ledger_entry import EntryKind
from tests.scenes import crashes, postgres
from tests.scenes.lake import run_command
from tests.scenes.ledgers import Place, basic_limit, charge, kinds, new_ledger


@pytest.fixture(scope="module")
def server():
    found = postgres.started()
    yield found
    found.remove()


@pytest.fixture(params=["file to file", "file to database", "database to file"])
def both(request, tmp_path):
    """A ledger with a charge, and a place without a ledger."""
    here, there = str(tmp_path / "ledger.sqlite"), str(tmp_path / "new.sqlite")
    if "database" in request.param:
        url = request.getfixturevalue("server").database()
        here, there = (here, url) if request.param.endswith("database") else (url, there)
    ledger = Ledger(here)
    ledger.set_limit("census", basic_limit(2.0))
    ledger.reserve("a", charge(1.0), {})
    return ledger, Ledger(there)


def copied(ledger, other):
    return run_command("ledger", "copy", "--ledger", ledger.path, "--to", other.path)


def takes(ledger, run):
    """Returns whether a charge is taken."""
    try:
        ledger.reserve(run, charge(0.5), {})
    except LedgerRefusedError:
        return False
    return True


ASKED = {
    "limit": lambda book: book.set_limit("census", basic_limit(9.0)),
    "new limit": lambda book: book.set_limit("other", basic_limit(9.0)),
    "require": lambda book: book.require_limit("census"),
    "reserve": lambda book: book.reserve("b", charge(0.1), {}),
    "again": lambda book: book.reserve("a", charge(0.1), {}, again=True),
    "take up": lambda book: book.take_up("a"),
    "start": lambda book: book.start("a", {"key": {"key_uri": "k"}}),
    "commit": lambda book: book.commit("a", {}),
    "void": lambda book: book.void("a", "InputError"),
}


def test_a_copied_ledger_refuses_all_that_is_asked_and_names_the_other_one(both):
    ledger, other = both
    before = ledger.entries()
    done = copied(ledger, other)
    assert done.code == 0, done.err
    assert f"{ledger.path} is closed and takes no more charges. Name {other.path} in all jobs." in done.out
    assert "Charged and not complete: a. Resume them with the new ledger." in done.out
    summary = json.loads(done.out.splitlines()[-1])
    assert (summary["entries"], summary["head"]) == (2, before[-1].digest)
    assert other.entries() == before == ledger.entries()[:-1]
    for ask in ASKED.values():
        with pytest.raises(LedgerRefusedError) as error:
            ask(ledger)
        said = f"The ledger {ledger.path} was moved to {other.path} and takes no more entries; name {other.path} in"
        assert str(error.value).startswith(said)
    assert Budget.of(ledger.path, charge(0.1)).refused.startswith(said)
    assert kinds(ledger) == ["limit", "reserve", "moved"]
    other.commit("a", {})
    assert takes(other, "b")


def test_every_way_to_write_is_asked_above():
    """A new method of a ledger that writes is refused after a move as well."""
    writing = {name for name in vars(Ledger) if not name.startswith("_")} - {"path", "folder", "create", "copy_to"}
    reading = {"entries", "status", "windows"}
    assert writing - reading == {"set_limit", "require_limit", "reserve", "take_up", "start", "commit", "void"}


def test_words_say_what_became_of_it(both):
    ledger, other = both
    assert copied(ledger, other).code == 0
    shown = run_command("ledger", "show", "--ledger", ledger.path).out.splitlines()
    assert shown[0] == f"{ledger.path} was moved to {other.path} and is closed; this is what it held then."
    assert json.loads(shown[-1])["moved"] == other.path
    assert "moved" not in json.loads(run_command("ledger", "show", "--ledger", other.path).out.splitlines()[-1])
    assert run_command("ledger", "verify", "--ledger", ledger.path).code == 0
    plan = run_command("ledger", "plan", "--ledger", ledger.path, "--dataset", "census", "--runs", "2")
    assert (plan.code, f"was moved to {other.path}" in plan.err) == (3, True)


def killed_copy(here, there, where, after):
    """A copy that is killed before or after one of both ledgers is on the disk."""
    book, other = Ledger(here), Ledger(there)
    storage = (book if where == "old" else other)._storage
    change = storage.change

    def die(act):
        if after:
            change(act)
        os.kill(os.getpid(), signal.SIGKILL)

    storage.change = die
    book.copy_to(other)


def killed_between(here, there):
    """A copy that is killed when the old ledger is closed and the entries of the new one are not yet for good."""
    book, other = Ledger(here), Ledger(there)
    change = other._storage.change

    def die(act):
        def act_and_die(rows):
            act(rows)
            os.kill(os.getpid(), signal.SIGKILL)

        return change(act_and_die)

    other._storage.change = die
    book.copy_to(other)


@pytest.mark.parametrize(
    ("stop", "closed"),
    [
        ((killed_copy, "new", False), False),
        ((killed_copy, "old", False), False),
        ((killed_copy, "old", True), True),
        ((killed_between,), True),
        ((killed_copy, "new", True), True),
    ],
    ids=["before all", "before it is closed", "when it is closed", "before both", "after both"],
)
def test_wherever_a_copy_is_killed_one_ledger_at_most_takes_charges(both, stop, closed):
    ledger, other = both
    function, *args = stop
    process = crashes.started(function, ledger.path, other.path, *args)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (kinds(ledger)[-1] == "moved") == closed
    taken = [takes(ledger, "old"), takes(other, "new")]
    assert taken == [not closed, stop == (killed_copy, "new", True)]
    done = copied(ledger, other)
    assert done.code == 0, done.err
    assert not takes(ledger, "more")
    assert other.entries()[: len(ledger.entries()) - 1] == ledger.entries()[:-1]
    assert ("old" in {each.run for each in other.entries()}) == taken[0]
    assert copied(ledger, other).code == 0
    assert takes(other, "last")


class BusyLedger(Ledger):
    """A ledger that another job charges as soon as it was read."""

    def entries(self):
        found = super().entries()
        Ledger(self.path).reserve("late", charge(0.5), {})
        return found


def test_a_charge_that_comes_while_it_is_copied_is_copied_or_refused(both):
    ledger, other = both
    BusyLedger(ledger.path).copy_to(other)
    assert other.status("late").state == "reserved"
    assert other.entries() == ledger.entries()[:-1]


def test_a_ledger_goes_to_one_place(both, tmp_path):
    ledger, other = both
    assert copied(ledger, other).code == 0
    refused = copied(ledger, Ledger(str(tmp_path / "third.sqlite")))
    assert (refused.code, f"was moved to {other.path}" in refused.err) == (3, True)
    assert not (tmp_path / "third.sqlite").exists()
    refused = copied(other, ledger)
    assert (refused.code, kinds(other)[-1]) == (3, "reserve")
    assert copied(other, Ledger(str(tmp_path / "third.sqlite"))).code == 0
    refused = copied(ledger, other)
    assert (refused.code, "third.sqlite" in refused.err) == (3, True)


def test_what_takes_no_entries_closes_no_ledger(both, tmp_path):
    ledger, _ = both
    (tmp_path / "one").mkdir()
    used = new_ledger(tmp_path / "one", basic_limit(1.0))
    text = tmp_path / "text"
    text.write_text("no database" * 100)
    with contextlib.closing(sqlite3.connect(Ledger(str(tmp_path / "shut.sqlite")).path)) as connection:
        shut = Ledger(str(tmp_path / "shut.sqlite"))
        shut.create()
        connection.executescript(
            "CREATE TRIGGER shut BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'no more'); END"
        )
    for other in (used, Ledger(str(text)), shut, Ledger(str(tmp_path / "none" / "x.sqlite")), ledger):
        refused = copied(ledger, other)
        assert refused.code in (2, 3), refused.out
        assert kinds(ledger)[-1] == "reserve"
    empty = Ledger(str(tmp_path / "empty.sqlite"))
    empty.create()
    for other in (empty, Ledger(str(tmp_path / "new"))):
        assert "must have entries to copy" in copied(empty, other).err
    assert takes(ledger, "b")


def test_nothing_follows_a_move(both):
    """Whoever appends to a closed ledger, by hand or by a restored program, has changed it."""
    ledger, other = both
    ledger.copy_to(other)
    storage = ledger._storage

    def append(rows):
        from dapple_dp.pipelines.ledger.store import _Book

        _Book(rows).append(EntryKind.RESERVE, "census", "b", {"charge": charge(0.1).to_json()})

    with pytest.raises(LedgerRefusedError, match="got one after the ledger was moved"):
        storage.change(append)


def test_a_job_that_names_the_old_ledger_is_refused_and_goes_on_with_the_new_one(tmp_path):
    place = Place(tmp_path)
    other = str(tmp_path / "new.sqlite")
    assert copied(place.ledger, Ledger(other)).code == 0
    refused = place.fit()
    assert refused.code == 3
    assert refused.lines[-1] == (
        f"dapple: The ledger {place.ledger.path} was moved to {other} and takes no more entries; name {other} in the "
        "job or the command."
    )
    assert not (tmp_path / "out").exists()
    assert place.fit(ledger=other).code == 0
    assert kinds(Ledger(other))[-1] == "commit"


def test_the_same_words_in_another_folder_open_no_second_ledger(tmp_path, monkeypatch):
    """The name that a moved ledger keeps is that of one file, wherever it is read."""
    ledger = new_ledger(tmp_path, basic_limit(2.0))
    for folder, code in (("one", 0), ("two", 3)):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        assert run_command("ledger", "copy", "--ledger", ledger.path, "--to", "new.sqlite").code == code
    assert not (tmp_path / "two" / "new.sqlite").exists()
