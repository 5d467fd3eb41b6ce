"""Which columns `dapple init` proposes as features, by names and types alone, and why it leaves the others out."""

import json
import re
from collections.abc import Collection
from typing import NamedTuple, Self

import pyarrow as pa

from schemas.errors import ConfigError
from schemas.tables.columns import is_list, is_numeric, is_text, plain_type
from schemas.tables.feature_patterns import is_pattern

_WORDS = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")
"""What separates the words of a name such as `customer_id` or `customerId`."""
_IDS = re.compile(
    r"(?:ids?|uuid|guid|pk|fk|zip|zipcode|postcode|plz|phone|ssn|iban|unnamed"
    r"|(?:row|user|customer|client|person|patient|member|account|session|device|visit|order|product|item)id)"
)
_LAST = re.compile(r"key|code|number|no|nr")
"""What ends the name of an id or a code."""
_DATES = re.compile(r"dates?|datetime|timestamp|ts|dt|dob")
_INDEX = re.compile(r"index|__index_level_\d+__")
"""What data frames call the numbers of their rows."""
_MOST_NAMES = 3
ID, DATE, TEXT = "an id or a code, by its name", "a date or a time", "text"
EMPTY, CONSTANT = "without a value, by its type", "a constant, by its public interval"


class Proposal(NamedTuple):
    """Columns of a table.

    Attributes:
      features: names of columns of numbers, or of one column of lists of them.
      booleans: those of them whose interval is known to everybody.
      left_out: why, of the other columns but that of client ids.
    """

    features: tuple[str, ...] | str
    booleans: frozenset[str]
    left_out: dict[str, str]

    @classmethod
    def of(cls, schema: pa.Schema, client_id: str | None) -> "Proposal":
        """The proposal for a table.

        Args:
          schema: of which names and types are used.
          client_id: its column of client ids; None for a unit of one row.

        Raises:
          ConfigError: if the column of client ids is not there, or nothing can be proposed.
        """
        if client_id is not None and client_id not in schema.names:
            raise ConfigError(f"--client_id must be a column, got {client_id!r}; name one of the table.")
        others = [field for field in schema if field.name != client_id]
        reasons = {field.name: _reason(field) for field in others}
        open_ones = [field for field in others if not reasons[field.name]]
        lists = [field.name for field in open_ones if is_list(plain_type(field.type))]
        numbers = [field for field in open_ones if field.name not in lists]
        for name in lists if numbers else lists[1:]:
            reasons[name] = "a column of lists, which is the only feature where it is one"
        if not open_ones:
            why = "".join(
                f"; column {json.dumps(name)} is {reason}" for name, reason in [*reasons.items()][:_MOST_NAMES]
            )
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
        """The proposal without some of the columns of numbers, whose public interval is a single number.

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
    """Why a column is not proposed; empty if it is."""
    kind = plain_type(field.type)
    if not field.name or is_pattern(field.name):
        return "a name that a job cannot write"
    if is_text(kind):
        return TEXT
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
    """Why a column of numbers is no feature as far as its name says; empty if it may be one."""
    words = [word.lower() for word in _WORDS.split(name) if word] or [""]
    if any(map(_DATES.fullmatch, words)):
        return f"{DATE}, by its name"
    if any(map(_IDS.fullmatch, words)) or _LAST.fullmatch(words[-1]) or _INDEX.fullmatch(name.lower()):
        return ID
    return ""
