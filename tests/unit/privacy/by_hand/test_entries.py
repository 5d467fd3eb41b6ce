"""Entries of a ledger by hand: which may follow which, and what their digests cover; and what a curator may say."""

import dataclasses

import pydantic
import pytest

from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError
from dapple_dp.schemas.privacy import ledger_entry
from dapple_dp.schemas.privacy.charge import canonical
from dapple_dp.schemas.privacy.curator import DeploymentConfig, SettingName, check_justified
from dapple_dp.schemas.privacy.ledger_entry import CHAIN_START, EntryKind, LedgerEntry, check_chain, run_states
from tests.scenes.ledgers import gaussian


def entries_of(*kinds, run="run", start=CHAIN_START, content=None):
    found, previous = [], start
    for number, kind in enumerate(kinds, start=1):
        body = {"releases": "r"} if kind == "commit" and content is None else content or {}
        entry = LedgerEntry(
            sequence=number,
            time="2026-01-01T00:00:00Z",
            kind=kind,
            dataset="census",
            run=run,
            content=canonical(body),
            previous=previous,
        ).sealed()
        found, previous = [*found, entry], entry.digest
    return found, previous


def test_a_chain_is_checked_at_every_entry():
    entries, head = entries_of("limit", "reserve", "start", "commit")
    check_chain(entries, 4, head)
    assert len(head) == 64
    for length, end in [(3, head), (4, entries[2].digest), (5, head)]:
        with pytest.raises(LedgerRefusedError, match="must end with entry"):
            check_chain(entries, length, end)
    for place in range(4):
        for change in (
            {"dataset": "other"},
            {"sequence": 9},
            {"previous": "0" * 64},
            {"time": "1"},
            {"content": "{} "},
        ):
            changed = [*entries]
            changed[place] = dataclasses.replace(entries[place], **change)
            if changed[place] == entries[place]:
                continue
            with pytest.raises(
                LedgerRefusedError, match=f"entry {place + 1} of the ledger was changed after it was written"
            ):
                check_chain(changed, 4, head)
    numbers, head = entries_of("reserve")
    odd = dataclasses.replace(numbers[0], run=7).sealed()
    assert not odd.is_text
    with pytest.raises(LedgerRefusedError, match="entry 1 of the ledger was changed after it was written"):
        check_chain([odd], 1, odd.digest)
    check_chain([], 0, CHAIN_START)
    assert CHAIN_START == "0" * 64


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        (("reserve",), "reserved"),
        (("reserve", "start"), "reserved"),
        (("reserve", "start", "commit"), "committed"),
        (("reserve", "commit", "commit"), "committed"),
        (("reserve", "void", "reserve"), "reserved"),
        (("reserve", "start", "void"), "void"),
    ],
)
def test_entries_that_may_follow(kinds, state):
    (status,) = run_states(entries_of(*kinds)[0]).values()
    assert (status.state, status.kind) == (state, EntryKind(kinds[-1]))
    assert (status.started is not None) is ("start" in kinds)
    assert status.release == ("r" if state == "committed" else None)
    assert status.word == state
    (held,) = run_states(entries_of(*kinds, content={"releases": "r", ledger_entry.IN_MEMORY: True})[0]).values()
    assert held.word == ("lost" if state == "reserved" else state)


@pytest.mark.parametrize(
    "kinds",
    [
        ("start",), ("commit",), ("void",), ("reserve", "reserve"), ("reserve", "start", "start"),
        ("reserve", "start", "reserve"), ("reserve", "void", "start"), ("reserve", "void", "commit"),
        ("reserve", "commit", "start"), ("reserve", "commit", "void"), ("reserve", "commit", "reserve"),
    ],
)  # fmt: skip
def test_entries_that_may_not_follow(kinds):
    with pytest.raises(LedgerRefusedError, match=f"entry {len(kinds)} of the ledger must not be {kinds[-1]} for run "):
        run_states(entries_of(*kinds)[0])
    entries, head = entries_of(*kinds)
    with pytest.raises(LedgerRefusedError, match="must not be"):
        check_chain(entries, len(kinds), head)


