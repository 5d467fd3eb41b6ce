"""Snapshots of tables in formats with a log of their own: which one a job asks for, and which one it read."""

import dataclasses
from typing import Any, Self

from pydantic import Field

from schemas.choices import TableFormat
from schemas.settings.section import Section, Whole


class TableConfig(Section):
    """The format of a table whose files are listed by its own log, and the snapshot that is read."""

    format: TableFormat = Field(description="delta for a Delta table, or iceberg for an Iceberg table")
    version: Whole | None = Field(
        default=None,
        description="the version of the Delta table or the snapshot id of the Iceberg table, an integer >= 0, "
        "or leave it out for the newest",
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of a table.

    Attributes:
      format: of the table.
      version: of a Delta table, or the snapshot id of an Iceberg table.
    """

    format: TableFormat
    version: int

    def to_json(self) -> dict[str, Any]:
        """What manifests say of it."""
        return {"format": str(self.format), "version": self.version}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Reads `to_json`'s result; raises LookupError, TypeError or ValueError for anything else."""
        return cls(format=TableFormat(content["format"]), version=int(content["version"]))
