"""Keys of a party whose machine lost its power between their names and their content."""

import pathlib

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.masked.party_state import PartyState
from tests.scenes import lake


@pytest.fixture
def party(tmp_path):
    """Returns where a party is enrolled."""
    return str(tmp_path / "state"), lake.write_key(tmp_path / "secret"), "client"


@pytest.mark.parametrize("key", ["noise.key", "seal.key"])
def test_a_party_with_an_empty_key_is_not_enrolled(party, key):
    """It was asked to use what it had, which no job could read."""
    folder = pathlib.Path(PartyState.enroll(*party).folder)
    (folder / "seal.key").unlink()
    (folder / key).write_bytes(b"")
    PartyState.enroll(*party)
    assert [len((folder / name).read_bytes()) for name in ("noise.key", "seal.key")] == [32, 32]


def test_a_key_that_holds_something_stays(party):
    folder = pathlib.Path(PartyState.enroll(*party).folder)
    (folder / "seal.key").write_bytes(b"")
    before = (folder / "noise.key").read_bytes()
    PartyState.enroll(*party)
    assert (folder / "noise.key").read_bytes() == before
    with pytest.raises(ConfigError, match="is already enrolled in"):
        PartyState.enroll(*party)


def test_a_pin_with_an_empty_key_is_made(party):
    """The round could not be answered any more."""
    run = PartyState.enroll(*party).of_run(bytes(range(32)))
    run.pin("round", b"content")
    (empty,) = pathlib.Path(run.folder).glob("*.key")
    empty.write_bytes(b"")
    (pinned,) = pathlib.Path(run.folder).glob("*.pinned")
    pinned.unlink()
    run.pin("round", b"content")
    assert run.pinned("round") == b"content"
