"""Jobs of parties that do not fit: refused before anything is sent or waited for, by the names of their settings."""

import json
import pathlib
import re
import shutil
import time

import pytest
import yaml

from dapple_dp.pipelines.masked import party_run
from dapple_dp.pipelines.masked.clients_settings import differing
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR
from dapple_dp.transforms.masked.exchange_files import Exchange
from tests.scenes import lake
from tests.scenes.separate_parties import HOSPITALS, SeparateParties

WAIT = ("--wait_minutes", "0", "--late_minutes", "60")


@pytest.fixture
def parties(tmp_path):
    return SeparateParties(tmp_path)


def job_of(parties, name):
    return parties.folder / name / "job.yaml"


def change(parties, name, /, **settings):
    """Changes settings of a party's job; `__` stands for a dot."""
    content = yaml.safe_load(job_of(parties, name).read_text())
    for dotted, value in settings.items():
        *sections, key = dotted.split("__")
        part = content
        for section in sections:
            part = part[section]
        part[key] = value
    job_of(parties, name).write_text(yaml.safe_dump(content))


def called(parties, name, *flags):
    return lake.run_command(*parties.words(name, "--poll_seconds", "0.01", *WAIT, *flags))


def checked(parties, *names):
    return lake.run_command("party", "check", *(str(job_of(parties, name)) for name in names))


# --- What a role cannot have is refused at once

ODD = {
    "ledger": (
        {"ledger": "ledger.sqlite", "data__name": "homes"},
        "ledger must be left out for this job, got ledger.sqlite; the aggregator charges the run",
    ),
    "central": ({"trust": "central"}, "trust must be masked"),
    "no state": ({"masked__state_uri": None}, "this job needs masked.state_uri"),
    "no secret": ({"masked__secret_uri": None}, "this job needs masked.secret_uri"),
    "no such setting": ({"masked__thresold": 3}, "masked.thresold"),
}


@pytest.mark.parametrize("name", ["north", COLLECTOR])
@pytest.mark.parametrize("odd", ODD)
def test_a_setting_that_the_role_cannot_have_is_refused_before_anything_is_waited_for(parties, name, odd):
    settings, said = ODD[odd]
    change(parties, name, **settings)
    began = time.monotonic()
    outcome = called(parties, name, "--wait_minutes", "0.02")
    assert (outcome.code, len(outcome.lines)) == (2, 1), outcome.err
    assert said in outcome.err
    assert time.monotonic() - began < 60.0
    assert not list(pathlib.Path(parties.exchange).iterdir())
    assert not list(pathlib.Path(parties.released).iterdir())
    (parties.folder / name / "state").rename(parties.folder / name / "other")
    words = ["party", "enroll", "--config", str(job_of(parties, name))]
    enrolled = lake.run_command(*words, *(() if name == COLLECTOR else ("--client", name)))
    assert (enrolled.code, said in enrolled.err) == (2, True)
    assert not (parties.folder / name / "state").exists()
    compared = checked(parties, "east", name)
    assert (compared.code, said in compared.err) == (2, True)


def test_who_is_not_enrolled_or_has_no_good_key_is_told_at_once(parties):
    (parties.folder / "north" / "state").rename(parties.folder / "north" / "other")
    outcome = called(parties, "north", "--wait_minutes", "0.02")
    assert (outcome.code, "run `dapple masked party enroll` once" in outcome.lines[-1]) == (2, True)
    key = parties.folder / AGGREGATOR / "noise.key"
    key.unlink()
    assert called(parties, AGGREGATOR).code == 6
    assert len(key.read_bytes()) == 32
    key.write_bytes(bytes(32))
    outcome = called(parties, AGGREGATOR, "--wait_minutes", "0.02")
    assert (outcome.code, "key_uri" in outcome.lines[-1]) == (2, True)


