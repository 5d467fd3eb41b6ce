"""Asked twice, a party of masked aggregation gives its first answer, whatever its rows are by then.

A writer to the exchange once took a message away, or put last night's signed files into a new folder, and
compared what came: equal bytes if and only if the rows were equal, and names of senders that showed who had left.
"""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.masked.pairwise_messages import Leg
from dapple_dp.transforms.masked.exchange_files import Exchange
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.party_state import SENT, PartyState
from tests.pipeline.masked import test_masked_jobs as shared
from tests.pipeline.masked import test_noise_share_jobs as split
from tests.pipeline.masked import test_pairwise_jobs as pairwise
from tests.scenes import crashes, lake
from tests.scenes.parties import Rewound, enroll, opened

pytestmark = pytest.mark.slow


def folder_of(parties, leg, index=0):
    (found,) = pathlib.Path(parties.exchange).glob(f"{index:02d}_*")
    return found / leg


def files_of(parties, leg, index=0):
    return {path.name: path.read_bytes() for path in folder_of(parties, leg, index).glob("*")}


def masked_of(parties, client):
    return yaml.safe_load((parties.folder / f"{parties.job_file}-{client}.yaml").read_text())["masked"]


def set_masked(parties, client, **settings):
    path = parties.folder / f"{parties.job_file}-{client}.yaml"
    job = yaml.safe_load(path.read_text())
    job["masked"] |= settings
    path.write_text(yaml.safe_dump(job))


def state_of(parties, client, name):
    masked = masked_of(parties, client)
    return pathlib.Path(PartyState.of(masked["state_uri"], masked["secret_uri"], name).folder)


def replayed(parties):
    """Returns a new folder as anybody can make it: the run as it was opened and signed, and no sum or list."""
    old = pathlib.Path(parties.exchange)
    parties.exchange += "-again"
    parties.released += "-again"
    for path in (*old.glob("*.json"), *old.glob("00_*/broadcast.json")):
        copy = pathlib.Path(parties.exchange, path.relative_to(old))
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    pathlib.Path(parties.released).mkdir()


# --- Messages with a shared secret


def other_values(folder, points):
    lake.write_files(folder, [lake.table_of(points + 0.5)])


def one_row_less(folder, points):
    lake.write_files(folder, [lake.table_of(points[1:])])


def no_row(folder, points):
    lake.write_files(folder, [lake.table_of(points[:0])])


def no_numbers(folder, points):
    lake.write_files(folder, [lake.table_of(points * np.nan)])


def no_folder(folder, points):
    shutil.rmtree(folder)


def no_table(folder, points):
    for path in folder.iterdir():
        path.write_bytes(b"garbage")


CHANGES = [other_values, one_row_less, no_row, no_numbers, no_folder, no_table]


@pytest.fixture
def parties(tmp_path):
    return opened(shared.Parties(tmp_path, n_clients=3))


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_was_taken_away_is_sent_again(parties, change):
    assert parties.upload(0).code == 0
    sent = files_of(parties, "messages")
    change(parties.folder / "lake-0", parties.points[0])
    (folder_of(parties, "messages") / "client-0.sealed").unlink()
    outcome = parties.upload(0)
    assert outcome.code == 0, outcome.err
    assert files_of(parties, "messages") == sent


@pytest.mark.parametrize("noise_by", ["aggregator", "both"])
def test_a_replayed_run_learns_nothing(tmp_path, noise_by):
    parties = opened(shared.Parties(tmp_path, n_clients=2, masked={"noise_by": noise_by}))
    assert parties.upload(0).code == 0
    sent = files_of(parties, "messages")
    replayed(parties)
    other_values(parties.folder / "lake-0", parties.points[0])
    assert parties.upload(0).code == 0
    assert files_of(parties, "messages") == sent


def test_columns_of_patterns_are_not_looked_up_again(parties):
    """Which columns a pattern names is asked of the rows, too."""
    assert parties.upload(0).code == 0
    sent = files_of(parties, "messages")
    job = yaml.safe_load((parties.folder / "client-0.yaml").read_text())
    job["data"]["features"] = ["gone_*"]
    (parties.folder / "client-0.yaml").write_text(yaml.safe_dump(job))
    (folder_of(parties, "messages") / "client-0.sealed").unlink()
    assert parties.upload(0).code == 0
    assert files_of(parties, "messages") == sent


