"""A ledger on a PostgreSQL server: what a file does, with servers that fail, and writers on several machines."""

import json
import os
import pathlib
import threading
from unittest import mock

import psycopg
import pytest
import yaml

from pipelines.ledger import postgres as module
from pipelines.ledger.remaining import remaining
from pipelines.ledger.store import Ledger
from schemas.errors import BudgetExceededError, ConfigError, LedgerRefusedError, LedgerUnavailableError
from schemas.privacy.charge import Limit
from tests.scenes import crashes, epochs, lake, postgres
from tests.scenes.lake import run_command
from tests.scenes.ledgers import Place, basic_limit, charge, gaussian, kinds, new_ledger
from tests.scenes.postgres import PASSWORD, PostgresServer

PROCESSES, RESERVES = 4, 12


@pytest.fixture(scope="module")
def server():
    found = postgres.started()
    yield found
    found.remove()


@pytest.fixture
def ledger(server):
    found = Ledger(server.database())
    found.set_limit("census", basic_limit(2.0))
    return found


@pytest.fixture
def impatient():
    """Nobody waits two minutes here for what does not come."""
    with mock.patch.object(module, "WAIT_SECONDS", 1.0):
        yield


def test_it_says_what_a_file_says(server, tmp_path):
    """The same entries but for their times, so the same composed epsilon, and the same refusals."""
    found = []
    for ledger in (Ledger(server.database()), Ledger(str(tmp_path / "ledger.sqlite"))):
        ledger.set_limit("census", Limit(epsilon=3.0, delta=1e-6, basic_epsilon=1.0, basic_delta=1e-7))
        for number in range(8):
            ledger.reserve(f"run{number}", gaussian(9.0 + number / 7), {"nonce": f"{number}"})
            ledger.start(f"run{number}", {"key": {"key_uri": f"k{number}"}, "input": "i"})
        ledger.commit("run0", {"releases": "r"})
        ledger.commit("run0", {"releases": "r"})
        ledger.void("run1", "InputError")
        ledger.reserve("other", charge(0.3), {})
        assert ledger.reserve("other", charge(0.3), {}, again=True) == "other~2"
        with pytest.raises(BudgetExceededError):
            ledger.reserve("more", charge(0.5), {})
        with pytest.raises(LedgerRefusedError, match="a key of its own"):
            ledger.start("other", {"key": {"key_uri": "k3"}})
        with pytest.raises(LedgerRefusedError, match="choose another run_id"):
            ledger.commit("run1", {})
        rows = [(each.sequence, each.kind, each.dataset, each.run, each.content) for each in ledger.entries()]
        found.append((rows, remaining(ledger.path, "census")))
    (rows, left), (others, of_file) = found
    assert rows == others
    assert left.epsilon == pytest.approx(of_file.epsilon, rel=1e-12, abs=1e-12)
    assert 0.0 < left.epsilon < 3.0


def test_changes_are_seen_and_the_server_itself_refuses(server, ledger):
    ledger.reserve("a", charge(1.0), {})
    name = ledger.path.rpartition("/")[2]
    for statement in ("UPDATE dapple.entries SET run = 'b'", "DELETE FROM dapple.entries", "TRUNCATE dapple.entries"):
        with pytest.raises(psycopg.Error, match="append-only"):
            server.execute(statement, name)
    server.execute("ALTER TABLE dapple.entries DISABLE TRIGGER ALL", name)
    server.execute("DELETE FROM dapple.entries WHERE sequence = 2", name)
    for ask in (ledger.entries, lambda: ledger.reserve("b", charge(0.5), {})):
        with pytest.raises(LedgerRefusedError, match="the ledger must end with entry 2"):
            ask()
    server.execute("UPDATE dapple.head SET format = 2", name)
    with pytest.raises(LedgerRefusedError, match="a new file that is lower by all"):
        ledger.entries()


