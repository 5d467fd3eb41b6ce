"""The privacy unit as a value: how it is called, and what is publicly known of the rows of one unit.

`PrivacyUnit` is its name in settings and files. What is computed by unit is in
`transforms.numerics.statistics.by_unit`, and nowhere else.
"""

import dataclasses
from typing import ClassVar

from schemas.privacy.plan import PrivacyUnit


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Each row is a unit of its own."""

    kind: ClassVar[PrivacyUnit] = PrivacyUnit.RECORD
    word: ClassVar[str] = "row"
    words: ClassVar[str] = "rows"
    whole: ClassVar[str] = "one row"
    by_id: ClassVar[str] = "one row"
    present: ClassVar[str] = "a row"
    at_party: ClassVar[str] = "a row of one party"
    size: ClassVar[str] = "rows"
    rows: ClassVar[int] = 1
    """Public typical rows of a unit."""

    def share(self, most: float) -> float:
        """What a unit's mean may reach of what a row may, given that of a client: a row is its own mean."""
        return 1.0

    def simulated(self, most: int) -> int:
        """How many units are simulated to find what one of them may add: a row keeps its bounds anyway."""
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
    whole: ClassVar[str] = "all rows of one client"
    by_id: ClassVar[str] = "all rows of one client id"
    present: ClassVar[str] = "a client with all its rows"
    at_party: ClassVar[str] = "a client id at one party: the same id at two parties is two units"
    size: ClassVar[str] = "weight of clients"
    rows: int = 1

    def share(self, most: float) -> float:
        """What the mean of a client's rows may reach of what a row may: `most`, in (0, 1]."""
        return most

    def simulated(self, most: int) -> int:
        """How many units are simulated to find what one of them may add: `most`."""
        return most


Unit = Rows | Clients

UNITS: dict[PrivacyUnit, type[Rows] | type[Clients]] = {each.kind: each for each in (Rows, Clients)}
"""Words of a unit by its name."""


def unit_of(kind: PrivacyUnit, rows: int | None = None) -> Unit:
    """The unit of a job's settings.

    Args:
      kind: its name.
      rows: public typical rows of a client; they mean nothing where rows are units.
    """
    return Rows() if kind is PrivacyUnit.RECORD else Clients(rows or 1)
