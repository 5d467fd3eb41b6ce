"""Upgrades in the middle of what was paid: a run goes on under other versions to the same release, or says why not."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import signal

import pytest
import yaml

from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.masked import clients_role
from dapple_dp.pipelines.masked.clients_role import ClientsRole
from dapple_dp.pipelines.run import versions
from dapple_dp.schemas.privacy.charge import Charge
from tests.pipeline.masked.test_masked_jobs import Parties
from tests.scenes import crashes, federation, lake, ledgers
from tests.scenes.crashes import Point
from tests.scenes.epochs import DATES, Place

pytestmark = pytest.mark.slow

KEY, OTHER = bytes(range(32)), bytes(range(32, 64))
DRAWN = Point("dapple_dp.transforms.core.noise:draw_release", after=True)
TOLD = "goes on under other versions than it began with: "


@pytest.fixture
def upgrade(monkeypatch):
    """Puts newer libraries in place."""

    def put(name="numpy"):
        found = versions.version
        monkeypatch.setattr(versions, "version", lambda each: "99.1" if each == name else found(each))

    return put


def began_with(folder):
    return json.loads((folder / "run.json").read_text()).get("began_with")


def test_a_charged_fit_goes_on_to_the_same_release(tmp_path, upgrade):
    place = ledgers.Place(tmp_path)
    line = str(tmp_path / "line")
    assert crashes.run(place.words("whole", "run", ledger=None), line, key=KEY, kept=True) == 0
    assert crashes.run(place.words("out", "run"), line, key=KEY, point=DRAWN, kept=True) == -signal.SIGKILL
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start"]
    upgrade()
    outcome = place.fit()
    assert outcome.code == 0, outcome.err
    assert [each.split(TOLD)[1] for each in outcome.lines if TOLD in each] == [
        f"numpy {importlib.metadata.version('numpy')}, now 99.1"
    ]
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start", "commit"]
    assert began_with(tmp_path / "out")["numpy"] == importlib.metadata.version("numpy")
    assert not (tmp_path / "out" / "versions.json").exists()
    reserved = Ledger(place.ledger.path).status("run").reserved
    assert reserved["versions"]["numpy"] == importlib.metadata.version("numpy")


def test_a_run_under_its_own_versions_does_not_warn(tmp_path):
    place = ledgers.Place(tmp_path)
    outcome = place.fit()
    assert (outcome.code, TOLD in outcome.err, began_with(tmp_path / "out")) == (0, False, None)


def test_another_statistic_is_refused_with_the_way_out(tmp_path, upgrade, monkeypatch):
    place = ledgers.Place(tmp_path)
    point = Point("dapple_dp.transforms.core.noise:draw_release", after=True, call=2)
    assert crashes.run(place.words("out", "run"), os.devnull, key=KEY, point=point, kept=True) == -signal.SIGKILL
    upgrade()
    with monkeypatch.context() as patched:
        patched.setattr("dapple_dp.transforms.rounds.bound_broadcast.state_digest", lambda _: bytes(32))
        outcome = place.fit()
    assert outcome.code != 0
    assert "the versions that the run began with" in outcome.err
    assert ledgers.kinds(place.ledger) == ["limit", "reserve", "start"]
    assert place.fit().code == 0


def test_another_plan_is_refused_with_the_versions_that_finish_it(tmp_path, upgrade, monkeypatch):
    place = ledgers.Place(tmp_path)
    assert crashes.run(place.words("out", "run"), os.devnull, key=KEY, point=DRAWN, kept=True) == -signal.SIGKILL
    upgrade("dp-accounting")
    with monkeypatch.context() as patched:
        patched.setattr(Charge, "equals", lambda *_: False)
        outcome = place.fit()
    assert outcome.code == 3
    began = importlib.metadata.version("dp-accounting")
    assert f"finish it with dp-accounting {began}, with which it began, or choose another run_id" in outcome.err
    assert place.fit().code == 0


def test_corrections_that_a_newer_version_knows_are_no_other_plan():
    own = ledgers.charge(1.0)
    assert own.equals(own.to_json() | {"corrections": 0})
    assert not own.equals(own.to_json() | {"epsilon": 2.0})


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A stream whose first window is released; rows of three."""
    place = Place(tmp_path_factory.mktemp("begun"))
    for index in range(3):
        place.write(DATES[index], range(10 * index, 10 * index + 40))
    assert crashes.run(place.words(DATES[0]), str(place.folder / "line"), key=OTHER, kept=True) == 0
    return place


def copied(place, folder):
    folder.mkdir(exist_ok=True)
    found = Place(folder, start=False)
    shutil.copytree(place.folder, folder, dirs_exist_ok=True)
    return found


def windows_of(place):
    return [(each.kind, each.run) for each in Ledger(place.ledger.path).entries() if each.run]


def killed_in_the_second(place):
    words = place.words(DATES[2])
    assert crashes.run(words, str(place.folder / "line"), key=KEY, point=DRAWN, kept=True) == -signal.SIGKILL
    assert windows_of(place)[-2:] == [(kind, f"january-{DATES[1]}") for kind in ("reserve", "start")]


