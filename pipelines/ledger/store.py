"""The privacy ledger: append-only, hash-chained, and safe for concurrent writers on any storage.

This module decides which entry may follow. The rows are kept by a storage: `sqlite_file.py` or `postgres.py`.
"""

import dataclasses
import datetime
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from dapple_dp.pipelines.ledger.postgres import PostgresDatabase
from dapple_dp.pipelines.ledger.sqlite_file import SQLiteFile
from dapple_dp.pipelines.ledger.storage import Result, Rows, Storage
from dapple_dp.schemas.errors import ConfigError, LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Charge, Limit, canonical
from dapple_dp.schemas.privacy.ledger_entry import (
    CHAIN_START,
    EntryKind,
    LedgerEntry,
    RunStatus,
    check_open,
    moved_to,
    run_states,
)
from dapple_dp.schemas.privacy.ledger_place import is_on_server, ledger_place
from dapple_dp.schemas.settings.json_schema import check_content
from dapple_dp.transforms.privacy import ledger_filter

CLIENT_LISTS = ".rolls"
"""Suffix of a ledger file's name for the folder of its client lists."""
_LOGGER = logging.getLogger(__name__)


class Ledger:
    """Limits of data sets and charges of runs, in a file or a database.

    Args:
      place: a file on a local disk, or `postgresql://USER@HOST/DATABASE`.

    Raises:
      ConfigError: if it is neither, or a URL with a password.
    """

    def __init__(self, place: str):
        given = ledger_place(place)
        self._storage: Storage = PostgresDatabase(given) if is_on_server(given) else SQLiteFile(given)

    @property
    def path(self) -> str:
        """Real path of the file, or the URL."""
        return self._storage.place

    @property
    def folder(self) -> str | None:
        """Prefix of the private state's folder; None for a ledger on a server."""
        return self._storage.folder

    def create(self) -> None:
        """Creates an empty ledger, readable only by its owner, if there is none."""
        self._storage.make()

    def set_limit(self, dataset: str, limit: Limit) -> None:
        """Sets the limit of a data set, which includes past runs."""
        self.create()
        self._write(lambda book: book.append(EntryKind.LIMIT, dataset, "", dataclasses.asdict(limit)))

    def require_limit(self, dataset: str) -> Limit:
        """Returns the limit of a data set; raises LedgerRefusedError if it has none, or the ledger was moved."""

        def act(book: _Book) -> Limit:
            check_open(book.entries, self.path)
            return book.limit(dataset)

        return self._read(act)

    def reserve(self, run: str, charge: Charge, about: dict[str, Any], *, again: bool = False) -> str:
        """Charges a run before it reads data.

        Args:
          run: id of the run; must not be reserved or committed.
          charge: privacy cost of the run.
          about: details stored with the charge.
          again: whether to charge the run under another name (`run~2`) if the id is taken.

        Returns:
          The id under which it was charged.

        Raises:
          LedgerRefusedError: if the id is taken, or the data set has no limit or no budget for it.
        """

        def act(book: _Book) -> str:
            name = book.free_name(run) if again else run
            taken = book.status(name)
            if taken is not None and taken.state != "void":
                raise LedgerRefusedError(
                    f"run_id {run} is already {taken.state} in the ledger; choose another run_id, which is charged "
                    "again."
                )
            limit = book.limit(charge.dataset)
            ledger_filter.check(limit, book.held(charge.dataset), charge)
            book.append(EntryKind.RESERVE, charge.dataset, name, about | {"charge": charge.to_json()})
            book.attempt(name)
            return name

        return self._write(act)

    def take_up(self, run: str) -> None:
        """Records that a process resumes a run, so that no other machine gives its charge back.

        Raises:
          LedgerRefusedError: if the charge was given back meanwhile.
        """

        def act(book: _Book) -> None:
            status = book.status(run)
            if status is None or status.state == "void":
                raise LedgerRefusedError(f"run_id {run} has ended and is no longer reserved; run the job again.")
            book.attempt(run)

        self._write(act)

    def start(self, run: str, content: dict[str, Any]) -> None:
        """Records the key and input with which a reserved run is about to draw noise, unless they are recorded already.

        A committed run that is drawn again must have the same.

        Raises:
          LedgerRefusedError: if the records differ, another run has drawn with one of these keys, or the run is not
            reserved.
        """
        self._write(lambda book: book.start(run, content))

    def commit(self, run: str, content: dict[str, Any]) -> None:
        """Records that the release of a reserved run is complete."""
        self._write(lambda book: book.end(EntryKind.COMMIT, run, content))

    def void(self, run: str, reason: str) -> None:
        """Gives back the reservation of a run that released nothing, unless another machine works on the run, too."""

        def act(book: _Book) -> bool:
            if book.is_shared(run):
                return False
            book.end(EntryKind.VOID, run, {"reason": reason})
            return True

        if not self._write(act):
            _LOGGER.warning("run %s stays reserved, since more than one process has worked on it", run)

    def status(self, run: str) -> RunStatus | None:
        """Returns the status of a run; None if it isn't in the ledger."""
        return self._read(lambda book: book.status(run))

    def windows(self, dataset: str, epoch: str) -> dict[int, RunStatus]:
        """Returns the status of an epoch's runs by window number, without void ones."""
        result = {}
        for status in run_states(self.entries()).values():
            about = status.charge.epoch
            if status.state != "void" and about and (status.charge.dataset, about["name"]) == (dataset, epoch):
                result[int(about["index"])] = status
        return result

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Returns all entries after verifying the chain.

        Raises:
          LedgerRefusedError: if the ledger is missing or was changed.
        """
        return self._read(lambda book: tuple(book.entries))

    def copy_to(self, other: "Ledger") -> tuple[LedgerEntry, ...]:
        """Copies all entries unchanged to another ledger, and closes this one.

        This ledger is closed before the other one has the entries for good. If the process is killed in between,
        neither takes a charge, and the same call resumes the copy.

        Args:
          other: empty ledger, or one with the entries of an earlier call.

        Returns:
          The copied entries.

        Raises:
          LedgerRefusedError: if the other ledger has different entries, or this one is empty or was moved elsewhere.
        """
        held = self.entries()
        again = moved_to(held) == other.path
        if not again:
            check_open(held, self.path)
        known = held[:-1] if again else held
        if not known:
            raise LedgerRefusedError(f"--ledger must have entries to copy, got none in {self.path}; name another one.")

        def act(book: _Book) -> tuple[LedgerEntry, ...]:
            if book.entries and not (again and tuple(book.entries[: len(known)]) == known):
                raise LedgerRefusedError(
                    f"--to must be a ledger without entries, got {len(book.entries)}; give a new one."
                )
            # Append before closing this ledger, so that a failure to append leaves it open.
            book.complete(known)
            entries = self._storage.change(lambda rows: _Book(rows).close(other.path))
            book.complete(entries)
            return entries

        other.create()
        return other._write(act)

    def _read(self, act: Callable[["_Book"], Result]) -> Result:
        """Returns the result of `act` on a verified snapshot of the ledger."""
        return self._storage.look(lambda rows: act(_Book(rows)))

    def _write(self, act: Callable[["_Book"], Result]) -> Result:
        """Calls `act`, which may append to the verified ledger, under an exclusive lock; `act` may be called again."""

        def act_on_open(rows: Rows) -> Result:
            check_open(rows.entries, self.path)
            return act(_Book(rows))

        return self._storage.change(act_on_open)


@dataclasses.dataclass(frozen=True, slots=True)
class _Book:
    """The entries of a ledger within one transaction."""

    rows: Rows

    @property
    def entries(self) -> Sequence[LedgerEntry]:
        """All entries, with a verified chain."""
        return self.rows.entries

    def append(self, kind: EntryKind, dataset: str, run: str, content: dict[str, Any]) -> None:
        """Appends an entry; raises LedgerRefusedError if it can't follow."""
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
        self.rows.append(entry)

    def close(self, to: str) -> tuple[LedgerEntry, ...]:
        """Appends the closing entry, unless it is there; returns the entries before it."""
        if moved_to(self.entries) != to:
            self.append(EntryKind.MOVED, "", "", {"to": to})
        return tuple(self.entries[:-1])

    def complete(self, entries: Sequence[LedgerEntry]) -> None:
        """Appends those of the entries that are missing at the end."""
        for entry in entries[len(self.entries) :]:
            self.rows.append(entry)

    def start(self, run: str, content: dict[str, Any]) -> None:
        """See `Ledger.start`."""
        status = self.status(run)
        if status is None or (status.state != "reserved" and status.release is None):
            raise LedgerRefusedError(f"run {run} must be reserved to draw noise, got another state; run it again.")
        if status.started is None:
            _refuse_known_keys(self.entries, content.get("key", {}))
            self.append(EntryKind.START, status.charge.dataset, run, content)
        for name, value in content.items():
            if status.started is not None and status.started.get(name) != value:
                raise LedgerRefusedError(
                    f"run_id {run} must be resumed with the same {name}; choose another run_id, which is charged again."
                )

    def end(self, kind: EntryKind, run: str, content: dict[str, Any]) -> None:
        """Appends the last entry of a run."""
        status = self.status(run)
        self.append(kind, status.charge.dataset if status else "", run, content)

    def limit(self, dataset: str) -> Limit:
        """Returns the latest limit of a data set; raises LedgerRefusedError if it has none."""
        limits = limits_of(self.entries)
        if dataset not in limits:
            raise LedgerRefusedError(
                f"data.name must be a data set with a limit, got {dataset}; set one with `dapple ledger limit`."
            )
        return limits[dataset]

    def held(self, dataset: str) -> list[Charge]:
        """Returns the charges of reserved and committed runs."""
        return charges_of(self.entries, dataset)

    def status(self, run: str) -> RunStatus | None:
        return run_states(self.entries).get(run)

    def attempt(self, run: str) -> None:
        """Records that a process works on a run."""
        self.rows.attempt(self._reservation(run))

    def is_shared(self, run: str) -> bool:
        """Returns whether several processes have worked on a run since it was reserved."""
        return self.rows.attempts(self._reservation(run)) > 1

    def _reservation(self, run: str) -> int:
        """Number of a run's last reservation entry; 0 if it has none."""
        of_run = (entry for entry in reversed(self.entries) if (entry.run, entry.kind) == (run, EntryKind.RESERVE))
        return next((each.sequence for each in of_run), 0)

    def free_name(self, run: str) -> str:
        """Returns the id itself, or the id with the smallest number that isn't taken."""
        taken = {entry.run for entry in self.entries}
        name, number = run, 2
        while name in taken:
            name, number = f"{run}~{number}", number + 1
        return name


