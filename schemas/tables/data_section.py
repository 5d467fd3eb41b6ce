"""Where the rows of a job are, and what may be said of them in public."""

import collections
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from schemas.choices import Auto, InvalidRows
from schemas.errors import ConfigError
from schemas.privacy.ledger_place import ledger_place
from schemas.settings import rejection
from schemas.settings.section import Count, Scalar, Section, Text, auto_or_integer, python_scalar
from schemas.tables.feature_patterns import FeaturePatterns, has_patterns, is_pattern
from schemas.tables.snapshot import TableConfig

MOST_WIDTH = 1 << 13
"""Numbers of a row, at most: the lattice holds no more."""


def _feature_names(value: object) -> object:
    """One column name, or a tuple of distinct ones."""
    if isinstance(value, str) and is_pattern(value):
        raise rejection.broken_rule("a list where it has a pattern of several columns")
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise rejection.broken_rule("a column name or a non-empty list of column names")
    repeated = [name for name, times in collections.Counter(names).items() if times > 1]
    if repeated:
        raise rejection.broken_rule("a list without duplicates", got=f"{repeated[0]!r} more than once")
    return value if isinstance(value, str) else tuple(names)


def _names_for_people(value: object) -> object:
    """A tuple of distinct, non-empty names."""
    if value is None:
        return None
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise rejection.broken_rule("a non-empty list of names")
    repeated = [name for name, times in collections.Counter(names).items() if times > 1]
    if repeated:
        raise rejection.broken_rule("a list without duplicates", got=f"{repeated[0]!r} more than once")
    return names


