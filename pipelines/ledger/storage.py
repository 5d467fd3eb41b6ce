"""What holds the rows of a ledger: one transaction at a time, and nothing of what the rows say."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from dapple_dp.schemas.errors import LedgerRefusedError
from dapple_dp.schemas.privacy.ledger_entry import COLUMNS, LedgerEntry, check_chain
from dapple_dp.schemas.settings.format_number import check_number
from dapple_dp.schemas.settings.refusal import Refusal

WAIT_SECONDS = 120.0
"""For which a writer waits for others."""
Result = TypeVar("Result")
_REFUSAL = Refusal(
    kind=LedgerRefusedError,
    rule="ledger must be one that this version can go on with",
    remedy="set a limit in a new file that is lower by all that this one has spent",
)


class Rows(Protocol):
    """The rows of a ledger within one transaction, the chain checked."""

    @property
    def entries(self) -> Sequence[LedgerEntry]:
        """All rows, those among them that were appended in this transaction."""

    def append(self, entry: LedgerEntry) -> None:
        """Adds a row; the next one of the chain."""

    def attempt(self, reserve: int) -> None:
        """Notes, outside of the chain, that a process works on a run; `reserve` is the number of its reservation."""

    def attempts(self, reserve: int) -> int:
        """How many have noted that they work on a run."""


class Storage(Protocol):
    """Rows of a ledger, in transactions that are whole or absent and that run one after the other.

    Attributes:
      place: for messages; whatever has the same place is the same ledger.
      folder: in which private state is beside it; None where there is no such folder.
    """

    place: str
    folder: str | None

    def make(self) -> None:
        """Makes an empty ledger if there is none."""

    def look(self, act: Callable[[Rows], Result]) -> Result:
        """What `act` says of all rows as of one moment.

        Raises:
          LedgerRefusedError: if there is no ledger, or it was changed.
        """

    def change(self, act: Callable[[Rows], Result]) -> Result:
        """Lets `act` append rows while nobody else does; they are on the disk at the end, or all absent.

        Args:
          act: may be called several times, each time with the rows as they are then; only the last call counts.

        Raises:
          LedgerRefusedError: as `look`; what `act` raises is passed on, and nothing is appended.
        """


def check_format(number: object) -> None:
    """Raises LedgerRefusedError for a ledger of another format, before its rows are read."""
    with _REFUSAL.covers():
        check_number(number)


def checked_entries(rows: Iterable[tuple[Any, ...]], heads: Sequence[tuple[int, str]]) -> list[LedgerEntry]:
    """Entries of a ledger, the chain checked.

    Args:
      rows: values of `COLUMNS`, in order.
      heads: length and digest of the last entry, as noted beside them.

    Raises:
      LedgerRefusedError: at the first entry that was changed.
    """
    entries = [LedgerEntry(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
    length, head = heads[0] if len(heads) == 1 else (-1, "")
    check_chain(entries, length, head)
    return entries