def test_a_database_without_ledger_is_refused(server, impatient):
    with pytest.raises(LedgerRefusedError, match=r"a database without one.*dapple ledger limit"):
        Ledger(server.database()).entries()
    with pytest.raises(LedgerRefusedError, match='database "nowhere" does not exist'):
        Ledger(server.url("nowhere")).set_limit("census", basic_limit(1.0))


@pytest.mark.parametrize(("setting", "value"), [("synchronous_commit", "off"), ("synchronous_commit", "local")])
def test_what_a_server_does_not_keep_is_refused(server, setting, value):
    for url in (f"{server.database()}?options=-c%20{setting}%3D{value}",):
        with pytest.raises(LedgerRefusedError, match=f"{setting} of the ledger's server must be on or remote_apply"):
            Ledger(url).set_limit("census", basic_limit(1.0))


def test_a_server_that_does_not_flush_is_refused(server, ledger):
    server.kill()
    server.up("fsync=off")
    try:
        with pytest.raises(LedgerRefusedError, match="fsync of the ledger's server must be on, got off"):
            ledger.reserve("a", charge(1.0), {})
    finally:
        server.kill()
        server.up()
    assert kinds(ledger) == ["limit"]


def test_a_standby_that_does_not_answer_ends_no_run_and_no_charge(server, ledger):
    """The rows are on the server's own disk; the run is asked to come back, and then is not charged twice."""
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.execute("SELECT pg_reload_conf()")
    try:
        with (
            mock.patch.object(module, "WAIT_SECONDS", 2.0),
            pytest.raises(LedgerUnavailableError, match="got none that says so") as refused,
        ):
            ledger.reserve("a", charge(1.0), {})
        assert refused.value.exit_code == 75
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")
    assert kinds(ledger) == ["limit", "reserve"]


def test_a_password_is_in_a_file_of_its_own(server, ledger, tmp_path, monkeypatch):
    name = ledger.path.rpartition("/")[2]
    server.execute("GRANT USAGE ON SCHEMA dapple TO careful", name)
    server.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA dapple TO careful", name)
    theirs = Ledger(server.url(name, "careful"))
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(LedgerRefusedError, match="no password"):
        theirs.entries()
    path = tmp_path / "pgpass"
    path.write_text(f"127.0.0.1:{server.port}:*:careful:{PASSWORD}\n")
    path.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(path))
    theirs.reserve("a", charge(1.0), {})
    path.write_text(f"127.0.0.1:{server.port}:*:careful:wrong-{PASSWORD}\n")
    with pytest.raises(LedgerRefusedError, match="authentication failed") as refused:
        theirs.entries()
    assert PASSWORD not in str(refused.value)


def test_a_server_that_is_away_is_waited_for(server, ledger, impatient):
    server.kill()
    try:
        with pytest.raises(LedgerUnavailableError, match=r"got none at .* try again later"):
            ledger.reserve("a", charge(1.0), {})
    finally:
        server.up()
    ledger.reserve("a", charge(1.0), {})
    server.kill()
    waiting = threading.Thread(target=server.up)
    waiting.start()
    with mock.patch.object(module, "WAIT_SECONDS", 120.0):
        ledger.commit("a", {})
    waiting.join()
    assert kinds(ledger) == ["limit", "reserve", "commit"]


class _Cut:
    """A connection that is lost while it commits, before the server did, or after."""

    def __init__(self, connection, when):
        self._connection, self._when = connection, when

    def execute(self, query, *values):
        if query == "COMMIT":
            if self._when == "after":
                self._connection.execute(query)
            raise psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")
        return self._connection.execute(query, *values)

    def __getattr__(self, name):
        return getattr(self._connection, name)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("again", [False, True])
def test_a_commit_of_unknown_outcome_is_looked_up(ledger, when, again):
    """Whether the server had committed or not, the run is charged once, and its caller gets the right name."""
    ledger.reserve("a", charge(0.5), {})
    connect, cuts = psycopg.connect, [when, when, None]

    def cut(**options):
        return _Cut(connect(**options), cuts.pop(0)) if cuts and cuts[0] else connect(**options)

    with mock.patch.object(psycopg, "connect", cut):
        assert ledger.reserve("a" if again else "b", charge(0.5), {}, again=again) == ("a~2" if again else "b")
    assert kinds(ledger) == ["limit", "reserve", "reserve"]


