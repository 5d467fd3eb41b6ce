"""Places with names that patterns, shells, URIs or logs would read as something else are used exactly as they are."""

import os
import stat

import pytest

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run.run_keys import own_key
from dapple_dp.schemas.privacy.ledger_entry import EntryKind
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.masked.party_state import PartyState
from dapple_dp.transforms.privacy.key_files import read_key
from tests.scenes import lake, ledgers

NAMES = [
    *("night[1]", "q?", "*", "**", "{a,b}", "[!a]", "a b", " a", "a ", "a\nb", "a\n", "a\\", "%2F", "%00", "#run"),
    *(
        "?x=1",
        "-rf",
        "~",
        "$HOME",
        "a&b;c",
        "ä€",
        "𝛿",
        "e\u0301",
        "file:a",
        ":memory:",
        "a:b",
        "a=b",
        "..a",
        "a.partial-b",
    ),
]
NEIGHBORS = ["night1", "q1", "a", "b", "x", "ab", "%", "2F"]
"""Names that some of the others stand for where they are read as patterns, or are cut or decoded."""


@pytest.mark.parametrize("name", NAMES)
def test_a_ledger_is_in_the_file_that_is_named(tmp_path, monkeypatch, name):
    places = [tmp_path / other for other in NEIGHBORS]
    for place in places:
        Ledger(str(place)).set_limit("census", ledgers.basic_limit(1.0))
    before = {place: place.read_bytes() for place in places}
    monkeypatch.chdir(tmp_path)
    for path in (name, str(tmp_path / name), f"{name}/{name}"):
        if path != name:
            os.unlink(name)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        Ledger(path).set_limit("census", ledgers.basic_limit(2.0))
        Ledger(path).reserve("run", ledgers.charge(1.0), {})
        assert os.path.isfile(path)
        assert ledgers.kinds(Ledger(path)) == [EntryKind.LIMIT, EntryKind.RESERVE]
    assert {place: place.read_bytes() for place in places} == before
    assert sorted(os.listdir(tmp_path)) == sorted({*NEIGHBORS, name})


@pytest.mark.parametrize("name", NAMES)
def test_the_state_of_a_party_is_in_the_folder_that_is_named(tmp_path, name):
    secret = lake.write_key(tmp_path / "secret")
    states = {each: PartyState.enroll(str(tmp_path / each), secret, "north") for each in (*NEIGHBORS, name)}
    runs = {each: state.of_run(b"n" * 32) for each, state in states.items()}
    for each, run in runs.items():
        run.pin("first", each.encode())
        run.note_last()
    kept = {each: sorted(os.listdir(run.folder)) for each, run in runs.items()}
    found = PartyState.of(str(tmp_path / name), secret, "north")
    assert [run.folder for run in found.runs()] == [runs[name].folder]
    assert runs[name].pinned("first") == name.encode()
    runs[name].pin("second", b"second")
    assert not runs[name].is_pinned("first")
    runs[name].unpin("second")
    found.end_others(found.of_run(b"m" * 32))
    assert not runs[name].is_last()
    assert not [left for left in os.listdir(runs[name].folder) if left.endswith((".pinned", ".key", ".sent"))]
    for each in NEIGHBORS:
        assert runs[each].pinned("first") == each.encode()
        assert sorted(os.listdir(runs[each].folder)) == kept[each]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_the_file_that_is_named(tmp_path, name):
    others = {other: bytes(range(32)) for other in NEIGHBORS}
    for other, content in others.items():
        STORE.put(str(tmp_path / other), content)
    (tmp_path / "staging of a run").mkdir()
    with own_key(str(tmp_path / "staging of a run"), str(tmp_path / name)) as place:
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
        assert len(read_key(place)) == 32
    assert not (tmp_path / name).exists()
    assert {other: (tmp_path / other).read_bytes() for other in others} == others
    kept = lake.write_key(tmp_path / name)
    with own_key(str(tmp_path / "staging of a run"), kept):
        pass
    assert (tmp_path / name).read_bytes() == lake.KEY