def test_a_table_that_is_not_there_is_found_before_the_run_is_opened(parties):
    change(parties, "north", data__path="/no/such/rows")
    outcome = called(parties, "north", "--wait_minutes", "0.02")
    assert (outcome.code, len(outcome.lines)) in {(2, 1), (66, 1)}, outcome.err
    assert not list(pathlib.Path(parties.exchange).iterdir())


def test_a_client_that_has_sent_asks_nothing_of_its_rows_when_it_is_started_again(parties):
    """A refusal because rows have gone or changed would say so; the run is open, so rows are left alone."""
    for name in (COLLECTOR, AGGREGATOR, "north"):
        assert called(parties, name).code == 6
    for path in (parties.folder / "north" / "rows").iterdir():
        path.unlink()
    outcome = called(parties, "north")
    assert (outcome.code, "sent again: round 0" in outcome.err) == (6, True), outcome.err


def test_a_party_that_is_started_twice_has_one_message(parties):
    """From a copy of its folder come the same bytes; one that was enrolled a second time is refused."""
    for name in (COLLECTOR, AGGREGATOR):
        assert called(parties, name).code == 6
    state, copy = parties.folder / "north" / "state", parties.folder / "north" / "copy"
    shutil.copytree(state, copy)
    assert called(parties, "north").code == 6
    (message,) = pathlib.Path(parties.exchange).glob("*/messages/north.sealed")
    sent = message.read_bytes()
    change(parties, "north", masked__state_uri=str(copy))
    assert called(parties, "north").code == 6
    assert message.read_bytes() == sent
    change(parties, "north", masked__state_uri=str(parties.folder / "north" / "second"))
    words = ["party", "enroll", "--config", str(job_of(parties, "north")), "--client", "north"]
    assert lake.run_command(*words).code == 0
    outcome = called(parties, "north")
    assert (outcome.code, "north.sealed" in outcome.err) == (5, True), outcome.err
    assert message.read_bytes() == sent


@pytest.mark.parametrize("left", [None, b"", b"short"])
def test_an_empty_secret_is_made_again_and_any_other_stays(parties, left):
    """A power cut may leave the name without its content; a secret that was used is never replaced."""
    secret = parties.folder / "north" / "second.secret"
    places = {"masked__secret_uri": str(secret), "masked__state_uri": str(parties.folder / "north" / "second")}
    change(parties, "north", masked__scheme="pairwise", **places)
    if left is not None:
        secret.write_bytes(left)
        secret.chmod(0o600)
    words = ["party", "enroll", "--config", str(job_of(parties, "north")), "--client", "north"]
    outcome = lake.run_command(*words)
    assert (outcome.code, len(secret.read_bytes())) == ((2, 5) if left else (0, 32)), outcome.err
    if not left:
        made = secret.read_bytes()
        assert lake.run_command(*words).code == 2
        assert secret.read_bytes() == made


# --- Jobs that differ


def test_the_keys_that_differ_are_named_and_all_others_learn_of_it(parties):
    change(parties, "south", privacy__epsilon=1.5, dp_lloyd__steps=1)
    assert called(parties, COLLECTOR).code == 6
    assert called(parties, AGGREGATOR).code == 6
    outcome = called(parties, "south")
    assert (outcome.code, outcome.lines[-1]) == (
        5,
        "dapple: This job differs from the job that opened the run in dp_lloyd.steps, privacy.epsilon. Clients may "
        "differ only in places; compare all job files with `dapple masked party check`.",
    )
    (refusal,) = pathlib.Path(parties.exchange).glob("refused/*")
    assert b"1.5" not in refusal.read_bytes()
    for name in ("north", "east"):
        assert called(parties, name).code == 6
    # Two of three are enough, and nobody waits for the third.
    outcome = called(parties, AGGREGATOR)
    assert "warning: south takes no part: its job differs in dp_lloyd.steps, privacy.epsilon" in outcome.err
    assert "closed: round 0" in outcome.err
    change(parties, "south", privacy__epsilon=2.0, dp_lloyd__steps=2)
    assert called(parties, COLLECTOR).code == 6
    assert called(parties, "south").code == 6
    assert not list(pathlib.Path(parties.exchange).glob("refused/*"))