def test_nothing_is_an_answer(parties):
    """A party that had nothing to send in a round sends nothing later on."""
    exchange, state = Exchange(parties.exchange), PartyState(folder=str(state_of(parties, 0, "client-0")))
    path = exchange.plan().rounds[0].path
    assert state.of_run(exchange.plan().nonce).first(path, "messages", b"") == b""
    assert parties.upload(0).code == 0
    assert not folder_of(parties, "messages").exists()
    assert state.of_run(exchange.plan().nonce).first(path, "messages", b"something") == b""


def test_a_link_to_the_secret_or_to_the_state_is_the_same_party(parties):
    assert parties.upload(0).code == 0
    sent = files_of(parties, "messages")
    for name in ("secret", "state"):
        (parties.folder / f"{name}-link").symlink_to(parties.folder / name)
        set_masked(parties, 0, **{f"{name}_uri": str(parties.folder / f"{name}-link")})
        other_values(parties.folder / "lake-0", parties.points[0])
        (folder_of(parties, "messages") / "client-0.sealed").unlink()
        assert parties.upload(0).code == 0
        assert files_of(parties, "messages") == sent


def test_two_sums_of_one_nonce_are_not_unmasked_through_a_link(parties):
    """Notes were named by the place of the secret as it was spelled: a link to it had none."""
    for client in range(3):
        assert parties.upload(client).code == 0
    assert parties.aggregate().code == parties.unmask().code == 0
    messages = files_of(parties, "messages")
    replayed(parties)
    folder_of(parties, "messages").mkdir()
    for name in ("client-0.sealed", "client-1.sealed"):
        (folder_of(parties, "messages") / name).write_bytes(messages[name])
    assert parties.aggregate().code == 0
    (parties.folder / "link").symlink_to(parties.folder / "secret")
    set_masked(parties, 0, secret_uri=str(parties.folder / "link"))
    outcome = parties.unmask()
    assert (outcome.code, "a second sum has arrived" in outcome.err) == (5, True)


# --- The state


def test_a_party_without_its_state_refuses_and_makes_none(parties):
    assert parties.upload(0).code == 0
    shutil.rmtree(parties.folder / "state")
    (folder_of(parties, "messages") / "client-0.sealed").unlink()
    for outcome in (parties.upload(0), parties.unmask()):
        assert (outcome.code, "run `dapple masked party enroll` once" in outcome.err) == (2, True)
    assert not (parties.folder / "state").exists()
    assert files_of(parties, "messages") == {}


@pytest.mark.parametrize("key", ["seal.key", "noise.key"])
def test_a_lost_key_is_not_replaced(parties, key):
    (state_of(parties, 0, "client-0") / key).unlink()
    state = PartyState.of(str(parties.folder / "state"), str(parties.folder / "secret"), "")
    outcome = parties.upload(0)
    assert (outcome.code, "no state of client-0 with this secret in" in outcome.err) == (2, True)
    assert not list(pathlib.Path(state.folder).parent.rglob("*.sent"))


def test_the_state_of_another_key_or_client_is_not_this_partys(parties):
    lake.write_key(parties.folder / "other", bytes(range(90, 122)))
    set_masked(parties, 0, secret_uri=str(parties.folder / "other"))
    assert parties.upload(0).code == 2
    assert parties.upload(1, name="client-11").code == 2
    assert not folder_of(parties, "messages").exists()


def test_two_parties_in_one_folder_keep_their_own(parties):
    assert parties.upload(0).code == parties.upload(1).code == 0
    sent = files_of(parties, "messages")
    assert len(set(sent.values())) == 2
    for client in range(2):
        other_values(parties.folder / f"lake-{client}", parties.points[client])
        (folder_of(parties, "messages") / f"client-{client}.sealed").unlink()
    assert parties.upload(1).code == parties.upload(0).code == 0
    assert files_of(parties, "messages") == sent


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777])
def test_a_state_that_others_may_read_is_refused(parties, mode):
    (parties.folder / "state").chmod(mode)
    for outcome in (parties.upload(0), parties.unmask()):
        assert (outcome.code, "must be a folder of mode 0700" in outcome.err) == (2, True)


def test_a_state_in_which_nothing_can_be_written_is_refused(parties):
    state, nonce = state_of(parties, 0, "client-0"), Exchange(parties.exchange).plan().nonce
    pathlib.Path(PartyState(folder=str(state)).of_run(nonce).folder).write_text("a file, not a folder")
    outcome = parties.upload(0)
    assert (outcome.code, "this party could not write to" in outcome.err) == (2, True)
    assert not folder_of(parties, "messages").exists()


