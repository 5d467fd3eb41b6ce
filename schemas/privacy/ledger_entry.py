"""Rows of the privacy ledger; each holds the digest of the previous one, so that any change is detected."""

import dataclasses
import enum
import hashlib
from collections.abc import Sequence
from typing import Any

from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.charge import Charge, canonical
from dapple_dp.schemas.settings.json_schema import check_content, parse_as
from dapple_dp.schemas.settings.refusal import Refusal

CHAIN_START = "0" * 64
"""Value of `previous` in the first entry."""
COLUMNS = ("sequence", "time", "kind", "dataset", "run", "content", "previous", "digest")


def _refusal(entry: int | str) -> Refusal:
    """Builds the error for an entry that has a valid digest, but that Dapple never writes."""
    return Refusal(
        kind=LedgerRefusedError,
        rule=f"entry {entry} of the ledger must be one that Dapple wrote",
        remedy="restore a copy that `dapple ledger verify` accepts",
    )


class EntryKind(enum.StrEnum):
    """Kinds of ledger entries.

    LIMIT: sets the limit of a data set. RESERVE: a run is about to spend. START: it is about to draw noise, with
    this key and input. COMMIT: its release is complete; a second one has a new manifest of the same release.
    VOID: it ended without a release. MOVED: all earlier entries are in another ledger; no entry may follow.
    """

    LIMIT = "limit"
    RESERVE = "reserve"
    START = "start"
    COMMIT = "commit"
    VOID = "void"
    MOVED = "moved"