def test_a_party_that_sends_two_keys_stops_the_run(parties):
    """One to some and one to others; it might have searched for two whose six words are the same."""
    change(parties, "south", masked__parties__east="ab" * 32)
    assert called(parties, COLLECTOR).code == 6
    outcome = called(parties, "south")
    assert (outcome.code, "from the job that opened the run in masked.parties.east." in outcome.err) == (5, True)


def test_nobody_waits_for_a_run_that_too_few_can_take_part_in(parties):
    """Here the collector's job is the odd one; every client refuses, and all end at once."""
    change(parties, COLLECTOR, n_clusters=4)
    assert called(parties, COLLECTOR).code == 6
    for name in HOSPITALS[:2]:
        outcome = called(parties, name)
        assert (outcome.code, "from the job that opened the run in n_clusters" in outcome.err) == (5, True)
    for name in (AGGREGATOR, COLLECTOR):
        outcome = called(parties, name, "--wait_minutes", "0.02")
        assert outcome.code == 5, outcome.err
        assert "The run can't go on without east, north: its job differs in n_clusters." in outcome.lines[-1]


def test_a_run_that_nobody_could_go_on_with_goes_on_once_the_job_is_corrected(tmp_path):
    """The party that differed starts first, and nobody deletes a file."""
    parties = SeparateParties(tmp_path, masked={"threshold": 3})
    change(parties, "south", privacy__epsilon=1.5)
    assert called(parties, COLLECTOR).code == 6
    assert [called(parties, name).code for name in ("south", "north", "south")] == [5, 5, 5]
    change(parties, "south", privacy__epsilon=2.0)
    assert [called(parties, name).code for name in ("south", "north", COLLECTOR)] == [6, 6, 6]


def test_an_aggregator_whose_limit_is_lower_says_so_to_all(parties):
    change(parties, AGGREGATOR, limit={"epsilon": 0.5, "delta": 1e-6})
    assert called(parties, COLLECTOR).code == 6
    assert called(parties, AGGREGATOR).code == 5
    outcome = called(parties, "north")
    assert (outcome.code, "can't go on without aggregator: its job differs in limit" in outcome.err) == (5, True)
    change(parties, AGGREGATOR, limit={"epsilon": 2.0, "delta": 1e-6})
    assert called(parties, AGGREGATOR).code == 6
    assert called(parties, "north").code == 6


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": 1, "keys": ["a\\n"]}', bytes(90)])
def test_a_refusal_that_the_party_has_not_signed_stops_nobody(parties, content):
    assert called(parties, COLLECTOR).code == 6
    place = pathlib.Path(parties.exchange) / "refused"
    place.mkdir()
    for name in (*HOSPITALS, AGGREGATOR, COLLECTOR, "stranger"):
        (place / f"{name}.json").write_bytes(content)
    outcome = called(parties, "north")
    assert (outcome.code, "takes no part" in outcome.err, "left out" in outcome.err) == (6, False, True)


def test_a_refusal_of_another_run_stops_nobody(parties):
    """It is signed by its party, but for that run."""
    change(parties, "south", privacy__epsilon=1.5)
    assert called(parties, COLLECTOR).code == 6
    assert called(parties, "south").code == 5
    (refusal,) = pathlib.Path(parties.exchange).glob("refused/*")
    parties.exchange, parties.released = f"{parties.exchange}-2", f"{parties.released}-2"
    assert called(parties, COLLECTOR).code == 6
    place = pathlib.Path(parties.exchange) / "refused"
    place.mkdir()
    (place / refusal.name).write_bytes(refusal.read_bytes())
    outcome = called(parties, "north")
    assert (outcome.code, "takes no part" in outcome.err, "left out" in outcome.err) == (6, False, True)


