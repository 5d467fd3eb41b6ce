"""Whatever is changed in a ledger is seen."""

import shutil
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.ledger_entry import COLUMNS
from tests.scenes.ledgers import basic_limit, charge, new_ledger

N_ENTRIES = 8
SEEN = "of the ledger (was changed after it was written|must )|the ledger must end with entry"
VALUES = st.one_of(st.text(max_size=5), st.integers(-5, 20), st.binary(max_size=4), st.just("0" * 64))
FEW = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A ledger with every kind of entry; two runs are alike, so that swaps are recognized by order alone."""
    folder = tmp_path_factory.mktemp("chain")
    ledger = new_ledger(folder, basic_limit(10.0))
    for run in ("a", "b"):
        ledger.reserve(run, charge(1.0), {"code": "c"})
        ledger.start(run, {"input": "i"})
    ledger.commit("a", {"manifest": "m"})
    ledger.void("b", "InputError")
    ledger.reserve("b", charge(1.0), {"code": "c"})
    assert len(ledger.entries()) == N_ENTRIES
    return ledger.path


def tampered(whole, *statements):
    """A copy of the ledger that someone changed, triggers and all."""
    path = f"{whole}.copy"
    shutil.copy(whole, path)
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("DROP TRIGGER entries_stay")
        connection.execute("DROP TRIGGER entries_remain")
        connection.execute("CREATE TABLE before AS SELECT * FROM entries")
        for statement, values in statements:
            connection.execute(statement, values)
        changed = connection.execute(
            "SELECT (SELECT count(*) FROM (SELECT * FROM entries EXCEPT SELECT * FROM before)) + "
            "(SELECT count(*) FROM (SELECT * FROM before EXCEPT SELECT * FROM entries))"
        ).fetchone()[0]
    connection.close()
    return Ledger(path), changed > 0


@FEW
@given(row=st.integers(1, N_ENTRIES), column=st.sampled_from(COLUMNS), value=VALUES)
def test_an_edited_cell_is_seen(whole, row, column, value):
    try:
        ledger, changed = tampered(whole, (f"UPDATE entries SET {column} = ? WHERE sequence = ?", (value, row)))
    except sqlite3.IntegrityError:
        return
    if changed:
        with pytest.raises(LedgerRefusedError, match=SEEN):
            ledger.entries()


@pytest.mark.parametrize("row", range(1, N_ENTRIES + 1))
@pytest.mark.parametrize("close_the_gap", [False, True])
def test_a_removed_entry_is_seen(whole, row, close_the_gap):
    statements = [("DELETE FROM entries WHERE sequence = ?", (row,))]
    if close_the_gap:
        statements += [
            ("UPDATE entries SET sequence = -sequence WHERE sequence > ?", (row,)),
            ("UPDATE entries SET sequence = -sequence - 1 WHERE sequence < 0", ()),
        ]
    with pytest.raises(LedgerRefusedError, match=SEEN):
        tampered(whole, *statements)[0].entries()


@FEW
@given(rows=st.lists(st.integers(1, N_ENTRIES), min_size=2, max_size=2, unique=True))
def test_entries_that_change_places_are_seen(whole, rows):
    first, second = rows
    statements = [
        ("UPDATE entries SET sequence = -1 WHERE sequence = ?", (first,)),
        ("UPDATE entries SET sequence = ? WHERE sequence = ?", (first, second)),
        ("UPDATE entries SET sequence = ? WHERE sequence = -1", (second,)),
    ]
    with pytest.raises(LedgerRefusedError, match=SEEN):
        tampered(whole, *statements)[0].entries()


def test_an_added_entry_and_another_head_are_seen(whole):
    copied = "INSERT INTO entries SELECT 9, time, kind, dataset, run, content, previous, digest FROM entries LIMIT 1"
    for statement in (copied, "UPDATE head SET length = 7", "UPDATE head SET digest = 'x'", "DELETE FROM head"):
        with pytest.raises(LedgerRefusedError, match=SEEN):
            tampered(whole, (statement, ()))[0].entries()


def test_nothing_is_charged_to_a_changed_ledger(whole):
    ledger, _ = tampered(whole, ("UPDATE entries SET content = '{}' WHERE sequence = 2", ()))
    with pytest.raises(LedgerRefusedError, match="entry 2 of the ledger was changed after it was written"):
        ledger.reserve("c", charge(0.1), {})


def test_sqlite_itself_refuses_to_change_entries(whole):
    with sqlite3.connect(whole) as connection:
        for statement in ("UPDATE entries SET run = 'x'", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
    connection.close()


def test_a_copy_that_was_left_alone_is_accepted(whole):
    assert len(tampered(whole)[0].entries()) == N_ENTRIES
