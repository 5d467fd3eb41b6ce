"""Settings for the place of a job's rows, and for public facts about them."""

import codecs
import collections
import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from dapple_dp.schemas.choices import Auto, InvalidRows
from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.privacy.ledger_place import ledger_place
from dapple_dp.schemas.settings import json_text, rejection
from dapple_dp.schemas.settings.section import (
    Count,
    Finite,
    Flag,
    Scalar,
    Section,
    Text,
    auto_or_integer,
    python_scalar,
)
from dapple_dp.schemas.tables.feature_patterns import FeaturePatterns, has_patterns, is_pattern
from dapple_dp.schemas.tables.snapshot import TableConfig

MOST_WIDTH = 1 << 13
"""Largest number of features in a row, a limit of the lattice."""


def _feature_names(value: object) -> object:
    """Validates one column name, or a list of distinct ones."""
    if isinstance(value, str) and is_pattern(value):
        raise rejection.broken_rule("a list if it has a pattern")
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise rejection.broken_rule("a column name or a non-empty list of column names")
    if len(names) > MOST_WIDTH:
        raise rejection.broken_rule(f"at most {MOST_WIDTH:,} columns", got=f"{len(names):,}")
    repeated = [name for name, times in collections.Counter(names).items() if times > 1]
    if repeated:
        raise rejection.broken_rule("a list without duplicates", got=f"{repeated[0]!r} more than once")
    return value if isinstance(value, str) else tuple(names)


def _names_for_people(value: object) -> object:
    """Validates distinct, non-empty names, or None."""
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
    """Validates a string or an integer, the values in Hive folder names."""
    value = python_scalar(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise rejection.broken_rule("a string or an integer (quote it if it is text)")
    return value


THOUSANDS = {",": ",", ".": ".", "'": "'\u2019", "space": " \u00a0\u2009\u202f"}
"""Thousands separators by their names in a job, with all characters that each stands for."""
DECIMALS = (".", ",")
_ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "mac-roman", "cp437", "cp850", "cp852", "koi8-r", "gb18030"),
    *(f"cp{page}" for page in range(1250, 1259)),
    *(f"iso-8859-{part}" for part in (1, 2, 5, 7, 9, 13, 15)),
    *("shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gbk", "big5"),
)
_LONGEST_WORD = 40


def encoding_name(value: object) -> str | None:
    """Returns the setting's name for a text encoding, given any of its aliases; None if it isn't supported."""
    try:
        return _by_codec().get(codecs.lookup(value).name) if isinstance(value, str) else None
    except (LookupError, ValueError):
        return None


@functools.cache
def _by_codec() -> dict[str, str]:
    """Maps codec names to the names in a job; codecs are loaded on first use."""
    return {codecs.lookup(name).name: name for name in _ENCODINGS}


def _encoding(value: object) -> object:
    result = encoding_name(value)
    if value is not None and result is None:
        raise rejection.broken_rule("the name of a text encoding, such as utf-8, utf-16 or cp1252")
    return result


def _delimiter(value: object) -> object:
    """Validates a delimiter: one printable ASCII character, or a tab, that can't be part of a number or a quote."""
    value = "\t" if value == "tab" else value
    if value is None or value == "\t":
        return value
    sign = value if isinstance(value, str) and len(value) == 1 and value.isascii() else ""
    if not sign.isprintable() or not sign or sign.isalnum() or sign in "\"'+-.":
        raise rejection.broken_rule("one character between fields, such as ';' or tab")
    return value


def _words(value: object) -> object:
    """Validates words without line breaks, and removes duplicates."""
    words = tuple(value) if isinstance(value, list | tuple) else ()
    if isinstance(value, str) or not all(
        isinstance(word, str) and word.strip() == word and word.isprintable() and 0 < len(word) <= _LONGEST_WORD
        for word in words
    ):
        raise rejection.broken_rule(f"a list of words of at most {_LONGEST_WORD} characters, such as [NA]")
    return tuple(dict.fromkeys(words))


