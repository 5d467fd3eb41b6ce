"""The privacy unit as an object: its name in messages, and public facts about the rows of one unit.

`PrivacyUnit` is its name in settings and files. All code that computes statistics by unit is in
`dapple_dp.transforms.core.statistics.by_unit`.
"""

import dataclasses
from typing import ClassVar

from dapple_dp.schemas.core.plan import PrivacyUnit


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Each row is a unit of its own."""

    kind: ClassVar[PrivacyUnit] = PrivacyUnit.RECORD
    word: ClassVar[str] = "row"
    words: ClassVar[str] = "rows"
    protects: ClassVar[str] = "rows; if one person has several rows, use unit client"
    whole: ClassVar[str] = "one row"
    by_id: ClassVar[str] = "one row"
    present: ClassVar[str] = "a row"
    at_party: ClassVar[str] = "a row of one party"
    size: ClassVar[str] = "rows"
    rows: ClassVar[int] = 1
    """Public typical rows of a unit."""

    def share(self, most: float) -> float:
        """Bound on a unit's mean relative to that on a row: 1, since a row is its own mean."""
        return 1.0

    def simulated(self, most: int) -> int:
        """Number of units to simulate to find the bounds of one: none, since a row keeps its bounds anyway."""
        return 0


@dataclasses.dataclass(frozen=True, slots=True)
class Clients:
    """All rows of a client are one unit.

    Attributes:
      rows: public typical rows of a client.
    """

    kind: ClassVar[PrivacyUnit] = PrivacyUnit.CLIENT
    word: ClassVar[str] = "client"
    words: ClassVar[str] = "clients"
    protects: ClassVar[str] = "clients with all their rows"
    whole: ClassVar[str] = "all rows of one client"
    by_id: ClassVar[str] = "all rows of one client id"
    present: ClassVar[str] = "a client with all its rows"
    at_party: ClassVar[str] = "a client id at one party: the same id at two parties is two units"
    size: ClassVar[str] = "weight of clients"
    rows: int = 1

    def share(self, most: float) -> float:
        """Bound on the mean of a client's rows relative to that on a row: `most`, in (0, 1]."""
        return most

    def simulated(self, most: int) -> int:
        """Number of clients to simulate to find the bounds of one: `most`."""
        return most


Unit = Rows | Clients

UNITS: dict[PrivacyUnit, type[Rows] | type[Clients]] = {unit.kind: unit for unit in (Rows, Clients)}


def unit_of(kind: PrivacyUnit, rows: int | None = None) -> Unit:
    """Creates the unit of a job's settings; `rows`, public typical rows of a client, are ignored for rows."""
    return Rows() if kind is PrivacyUnit.RECORD else Clients(rows or 1)
