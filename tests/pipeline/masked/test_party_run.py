"""`dapple masked party`: one command per party, which waits with a limit, takes its turns, and ends with a result."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
import yaml

from dapple_dp.pipelines.masked import party_run
from dapple_dp.schemas.errors import ProtocolError, StoreAwayError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR
from dapple_dp.transforms.masked.exchange_files import Exchange
from tests.scenes import lake, object_store
from tests.scenes import separate_parties as scene
from tests.scenes.separate_parties import FIRST_USER, HOSPITALS, SeparateParties
from tests.unit.masked.test_aggregator_imports import CLIENTS

PATIENT = ("--late_minutes", "60")
SHORT = ("--late_minutes", "0.05")
ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder():
    with scene.open_folder() as folder:
        yield folder


@pytest.fixture
def parties(tmp_path):
    """Parties that are called one after the other in this process."""
    return SeparateParties(tmp_path)


def called(parties, name, *flags):
    return lake.run_command(*parties.words(name, "--poll_seconds", "0.01", *flags))


def files_of(*places):
    return {path: path.read_bytes() for place in places for path in pathlib.Path(place).rglob("*") if path.is_file()}


def done(parties, ends):
    """Checks that everybody has ended with the result; returns what the aggregator says of those who were left out."""
    for name, end in ends.items():
        assert end.code == 0, (name, end.log)
        assert name == AGGREGATOR or end.summary["output"] == f"{parties.released}/result", end
    return ends[AGGREGATOR].summary["left_out"]


# --- Users of their own, whole runs


@pytest.fixture(scope="module")
def played(folder):
    """A run by a folder in which a client is killed."""
    parties = SeparateParties(folder, flags=(*PATIENT, "--lineage", "events.jsonl", "--metrics", "m.prom"))
    scene.killed(parties)
    parties.all_ends = parties.ends()
    return parties


@pytest.mark.slow
def test_a_client_that_was_killed_goes_on_and_bytes_are_those_of_fit(played):
    assert done(played, played.all_ends) == {}
    assert played.result() == played.alone(HOSPITALS)
    assert played.log("south").count("waits for the first round") <= 2


@pytest.mark.slow
def test_the_log_says_in_a_line_per_step_what_is_waited_for(played):
    steps = [line for line in played.log("north").splitlines() if "waits" in line]
    assert len(set(steps)) == len(steps)
    assert "dapple: north waits for the sum of round 0 from aggregator" in steps
    assert "dapple: north waits for the result from collector" in steps
    assert "dapple: aggregator waits for messages of round 0 from east, north, south" in played.log(AGGREGATOR)


def events_of(path):
    """Kind, word, whether it is within a party's run, and facets of each event."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        (each["eventType"], each["job"]["name"], "parent" in each["run"]["facets"], each["run"]["facets"])
        for each in found
    ]


@pytest.mark.slow
def test_every_party_reports_the_start_and_end_of_its_part_and_of_each_round(played):
    """The one that was killed has reported a begin without an end."""
    for name, word in {"north": "upload", AGGREGATOR: "aggregate", COLLECTOR: "unmask"}.items():
        events = events_of(played.folder / name / "events.jsonl")
        assert events[0][:3] == ("START", "party", False)
        *_, (kind, last, _, facets) = events
        assert (kind, last) == ("COMPLETE", "party")
        spent = facets.get("dapple_privacy", {}).get("epsilon")
        assert spent is None if name == AGGREGATOR else 1.9 < spent <= 2.0
        inner = [event[:2] for event in events[1:-1]]
        assert all(within for _, _, within, _ in events[1:-1])
        assert inner.count(("START", word)) >= 2
        assert {each for _, each in inner} == {word}
        lines = (played.folder / name / "m.prom").read_text().splitlines()
        assert "dapple_exit_code 0" in lines
        assert any(line.startswith("dapple_epsilon ") for line in lines) == (name == COLLECTOR)
        assert os.stat(played.folder / name / "m.prom.operator.json").st_mode & 0o077 == 0
    south = [event[:2] for event in events_of(played.folder / "south" / "events.jsonl")]
    assert (south.count(("START", "party")), south.count(("COMPLETE", "party"))) == (2, 1)
    assert not list(pathlib.Path(played.released).rglob("*.operator.json"))