def test_settings_that_others_have_changed_name_no_keys(parties):
    """Files among the releases are believed only if plan.json, which the collector has signed, has their digest."""
    assert called(parties, COLLECTOR).code == 6
    path = pathlib.Path(parties.released) / "settings.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"planted": 1}))
    change(parties, "south", n_clusters=2)
    outcome = called(parties, "south")
    assert (outcome.code, "in settings that are not known here" in outcome.err) == (5, True)
    assert "planted" not in outcome.err


def test_what_all_clients_share_is_out_of_the_aggregators_reach(parties):
    assert called(parties, COLLECTOR).code == 6
    shared = (pathlib.Path(parties.released) / "settings.json").read_text()
    assert "_uri" not in shared
    assert str(parties.folder) not in shared
    assert not [path for path in pathlib.Path(parties.exchange).rglob("*settings*")]
    plan = Exchange(parties.exchange)
    assert plan.is_open()


# --- `party check`


def test_jobs_of_all_parties_are_compared_before_anything_is_sent(parties):
    outcome = checked(parties, *parties.names)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(
        "4 jobs of clients and collector and that of the aggregator agree.\n"
        "No ledger is charged: the aggregator's job has none.\n"
        "Words of these settings and dapple "
    )
    words = re.findall(r"^  (?:(\w+) +)?((?:[a-z]+ ){5}[a-z]+)$", outcome.out, re.MULTILINE)
    assert {name for name, _ in words} == {"", *parties.names}
    alone = checked(parties, "east")
    assert alone.out.splitlines()[:1] == ["1 job of clients and collector can be used."]
    assert set(alone.out.splitlines()[1:]) <= set(outcome.out.splitlines()[2:])
    assert set(outcome.out.splitlines()[2:]) - set(alone.out.splitlines()) == {
        f"identity_uri {parties.folder / name / 'identity'} holds the key of {name}."
        for name in parties.names
        if name != "east"
    }
    aggregators = checked(parties, AGGREGATOR)
    assert set(aggregators.out.splitlines()[1:]) <= set(outcome.out.splitlines()[4:])
    change(parties, AGGREGATOR, ledger="ledger.sqlite", name="homes", unit="record")
    assert "The aggregator charges data set homes in ledger.sqlite." in checked(parties, *parties.names[:-1]).out
    assert not list(pathlib.Path(parties.exchange).iterdir())


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (
            "east",
            {"privacy__epsilon": 1.0},
            "privacy.epsilon: 2.0 in {north}, 1.0 in {east}; agree on what is promised to patients.",
        ),
        (
            "east",
            {"dp_lloyd__domain": [0.0, 1.0]},
            "dp_lloyd.domain: [-2.0, 7.0] in {north}, [0.0, 1.0] in {east}; agree on one value.",
        ),
        (
            "east",
            {"masked__threshold": 3, "n_clusters": 2},
            "masked.threshold: 2 in {north}, 3 in {east}; agree on one value. n_clusters: 3 in",
        ),
        ("east", {"data__name": "homes"}, 'data.name: nothing in {north}, "homes" in {east};'),
        (COLLECTOR, {"masked__noise_by": "both"}, 'masked.noise_by: "aggregator" in {north}, "both" in {collector};'),
        (AGGREGATOR, {"unit": "client"}, 'unit: "record" in {north}, "client" in {aggregator};'),
    ],
)
def test_each_key_that_differs_is_named_with_its_values(parties, name, settings, said):
    change(parties, name, **settings)
    outcome = checked(parties, *parties.names)
    assert outcome.code == 2
    assert said.format(**{each: job_of(parties, each) for each in parties.names}) in outcome.err


