"""Rows of the privacy ledger: each holds the digest of the one before, so that none can be changed unseen."""

import dataclasses
import enum
import hashlib
from collections.abc import Sequence
from typing import Any

from schemas.errors import LedgerRefusedError
from schemas.privacy.charge import Charge, canonical
from schemas.settings.json_schema import parse_as
from schemas.settings.refusal import Refusal

CHAIN_START = "0" * 64
"""What the first entry holds instead of a digest."""
COLUMNS = ("sequence", "time", "kind", "dataset", "run", "content", "previous", "digest")


def _refusal(entry: int | str) -> Refusal:
    """The refusal of an entry that no ledger writes, though its digest is right."""
    return Refusal(
        kind=LedgerRefusedError,
        rule=f"entry {entry} of the ledger must be one that this program wrote",
        remedy="restore a copy that `dapple ledger verify` accepts",
    )


class EntryKind(enum.StrEnum):
    """What an entry says.

    LIMIT: a data set may spend so much. RESERVE: a run is about to spend. START: it is about to draw noise, under this
    key and from this input. COMMIT: its release is complete; a second one has a new manifest of the same release.
    VOID: it ended before it released anything.
    """

    LIMIT = "limit"
    RESERVE = "reserve"
    START = "start"
    COMMIT = "commit"
    VOID = "void"


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
      kind: what it says.
      dataset: that it is about.
      run: that it is about; empty for a limit.
      content: canonical JSON.
      previous: digest of the entry before, or `CHAIN_START`.
      digest: SHA-256 of all the rest, 64 hex digits.
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
        """Whether every value but the first is a string; SQLite would keep others as well."""
        return all(isinstance(value, str) for value in self.row[1:])

    def sealed(self) -> "LedgerEntry":
        """The entry with its digest."""
        covered = canonical(list(self.row[:-1]))
        return dataclasses.replace(self, digest=hashlib.sha256(covered.encode()).hexdigest())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What a ledger says of a run: the kind of its last entry, and what it has said since it was last reserved."""

    kind: EntryKind
    reserved: dict[str, Any]
    started: dict[str, Any] | None = None
    committed: dict[str, Any] | None = None

    @property
    def charge(self) -> Charge:
        """What it spends."""
        with _refusal("of a run").covers():
            return Charge.from_json(self.reserved["charge"])

    @property
    def state(self) -> str:
        """One of the words reserved, committed and void."""
        states = {EntryKind.COMMIT: "committed", EntryKind.VOID: "void"}
        return states.get(self.kind, "reserved")

    @property
    def release(self) -> str | None:
        """SHA-256 of the release of a committed run, by which it is known if it is drawn again; None without one."""
        return None if self.kind is not EntryKind.COMMIT else (self.committed or {}).get("releases")


def check_chain(entries: Sequence[LedgerEntry], length: int, head: str) -> None:
    """Recomputes every digest and compares the end of the chain with what was written beside it.

    Args:
      entries: in order.
      length: number of entries as noted beside them.
      head: digest of the last one as noted beside them.

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
                f"entry {number} of the ledger must be as it was written, got a changed one; restore a copy that "
                "`dapple ledger verify` accepts."
            )
        previous = entry.digest
    if length != len(entries) or head != previous:
        raise LedgerRefusedError(
            f"the ledger must end with entry {length}, got {len(entries)} entries and another end; restore a copy "
            "that `dapple ledger verify` accepts."
        )
    run_states(entries)


def run_states(entries: Sequence[LedgerEntry]) -> dict[str, RunStatus]:
    """What entries say of each run, in the order of first reservations.

    Raises:
      LedgerRefusedError: if an entry cannot follow the one before it on the same run.
    """
    found: dict[str, RunStatus] = {}
    for entry in entries:
        if entry.kind == EntryKind.LIMIT:
            continue
        before = found.get(entry.run)
        with _refusal(entry.sequence).covers():
            kind = EntryKind(entry.kind)
        if kind not in _FOLLOWS[before.kind if before else None] and not _repeats(before, kind, entry.body):
            raise LedgerRefusedError(
                f"entry {entry.sequence} of the ledger must not be {kind} on run {entry.run}, which is "
                f"{before.state if before else 'unknown'}; choose another run_id."
            )
        found[entry.run] = _after(before, kind, entry.body)
    return found


def _repeats(before: RunStatus | None, kind: EntryKind, body: dict[str, Any]) -> bool:
    """Whether a committed release that was lost has been drawn again: the same one, with a manifest of its own."""
    known = None if before is None else before.release
    return kind is EntryKind.COMMIT and known is not None and body.get("releases") == known


def _after(before: RunStatus | None, kind: EntryKind, body: dict[str, Any]) -> RunStatus:
    """The status of a run after one more entry."""
    if before is None or kind is EntryKind.RESERVE:
        return RunStatus(kind=kind, reserved=body)
    changed = {EntryKind.START: {"started": body}, EntryKind.COMMIT: {"committed": body}}.get(kind, {})
    return dataclasses.replace(before, kind=kind, **changed)
