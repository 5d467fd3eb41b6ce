"""Storage of a ledger in a SQLite file on a local disk.

A writer holds SQLite's write lock from before it reads the spending until its entry is on disk. So no race can exceed a
limit, and an entry is complete or absent even if the process is killed.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from dapple_dp.pipelines.ledger.storage import WAIT_SECONDS, Result, check_format, checked_entries
from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError
from dapple_dp.schemas.privacy.ledger_entry import CHAIN_START, COLUMNS, LedgerEntry
from dapple_dp.schemas.settings.format_number import FORMAT
from dapple_dp.transforms.files.stores import scheme_of

_TABLES = (
    "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "dataset TEXT NOT NULL, run TEXT NOT NULL, content TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE head (length INTEGER NOT NULL, digest TEXT NOT NULL)",
    "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
)


class SQLiteFile:
    """SQLite file of a ledger.

    Args:
      path: path on a local disk; all spellings of it mean the same ledger.

    Raises:
      ConfigError: if the path isn't local.
    """

    def __init__(self, path: str):
        scheme = scheme_of(path)
        if scheme not in (None, "file"):
            raise ConfigError(
                f"ledger must be a file on a local disk or a postgresql:// URL, got one on {scheme}://; run the job "
                "where the ledger is, or keep it in a database."
            )
        self.place = os.path.realpath(path.removeprefix("file://"))
        self.folder: str | None = self.place

    def make(self) -> None:
        """Creates an empty file, readable only by its owner, if it doesn't exist."""
        try:
            os.close(os.open(self.place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise ConfigError(f"the ledger {self.place} could not be created; check the folder.") from error
        with self._transaction("BEGIN IMMEDIATE") as connection:
            if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
                _make_tables(connection)

    def look(self, act: Callable[["_Rows"], Result]) -> Result:
        """Returns the result of `act` on a consistent snapshot of all rows."""
        with self._transaction("BEGIN") as connection:
            return act(_Rows(connection))

    def change(self, act: Callable[["_Rows"], Result]) -> Result:
        """Calls `act`, which may append rows, under an exclusive lock; returns its result."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            return act(_Rows(connection))

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Opens a connection in a transaction that is rolled back on any error."""
        if not os.path.isfile(self.place):
            raise LedgerRefusedError(f"no ledger at {self.place}; set a limit with `dapple ledger limit` first.")
        try:
            with contextlib.closing(_connected(self.place)) as connection:
                connection.execute(begin)
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    connection.rollback()
                    raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise LedgerRefusedError(
                    f"the disk of the ledger {self.place} is full; make room, then repeat the run with the same "
                    "--run_id."
                ) from error
            raise LedgerRefusedError(
                f"the ledger {self.place} could not be read or written; check the file and its folder."
            ) from error


class _Rows:
    """The rows of a file within one transaction; a run has one process, since its folder is locked on this machine."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection
        check_format(connection.execute("PRAGMA user_version").fetchone()[0] or None)
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM entries ORDER BY sequence").fetchall()
        heads = connection.execute("SELECT length, digest FROM head").fetchall()
        self.entries: Sequence[LedgerEntry] = checked_entries(rows, heads)

    def append(self, entry: LedgerEntry) -> None:
        self._connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", entry.row)
        self._connection.execute("UPDATE head SET length = ?, digest = ?", (entry.sequence, entry.digest))
        self.entries = [*self.entries, entry]

    def attempt(self, reserve: int) -> None:
        """Does nothing: the run's folder lock covers the machine that has the file."""

    def attempts(self, reserve: int) -> int:
        return 1


def _connected(path: str) -> sqlite3.Connection:
    """Opens a connection whose commits wait for the disk."""
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in (*_TABLES, f"PRAGMA user_version = {FORMAT}"):
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (0, ?)", (CHAIN_START,))
