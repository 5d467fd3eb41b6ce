"""Proposal of `dapple init`: feature columns, reasons to leave out others, and possible ids of people."""

import re
from collections.abc import Collection
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings.yaml_text import quoted
from dapple_dp.schemas.tables.columns import is_list, is_numeric, is_text, plain_type
from dapple_dp.schemas.tables.feature_patterns import is_pattern

_WORDS = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")
"""Separators of the words in a name such as `customer_id` or `customerId`."""
_IDS = re.compile(
    r"(?:ids?|[pumec]id|uuid|guid|pk|fk|mrn|nhs|zip|zipcode|postcode|plz|phone|email|ssn|iban|unnamed"
    r"|(?:row|user|customer|client|person|patient|subj|usubj|subject|member|account|case|session|device|visit|order"
    r"|product|item)id)"
)
_PEOPLE = re.compile(
    r"(?:patient|person|customer|client|kunde|klient|mitglied|versichert|teilnehm|participant|subject|member|user|account"
    r"|household|haushalt|insured|employee|mitarbeit|student|respondent|proband|donor|citizen|paciente|cliente|usuario"
    r"|assur[eé]|abonn[eé])(?:s|n|en|in|innen|er|e|a|o)?(?:id|nr|no|nummer|number|key|code)?"
)
"""Words for people, about whom a table may have several rows."""
_REFERENCE = re.compile(r"ref|reference|hash|nummer|kennung|pseudonym|token")
_PLACES = re.compile(r"zip|zipcode|postcode|plz|unnamed|row|rowid")
"""Ids that don't identify a person."""
_LAST = re.compile(r"key|code|number|no|nr")
"""Last words of names of ids or codes."""
_DATES = re.compile(r"dates?|datetime|timestamp|ts|dt|dob")
_INDEX = re.compile(r"index|__index_level_\d+__")
"""Names of row numbers in data frames."""
_MOST_NAMES = 3
ID, DATE, TEXT = "an id or a code, by its name", "a date or a time", "text"
EMPTY, CONSTANT = "without a value, by its type", "a constant, by its public interval"
_LEAST_IDS = 10
_IDS_PER_ROW = 0.05
_CODE_DIGITS = 5
"""Values repeat like ids if this many are distinct, in total and per row, and numbers have this many digits."""


class Proposal(NamedTuple):
    """Proposed features of a table.

    Attributes:
      features: names of number columns, or of a single column of number lists.
      booleans: boolean features, whose interval is known.
      left_out: reason for each other column, except the client ids.
    """

    features: tuple[str, ...] | str
    booleans: frozenset[str]
    left_out: dict[str, str]

    @classmethod
    def of(cls, schema: pa.Schema, client_id: str | None) -> "Proposal":
        """Proposes features for a table.

        Args:
          schema: schema of the table; only names and types are used.
          client_id: column of client ids; None if the unit is one row.

        Raises:
          ConfigError: if the client id column doesn't exist, or nothing can be proposed.
        """
        if client_id is not None and client_id not in schema.names:
            raise ConfigError(f"--client_id must be a column, got {quoted(client_id)}; columns: {shown(schema.names)}.")
        others = [field for field in schema if field.name != client_id]
        reasons = {field.name: _reason(field) for field in others}
        open_ones = [field for field in others if not reasons[field.name]]
        lists = [field.name for field in open_ones if is_list(plain_type(field.type))]
        numbers = [field for field in open_ones if field.name not in lists]
        for name in lists if numbers else lists[1:]:
            reasons[name] = "a column of lists, which is the only feature where it is one"
        if not open_ones:
            why = "".join(f"; column {quoted(name)} is {reason}" for name, reason in [*reasons.items()][:_MOST_NAMES])
            raise ConfigError(
                f"--data must have a column of numbers, or of lists of them, got none{why}; name another table, or "
                "rename a column."
            )
        return cls(
            features=tuple(field.name for field in numbers) or lists[0],
            booleans=frozenset(field.name for field in numbers if pa.types.is_boolean(plain_type(field.type))),
            left_out={name: reason for name, reason in reasons.items() if reason},
        )

    def without(self, constants: Collection[str]) -> Self:
        """Removes number columns whose public interval is a single number.

        Raises:
          ConfigError: if no column is left.
        """
        names = (self.features,) if isinstance(self.features, str) else self.features
        features = tuple(name for name in names if name not in constants)
        if not features:
            raise ConfigError(
                "--data must have a column whose public interval is more than a single number, got none; correct the "
                "intervals, or name another table."
            )
        if not constants:
            return self
        return self._replace(features=features, left_out=self.left_out | dict.fromkeys(constants, CONSTANT))


