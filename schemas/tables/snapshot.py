"""Snapshots of Delta and Iceberg tables: the one that a job requests, and the one that it read."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.choices import TableFormat
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.json_schema import FILE_CONTENT
from dapple_dp.schemas.settings.section import Section, Whole

_CATALOG = r"^[A-Za-z0-9_-]+$"
_IDENTIFIER = r"^[^\s./:@]+(\.[^\s./:@]+)+$"


class TableConfig(Section):
    """Format of a table whose log lists its files, and the snapshot to read."""

    format: TableFormat = Field(description="delta for a Delta table, or iceberg for an Iceberg table")
    version: Whole | None = Field(
        default=None,
        description="the version of the Delta table or the snapshot id of the Iceberg table, an integer >= 0, "
        "or leave it out for the newest",
    )
    catalog: Annotated[str, Field(strict=True, pattern=_CATALOG)] | None = Field(
        default=None,
        description="the name of an Iceberg catalog in the configuration of pyiceberg, of letters, digits, - and _, or "
        "leave it out for a table by path",
    )
    identifier: Annotated[str, Field(strict=True, pattern=_IDENTIFIER)] | None = Field(
        default=None,
        description="the namespace and the name of the table in the catalog, with a dot between them, or leave it out "
        "for a table by path",
    )

    @property
    def path(self) -> str | None:
        """Path that stands for a table in a catalog; None for a table by path."""
        return None if self.catalog is None else f"iceberg://{self.catalog}/{self.identifier}"

    @pydantic.model_validator(mode="before")
    @classmethod
    def _names_that_move_are_refused(cls, table: object) -> object:
        """Refuses branches and tags, which can move to another snapshot."""
        given = [name for name in ("branch", "tag", "ref") if isinstance(table, Mapping) and name in table]
        if given:
            raise ConfigError(
                f"data.table must name a snapshot by its id, since a branch or a tag can be moved, got {given[0]}; "
                "give the snapshot id that it leads to as data.table.version."
            )
        return table

    @pydantic.model_validator(mode="after")
    def _catalogs_are_of_iceberg(self) -> Self:
        if (self.catalog is None) != (self.identifier is None):
            given, missing = ("catalog", "identifier") if self.identifier is None else ("identifier", "catalog")
            raise ConfigError(f"{missing} is required with {given}; give both, or give the path of the table.")
        if self.catalog is not None and self.format is not TableFormat.ICEBERG:
            raise ConfigError(
                f"catalog isn't supported for format {self.format}; give data.path, the root of the table."
            )
        return self


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of a table, as stored in manifests.

    Attributes:
      format: format of the table.
      version: version of a Delta table, or the snapshot id of an Iceberg table.
    """

    format: TableFormat
    version: int
