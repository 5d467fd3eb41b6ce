"""Interface of ledger storage: rows in transactions, without knowledge of their content."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.ledger_entry import COLUMNS, LedgerEntry, check_chain
from dapple_dp.schemas.settings.format_number import check_number
from dapple_dp.schemas.settings.refusal import Refusal

WAIT_SECONDS = 120.0
"""Longest time that a writer waits for others."""
Result = TypeVar("Result")
_REFUSAL = Refusal(
    kind=LedgerRefusedError,
    rule="ledger must be of a format that this version can read and write",
    remedy="create a new ledger with a limit that is lower by all that this one has spent",
)


class Rows(Protocol):
    """Rows of a ledger within one transaction, with a verified chain."""

    @property
    def entries(self) -> Sequence[LedgerEntry]:
        """All rows, including those appended in this transaction."""

    def append(self, entry: LedgerEntry) -> None:
        """Appends the next row of the chain."""

    def attempt(self, reserve: int) -> None:
        """Records, outside of the chain, that a process works on a run; `reserve` is the number of its reservation."""

    def attempts(self, reserve: int) -> int:
        """Returns how many processes have recorded that they work on a run."""


class Storage(Protocol):
    """Storage of a ledger, with serializable transactions that are complete or absent.

    Attributes:
      place: place for messages; two storages with the same place are the same ledger.
      folder: prefix of the private state's folder; None if the ledger is on a server.
    """

    place: str
    folder: str | None

    def make(self) -> None:
        """Creates an empty ledger if there is none."""

    def look(self, act: Callable[[Rows], Result]) -> Result:
        """Returns the result of `act` on a consistent snapshot of all rows.

        Raises:
          LedgerRefusedError: if the ledger is missing or was changed.
        """

    def change(self, act: Callable[[Rows], Result]) -> Result:
        """Calls `act`, which may append rows, under an exclusive lock; the rows are on disk at the end, or all absent.

        Args:
          act: may be called several times, each time with the current rows; only the last call counts.

        Raises:
          LedgerRefusedError: like `look`. Errors of `act` are passed on, and nothing is appended.
        """


def check_format(number: object) -> None:
    """Raises LedgerRefusedError for a ledger of another format, before its rows are read."""
    with _REFUSAL.covers():
        check_number(number)


def checked_entries(rows: Iterable[tuple[Any, ...]], heads: Sequence[tuple[int, str]]) -> list[LedgerEntry]:
    """Parses the entries of a ledger and verifies the chain.

    Args:
      rows: values of `COLUMNS`, in order.
      heads: length and digest of the last entry, stored separately.

    Raises:
      LedgerRefusedError: at the first entry that was changed.
    """
    entries = [LedgerEntry(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
    length, head = heads[0] if len(heads) == 1 else (-1, "")
    check_chain(entries, length, head)
    return entries