def test_a_failing_party_reports_its_call_and_its_own_failure(parties, tmp_path):
    target = tmp_path / "events.jsonl"
    words = ("--wait_minutes", "0", "--lineage", str(target), "--metrics", str(tmp_path / "m.prom"))
    assert called(parties, COLLECTOR, *words).code == 6
    events = events_of(target)
    assert [event[:3] for event in events] == [
        ("START", "party", False),
        ("START", "unmask", True),
        ("COMPLETE", "unmask", True),
        ("FAIL", "party", False),
    ]
    assert events[-1][3]["dapple_failure"]["exitCode"] == 6
    lines = (tmp_path / "m.prom").read_text().splitlines()
    assert {"dapple_exit_code 6", 'dapple_phases_total{phase="work"} 1'} <= set(lines)


@pytest.mark.slow
def test_sent_messages_are_destroyed_when_the_run_is_over(played):
    assert not [path for name in HOSPITALS for path in (played.folder / name / "state").rglob("*.sent")]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users of their own")
def test_permissions_keep_the_parties_apart(played):
    def opens(name, path):
        number = played.names.index(name)
        words = ["setpriv", f"--reuid={FIRST_USER + number}", f"--regid={FIRST_USER + number}"]
        groups = [scene.ALL] if name == AGGREGATOR else [scene.ALL, scene.CLIENTS]
        words += ["--groups", ",".join(map(str, groups)), "ls", str(path)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    for name in played.names:
        assert [opens(name, played.folder / other) for other in played.names] == [name == n for n in played.names]
        assert opens(name, played.exchange)
        assert opens(name, played.released) == opens(name, f"{played.released}/result") == (name != AGGREGATOR)


@pytest.mark.slow
def test_a_store_and_a_client_that_sends_garbage():
    with scene.open_folder() as folder, object_store.object_store():
        parties = SeparateParties(folder, store=f"s3://{object_store.BUCKET}", flags=SHORT)
        scene.garbage(parties)
        ends = parties.ends()
        garbage = ends.pop("south")
        assert garbage.code == 0
        assert done(parties, ends) == {"0": ["south"], "1": ["south"]}
        assert "must be signed by south" in ends[AGGREGATOR].log
        assert parties.result() == parties.alone(HOSPITALS[:2])


@pytest.mark.slow
def test_pairwise_masks_noise_of_clients_and_one_that_never_comes():
    masked = {"scheme": "pairwise", "noise_by": "clients", "dropout": 0.3}
    privacy = {"unit": "client", "epsilon": 4.0, "delta": 1e-6}
    lloyd = scene.LLOYD["dp_lloyd"] | {"steps": 1}
    settings = {"privacy": privacy, "dp_lloyd": lloyd, "clipping": {"client_rows": 20}}
    with scene.open_folder() as folder:
        parties = SeparateParties(folder, masked=masked, sender_rows=20, flags=SHORT, **settings)
        scene.never(parties)
        assert done(parties, parties.ends()) == {"0": ["south"]}
        assert "sent: round 0, shares" in parties.log("north")


@pytest.mark.slow
def test_a_client_that_comes_too_late_joins_the_next_round():
    with scene.open_folder() as folder:
        parties = SeparateParties(folder, masked={"noise_by": "both"}, flags=("--late_minutes", "0"))
        scene.too_late(parties)
        ends = parties.ends()
        absent = done(parties, ends)
        assert "south" in absent["0"]
        assert "south waits for" in ends["south"].log


# --- A limit to all waits


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("north", "the first round from collector"),
        (AGGREGATOR, "the first round from collector"),
        (COLLECTOR, "the sum of round 0 from aggregator"),
    ],
)
def test_waiting_for_an_absent_party_ends_with_a_sentence(parties, name, waits):
    outcome = called(parties, name, "--wait_minutes", "0.002")
    assert outcome.code == 6
    assert outcome.lines[-1] == (
        f"dapple: {waits} didn't arrive within --wait_minutes 0.002; ask for it, and repeat the command, "
        "which resumes here."
    )


