"""A ledger on a PostgreSQL server: what a file does, with servers that fail, and writers on several machines."""

import json
import os
import pathlib
import re
import threading
from unittest import mock

import psycopg
import pytest
import yaml

from dapple_dp.pipelines.ledger import postgres as module
from dapple_dp.pipelines.ledger import store as store_module
from dapple_dp.pipelines.ledger.remaining import remaining
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.schemas.errors import (
    BudgetExceededError,
    ConfigError,
    DappleError,
    LedgerRefusedError,
    LedgerUnavailableError,
)
from dapple_dp.schemas.privacy.charge import Limit
from tests.scenes import crashes, epochs, lake, postgres
from tests.scenes.lake import run_command
from tests.scenes.ledgers import Place, basic_limit, charge, gaussian, kinds, new_ledger
from tests.scenes.postgres import PASSWORD, PostgresServer

PROCESSES, RESERVES = 4, 12


@pytest.fixture(scope="module")
def server():
    found = postgres.started()
    for statement in (
        "CREATE ROLE narrow LOGIN",
        "CREATE ROLE nologin NOLOGIN",
        "CREATE DATABASE closed ALLOW_CONNECTIONS false",
        "CREATE DATABASE readonly",
        "ALTER DATABASE readonly SET default_transaction_read_only = on",
    ):
        found.execute(statement)
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
    with pytest.raises(LedgerRefusedError, match="a new ledger with a limit that is lower by all"):
        ledger.entries()


@pytest.fixture
def once():
    """A second attempt fails the test: what is final is final at once."""
    with mock.patch.object(module.time, "sleep", side_effect=AssertionError("tried again")):
        yield


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://dapple@{at}/nowhere", 'database "nowhere" does not exist'),
        ("postgresql://stranger@{at}/postgres", 'role "stranger" does not exist'),
        ("postgresql://nologin@{at}/postgres", "is not permitted to log in"),
        ("postgresql://careful@{at}/postgres", "no password supplied"),
        ("postgresql://dapple@{at}/closed", "not currently accepting connections"),
        ("postgresql://dapple@{at}/postgres?sslmode=require", "does not support SSL"),
        ("postgresql://dapple@{at}/postgres?sslmode=verify-full", "does not support SSL"),
        ("postgresql://dapple@{at}/postgres?sslmode=sometimes", "invalid sslmode value"),
        ("postgresql://dapple@{at}/postgres?channel_binding=require", "channel binding required"),
        ("postgresql://dapple@{at}/postgres?require_auth=md5", "authentication method requirement"),
        ("postgresql://dapple@{at}/postgres?gssencmode=require", "encryption required"),
        ("postgresql://dapple@{at}/postgres?options=-c%20nothing%3D1", "unrecognized configuration parameter"),
        ("postgresql://dapple@{at}/postgres?options=-c%20work_mem%3Dmuch", "invalid value for parameter"),
        ("postgresql://dapple@{at}/postgres?service=unheard", 'service "unheard" not found'),
        ("postgresql://dapple@{at}/postgres?hostaddr=somewhere", "could not parse network address"),
        ("postgresql://dapple@127.0.0.1:99999/postgres", "invalid port number"),
        ("postgresql://dapple@{at}/readonly", "is a standby or read-only"),
    ],
)
def test_a_url_that_can_never_work_is_refused_at_once(server, once, monkeypatch, url, said, tmp_path):
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(LedgerRefusedError, match=re.escape(said)) as refused:
        Ledger(url.format(at=f"127.0.0.1:{server.port}")).set_limit("census", basic_limit(1.0))
    assert not isinstance(refused.value, LedgerUnavailableError)


def _lost(text):
    """A connection that can't be made; what libpq and psycopg say, taken from runs of them."""
    return mock.patch.object(psycopg, "connect", side_effect=psycopg.OperationalError(text))


_AT = 'connection failed: connection to server at "db", port 5432 failed: '