class CsvConfig(Section):
    """Format of CSV files, unless they are comma-separated, in UTF-8 and with decimal points."""

    delimiter: Annotated[str | None, BeforeValidator(_delimiter)] = Field(
        default=None,
        description="the sign between fields, such as ';' or tab, or leave it out for the one that the first row shows",
    )
    encoding: Annotated[str | None, BeforeValidator(_encoding)] = Field(
        default=None,
        description="the encoding of the text, such as cp1252, or leave it out for UTF-8, and for UTF-16 with a byte "
        "order mark",
    )
    decimal: Literal[".", ","] = Field(default=".", description="the decimal mark, '.' or ','")
    thousands: Literal[",", ".", "'", "space"] | None = Field(
        default=None,
        description="the mark between thousands, ',', '.', ''' or space (of any kind), or leave it out for none",
    )
    null_values: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        default=(), description="a list of words that mean a missing value, as an empty field does"
    )
    quote: Literal['"', "'", "none"] = Field(
        default='"', description="the mark around fields that hold delimiters, '\"', ''' or none"
    )

    def model_post_init(self, context: Any) -> None:
        """Refuses characters with two conflicting meanings."""
        if self.thousands == self.decimal:
            raise ValueError(f"thousands and decimal must differ, got {self.decimal!r} for both; correct one of them.")
        if self.delimiter is not None and self.delimiter == self.quote:
            raise ValueError("delimiter and quote must differ, got one character for both; correct one of them.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CsvForm:
    """Format of a file for its reader: `CsvConfig`, and the handling of cells of a wrong type.

    Attributes:
      delimiter: character between fields; None to detect it from the first row.
      encoding: encoding of the text; None for UTF-8, or UTF-16 with a byte order mark.
      decimal: decimal mark.
      thousands: characters allowed as thousands separators; empty for none.
      null_values: words for missing values, in addition to the empty field.
      quote: character around fields; empty for none.
      lenient: true to read a cell of a wrong type as missing, rather than as an error.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str = "."
    thousands: str = ""
    null_values: tuple[str, ...] = ()
    quote: str = '"'
    lenient: bool = False

    @classmethod
    def of(cls, config: CsvConfig | None, *, lenient: bool = False) -> Self:
        """Creates the format from a section; None stands for the defaults."""
        config = CsvConfig() if config is None else config
        return cls(
            delimiter=config.delimiter,
            encoding=config.encoding,
            decimal=config.decimal,
            thousands="" if config.thousands is None else THOUSANDS[config.thousands],
            null_values=config.null_values,
            quote="" if config.quote == "none" else config.quote,
            lenient=lenient,
        )

    @property
    def text(self) -> str:
        """The format as text for listings and shards; empty for the defaults."""
        named = dataclasses.asdict(self)
        usual = dataclasses.asdict(type(self)())
        changed = {name: value for name, value in named.items() if value != usual[name]}
        return json.dumps(changed, sort_keys=True) if changed else ""

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Inverse of `text`, for a listing of the same run."""
        content = json_text.parse(text) if text else {}
        return cls(**content | ({"null_values": tuple(content["null_values"])} if "null_values" in content else {}))


OptionalCsv = Annotated[
    CsvConfig | None,
    Field(
        description="a section that says how CSV files are written, or leave it out for UTF-8 with decimal points",
    ),
]


class MissingConfig(Section):
    """Handling of one column's missing values: null and NaN."""

    fill: Finite = Field(
        description="the public number that stands for a missing value, in the unit of the column and inside its "
        "bounds, chosen without looking at the rows"
    )
    indicator: Flag = Field(
        default=False, description="true for a feature of its own that is 1 where the value was missing and 0 elsewhere"
    )


def _parsed(value: object) -> object:
    """Validates the entries one by one, so that errors give the full dotted name."""
    if not isinstance(value, Mapping):
        return value
    return {
        column: entry
        if isinstance(entry, MissingConfig) or not isinstance(entry, Mapping)
        else rejection.check_config(MissingConfig, entry, within=f"data.missing.{column}")
        for column, entry in value.items()
    }


Missing = Annotated[dict[Text, MissingConfig], BeforeValidator(_parsed)]


def indicator_name(column: str) -> str:
    """Returns the name of the feature that marks missing values of a column."""
    return f"{column} missing"


def _check_missing(missing: Mapping[str, MissingConfig], features: str | tuple[str, ...]) -> None:
    """Checks a `missing` section against the columns; with patterns, the check waits until these are resolved.

    Raises:
      ConfigError: one sentence.
    """
    if missing and isinstance(features, str):
        raise ConfigError(
            f"data.missing isn't supported for the list column {features!r}; leave it out, since lists must hold "
            "all their numbers."
        )
    if has_patterns(features):
        return
    columns = frozenset(features)
    for column, entry in missing.items():
        if column not in columns:
            raise ConfigError(
                f"data.missing.{column} must name a column of data.features, got {column!r}; the columns there are "
                f"{', '.join(features)}."
            )
        if entry.indicator and indicator_name(column) in columns:
            raise ConfigError(
                f"data.missing.{column}.indicator must be false if there is a column {indicator_name(column)!r}, "
                "got true; rename that column."
            )


def _path_may_follow(schema: dict[str, Any]) -> None:
    """Makes `path` optional in the JSON Schema, since the table of a catalog has none."""
    schema["required"].remove("path")


class DataConfig(Section):
    """The private table, and public facts about it."""

    # Serialized by alias, since `except` is a keyword in Python.
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
    csv: OptionalCsv = None
    on_invalid_rows: InvalidRows = Field(
        default=InvalidRows.FAIL,
        description="fail to stop at a null or non-finite value, or drop to leave such rows out",
    )
    missing: Missing = Field(
        default_factory=dict,
        description="a mapping of columns of numbers to a section with fill, the public number that stands for a null "
        "or NaN, or leave it out",
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
        """True if `features` has patterns, so that the columns depend on the schema of a file."""
        return has_patterns(self.features)

    @property
    def patterns(self) -> FeaturePatterns:
        """The patterns by which features are selected from the columns of a schema."""
        features = (self.features,) if isinstance(self.features, str) else self.features
        return FeaturePatterns(features=features, excepted=self.excepted or (), client_id=self.client_id)

    @property
    def found_patterns(self) -> FeaturePatterns | None:
        """The patterns that gave `features`; None if the job lists names."""
        return self._patterns

    def found_by(self, patterns: FeaturePatterns) -> Self:
        """Returns the section with the patterns that gave its columns; not a setting, and not part of any digest."""
        result = self.model_copy()
        result._patterns = patterns
        return result

    @property
    def csv_form(self) -> CsvForm:
        """Format in which the CSV files of the table are read."""
        return CsvForm.of(self.csv, lenient=self.on_invalid_rows is InvalidRows.DROP)

    def partition_values(self) -> dict[str, str]:
        """Returns `partitions` with the values as text, as in Hive folder names."""
        return {column: str(value) for column, value in self.partitions.items()}

    @property
    def disjoint_scope(self) -> str | None:
        """The only partition that a run is charged to, as canonical JSON; None if it is charged to all of them."""
        if self.disjoint_partitions is None:
            return None
        return json.dumps(self.partition_values(), sort_keys=True)

    @pydantic.model_validator(mode="after")
    def _missing_values_are_of_features(self) -> Self:
        _check_missing(self.missing, self.features)
        return self

    @pydantic.model_validator(mode="after")
    def _options_fit_the_features(self) -> Self:
        if self.feature_names is not None and not isinstance(self.features, str):
            raise ConfigError(
                "data.feature_names isn't supported if data.features is a list of columns; leave it out, since "
                "columns have their own names."
            )
        if self.excepted is not None and not self.has_patterns:
            raise ConfigError(
                "data.except isn't supported if data.features has no pattern with '*'; leave these columns out of "
                "data.features instead."
            )
        if self.width is not None and not isinstance(self.features, str):
            raise ConfigError(
                "data.width isn't supported if data.features is a list of columns; leave it out, since the columns "
                "are counted."
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
        """Fills in the path of a table in a catalog, and refuses another one."""
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
                f"data.path isn't supported for the table of a catalog, got {rejection.quote(data['path'])}; remove "
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
                f"data.features must not include data.client_id, got {self.client_id!r} in both; remove it from "
                "data.features."
            )
        if self.max_rows_per_client is not None and self.client_id is None:
            raise ConfigError("data.client_id is required for data.max_rows_per_client; name the column of client ids.")
        return self


class PrepareOptions(Section):
    """Grouping of rows by client; it doesn't affect privacy."""

    shards: Annotated[Auto | int, auto_or_integer(1 << 20)] = Field(
        default=Auto.AUTO,
        description="the number of files to write, an integer from 1 to 1048576, or auto for about 64 MB each",
    )

    @property
    def n_shards(self) -> int | None:
        """Number of shards; None to compute it from the size of the data."""
        return None if self.shards is Auto.AUTO else int(self.shards)


class ServerDataConfig(Section):
    """The public table: same features, no client ids."""

    path: Text = Field(description="the path of a Parquet or CSV file, a glob or a folder of public rows")


def _section_or_none(value: object) -> object:
    """Converts the word `none` to None."""
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
    """Protocol of jobs with a private table and an optional ledger."""

    @property
    def data(self) -> DataConfig: ...

    @property
    def ledger(self) -> str | None: ...


_Job = TypeVar("_Job", bound=_Charged)


def check_named(job: _Job) -> _Job:
    """Returns the job; raises ConfigError if it charges a ledger for data without a name."""
    if job.ledger is not None and job.data.name is None:
        raise ConfigError("data.name is required with a ledger; give the name of the data set that the ledger charges.")
    return job