def test_another_release_of_a_committed_run_is_refused():
    entries, head = entries_of("reserve", "commit")
    other = LedgerEntry(
        sequence=3, time="", kind="commit", dataset="census", run="run", content='{"releases":"s"}', previous=head
    ).sealed()
    with pytest.raises(LedgerRefusedError, match="must not be commit for run run, which is committed"):
        run_states([*entries, other])
    nameless, head = entries_of("reserve", "commit", "commit", content={"other": 1})
    with pytest.raises(LedgerRefusedError, match="entry 3"):
        run_states(nameless)
    unknown, _ = entries_of("reserve", "other")
    with pytest.raises(LedgerRefusedError, match="entry 2 of the ledger must be one that Dapple wrote"):
        run_states(unknown)


def test_a_run_that_is_reserved_again_starts_over():
    first, _ = entries_of("reserve", "start", "void", content={"a": 1})
    again, _ = entries_of("reserve", content={"b": 2})
    (status,) = run_states([*first, *again]).values()
    assert (status.reserved, status.started, status.state) == ({"b": 2}, None, "reserved")


def test_a_limit_is_of_no_run_and_runs_are_apart():
    entries, _ = entries_of("limit", "reserve")
    more, _ = entries_of("reserve", "void", run="other")
    found = run_states([*entries, *more])
    assert {run: each.state for run, each in found.items()} == {"run": "reserved", "other": "void"}


def test_what_a_run_was_reserved_for_is_its_charge():
    held = gaussian(2.0)
    (status,) = run_states(entries_of("reserve", content={"charge": held.to_json()})[0]).values()
    assert status.charge == held
    (bad,) = run_states(entries_of("reserve", content={"charge": {"a": 1}})[0]).values()
    with pytest.raises(LedgerRefusedError, match="entry of a run of the ledger must be one that Dapple wrote"):
        _ = bad.charge
    assert ledger_entry.COLUMNS[-1] == "digest"


def test_a_move_names_the_other_ledger():
    entries, _ = entries_of("limit", "moved", content={"to": "other"})
    assert (ledger_entry.moved_to(entries), ledger_entry.moved_to(entries[:1]), ledger_entry.moved_to([])) == (
        "other",
        None,
        None,
    )
    for bad in ({"of": "other"}, {"to": 5}):
        with pytest.raises(LedgerRefusedError, match="entry 2 of the ledger must be one that Dapple wrote"):
            ledger_entry.moved_to(entries_of("limit", "moved", content=bad)[0])


# What a curator says.


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a", True),
        ("a" * 2000, True),
        ("a" * 2001, False),
        ("", False),
        ("a\x00b", False),
        ("a\tb\nc", True),
        (7, False),
    ],
)
def test_public_text_is_short_and_plain(text, holds):
    if holds:
        assert DeploymentConfig(intended_use=text).given == {"intended_use": text}
    else:
        with pytest.raises(ValueError, match="intended_use"):
            DeploymentConfig(intended_use=text)


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("a" * 200, True),
        ("a" * 201, False),
        ("privacy.epsilon_2", True),
        ("Privacy", False),
        ("a.", False),
        ("", False),
        (b"a", False),
    ],
)
def test_settings_have_short_names(name, holds):
    adapter = pydantic.TypeAdapter(SettingName)
    if holds:
        assert adapter.validate_python(name) == name
    else:
        with pytest.raises(pydantic.ValidationError):
            adapter.validate_python(name)


def test_reasons_are_given_for_settings_that_there_are():
    check_justified({"clipping.norm": "x", "privacy": "y"}, ["clipping", "privacy"])
    with pytest.raises(ConfigError, match=r"justification must name settings of the job, got 'norm'"):
        check_justified({"clipping.norm": "x", "norm": "y"}, ["clipping"])