def _partition_value(value: object) -> object:
    """A string or an integer, as Hive writes them into folder names."""
    value = python_scalar(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise rejection.broken_rule("a string or an integer (quote it if it is text)")
    return value


def _path_may_follow(schema: dict[str, Any]) -> None:
    """The table of a catalog needs no path."""
    schema["required"].remove("path")


class DataConfig(Section):
    """The private table, and what may be said of it in public."""

    # Dumped under the names that YAML knows, since `except` is no name in Python.
    model_config = pydantic.ConfigDict(
        populate_by_name=True, serialize_by_alias=True, json_schema_extra=_path_may_follow
    )
    _patterns: FeaturePatterns | None = pydantic.PrivateAttr(default=None)

    path: Text = Field(
        description="the path of a Parquet or CSV file, a glob or a Hive-partitioned folder; leave it out for the "
        "table of a catalog"
    )
    table: TableConfig | None = Field(
        default=None,
        description="a section with format if the path is that of a Delta or Iceberg table, or leave it out",
    )
    partitions: dict[Text, Annotated[str | int, BeforeValidator(_partition_value)]] = Field(
        default_factory=dict,
        description="a mapping of Hive partition columns to the value that is kept, a string or an integer",
    )
    client_id: Text | None = Field(
        default=None,
        description="the column (or Hive partition column) that names the client, needed by privacy unit client",
    )
    features: Annotated[str | tuple[str, ...], BeforeValidator(_feature_names)] = Field(
        description="a list of numeric columns, in which * stands for any letters, or the name of one list column"
    )
    excepted: Annotated[tuple[str, ...] | None, BeforeValidator(_names_for_people)] = Field(
        default=None,
        alias="except",
        description="a list of columns, or patterns of them, that the patterns in features do not stand for, or leave "
        "it out",
    )
    feature_names: Annotated[tuple[str, ...] | None, BeforeValidator(_names_for_people)] = Field(
        default=None,
        description="a list of names for people, one for each number in the list column features, or leave it out",
    )
    width: Annotated[int, Field(strict=True, ge=1, le=MOST_WIDTH), Scalar] | None = Field(
        default=None,
        description=f"the number of numbers in every list of the list column features, an integer from 1 to "
        f"{MOST_WIDTH}, needed for lists without a fixed size where no server data say it, or leave it out",
    )
    on_invalid_rows: InvalidRows = Field(
        default=InvalidRows.FAIL,
        description="fail to stop at a null or non-finite value, or drop to leave such rows out",
    )
    name: Text | None = Field(default=None, description="the name of the data set, a non-empty string")
    public_rows: Count | None = Field(
        default=None,
        description="the number of rows (privacy unit client: of clients), an integer >= 1, if it is public, "
        "or leave it out",
    )

    max_rows_per_client: Count | None = Field(
        default=None,
        description="the largest number of rows that one client may contribute, an integer >= 1, or leave it out",
    )

    disjoint_partitions: Text | None = Field(
        default=None,
        description="the reason why no privacy unit has rows in two partitions, in words, or leave it out",
    )

    @property
    def has_patterns(self) -> bool:
        """Whether it takes a schema to say which columns the features are."""
        return has_patterns(self.features)

    @property
    def patterns(self) -> FeaturePatterns:
        """Which columns of a schema are features."""
        features = (self.features,) if isinstance(self.features, str) else self.features
        return FeaturePatterns(features=features, excepted=self.excepted or (), client_id=self.client_id)

    @property
    def found_patterns(self) -> FeaturePatterns | None:
        """The patterns that `features` were found by; None where the job names them."""
        return self._patterns

    def found_by(self, patterns: FeaturePatterns) -> Self:
        """The same section, which knows the patterns that its columns were found by: no setting, and in no digest."""
        found = self.model_copy()
        found._patterns = patterns
        return found

    def partition_values(self) -> dict[str, str]:
        """`partitions` as Hive writes them into folder names."""
        return {column: str(value) for column, value in self.partitions.items()}

    @property
    def disjoint_scope(self) -> str | None:
        """The partition to which a run is charged alone, as canonical JSON; None if it is charged to all of them."""
        if self.disjoint_partitions is None:
            return None
        return json.dumps(self.partition_values(), sort_keys=True)

    @pydantic.model_validator(mode="after")
    def _options_fit_the_features(self) -> Self:
        if self.feature_names is not None and not isinstance(self.features, str):
            raise ConfigError(
                "data.feature_names must be left out where data.features is a list of columns, got names; "
                "columns are called by their own names."
            )
        if self.excepted is not None and not self.has_patterns:
            raise ConfigError(
                "data.except must be left out where data.features has no pattern with '*', got a list; leave these "
                "columns out of data.features."
            )
        if self.width is not None and not isinstance(self.features, str):
            raise ConfigError(
                "data.width must be left out where data.features is a list of columns, got it; the columns are counted."
            )
        if None not in (self.width, self.feature_names) and self.width != len(self.feature_names or ()):
            raise ConfigError(
                f"data.feature_names must name all {self.width} numbers that data.width says, got "
                f"{len(self.feature_names or ())} names; give one for each, in their order."
            )
        return self

    @pydantic.model_validator(mode="before")
    @classmethod
    def _a_catalog_knows_the_path(cls, data: object) -> object:
        """The path of a table in a catalog is not given: both are one name."""
        table = data.get("table") if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or not isinstance(table, Mapping | TableConfig):
            return data
        named = (
            table if isinstance(table, TableConfig) else rejection.check_config(TableConfig, table, within="data.table")
        )
        if named.path is None:
            return data
        if data.get("path") not in (None, named.path):
            raise ConfigError(
                f"data.path must be left out for the table of a catalog, got {rejection.quote(data['path'])}; remove "
                "it, or remove data.table.catalog and data.table.identifier."
            )
        return {**data, "path": named.path}

    @pydantic.model_validator(mode="after")
    def _disjoint_partitions_are_folders(self) -> Self:
        if self.disjoint_partitions is not None and (not self.partitions or self.table is not None):
            got = "none" if not self.partitions else "a table, whose log may spell one value in two ways"
            raise ConfigError(
                f"data.partitions must name Hive folders for data.disjoint_partitions, got {got}; "
                "leave data.disjoint_partitions out."
            )
        return self

    @pydantic.model_validator(mode="after")
    def _client_id_is_apart_and_known(self) -> Self:
        names = (self.features,) if isinstance(self.features, str) else self.features
        if self.client_id in names:
            raise ConfigError(
                f"data.features must be other columns than data.client_id, got {self.client_id!r} in both; "
                "remove it from data.features."
            )
        if self.max_rows_per_client is not None and self.client_id is None:
            raise ConfigError(
                "data.client_id must be given for data.max_rows_per_client, got nothing; "
                "name the column that names the client."
            )
        return self


class PrepareOptions(Section):
    """How rows are grouped by client; no matter for privacy."""

    shards: Annotated[Auto | int, auto_or_integer(1 << 20)] = Field(
        default=Auto.AUTO,
        description="the number of files to write, an integer from 1 to 1048576, or auto for about 64 MB each",
    )

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None where it follows from the size of the data."""
        return None if self.shards is Auto.AUTO else int(self.shards)


class ServerDataConfig(Section):
    """The public table: same features, no client ids."""

    path: Text = Field(description="the path of a Parquet or CSV file, a glob or a folder of public rows")


def _section_or_none(value: object) -> object:
    """The word `none` stands for a section that is absent on purpose."""
    return None if value == "none" else value


OptionalServerData = Annotated[
    ServerDataConfig | None,
    BeforeValidator(_section_or_none, json_schema_input_type=ServerDataConfig | Literal["none"] | None),
]

LedgerPath = Annotated[
    Annotated[Text, AfterValidator(ledger_place)] | None,
    Field(
        description="the path of the privacy ledger, a file on a local disk, or postgresql://USER@HOST/DATABASE, or "
        "leave it out to spend unrecorded"
    ),
]


class _Charged(Protocol):
    """A job with a private table and, perhaps, a ledger."""

    @property
    def data(self) -> DataConfig: ...

    @property
    def ledger(self) -> str | None: ...


_Job = TypeVar("_Job", bound=_Charged)


def check_named(job: _Job) -> _Job:
    """The job; raises ConfigError if it charges a ledger for data without a name."""
    if job.ledger is not None and job.data.name is None:
        raise ConfigError(
            "data.name must be given with a ledger, got nothing; give the name of the data set that the ledger charges."
        )
    return job