def test_columns_in_another_order_are_named_by_the_first_that_differs(parties):
    for name, columns in {"north": ["age", "creatinine", "sodium", "potassium_of_the_first_day"], "east": None}.items():
        change(parties, name, data__features=columns or ["age", "sodium", "creatinine", "potassium_of_the_first_day"])
    outcome = checked(parties, "north", "east")
    said = 'data.features has the same in another order, number 2: "creatinine" in {}, "sodium" in {}; list the same'
    assert said.format(job_of(parties, "north"), job_of(parties, "east")) in outcome.err
    change(parties, "east", data__features=["age", "creatinine"])
    assert (
        'in {north}, ["age", "creatinine"] in {east};'.format(**{each: job_of(parties, each) for each in parties.names})
        in checked(parties, "north", "east").err
    )


def test_a_key_of_another_list_is_found(parties):
    keys = yaml.safe_load(job_of(parties, AGGREGATOR).read_text())["parties"]
    change(parties, AGGREGATOR, parties=keys | {"south": "ab" * 32})
    outcome = checked(parties, *parties.names)
    assert (outcome.code, "parties.south: " in outcome.err) == (2, True)
    assert "ask that party for its line and its six words." in outcome.err
    change(parties, AGGREGATOR, parties=keys | {"west": "ab" * 32})
    assert "parties.west" in checked(parties, *parties.names).err


def test_a_key_that_is_nobodys_is_found_before_the_run(parties):
    """A key elsewhere, as of another party, is said to be so; one place of many jobs is told once."""
    key = parties.folder / "east" / "identity"
    key.rename(key.with_name("moved"))
    outcome = checked(parties, *parties.names)
    assert outcome.code == 0, outcome.err
    assert f"identity_uri {key} is not here, so nobody has checked whose key it holds.\n" in outcome.out
    assert "holds the key of north.\n" in outcome.out
    key.write_bytes((parties.folder / "south" / "identity").read_bytes())
    key.chmod(0o600)
    assert f"identity_uri {key} holds the key of south.\n" in checked(parties, "east").out
    change(parties, AGGREGATOR, identity_uri=str(key))
    assert checked(parties, "east", AGGREGATOR).out.count(" holds the key of ") == 1
    key.write_bytes(bytes(range(32)))
    for names in (["east"], ["north", "east"]):
        outcome = checked(parties, *names)
        assert (outcome.code, outcome.out) == (2, "")
        assert "identity_uri must hold the key that parties give for one of them, got that of nobody" in outcome.err
        assert "Traceback" not in outcome.err


def test_places_may_differ_and_files_of_parties_are_asked_for(parties):
    change(parties, "east", data__path="/elsewhere", masked__state_uri="/other/state")
    assert checked(parties, "north", "east").code == 0
    other = parties.folder / "other.yaml"
    other.write_text(job_of(parties, AGGREGATOR).read_text())
    outcome = lake.run_command("party", "check", str(job_of(parties, AGGREGATOR)), str(other))
    assert (outcome.code, "got 0 of clients and 2 of an aggregator" in outcome.err) == (2, True)
    broken = parties.folder / "broken.yaml"
    broken.write_text("trust: [")
    outcome = lake.run_command("party", "check", str(job_of(parties, "north")), str(broken))
    assert (outcome.code, f"{broken}: " in outcome.err) == (2, True)
    assert lake.run_command("party", "check").code == 2


def test_the_names_of_settings_that_differ():
    one = {"a": 1, "b": {"c": [1], "d": None}, "e": None}
    assert list(differing(one, one)) == []
    other = {"a": 1.5, "b": {"c": [2], "f": 1}, "e": {"g": 1}}
    assert list(differing(one, other)) == ["a", "b.c", "b.d", "b.f", "e"]
    assert list(differing({}, {"x": None})) == ["x"]


def test_every_role_checks_its_job_at_the_start():
    """A job module without a check would be refused only after a wait."""
    assert set(party_run._ROLES) == {"client", AGGREGATOR, "clients"}