@pytest.mark.parametrize(
    "said",
    [
        f"{_AT}SSL error: certificate verify failed",
        f'{_AT}server certificate for "db" does not match host name "other"',
        f'{_AT}FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "me", database "d", no encryption',
        f"{_AT}received invalid response to SSL negotiation: H",
        f"{_AT}FATAL:  no such database: d",
        f"{_AT}server is in hot standby mode",
        "failed to resolve host 'db': [Errno -2] Name or service not known",
    ],
)
def test_what_libraries_say_of_a_final_error_is_final(once, said):
    with _lost(said), pytest.raises(LedgerRefusedError) as refused:
        Ledger("postgresql://me@db/d").entries()
    assert not isinstance(refused.value, LedgerUnavailableError)


@pytest.mark.parametrize(
    ("said", "url"),
    [
        (f"{_AT}Connection refused", "postgresql://me@db/d"),
        (f"{_AT}FATAL:  the database system is starting up", "postgresql://me@db/d"),
        (f"{_AT}FATAL:  sorry, too many clients already", "postgresql://me@db/d"),
        (f"{_AT}server closed the connection unexpectedly", "postgresql://me@db/d"),
        ("connection timeout expired", "postgresql://me@db/d"),
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", "postgresql://me@db/d"),
        (f"{_AT}session is read-only", "postgresql://me@db,other/d"),
        (f"{_AT}FATAL:  das Datenbanksystem startet", "postgresql://me@db/d"),
    ],
)
def test_what_goes_away_is_waited_for(said, url):
    with (
        mock.patch.object(module, "WAIT_SECONDS", 0.05),
        _lost(said) as connect,
        pytest.raises(LedgerUnavailableError, match="try again later"),
    ):
        Ledger(url).entries()
    assert connect.call_count > 1


def test_a_primary_that_becomes_a_standby_is_waited_for(server, ledger):
    """A server that takes over has the same URL."""
    with (
        mock.patch.object(module, "WAIT_SECONDS", 0.05),
        _lost(f"{_AT}session is read-only") as connect,
        pytest.raises(LedgerUnavailableError),
    ):
        ledger.entries()
    assert connect.call_count > 1


@pytest.fixture
def narrow(server, ledger):
    """The ledger as a role has it with the rights that are printed."""
    name = ledger.path.rpartition("/")[2]
    server.execute(module.RIGHTS.format(role="narrow"), name)
    return Ledger(server.url(name, "narrow"))


def test_the_rights_that_are_printed_suffice(server, ledger, narrow, once):
    """For all that jobs do. No entry can be changed with them, whatever its trigger is."""
    narrow.set_limit("visits", basic_limit(1.0))
    narrow.reserve("a", charge(1.0), {})
    narrow.take_up("a")
    narrow.start("a", {"key": {"key_uri": "k"}})
    narrow.commit("a", {})
    narrow.reserve("b", charge(1.0), {})
    narrow.void("b", "InputError")
    assert kinds(narrow) == kinds(ledger) == ["limit", "limit", "reserve", "start", "commit", "reserve", "void"]
    for change in ("UPDATE dapple.entries SET run = ''", "DELETE FROM dapple.entries", "TRUNCATE dapple.entries"):
        with pytest.raises(psycopg.Error, match="permission denied"):
            server.execute(change, narrow.path.rpartition("/")[2], "narrow")


def test_a_missing_right_is_named_with_the_grants(server, ledger, once):
    theirs = Ledger(server.url(ledger.path.rpartition("/")[2], "narrow"))
    with pytest.raises(LedgerRefusedError, match=r"permission denied for schema dapple.*GRANT SELECT, UPDATE ON"):
        theirs.entries()
    with pytest.raises(LedgerRefusedError, match=r"permission denied for database.*needs CREATE on the database"):
        Ledger(server.database().replace("dapple@", "narrow@")).set_limit("census", basic_limit(1.0))


def test_a_new_ledger_prints_its_rights_once(server):
    words = ("ledger", "limit", "--ledger", server.database(), "--epsilon", "1", "--delta", "1e-6", "--dataset")
    assert module.RIGHTS.format(role="ROLE") in run_command(*words, "census").out
    assert "GRANT" not in run_command(*words, "visits").out