def test_two_that_ask_alike_at_once_are_charged_once_and_one_is_refused(ledger):
    """Entries of equal content differ by their nonce: the one whose outcome is unknown does not take the other
    one's charge for its own."""
    connect, others = psycopg.connect, [lambda: ledger.reserve("a", charge(0.5), {})]

    class Overtaken(_Cut):
        def execute(self, query, *values):
            if query == "COMMIT":
                self._connection.close()
                others.pop()()
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            return self._connection.execute(query, *values)

    made = [Overtaken]

    def cut(**options):
        return (made.pop() if made else lambda each, _: each)(connect(**options), "before")

    with mock.patch.object(psycopg, "connect", cut), pytest.raises(LedgerRefusedError, match="choose another run_id"):
        ledger.reserve("a", charge(0.5), {})
    assert kinds(ledger) == ["limit", "reserve"]


def test_a_charge_that_another_machine_has_taken_up_is_not_given_back(ledger, caplog):
    """Folders and locks of two machines are two: only the ledger knows of both."""
    ledger.reserve("a", charge(1.0), {})
    ledger.take_up("a")
    ledger.void("a", "InputError")
    assert ledger.status("a").state == "reserved"
    assert "run a stays reserved" in caplog.text
    ledger.reserve("b", charge(1.0), {})
    ledger.void("b", "InputError")
    assert ledger.status("b").state == "void"
    with pytest.raises(LedgerRefusedError, match="one that has ended"):
        ledger.take_up("b")
    ledger.reserve("b", charge(1.0), {})
    ledger.void("b", "InputError")
    assert ledger.status("b").state == "void"


def _reserve(url, process, count, done):
    """The body of a writer: reserves, and writes down the id of each run once it has learned that it is charged."""
    ledger = Ledger(url)
    with pathlib.Path(done).open("a", encoding="utf-8") as file:
        for number in range(count):
            try:
                name = ledger.reserve(f"run{process}-{number}", charge(0.25), {"nonce": f"{process}-{number}"})
            except BudgetExceededError as error:
                os._exit(error.exit_code)
            file.write(f"{name}\n")
            file.flush()
    os._exit(0)


@pytest.mark.slow
def test_writers_lose_nothing_while_the_server_is_killed(server, tmp_path):
    """The committed size is in `benchmarks/postgres_ledger.py`."""
    url, fits = server.database(), PROCESSES * RESERVES - 3
    Ledger(url).set_limit("census", basic_limit(0.25 * fits))
    done = [str(tmp_path / f"done{process}") for process in range(PROCESSES)]
    writers = [crashes.started(_reserve, url, process, RESERVES, path) for process, path in enumerate(done)]
    while sum(len(pathlib.Path(path).read_text().split()) for path in done if os.path.exists(path)) < 6:
        assert any(each.is_alive() for each in writers)
    server.kill()
    server.up()
    for each in writers:
        each.join(1200)
    told = [name for path in done for name in pathlib.Path(path).read_text().split()]
    charged = [each.run for each in Ledger(url).entries() if each.kind == "reserve"]
    assert len(set(charged)) == len(charged) == fits
    assert sorted(told) == sorted(charged)
    assert {each.exitcode for each in writers} <= {0, 3}


def test_a_fit_is_charged_resumed_and_verified(server, tmp_path):
    place = Place(tmp_path)
    url = server.database()
    limit = ("ledger", "limit", "--ledger", url, "--dataset", "census", "--epsilon", "10", "--delta", "1e-5")
    assert run_command(*limit).code == 0
    done = place.fit(ledger=url)
    assert done.code == 0, done.err
    assert postgres.kinds(url) == ["limit", "reserve", "start", "commit"]
    again = place.fit(ledger=url)
    assert "nothing is read or charged" in again.err
    assert run_command("verify", place.path("out"), "--ledger", url).code == 0
    told = json.loads(run_command("ledger", "show", "--ledger", url).out.splitlines()[-1])
    assert told["runs"]["run"]["state"] == "committed"


