"""The privacy ledger on disk: one SQLite file, append-only, hash-chained, safe for many writers at once.

A writer holds SQLite's write lock from before it reads what was spent until its entry is on the disk. Nobody can go
past a limit by being fast, and an entry is there, or not, whatever kills the process.
"""

import contextlib
import dataclasses
import datetime
import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError, LedgerRefusedError
from schemas.privacy.charge import Charge, Limit, canonical
from schemas.privacy.ledger_entry import (
    CHAIN_START,
    COLUMNS,
    EntryKind,
    LedgerEntry,
    RunStatus,
    check_chain,
    run_states,
)
from schemas.settings.format_number import FORMAT, check_number
from schemas.settings.json_schema import checked
from schemas.settings.refusal import Refusal
from transforms.privacy import ledger_filter

_WAIT_SECONDS = 120.0
_TABLES = (
    "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "dataset TEXT NOT NULL, run TEXT NOT NULL, content TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE head (length INTEGER NOT NULL, digest TEXT NOT NULL)",
    "CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
)

_REFUSAL = Refusal(
    kind=LedgerRefusedError,
    rule="ledger must be one that this version can go on with",
    remedy="set a limit in a new file that is lower by all that this one has spent",
)


class Ledger:
    """A ledger file.

    Args:
      path: on a local disk; however it is spelled, one file is one ledger.

    Raises:
      ConfigError: if it is not a local path.
    """

    def __init__(self, path: str):
        if FileSystems.get_scheme(path) not in (None, "file"):
            raise ConfigError(f"ledger must be a file on a local disk, got {path}; run the job where the ledger lies.")
        self.path = os.path.realpath(path.removeprefix("file://"))

    def create(self) -> None:
        """Makes an empty ledger, readable by its owner only, if there is none."""
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise ConfigError(f"ledger must be a file that can be made, got {self.path}; check the folder.") from error

    def set_limit(self, dataset: str, limit: Limit) -> None:
        """Says what a data set may spend from now on, past runs included."""
        with self._writing(new=True) as book:
            book.append(EntryKind.LIMIT, dataset, "", dataclasses.asdict(limit))

    def require_limit(self, dataset: str) -> Limit:
        """The limit of a data set; raises LedgerRefusedError if it has none."""
        with self._reading() as book:
            return book.limit(dataset)

    def reserve(self, run: str, charge: Charge, about: dict[str, Any], *, again: bool = False) -> str:
        """Charges a run before it reads data.

        Args:
          run: its id; must not be reserved or committed.
          charge: what it spends.
          about: kept beside the charge.
          again: whether to charge a further run under a name of its own (`run~2`) where the id is taken.

        Returns:
          The id under which it was charged.

        Raises:
          LedgerRefusedError: if the id is taken, or the data set has no limit or no budget for it.
        """
        with self._writing() as book:
            name = book.free_name(run) if again else run
            limit = book.limit(charge.dataset)
            ledger_filter.check(limit, book.held(charge.dataset), charge)
            book.append(EntryKind.RESERVE, charge.dataset, name, about | {"charge": charge.to_json()})
        return name

    def start(self, run: str, content: dict[str, Any]) -> None:
        """Says under which key and from which input a reserved run is about to draw noise, if that was not said yet.

        A committed run that is drawn again must say the same.

        Raises:
          LedgerRefusedError: if it was said otherwise before, another run has drawn under one of these keys, or the run
            is not reserved.
        """
        with self._writing() as book:
            status = book.status(run)
            if status is None or (status.state != "reserved" and status.release is None):
                raise LedgerRefusedError(f"run {run} must be reserved to draw noise, got another state; run it again.")
            if status.started is None:
                _refuse_known_keys(book.entries, content.get("key", {}))
                book.append(EntryKind.START, status.charge.dataset, run, content)
            for name, value in content.items():
                if status.started is not None and status.started.get(name) != value:
                    raise LedgerRefusedError(
                        f"run_id {run} must be resumed with the same {name}, got another one; choose another run_id, "
                        "which is charged again."
                    )

    def commit(self, run: str, content: dict[str, Any]) -> None:
        """Says that the release of a reserved run is complete."""
        self._end(EntryKind.COMMIT, run, content)

    def void(self, run: str, reason: str) -> None:
        """Gives back what was reserved for a run that released nothing."""
        self._end(EntryKind.VOID, run, {"reason": reason})

    def _end(self, kind: EntryKind, run: str, content: dict[str, Any]) -> None:
        with self._writing() as book:
            status = book.status(run)
            book.append(kind, status.charge.dataset if status else "", run, content)

    def status(self, run: str) -> RunStatus | None:
        """What is known of a run; None if nothing is."""
        with self._reading() as book:
            return book.status(run)

    def windows(self, dataset: str, epoch: str) -> dict[int, RunStatus]:
        """What is known of the runs of an epoch, by the number of the window; void ones are left out."""
        with self._reading() as book:
            found = {}
            for status in run_states(book.entries).values():
                about = status.charge.epoch
                if status.state != "void" and about and (status.charge.dataset, about["name"]) == (dataset, epoch):
                    found[int(about["index"])] = status
            return found

    def entries(self) -> tuple[LedgerEntry, ...]:
        """All entries, the chain checked.

        Raises:
          LedgerRefusedError: if there is no ledger, or it was changed.
        """
        with self._reading() as book:
            return tuple(book.entries)

    @contextlib.contextmanager
    def _reading(self) -> Iterator["_Book"]:
        """The whole ledger, checked, as of one moment."""
        with self._transaction("BEGIN") as connection:
            yield _Book.read(connection)

    @contextlib.contextmanager
    def _writing(self, *, new: bool = False) -> Iterator["_Book"]:
        """The whole ledger, checked, with nobody else writing; what was appended is on the disk at the end."""
        if new:
            self.create()
        with self._transaction("BEGIN IMMEDIATE") as connection:
            if new and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
                _make_tables(connection)
            yield _Book.read(connection)

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that is rolled back on any error."""
        if not os.path.isfile(self.path):
            raise LedgerRefusedError(
                f"ledger must be an existing file, got {self.path}; set a limit with `dapple ledger limit` first."
            )
        try:
            with contextlib.closing(_connected(self.path)) as connection:
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
                    f"ledger must be on a disk with room, got a full one at {self.path}; make room, then ask for the "
                    "run again with the same --run_id."
                ) from error
            raise LedgerRefusedError(
                f"ledger must be a ledger that can be read and written, got {self.path}; check the file and its folder."
            ) from error


@dataclasses.dataclass(slots=True, kw_only=True)
class _Book:
    """The entries of a ledger within one transaction."""

    connection: sqlite3.Connection
    entries: list[LedgerEntry]

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> "_Book":
        """All entries, the chain checked."""
        with _REFUSAL.covers():
            check_number(connection.execute("PRAGMA user_version").fetchone()[0] or None)
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM entries ORDER BY sequence").fetchall()
        entries = [LedgerEntry(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
        heads = connection.execute("SELECT length, digest FROM head").fetchall()
        length, head = heads[0] if len(heads) == 1 else (-1, "")
        check_chain(entries, length, head)
        return cls(connection=connection, entries=entries)

    def append(self, kind: EntryKind, dataset: str, run: str, content: dict[str, Any]) -> None:
        """Adds an entry; raises LedgerRefusedError if it cannot follow."""
        entry = LedgerEntry(
            sequence=len(self.entries) + 1,
            time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            kind=str(kind),
            dataset=dataset,
            run=run,
            content=canonical(content),
            previous=self.entries[-1].digest if self.entries else CHAIN_START,
        ).sealed()
        run_states([*self.entries, entry])
        self.connection.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(COLUMNS))})", entry.row)
        self.connection.execute("UPDATE head SET length = ?, digest = ?", (entry.sequence, entry.digest))
        self.entries.append(entry)

    def limit(self, dataset: str) -> Limit:
        """The last limit of a data set; raises LedgerRefusedError if it has none."""
        limits = limits_of(self.entries)
        if dataset not in limits:
            raise LedgerRefusedError(
                f"data.name must be a data set with a limit, got {dataset}; set one with `dapple ledger limit`."
            )
        return limits[dataset]

    def held(self, dataset: str) -> list[Charge]:
        """Charges of reserved and committed runs."""
        return charges_of(self.entries, dataset)

    def status(self, run: str) -> RunStatus | None:
        return run_states(self.entries).get(run)

    def free_name(self, run: str) -> str:
        """The id itself, or with the first number that makes it new."""
        taken = {entry.run for entry in self.entries}
        name, number = run, 2
        while name in taken:
            name, number = f"{run}~{number}", number + 1
        return name


def _refuse_known_keys(entries: Sequence[LedgerEntry], digests: dict[str, str]) -> None:
    """Refuses keys that any run has started with, this one before it was void included: noise would be repeated."""
    for entry in entries:
        known = entry.body.get("key", {}) if entry.kind == EntryKind.START else {}
        again = [name for name, digest in digests.items() if digest in known.values()]
        if again:
            raise LedgerRefusedError(
                f"{again[0]} must give this run a key of its own, got one that run {entry.run} has drawn with; choose "
                "another run_id, which draws anew."
            )


def limits_of(entries: Sequence[LedgerEntry]) -> dict[str, Limit]:
    """The last limit of every data set."""
    return {each.dataset: checked(each.body, Limit) for each in entries if each.kind == EntryKind.LIMIT}


def charges_of(entries: Sequence[LedgerEntry], dataset: str) -> list[Charge]:
    """Charges of reserved and committed runs on a data set."""
    states = [status for status in run_states(entries).values() if status.state != "void"]
    return [charge for charge in (status.charge for status in states) if charge.dataset == dataset]


def _connected(path: str) -> sqlite3.Connection:
    """A connection whose commits wait for the disk."""
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    return connection


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in (*_TABLES, f"PRAGMA user_version = {FORMAT}"):
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (0, ?)", (CHAIN_START,))