def _refuse_known_keys(entries: Sequence[LedgerEntry], digests: dict[str, str]) -> None:
    """Refuses keys with which any run has started, even a void attempt of this one, since noise would repeat."""
    for entry in entries:
        known = entry.body.get("key", {}) if entry.kind == EntryKind.START else {}
        again = [name for name, digest in digests.items() if digest in known.values()]
        if again:
            raise LedgerRefusedError(
                f"{again[0]} must give this run a key of its own, got one that run {entry.run} has drawn with; choose "
                "another run_id, which draws again."
            )


def check_total(epsilon: float, delta: float, flag: str = "") -> None:
    """Raises ConfigError unless epsilon and delta can be the limit of a data set.

    Args:
      epsilon: epsilon of the limit.
      delta: delta of the limit.
      flag: prefix of their names in the message.
    """
    if not 0.0 < epsilon < math.inf:
        raise ConfigError(f"{flag}epsilon must be a finite number > 0, got {epsilon}; give the total of all runs.")
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"{flag}delta must be strictly between 0 and 1, got {delta}; give the total of all runs.")


def limits_of(entries: Sequence[LedgerEntry]) -> dict[str, Limit]:
    """Returns the latest limit of every data set."""
    return {entry.dataset: check_content(entry.body, Limit) for entry in entries if entry.kind == EntryKind.LIMIT}


def charges_of(entries: Sequence[LedgerEntry], dataset: str) -> list[Charge]:
    """Returns the charges of reserved and committed runs on a data set."""
    states = [status for status in run_states(entries).values() if status.state != "void"]
    return [charge for charge in (status.charge for status in states) if charge.dataset == dataset]