def test_copies_go_both_ways_and_say_what_they_leave(server, tmp_path):
    ledger = new_ledger(tmp_path, basic_limit(2.0))
    ledger.reserve("a", charge(1.0), {"nonce": "é\n"})
    url, back = server.database(), str(tmp_path / "back.sqlite")
    for one, other in ((ledger.path, url), (url, back)):
        copied = run_command("ledger", "copy", "--ledger", one, "--to", other)
        assert copied.code == 0, copied.err
        assert "Not copied: rolls of clients" in copied.out
        assert json.loads(copied.out.splitlines()[-1])["head"] == ledger.entries()[-1].digest
    assert Ledger(back).entries() == Ledger(url).entries() == ledger.entries()
    refused = run_command("ledger", "copy", "--ledger", url, "--to", back)
    assert (refused.code, "must be a ledger without entries" in refused.err) == (3, True)
    Ledger(url).reserve("b", charge(1.0), {})
    with pytest.raises(BudgetExceededError):
        Ledger(url).reserve("c", charge(0.1), {})


SECRET = "planted0451"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@h/d",
        f"postgres://me:{SECRET}@h/d",
        f"PostgreSQL://me:{SECRET}@h/d",
        f"postgresql://h/d?password={SECRET}",
        f"postgresql://h/d?pass%77ord={SECRET}",
        f"postgresql://h/d?sslpassword={SECRET}",
        f"postgresql://me:1/{SECRET}@h/d",
        f"postgresql://me:1#{SECRET}@h/d",
        f"postgresql://me:[{SECRET}@h/d",
        f"mysql://me:{SECRET}@h/d",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_said(url, tmp_path):
    with pytest.raises(ConfigError) as refused:
        Ledger(url)
    assert SECRET not in str(refused.value)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(lake.job("rows", None) | {"ledger": url}))
    words = ("fit", "--config", str(tmp_path / "job.yaml"), "--output", str(tmp_path / "out"), "--run_id", "a")
    for given in (words, ("ledger", "show", "--ledger", url), ("verify", str(tmp_path), "--ledger", url)):
        told = run_command(*given)
        assert told.code in ((2, 5) if given[0] == "verify" else (2,))
        assert SECRET not in told.err + told.out


def test_the_library_is_an_extra():
    with (
        mock.patch.dict("sys.modules", {"psycopg": None}),
        pytest.raises(ConfigError, match=r"run pip install 'psycopg\[binary\]"),
    ):
        Ledger("postgresql://me@h/d")


def test_a_server_is_run_by_nobody(server: PostgresServer):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    assert f"Uid:\t{os.stat(server.folder / 'data').st_uid}" in status
    assert os.stat(server.folder / "data").st_uid != 0


def test_an_epoch_at_client_level_keeps_its_rolls_where_the_job_says(server, tmp_path):
    """Two windows of a stream, charged once; a roll that was put in place of the last one is refused."""
    place = epochs.Place(tmp_path)
    place.ledger = Ledger(server.database())
    place.ledger.set_limit("visits", Limit(epsilon=50.0, delta=1e-4))
    for date in epochs.DATES[:3]:
        place.write(date, range(40))
    refused = place.release(epochs.DATES[0])
    assert (refused.code, "state must be given with a ledger on a server" in refused.err) == (2, True)
    place.job["state"] = str(tmp_path / "private")
    done = place.release(epochs.DATES[1])
    assert done.code == 0, done.err
    rolls = sorted((tmp_path / "private").glob("*/*"))
    assert len(rolls) == 2
    assert len([each for each in kinds(place.ledger) if each == "commit"]) == 2
    rolls[-1].write_bytes(rolls[0].read_bytes())
    changed = place.release(epochs.DATES[2])
    assert (changed.code, "another one than the ledger's commit" in changed.err) == (3, True)