def test_a_party_is_enrolled_once(parties):
    words = ("party", "enroll", "--config", str(parties.folder / "client-0.yaml"), "--client", "client-0")
    key = (state_of(parties, 0, "client-0") / "seal.key").read_bytes()
    outcome = lake.run_command(*words)
    assert (outcome.code, "is already enrolled in" in outcome.err) == (2, True)
    assert (state_of(parties, 0, "client-0") / "seal.key").read_bytes() == key
    set_masked(parties, 0, state_uri=str(parties.folder / "new" / "state"))
    outcome = lake.run_command(*words)
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip() == str(state_of(parties, 0, "client-0"))
    assert (parties.folder / "new" / "state").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("client", ["../x", "a b", ".x"])
def test_an_invalid_name_is_not_enrolled(parties, client):
    outcome = lake.run_command("party", "enroll", "--config", str(parties.folder / "client-0.yaml"), "--client", client)
    assert (outcome.code, "--client must be letters" in outcome.err) == (2, True)


# --- What is forgotten


def test_a_run_is_forgotten_at_once_and_refused_by_its_nonce_alone(parties):
    assert parties.upload(0).code == parties.upload(1).code == 0
    state = state_of(parties, 0, "client-0")
    words = ("--config", str(parties.folder / "client-0.yaml"), "--client", "client-0")
    outcome = lake.run_command("party", "forget", *words, "--exchange", parties.exchange)
    assert (outcome.code, outcome.out) == (0, "1\n"), outcome.err
    assert not list(state.rglob(f"*{SENT}"))
    assert list(state_of(parties, 1, "client-1").rglob(f"*{SENT}"))
    for change in (other_values, no_folder):
        change(parties.folder / "lake-0", parties.points[0])
        outcome = parties.upload(0)
        assert (outcome.code, "this party has ended or forgotten the run" in outcome.err) == (5, True)
    assert lake.run_command("party", "forget", *words, "--exchange", parties.exchange).out == "1\n"
    replayed(parties)
    assert parties.upload(0).code == 5


def test_all_runs_are_forgotten_where_none_is_named(parties):
    assert parties.upload(0).code == 0
    words = ("--config", str(parties.folder / "client-0.yaml"), "--client", "client-0")
    assert lake.run_command("party", "forget", *words).out == "1\n"
    assert parties.upload(0).code == 5
    parties.exchange += "-2"
    parties.released += "-2"
    assert opened(parties).upload(0).code == 0


def test_a_run_that_was_forgotten_before_it_was_answered_is_not_answered(parties):
    words = ("--config", str(parties.folder / "client-0.yaml"), "--client", "client-0")
    assert lake.run_command("party", "forget", *words, "--exchange", parties.exchange).code == 0
    assert parties.upload(0).code == 5
    assert not folder_of(parties, "messages").exists()


def test_sent_messages_go_when_the_run_is_over(tmp_path):
    """At the next question once the last round is closed, or when the party takes part in another run."""
    parties = shared.Parties(tmp_path, n_clients=2)
    parties.play()
    states = [state_of(parties, client, f"client-{client}") for client in range(2)]
    assert [len(list(state.rglob(f"*{SENT}"))) for state in states] == [4, 4]
    assert parties.upload(0).code == 5
    assert [len(list(state.rglob(f"*{SENT}"))) for state in states] == [0, 4]
    for folder in ("exchange", "released"):
        (tmp_path / folder).rename(tmp_path / f"first-{folder}")
    assert opened(parties).upload(1).code == 0
    assert [len(list(state.rglob(f"*{SENT}"))) for state in states] == [0, 1]
    for folder in ("exchange", "released"):
        shutil.rmtree(tmp_path / folder)
        (tmp_path / f"first-{folder}").rename(tmp_path / folder)
    (folder_of(parties, "messages", 3) / "client-1.sealed").unlink()
    folder_of(parties, "sum.parquet", 3).unlink()
    outcome = parties.upload(1)
    assert (outcome.code, "this party has ended or forgotten the run" in outcome.err) == (5, True)


# --- Pairwise masks: keys, letters, messages