_FOLLOWS: dict[EntryKind | None, tuple[EntryKind, ...]] = {
    None: (EntryKind.RESERVE,),
    EntryKind.RESERVE: (EntryKind.START, EntryKind.COMMIT, EntryKind.VOID),
    EntryKind.START: (EntryKind.COMMIT, EntryKind.VOID),
    EntryKind.VOID: (EntryKind.RESERVE,),
    EntryKind.COMMIT: (),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One row.

    Attributes:
      sequence: 1, 2, 3, ...
      time: UTC, ISO 8601.
      kind: an `EntryKind`, as text.
      dataset: name of the data set; empty for a move.
      run: id of the run; empty for a limit and a move.
      content: canonical JSON.
      previous: digest of the previous entry, or `CHAIN_START`.
      digest: SHA-256 of all other fields, 64 hex digits.
    """

    sequence: int
    time: str
    kind: str
    dataset: str
    run: str
    content: str
    previous: str
    digest: str = ""

    @property
    def body(self) -> dict[str, Any]:
        """`content` as plain data."""
        return parse_as(self.content, dict[str, Any], _refusal(self.sequence))

    @property
    def row(self) -> tuple[Any, ...]:
        """Values of `COLUMNS`."""
        return tuple(getattr(self, name) for name in COLUMNS)

    @property
    def is_text(self) -> bool:
        """True if every value but the first is a string; SQLite would also store other types."""
        return all(isinstance(value, str) for value in self.row[1:])

    def sealed(self) -> "LedgerEntry":
        """Returns the entry with its digest filled in."""
        covered = canonical(list(self.row[:-1]))
        return dataclasses.replace(self, digest=hashlib.sha256(covered.encode()).hexdigest())


IN_MEMORY = "in_memory"
"""Key that marks the reservation of an in-memory run, which no other process can resume."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Status of a run in the ledger: the kind of its last entry, and all content since its last reservation."""

    kind: EntryKind
    reserved: dict[str, Any]
    started: dict[str, Any] | None = None
    committed: dict[str, Any] | None = None

    @property
    def charge(self) -> Charge:
        """The privacy cost of the run."""
        with _refusal("of a run").covers():
            return Charge.from_json(self.reserved["charge"])

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the code that reserved the run, by distribution; empty for entries without versions."""
        with _refusal("of a run").covers():
            return check_content(self.reserved.get("versions", {}), dict[str, str])

    @property
    def state(self) -> str:
        """One of "reserved", "committed" and "void"."""
        states = {EntryKind.COMMIT: "committed", EntryKind.VOID: "void"}
        return states.get(self.kind, "reserved")

    @property
    def word(self) -> str:
        """The state for display: "lost" instead of "reserved" for an in-memory run, which may also be still running."""
        return "lost" if self.state == "reserved" and self.reserved.get(IN_MEMORY) else self.state

    @property
    def release(self) -> str | None:
        """SHA-256 of a committed run's release, to recognize it if it is drawn again; None if there is none."""
        return None if self.kind is not EntryKind.COMMIT else (self.committed or {}).get("releases")


def check_chain(entries: Sequence[LedgerEntry], length: int, head: str) -> None:
    """Recomputes every digest and compares the end of the chain with the length and digest stored with it.

    Args:
      entries: all entries, in order.
      length: number of entries, as stored beside them.
      head: digest of the last entry, as stored beside them.

    Raises:
      LedgerRefusedError: at the first entry that was changed, removed, added or moved.
    """
    previous = CHAIN_START
    for number, entry in enumerate(entries, start=1):
        if not entry.is_text or (entry.sequence, entry.previous, entry.sealed().digest) != (
            number,
            previous,
            entry.digest,
        ):
            raise LedgerRefusedError(
                f"entry {number} of the ledger was changed after it was written; restore a copy that `dapple ledger "
                "verify` accepts."
            )
        previous = entry.digest
    if length != len(entries) or head != previous:
        raise LedgerRefusedError(
            f"the ledger must end with entry {length}, got {len(entries)} entries and another last entry; restore a "
            "copy that `dapple ledger verify` accepts."
        )
    run_states(entries)


def run_states(entries: Sequence[LedgerEntry]) -> dict[str, RunStatus]:
    """Replays entries and returns the status of every run, in the order of first reservations.

    Raises:
      LedgerRefusedError: if an entry can't follow the previous one of the same run.
    """
    result: dict[str, RunStatus] = {}
    for place, entry in enumerate(entries):
        if place and entries[place - 1].kind == EntryKind.MOVED:
            raise _refusal(entry.sequence).because("one after the ledger was moved")
        if entry.kind in (EntryKind.LIMIT, EntryKind.MOVED):
            continue
        before = result.get(entry.run)
        with _refusal(entry.sequence).covers():
            kind = EntryKind(entry.kind)
        if kind not in _FOLLOWS[before.kind if before else None] and not _repeats(before, kind, entry.body):
            raise LedgerRefusedError(
                f"entry {entry.sequence} of the ledger must not be {kind} for run {entry.run}, which is "
                f"{before.state if before else 'unknown'}; choose another run_id."
            )
        result[entry.run] = _after(before, kind, entry.body)
    return result


def moved_to(entries: Sequence[LedgerEntry]) -> str | None:
    """Returns the ledger that replaced this one; None if this one is open."""
    if not entries or entries[-1].kind != EntryKind.MOVED:
        return None
    with _refusal(entries[-1].sequence).covers():
        return check_content(entries[-1].body, dict[str, str])["to"]


def check_open(entries: Sequence[LedgerEntry], place: str) -> None:
    """Refuses a ledger that was moved to another one.

    Args:
      entries: entries of the ledger.
      place: path or URL of the ledger.

    Raises:
      LedgerRefusedError: if it was moved; names the new ledger.
    """
    to = moved_to(entries)
    if to is not None:
        raise LedgerRefusedError(
            f"The ledger {place} was moved to {to} and takes no more entries; name {to} in the job or the command."
        )


def _repeats(before: RunStatus | None, kind: EntryKind, body: dict[str, Any]) -> bool:
    """Returns whether an entry commits the same release again, after a loss, with a new manifest."""
    known = None if before is None else before.release
    return kind is EntryKind.COMMIT and known is not None and body.get("releases") == known


def _after(before: RunStatus | None, kind: EntryKind, body: dict[str, Any]) -> RunStatus:
    """Returns the status of a run after one more entry."""
    if before is None or kind is EntryKind.RESERVE:
        return RunStatus(kind=kind, reserved=body)
    changed = {EntryKind.START: {"started": body}, EntryKind.COMMIT: {"committed": body}}.get(kind, {})
    return dataclasses.replace(before, kind=kind, **changed)