def test_a_waiting_party_leaves_no_trace(parties):
    assert called(parties, COLLECTOR, "--wait_minutes", "0").code == 6
    before = files_of(parties.exchange, parties.released, parties.folder / "north")
    assert called(parties, "north", "--wait_minutes", "0.005").code == 6
    assert files_of(parties.exchange, parties.released, parties.folder / "north") == before


def test_a_shared_folder_that_a_party_cannot_open_is_named_with_what_to_do(parties):
    """Hospitals that make one folder each leave it to themselves; it was an unexpected error with a line of code."""
    place = f"{parties.released}/settings.json"
    with mock.patch.object(party_run.Seat, "look", side_effect=PermissionError(13, "denied", place)):
        outcome = called(parties, COLLECTOR)
    assert (outcome.code, f"no access to {place}, and" in outcome.err) == (2, True)
    with mock.patch.object(party_run.Seat, "look", side_effect=PermissionError(13, "denied", "/elsewhere")):
        assert called(parties, COLLECTOR).code == 1


def test_a_store_that_comes_and_goes_is_polled_as_rarely_as_one_that_is_away(parties):
    waited, look, turns = [], party_run.Seat.look, itertools.cycle([True, False])

    def flapping(seat):
        if next(turns):
            raise StoreAwayError("The store doesn't answer; run it later.")
        return look(seat)

    patience = party_run.Patience(20.0, 4.0, 0.0, waited.append)
    with mock.patch.object(party_run.Seat, "look", flapping), pytest.raises(party_run.AbsentError):
        party_run.take_part(AGGREGATOR, parties.words(AGGREGATOR)[4:8], patience)
    assert waited == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]


def test_too_few_messages_are_waited_for_and_are_not_lost(parties):
    for name in (COLLECTOR, AGGREGATOR, "north"):
        assert called(parties, name, "--wait_minutes", "0").code == 6
    outcome = called(parties, AGGREGATOR, "--wait_minutes", "0.002", "--late_minutes", "0")
    assert outcome.code == 6
    assert outcome.err.count("not yet: fewer than 2 messages (threshold) have arrived") == 1
    assert "messages of round 0 from east, south didn't arrive within" in outcome.lines[-1]
    assert called(parties, "east", "--wait_minutes", "0").code == 6
    outcome = called(parties, AGGREGATOR, "--wait_minutes", "0", "--late_minutes", "0")
    assert "closed: round 0" in outcome.err
    outcome = called(parties, "south", "--wait_minutes", "0")
    assert (outcome.code, "south waits for round 1 from collector" in outcome.err) == (6, True)


@pytest.mark.parametrize(("wait", "poll"), [(float("nan"), 1.0), (0.0, 1.0), (0.05, 1.0)])
def test_a_wait_must_be_a_number_of_seconds(parties, wait, poll):
    waited = []
    patience = party_run.Patience(wait, poll, 0.0, waited.append)
    with pytest.raises(party_run.AbsentError):
        party_run.take_part(AGGREGATOR, parties.words(AGGREGATOR)[4:8], patience)
    assert len(waited) == (wait == 0.05)


def test_files_that_change_all_the_time_keep_nobody_busy(parties):
    """Garbage that changes is tried again, with a wait in between, and only until the wait is over."""
    for name in (COLLECTOR, AGGREGATOR):
        assert called(parties, name, "--wait_minutes", "0").code == 6
    place = next(pathlib.Path(parties.exchange).glob("00_*")) / "messages"
    place.mkdir()
    written = []

    def write(seconds):
        written.append(seconds)
        (place / "south.sealed").write_bytes(bytes(len(written)))

    with pytest.raises(party_run.AbsentError):
        party_run.take_part(AGGREGATOR, parties.words(AGGREGATOR)[4:8], party_run.Patience(4.0, 1.0, 0.0, write))
    assert written == [0.25, 0.5, 1.0, 1.0, 1.0, 1.0]