@pytest.fixture(scope="module")
def legs(tmp_path_factory):
    """The legs of a round, before each of them and when all but one holder have taken part in it."""
    parties = opened(pairwise.Parties(tmp_path_factory.mktemp("legs"), **pairwise.LLOYD))
    found = Rewound(parties, tmp_path_factory.mktemp("kept"))
    for leg in list(Leg)[:3]:
        found.keep(leg)
        parties.leg([1, 2], close=False)
        found.keep(f"{leg} of others")
        parties.leg([0])
    return found


def other_senders(parties, holder):
    """One sender has left, another has joined, and the others have other rows."""
    points = lake.mixture(pairwise.HOLDERS[holder] * pairwise.SENDER_ROWS, seed=9)
    clients = np.arange(len(points)) // pairwise.SENDER_ROWS + 1
    shutil.rmtree(parties.folder / f"lake-{holder}")
    parties.write_rows(holder, points, clients)


@pytest.fixture(scope="module")
def client_legs(tmp_path_factory):
    """The same where a sender is a client: when all holders have taken part in a leg, and the first one is closed."""
    parties = opened(pairwise.Parties(tmp_path_factory.mktemp("legs"), "client", **pairwise.LLOYD))
    found = Rewound(parties, tmp_path_factory.mktemp("kept"))
    for leg in list(Leg)[:3]:
        parties.leg(close=False)
        found.keep(leg)
        assert parties.aggregate().code == 0
        if leg is Leg.KEYS:
            found.keep(f"{leg} closed")
    return found


@pytest.mark.parametrize("leg", list(Leg)[:3])
def test_a_leg_with_other_rows_is_the_first_one(client_legs, leg):
    """Names of senders, their keys, letters and messages reveal neither rows nor who has come or gone."""
    parties = client_legs.at(leg)
    sent = files_of(parties, leg)
    other_senders(parties, 0)
    shutil.rmtree(folder_of(parties, leg))
    parties.leg([0], close=False)
    (again,) = files_of(parties, leg).items()
    assert sent[again[0]] == again[1]
    parties.leg([1, 2])
    assert files_of(parties, leg) == sent


def test_a_round_is_of_the_rows_of_its_first_leg(client_legs):
    """The pinned content is sealed under a key of its own, and gone once the message is sent."""
    parties = client_legs.at(f"{Leg.KEYS} closed")
    state = state_of(parties, 0, "holder-0")
    (pinned,), (key,) = state.rglob("*.pinned"), [p for p in state.rglob("*.key") if p.parent != state]
    assert key.stat().st_mode & 0o077 == 0
    assert b"PAR1" not in pinned.read_bytes()
    other_senders(parties, 0)
    parties.leg()
    assert pinned.exists()
    parties.leg()
    assert not pinned.exists()
    assert not key.exists()
    parties.leg(close=False)
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("changes", [CHANGES[:3], CHANGES[3:]], ids=["other rows", "no rows"])
def test_a_round_ends_whatever_becomes_of_the_rows(legs, changes):
    """After the first leg nothing is asked of them, not even for the number of columns."""
    parties = legs.at(Leg.LETTERS)
    for holder, change in enumerate(changes):
        change(parties.folder / f"lake-{holder}", parties.blocks[holder].points)
    for leg in list(Leg)[1:]:
        parties.leg(close=leg is not Leg.SHARES)
    (parties.folder / "lake-0").mkdir(exist_ok=True)
    parties.write_rows(0, parties.blocks[0].points)  # Who unmasks lists its own rows, those of holder 0.
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err


def test_a_pin_that_is_gone_is_not_made_of_other_rows(legs):
    parties = legs.at(Leg.LETTERS)
    for path in state_of(parties, 0, "holder-0").rglob("*.pinned"):
        path.unlink()
    outcome = parties.upload(0)
    assert (outcome.code, "open a new run" in outcome.err) == (5, True), outcome.err
    assert not folder_of(parties, Leg.LETTERS).exists()


@pytest.mark.parametrize("scheme", split.SCHEMES)
def test_files_signed_last_night_reveal_nothing_of_noise_shares(tmp_path, scheme):
    parties = split.SplitParties(tmp_path, scheme)
    assert parties.collect().code == 0
    leg = Leg.KEYS if scheme == "pairwise" else Leg.MESSAGES
    parties.leg(close=False)
    sent = files_of(parties, leg)
    replayed(parties)
    for holder in range(3):
        parties.write_rows(holder, parties.blocks[holder].points[::-1] + 0.25)
    parties.leg(close=False)
    assert files_of(parties, leg) == sent


# --- Crashes