def test_a_paid_window_survives_an_upgrade(begun, tmp_path, upgrade):
    whole, place = copied(begun, tmp_path / "whole"), copied(begun, tmp_path / "killed")
    assert crashes.run(whole.words(DATES[1]), str(tmp_path / "line"), key=KEY, kept=True) == 0
    killed_in_the_second(place)
    upgrade()
    outcome = place.release(DATES[1])
    assert outcome.code == 0, outcome.err
    assert TOLD in outcome.err
    second = pathlib.Path("january", DATES[1])
    assert lake.released(place.folder / second) == lake.released(whole.folder / second)
    assert began_with(place.folder / second)["numpy"] == importlib.metadata.version("numpy")


def test_drain_finishes_what_was_charged_and_charges_nothing(begun, tmp_path):
    place = copied(begun, tmp_path)
    words = [*place.words(DATES[2]), "--drain"]
    idle = lake.run_command(*words)
    assert (idle.code, json.loads(idle.out.splitlines()[-1])["drained"]) == (0, 0)
    killed_in_the_second(place)
    outcome = lake.run_command(*words)
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out.splitlines()[-1])
    assert (said["drained"], said["released"], said["windows_left"]) == (1, [DATES[1]], 4)
    assert not any(run == f"january-{DATES[2]}" for _, run in windows_of(place))
    assert not (tmp_path / "january" / DATES[2]).exists()


def test_a_window_that_cannot_go_on_is_refused_in_words_of_a_stream(begun, tmp_path, upgrade, monkeypatch):
    place = copied(begun, tmp_path)
    killed_in_the_second(place)
    upgrade()
    with monkeypatch.context() as patched:
        patched.setattr(Charge, "equals", lambda *_: False)
        outcome = place.release(DATES[1])
    assert outcome.code == 3
    assert "with which it began, or begin another epoch under another stream.name" in outcome.err
    assert "run_id, which" not in outcome.err


@pytest.mark.parametrize("same", [True, False])
def test_chunks_of_clustered_fl_go_on_to_the_same_models_or_say_what_ends_them(tmp_path, upgrade, same):
    """Without a ledger, too. A round that was run, and had no record yet, must give the same bits."""
    lake_path = federation.write_lake(tmp_path / "lake")
    settings = federation.job(lake_path, training__rounds=4, chunks__rounds=1)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))

    def words(output):
        return ["clustered_fl", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / output)]

    whole, killed = ([*words(output), "--run_id", "r"] for output in ("whole", "out"))
    assert crashes.run(whole, os.devnull, key=KEY, kept=True) == 0
    point = Point("dapple_dp.transforms.files.checkpoint:CheckpointFolder.save", call=3)
    assert crashes.run(killed, os.devnull, key=KEY, point=point, kept=True) == -signal.SIGKILL
    arrays = tmp_path / "out.partial-r" / "round-000002.npz"
    if not same:
        shutil.copy(tmp_path / "out.partial-r" / "round-000001.npz", arrays)
    upgrade()
    outcome = lake.run_command(*killed)
    if same:
        assert outcome.code == 0, outcome.err
        assert TOLD in outcome.err
        digests = [json.loads((tmp_path / name / "run.json").read_text())["models_digest"] for name in ("whole", "out")]
        assert digests[0] == digests[1]
        assert began_with(tmp_path / "out")["numpy"] == importlib.metadata.version("numpy")
    else:
        assert outcome.code != 0
        assert "Repeating an interrupted round gave different results" in outcome.err
        assert "the versions that the run began with" in outcome.err


# A masked exchange.


@pytest.fixture(scope="module")
def half_sent(tmp_path_factory):
    """The first round of an exchange: one of two clients has sent."""
    parties = Parties(tmp_path_factory.mktemp("exchange"), **lake.packed(2))
    for outcome in (parties.unmask(), parties.upload(0)):
        assert outcome.code == 0, outcome.err
    return parties


def sent(parties):
    """Files of the exchange, with their content."""
    folder = pathlib.Path(parties.exchange)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_party_that_would_add_other_noise_now_sends_nothing(half_sent, upgrade, monkeypatch):
    """A client believes its own plan, so one of another version is refused before a row of it is used."""
    upgrade("dp-accounting")
    before, rounds = sent(half_sent), ClientsRole.rounds.fget
    monkeypatch.setattr(ClientsRole, "rounds", property(lambda role: rounds(role)[:1]))
    outcome = half_sent.upload(1)
    assert outcome.code == 5, outcome.err
    assert "open a new run, with one version of dapple everywhere" in outcome.lines[-1]
    assert sent(half_sent) == before


def test_a_party_that_comes_to_other_bits_now_sends_nothing(half_sent, upgrade, monkeypatch):
    upgrade()
    before = sent(half_sent)
    monkeypatch.setattr(clients_role, "broadcast_digest", lambda _: bytes(32))
    outcome = half_sent.upload(1)
    assert outcome.code == 5, outcome.err
    assert "if there was an upgrade, use the versions that the run began with" in outcome.lines[-1]
    assert sent(half_sent) == before


def test_an_exchange_goes_on_under_other_versions(half_sent, upgrade):
    """Messages that were sent under the old ones are asked for again and summed under the new ones."""
    upgrade()
    before = sent(half_sent)
    for _ in range(2):
        for outcome in (half_sent.upload(0), half_sent.upload(1), half_sent.aggregate(), half_sent.unmask()):
            assert outcome.code == 0, outcome.err
    assert before.items() <= sent(half_sent).items()
    result = pathlib.Path(half_sent.released, "result")
    assert json.loads((result / "run.json").read_text())["versions"]["numpy"] == "99.1"