@pytest.mark.parametrize("old_lock", [False, True])
def test_two_writers_of_narrow_rights_never_spend_the_same_budget(ledger, narrow, old_lock):
    """The second one reads what was spent after the first has its entry; so does one that still locks `entries`."""
    inside, go = threading.Event(), threading.Event()

    def held(rows):
        inside.set()
        assert go.wait(60)
        store_module._Book(rows).append("reserve", "census", "a", {"charge": charge(1.5).to_json()})

    first = threading.Thread(target=narrow._storage.change, args=(held,))
    first.start()
    assert inside.wait(60)
    found = []
    lock = "LOCK TABLE dapple.entries IN SHARE ROW EXCLUSIVE MODE" if old_lock else module._LOCK
    second = threading.Thread(target=lambda: found.append(_error(lambda: ledger.reserve("b", charge(1.0), {}))))
    with mock.patch.object(module, "_LOCK", lock):
        second.start()
        second.join(0.3)
        assert second.is_alive()
        go.set()
        first.join(60)
        second.join(60)
    assert [type(each) for each in found] == [BudgetExceededError]
    assert kinds(ledger) == ["limit", "reserve"]


def _error(ask):
    """Returns what a call raises."""
    try:
        return ask()
    except DappleError as error:
        return error


def test_a_database_without_ledger_is_refused(server, impatient):
    with pytest.raises(LedgerRefusedError, match=r"no ledger in the database .*dapple ledger limit"):
        Ledger(server.database()).entries()


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
            pytest.raises(LedgerUnavailableError, match="no standby of the ledger's server") as refused,
        ):
            ledger.reserve("a", charge(1.0), {})
        assert refused.value.exit_code == 75
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")
    assert kinds(ledger) == ["limit", "reserve"]


def test_a_password_is_in_a_file_of_its_own(server, ledger, tmp_path, monkeypatch):
    name = ledger.path.rpartition("/")[2]
    server.execute(module.RIGHTS.format(role="careful"), name)
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
        with pytest.raises(LedgerUnavailableError, match=r"didn't answer within .* try again later"):
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
    """The run is charged once, committed by the server or not, and its caller gets the right name."""
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
    with pytest.raises(LedgerRefusedError, match="is no longer reserved"):
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
    """Eight processes with fifty charges each were measured for version 0.2.0."""
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
    head = ledger.entries()[-1].digest
    url, back = server.database(), str(tmp_path / "back.sqlite")
    for one, other in ((ledger.path, url), (url, back)):
        copied = run_command("ledger", "copy", "--ledger", one, "--to", other)
        assert copied.code == 0, copied.err
        assert "Not copied: client lists" in copied.out
        assert json.loads(copied.out.splitlines()[-1])["head"] == head
    assert Ledger(back).entries() == Ledger(url).entries()[:-1] == ledger.entries()[:-1]
    Ledger(back).reserve("b", charge(1.0), {})
    with pytest.raises(BudgetExceededError):
        Ledger(back).reserve("c", charge(0.1), {})


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


def test_an_epoch_at_client_level_keeps_its_client_lists_where_the_job_says(server, tmp_path):
    """Two windows of a stream, charged once; a client list that was put in place of the last one is refused."""
    place = epochs.Place(tmp_path)
    place.ledger = Ledger(server.database())
    place.ledger.set_limit("visits", Limit(epsilon=50.0, delta=1e-4))
    for date in epochs.DATES[:3]:
        place.write(date, range(40))
    refused = place.release(epochs.DATES[0])
    assert (refused.code, "state is required for privacy.unit client with a ledger on a server" in refused.err) == (
        2,
        True,
    )
    place.job["state"] = str(tmp_path / "private")
    done = place.release(epochs.DATES[1])
    assert done.code == 0, done.err
    lists = sorted((tmp_path / "private").glob("*/*"))
    assert len(lists) == 2
    assert len([each for each in kinds(place.ledger) if each == "commit"]) == 2
    lists[-1].write_bytes(lists[0].read_bytes())
    changed = place.release(epochs.DATES[2])
    assert (changed.code, "another one than the ledger's commit" in changed.err) == (3, True)