STATE, FILES = (
    "dapple_dp.transforms.masked.party_state:RunState",
    "dapple_dp.transforms.masked.exchange_files:write_once",
)
POINTS = {
    Leg.KEYS: [
        crashes.Point(f"{STATE}.pin"),
        crashes.Point("dapple_dp.transforms.masked.party_state:_make_key", after=True),
        crashes.Point(f"{STATE}.pin", after=True),
        crashes.Point(f"{STATE}.first"),
        crashes.Point(f"{STATE}.first", after=True),
        crashes.Point(FILES, after=True),
    ],
    Leg.LETTERS: [crashes.Point(f"{STATE}.first"), crashes.Point(f"{STATE}.first", after=True)],
    Leg.MESSAGES: [
        crashes.Point(f"{STATE}.first"),
        crashes.Point(f"{STATE}.first", after=True),
        crashes.Point(FILES, after=True),
        crashes.Point("dapple_dp.transforms.masked.party_state:_remove", after=True),
    ],
}


def uploaded_dying(parties, client, name, point):
    config = str(parties.folder / f"{parties.job_file}-{client}.yaml")
    places = ["--exchange", parties.exchange, "--released", parties.released, "--client", name]
    words = ["upload", "--config", config, *places]
    return crashes.run(words, str(parties.folder / "out"), key=bytes(range(40, 72)), point=point)


def kept_of(state):
    return {path.name: path.read_bytes() for path in state.rglob(f"*{SENT}")}


@pytest.mark.parametrize(("leg", "point"), [(leg, point) for leg in POINTS for point in POINTS[leg]], ids=str)
def test_a_leg_that_dies_goes_on_with_what_was_decided(legs, leg, point):
    """Rows change after the crash; nothing that was decided changes with them, and the round ends."""
    parties = legs.at(f"{leg} of others")
    assert uploaded_dying(parties, 0, "holder-0", point) == -9
    state = state_of(parties, 0, "holder-0")
    decided, shown = kept_of(state), files_of(parties, leg)
    assert set(shown.values()) <= {*decided.values(), *(shown[name] for name in shown if "holder-0" not in name)}
    parties.write_rows(0, parties.blocks[0].points + 0.5)
    parties.leg([0])
    assert decided.items() <= kept_of(state).items()
    assert shown.items() <= files_of(parties, leg).items()
    for _ in range(2 - list(Leg).index(leg)):
        parties.leg()
    assert not list(state.rglob("*.pinned"))
    parties.leg(close=False)
    outcome = parties.unmask()
    assert outcome.code == 0, outcome.err
    assert PairwiseExchange(parties.exchange).n_listed(0) == 10


@pytest.mark.parametrize("point", POINTS[Leg.MESSAGES][:3], ids=str)
def test_a_message_that_dies_is_the_one_that_was_decided(parties, point):
    assert uploaded_dying(parties, 0, "client-0", point) == -9
    decided = list(kept_of(state_of(parties, 0, "client-0")).values())
    assert bool(decided) == point.after
    other_values(parties.folder / "lake-0", parties.points[0])
    assert parties.upload(0).code == 0
    assert not decided or list(files_of(parties, "messages").values()) == decided


# --- Places of states


@pytest.mark.parametrize("where", ["exchange/state", "exchange", "x/../released/state", "link/state"])
def test_a_state_in_a_folder_that_others_read_is_refused(parties, where):
    (parties.folder / "x").mkdir()
    (parties.folder / "link").symlink_to(parties.exchange)
    set_masked(parties, 0, state_uri=str(parties.folder / where))
    outcome = parties.upload(0)
    assert (outcome.code, "masked.state_uri must be outside of --" in outcome.err) == (2, True)


def test_parties_differ_by_key_and_by_name(tmp_path):
    secrets = [lake.write_key(tmp_path / f"secret-{each}", bytes(range(each, each + 32))) for each in (1, 2)]
    names = ("north", "", "north1", "nort")
    folders = {PartyState.enroll(str(tmp_path / "state"), each, name).folder for each in secrets for name in names}
    assert len(folders) == 8
    assert len({os.path.dirname(each) for each in folders}) == 1
    with pytest.raises(ConfigError, match="could not be created"):
        PartyState.enroll(f"{secrets[0]}/state", secrets[0], "north")


def test_the_summary_of_a_second_answer_is_that_of_the_first(parties):
    first = json.loads(parties.upload(0).out)
    assert json.loads(parties.upload(0).out) == first
    enroll(parties.folder / "client-0.yaml", "client-0")
