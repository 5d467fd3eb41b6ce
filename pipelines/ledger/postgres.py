"""Storage of a ledger in a PostgreSQL database, for runs on several machines.

Transactions are serializable, and a writer locks the table `head` before it reads the spending: locking `entries` would
need the right to change entries, which no role should have. If a connection is lost during a commit, the client can't
know whether it succeeded. So each attempt adds a random nonce to the rows that it appends, and the next attempt looks
for these rows first, under the same lock.
"""

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dapple_dp.pipelines.ledger.storage import WAIT_SECONDS, Result, check_format, checked_entries
from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError, LedgerUnavailableError, what_installs
from dapple_dp.schemas.privacy.ledger_entry import CHAIN_START, COLUMNS, LedgerEntry
from dapple_dp.schemas.settings.format_number import FORMAT
from dapple_dp.transforms.files.signals.measures import LEDGER_RETRIES, MEASURES

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_TABLES = (
    "CREATE SCHEMA dapple",
    "CREATE TABLE dapple.entries (sequence bigint PRIMARY KEY, time text NOT NULL, kind text NOT NULL, "
    "dataset text NOT NULL, run text NOT NULL, content text NOT NULL, previous text NOT NULL, digest text NOT NULL, "
    "nonce text NOT NULL)",
    "CREATE TABLE dapple.head (format integer NOT NULL, length bigint NOT NULL, digest text NOT NULL)",
    "CREATE TABLE dapple.attempts (reserve bigint NOT NULL, nonce text PRIMARY KEY)",
    "CREATE FUNCTION dapple.stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'append-only'; END $$",
    "CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON dapple.entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION dapple.stay()",
    f"INSERT INTO dapple.head VALUES ({FORMAT}, 0, '{CHAIN_START}')",
)
_LIMITS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
"""The last one releases the lock of a process that is cut off while it writes."""
_LOCK = "LOCK TABLE dapple.head IN SHARE ROW EXCLUSIVE MODE"
RIGHTS = (
    "GRANT USAGE ON SCHEMA dapple TO {role}; "
    "GRANT SELECT, INSERT ON dapple.entries, dapple.attempts TO {role}; "
    "GRANT SELECT, UPDATE ON dapple.head TO {role};"
)
"""Rights that suffice for every job once the ledger exists; they don't allow changing entries."""
_DURABLE = {"fsync": ("on",), "synchronous_commit": ("on", "remote_apply")}
"""Server settings and their required values, so that a commit is on disk."""
_CONNECTION = {
    "application_name": "dapple",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_PRIMARY = {"target_session_attrs": "read-write"}
"""A standby may lag behind and miss the last charges."""
_FINAL = re.compile(
    "|".join(
        (
            # From the library, for a URL that it can't use, before it contacts a server.
            r"connection is bad: (?!connection to server)",
            r"Name or service not known|nodename nor servname|No address associated",
            # From the library, for a server without a feature that the URL asks for, or that isn't PostgreSQL.
            r"does not support|but SSL was required|certificate|encryption required|channel binding required",
            r"authentication method requirement|received invalid response|expected authentication request",
            # From the server, for a role, a password, a database or an option.
            r"authentication failed|no password|pg_hba|does not exist|no such (?:user|database)",
            r"permission denied|is not permitted|not currently accepting connections",
            r"unrecognized configuration parameter|invalid value for parameter",
        )
    )
)
"""English messages of libpq and servers for connections that will be refused again. Connection errors have no SQLSTATE.
Other messages, such as those in another language, lead to another attempt."""
_STANDBY = re.compile("session is read-only|server is in hot standby mode")
_MISSING_RIGHT = "42501"
_NO_LEDGER = ("3F000", "42P01")
_AGAIN = ("40001", "40P01", "23505", "42P06", "42P07", "55P03", "57014", "25P03")
"""SQLSTATE of temporary errors: serialization, a deadlock, an object that another process created first, a timeout."""
_NO_STANDBY = "01000"
"""SQLSTATE of the warning that a commit did not wait for a standby; a crashing server warns with another one."""
_LONGEST_PAUSE = 2.0
_REACHED: set[str] = set()
"""URLs that this process has connected to; a standby there may be the old primary of a server that moves."""


class PostgresDatabase:
    """Database of a ledger.

    Args:
      url: `postgresql://USER@HOST:PORT/DATABASE`, without a password.

    Raises:
      ConfigError: if the extra `postgres` isn't installed, or libpq can't parse the URL.
    """

    folder: str | None = None

    def __init__(self, url: str):
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            raise ConfigError(
                f"A ledger on PostgreSQL needs psycopg, which is not installed; run {what_installs('postgres')}."
            ) from None
        self.place, self._errors = url, psycopg
        try:
            self._options: dict[str, Any] = {**_CONNECTION, **conninfo_to_dict(url), **_PRIMARY}
        except psycopg.Error as error:
            raise ConfigError("ledger must be a URL that the PostgreSQL library can read; correct it.") from error

    def make(self) -> None:
        """Creates the tables of an empty ledger, if they don't exist."""

        def act(connection: "Connection", _: str) -> None:
            if connection.execute("SELECT to_regclass('dapple.entries')").fetchone() == (None,):
                for statement in _TABLES:
                    connection.execute(statement)

        self._repeated(act, {})

    def look(self, act: Callable[["_Rows"], Result]) -> Result:
        """Returns the result of `act` on a consistent snapshot of all rows."""
        return self._repeated(lambda connection, nonce: act(_Rows(connection, nonce)), {})

    def change(self, act: Callable[["_Rows"], Result]) -> Result:
        """Calls `act`, which may append rows, under an exclusive lock; returns its result."""
        unknown: dict[str, Result] = {}

        def attempt(connection: "Connection", nonce: str) -> Result:
            connection.execute(_LOCK)
            question = (
                "SELECT nonce FROM dapple.entries WHERE nonce = ANY(%s) "
                "UNION SELECT nonce FROM dapple.attempts WHERE nonce = ANY(%s)"
            )
            known = connection.execute(question, (list(unknown), list(unknown))).fetchone() if unknown else None
            if known is not None:
                return unknown[known[0]]
            return act(_Rows(connection, nonce))

        return self._repeated(attempt, unknown)

    def _repeated(self, act: Callable[["Connection", str], Result], unknown: dict[str, Result]) -> Result:
        """Returns the result of a committed transaction; repeats it after temporary errors.

        Args:
          act: called with a connection in a transaction, and the nonce of the attempt.
          unknown: filled with results by nonce, for attempts whose commit may or may not have succeeded.
        """
        end, pause = time.monotonic() + WAIT_SECONDS, 0.01
        while True:
            nonce = secrets.token_hex(16)
            try:
                with self._transaction() as connection:
                    result = act(connection, nonce)
                    unknown[nonce] = result
                    self._commit(connection)
                return result
            except self._errors.Error as error:
                if error.sqlstate in _AGAIN:
                    unknown.pop(nonce, None)
                if not self._goes_away(error) or time.monotonic() > end:
                    raise self._refused(error) from error
            MEASURES.add(LEDGER_RETRIES)
            time.sleep(pause * (1 + secrets.randbelow(100) / 100))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _commit(self, connection: "Connection") -> None:
        """Commits; raises LedgerUnavailableError if a required standby doesn't confirm in time."""
        warnings: list[str | None] = []
        connection.add_notice_handler(lambda notice: warnings.append(notice.sqlstate))
        # No server setting limits the wait for standbys, so cancel it; the server then warns.
        limit = threading.Timer(WAIT_SECONDS, connection.cancel_safe)
        limit.start()
        try:
            connection.execute("COMMIT")
        finally:
            limit.cancel()
        if _NO_STANDBY in warnings:
            raise LedgerUnavailableError(
                f"no standby of the ledger's server at {self.place} confirmed the commit within {WAIT_SECONDS:.0f} "
                "seconds; try again later with the same --run_id."
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator["Connection"]:
        """Opens a connection in a transaction, to a server whose commits are durable."""
        # No prepared statements, since they get lost behind a connection pool.
        with contextlib.closing(
            self._errors.connect(**self._options, autocommit=True, prepare_threshold=None)
        ) as connection:
            for name, wanted in _DURABLE.items():
                (got,) = connection.execute("SELECT current_setting(%s)", (name,)).fetchone() or ("",)
                if got not in wanted:
                    raise LedgerRefusedError(
                        f"{name} of the ledger's server must be {' or '.join(wanted)}, got {got}; set it, since a "
                        "charge that is lost could be spent again."
                    )
            _REACHED.add(self.place)
            limits = (f"SET LOCAL {name} = {int(WAIT_SECONDS * 1000)}" for name in _LIMITS)
            connection.execute("; ".join(["BEGIN ISOLATION LEVEL SERIALIZABLE", *limits]))
            yield connection

    def _goes_away(self, error: "psycopg.Error") -> bool:
        """Returns whether an error is temporary: a server that starts, stops or is cut off, or a conflict."""
        if error.sqlstate is not None:
            return error.sqlstate in _AGAIN or error.sqlstate[:2] in ("08", "57", "53")
        if not isinstance(error, self._errors.OperationalError | self._errors.InterfaceError):
            return False
        text = str(error)
        return _FINAL.search(text) is None and (_STANDBY.search(text) is None or self._may_move())

    def _may_move(self) -> bool:
        """Returns whether another server may take over: the URL has several hosts, or it has worked before."""
        return "," in str(self._options.get("host", "")) or self.place in _REACHED

    def _refused(self, error: "psycopg.Error") -> LedgerRefusedError:
        """Converts an error of the library or the server to the one that users see."""
        if error.sqlstate in _NO_LEDGER:
            return LedgerRefusedError(
                f"no ledger in the database {self.place}; set a limit with `dapple ledger limit` first."
            )
        said = error.sqlstate or " ".join(str(error).split())
        if self._goes_away(error):
            return LedgerUnavailableError(
                f"the ledger's server at {self.place} didn't answer within {WAIT_SECONDS:.0f} seconds ({said}); try "
                "again later with the same --run_id."
            )
        if error.sqlstate == _MISSING_RIGHT:
            return LedgerRefusedError(
                f"{self.place} lacks a right ({error.diag.message_primary}). The owner of the ledger makes it with "
                f"`dapple ledger limit`, which needs CREATE on the database, and then grants: "
                f"{RIGHTS.format(role='ROLE')}"
            )
        if _STANDBY.search(str(error)) is not None:
            return LedgerRefusedError(
                f"The server at {self.place} is a standby or read-only, so it can't record a charge. Give the URL of "
                "the primary."
            )
        return LedgerRefusedError(
            f"the ledger {self.place} could not be read or written ({said}); check the URL, the server and the "
            "permissions of its user."
        )


class _Rows:
    """The rows of a database within one transaction."""

    def __init__(self, connection: "Connection", nonce: str):
        self._connection, self._nonce = connection, nonce
        heads = connection.execute("SELECT format, length, digest FROM dapple.head").fetchall()
        check_format(heads[0][0] if heads else None)
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM dapple.entries ORDER BY sequence").fetchall()
        self.entries: Sequence[LedgerEntry] = checked_entries(rows, [(head[1], head[2]) for head in heads])

    def append(self, entry: LedgerEntry) -> None:
        values = (*entry.row, self._nonce)
        self._connection.execute(f"INSERT INTO dapple.entries VALUES ({', '.join(['%s'] * len(values))})", values)
        self._connection.execute("UPDATE dapple.head SET length = %s, digest = %s", (entry.sequence, entry.digest))
        self.entries = [*self.entries, entry]

    def attempt(self, reserve: int) -> None:
        self._connection.execute("INSERT INTO dapple.attempts VALUES (%s, %s)", (reserve, self._nonce))

    def attempts(self, reserve: int) -> int:
        question = "SELECT count(*) FROM dapple.attempts WHERE reserve = %s"
        (found,) = self._connection.execute(question, (reserve,)).fetchone() or (0,)
        return int(found)
