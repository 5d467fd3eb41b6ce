"""Validated access to the fields of a JSON object, by name, type and range.

Uses only the standard library, so that devices can import it; other code uses pydantic models for this.
"""

import math
import re
from collections.abc import Callable, Set
from typing import Any, TypeVar

from dapple_dp.schemas.settings.refusal import MalformedError

_MOST_DIGITS = 20
_MOST_LETTERS = 1 << 12
_HEX = re.compile(r"(?:[0-9a-f]{2})*\Z")
_Field = TypeVar("_Field")


class Fields:
    """A JSON object with exactly these keys; every accessor raises MalformedError if the field doesn't match.

    Args:
      content: plain data.
      names: required keys.
      optional: further allowed keys.
    """

    def __init__(self, content: object, names: Set[str], optional: Set[str] = frozenset()):
        if not isinstance(content, dict) or not names <= content.keys() <= names | optional:
            raise MalformedError("missing or unexpected fields")
        self._content: dict[str, Any] = content

    def _checked(self, name: str, sound: Callable[[Any], bool]) -> Any:
        value = self._content[name]
        if not sound(value):
            raise MalformedError(f"another content at {name!r}")
        return value

    def whole(self, name: str, least: int, most: int) -> int:
        """Returns an integer from `least` to `most`."""
        result: int = self._checked(name, lambda value: type(value) is int and least <= value <= most)
        return result

    def number(self, name: str, least: float, most: float) -> float:
        """Returns a number from `least` to `most`."""
        return float(self._checked(name, lambda value: type(value) in (int, float) and least <= value <= most))

    def text(self, name: str) -> str:
        """Returns a string of 1 to 4096 characters."""
        return str(self._checked(name, _is_text))

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """Returns distinct strings, at least one and at most `most`."""
        texts = self._checked(name, lambda value: isinstance(value, list) and 1 <= len(value) <= most)
        if not all(map(_is_text, texts)) or len(set(texts)) < len(texts):
            raise MalformedError(f"another content at {name!r}")
        return tuple(texts)

    def digits(self, name: str) -> int:
        """Returns an integer >= 0 that is stored as a string, since it may not fit into a double."""
        return int(self._checked(name, lambda value: _is_text(value) and value.isascii() and _is_short_number(value)))

    def raw(self, name: str) -> bytes:
        """Returns bytes that are stored in hexadecimal."""
        return bytes.fromhex(self._checked(name, lambda value: isinstance(value, str) and bool(_HEX.match(value))))

    def each(self, name: str, most: int, made: Callable[[object], _Field]) -> tuple[_Field, ...]:
        """Returns the entries of a list, at least one and at most `most`, each converted by `made`."""
        return tuple(map(made, self._checked(name, lambda value: isinstance(value, list) and 1 <= len(value) <= most)))

    def plain(self, name: str) -> Any:
        """Returns plain data, not validated; None if the field is missing."""
        return self._content.get(name)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _MOST_LETTERS


def _is_short_number(text: str) -> bool:
    return text.isdigit() and len(text) <= _MOST_DIGITS


def is_finite(value: object) -> bool:
    """Returns whether a value is a finite number; booleans are not."""
    return type(value) is int or (type(value) is float and math.isfinite(value))