# --- A run stays the one that it was


def test_a_second_run_in_the_same_place_is_not_answered(parties):
    for name in (COLLECTOR, AGGREGATOR):
        assert called(parties, name, "--wait_minutes", "0").code == 6
    moved = parties.folder / "first"

    def open_again(_):
        if not moved.exists():
            pathlib.Path(parties.exchange).rename(moved)
            for name in (COLLECTOR, AGGREGATOR):
                assert called(parties, name, "--wait_minutes", "0").code == 6

    words = parties.words("north")[4:12]
    (moved / "..").resolve()
    (pathlib.Path(parties.exchange) / "aggregator.json").rename(parties.folder / "key.json")
    with pytest.raises(ProtocolError, match=r"plan\.json was replaced while the run went on"):
        party_run.take_part("client", words, party_run.Patience(9.0, 1.0, 0.0, open_again))
    assert not list(pathlib.Path(parties.exchange).rglob("*.sealed"))


def test_a_run_is_not_opened_over_the_releases_of_another_one(parties):
    pathlib.Path(parties.released, "00.parquet").write_bytes(b"")
    outcome = called(parties, COLLECTOR, "--wait_minutes", "0")
    assert (outcome.code, "--released already holds releases" in outcome.err) == (2, True)
    assert not Exchange(parties.exchange).is_open()


def test_garbage_in_the_name_of_an_office_ends_in_a_sentence(parties):
    pathlib.Path(parties.exchange, "plan.json").write_bytes(b"{}" * 40)
    for name in parties.names:
        outcome = called(parties, name, "--wait_minutes", "0.01")
        assert (outcome.code, len(outcome.lines)) == (5, 1), outcome.err


# --- Flags


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        (("--role", "nobody"), "'nobody' is not one of 'client', 'aggregator', 'clients'"),
        (("--wait_minutes", "-1"), "-1.0 is not in the range"),
        (("--poll_seconds", "0"), "0.0 is not in the range"),
        (("--late_minutes", "inf"), "inf is not in the range"),
        (("--client", "aggregator"), "must hold the key that parties give for aggregator, got that of north"),
        (("--client", "../x"), "--client must be letters, digits"),
        (("--no_such_flag", "3"), "--no_such_flag is not a flag of Dapple or Beam"),
        (("--role", "aggregator"), "--released must be left out for --role aggregator"),
        (("--role", "clients"), "--client must be left out for --role clients, got north"),
    ],
)
def test_a_wrong_flag_is_refused(parties, changed, refusal):
    outcome = called(parties, "north", *changed)
    assert (outcome.code, refusal in outcome.err) == (2, True), outcome.err
    assert files_of(parties.exchange, parties.released) == {}


def test_a_key_of_another_party_is_refused(parties):
    job = yaml.safe_load((parties.folder / "north" / "job.yaml").read_text())
    job["masked"]["identity_uri"] = str(parties.folder / "east" / "identity")
    (parties.folder / "north" / "job.yaml").write_text(yaml.safe_dump(job))
    outcome = called(parties, "north")
    assert (outcome.code, "must hold the key that parties give for north, got that of east" in outcome.err) == (2, True)


def test_the_aggregator_never_imports_what_knows_masks(parties):
    script = (
        "import json, sys\nfrom dapple_dp.pipelines.command.main import main\ncode = main(sys.argv[1:])\n"
        "print(json.dumps([code, sorted(sys.modules)]))"
    )
    words = parties.words(AGGREGATOR, "--wait_minutes", "0")
    said = subprocess.run([sys.executable, "-c", script, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    code, modules = json.loads(said.stdout.splitlines()[-1])
    assert code == 6
    assert "dapple_dp.pipelines.masked.aggregate" in modules
    assert not CLIENTS & set(modules)