def _reason(field: pa.Field) -> str:
    """Reason not to propose a column; empty if it is proposed."""
    kind = plain_type(field.type)
    if not field.name or is_pattern(field.name):
        return "a name that a job cannot write"
    if is_text(kind):
        return ID if _is_id(field.name) else TEXT
    if pa.types.is_null(kind):
        return EMPTY
    if pa.types.is_temporal(kind):
        return DATE
    if is_list(kind):
        return "" if is_numeric(kind.value_type) else "a column of lists of no numbers"
    if not is_numeric(kind):
        return "no column of numbers"
    return "" if pa.types.is_boolean(kind) else _by_name(field.name)


def _by_name(name: str) -> str:
    """Reason not to propose a number column by its name; empty if it may be a feature."""
    if any(map(_DATES.fullmatch, _words(name))):
        return f"{DATE}, by its name"
    return ID if _is_id(name) else ""


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.split(name) if word] or [""]


def _is_id(name: str) -> bool:
    """Returns whether the name suggests ids or codes of any type."""
    words = _words(name)
    return any(map(_IDS.fullmatch, words)) or bool(_LAST.fullmatch(words[-1]) or _INDEX.fullmatch(name.lower()))


def check_once(schema: pa.Schema, path: str) -> None:
    """Raises InputError if two columns have the same name."""
    twice = list(dict.fromkeys(name for name in schema.names if name and schema.names.count(name) > 1))
    if twice:
        raise InputError(f"{path} must have every column once, got {shown(twice)} several times; rename the others.")


def shown(names: Collection[str]) -> str:
    """Joins names for a sentence; shortened if there are many."""
    first = [quoted(name) for name in [*names][: 4 * _MOST_NAMES]]
    return ", ".join(first) + (", ..." if len(names) > len(first) else "")


def ids_of_people(schema: pa.Schema, rows: pa.Table) -> list[str]:
    """Columns that may identify people, by their names or because their values repeat like ids.

    Args:
      schema: schema of the table.
      rows: first rows, with the text and integer columns.
    """
    return [field.name for field in schema if field.name and _may_be_person(field, rows)]


def _may_be_person(field: pa.Field, rows: pa.Table) -> bool:
    words, kind = _words(field.name), plain_type(field.type)
    is_code = is_text(kind) or pa.types.is_integer(kind)
    if not (is_code or pa.types.is_floating(kind)) or any(map(_PLACES.fullmatch, words)):
        return False
    if any(map(_IDS.fullmatch, words)) or (any(map(_PEOPLE.fullmatch, words)) and _names_one(words)):
        return True
    if not is_code or _INDEX.fullmatch(field.name.lower()) or field.name not in rows.column_names:
        return False
    return _repeat_like_ids(rows[field.name].drop_null(), is_text(kind))


def _names_one(words: list[str]) -> bool:
    """Returns whether a name such as `patient` or `customer number` identifies a person, unlike `user age`."""
    rest = [word for word in words if not _PEOPLE.fullmatch(word)]
    return all(_LAST.fullmatch(word) or _IDS.fullmatch(word) or _REFERENCE.fullmatch(word) for word in rest)


def _repeat_like_ids(values: pa.ChunkedArray, are_texts: bool) -> bool:
    """Returns whether there are many repeated values; numbers must also be long, or equal ones adjacent."""
    n_values, n_distinct = len(values), len(values.unique())
    if not _LEAST_IDS <= n_distinct < n_values or n_distinct < _IDS_PER_ROW * n_values:
        return False
    if are_texts:
        return True
    texts = values.cast(pa.string())
    lengths = pc.utf8_length(texts).unique()
    changes = int(pc.sum(pc.not_equal(texts.slice(1), texts.slice(0, n_values - 1))).as_py() or 0)
    return (len(lengths) == 1 and lengths[0].as_py() >= _CODE_DIGITS) or changes + 1 <= n_distinct
