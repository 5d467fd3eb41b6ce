"""Parser for the JSON files of jobs: bounded size and depth, finite numbers, no duplicate keys.

Uses only the standard library, so that devices can import it.
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from dapple_dp.schemas.settings.refusal import MalformedError

MOST_BYTES = 1 << 28
"""Maximum bytes of a JSON file; the manifest of a data set of a million files has fewer."""
MOST_DEPTH = 32
"""Maximum nesting of lists and objects; Dapple's files have less than 10 levels."""
_MOST_DIGITS = 40
_LONGEST_KEY = 40
# An unterminated string matches up to the end of the text, so that no byte is scanned twice.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(content: bytes | str, most_bytes: int = MOST_BYTES, *, finite: bool = True) -> Any:
    """Parses one JSON text to plain data.

    Args:
      content: UTF-8.
      most_bytes: maximum size of the text.
      finite: true to refuse NaN and infinities.

    Raises:
      MalformedError: if it isn't JSON, is too long or nested too deep, or has a number not finite or a duplicate key.

    Example:
      >>> parse('{"rounds": 3}')
      {'rounds': 3}
    """
    raw = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    if len(raw) > most_bytes:
        raise MalformedError(f"more than {most_bytes} bytes")
    _check_depth(raw)
    try:
        result = json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_float=_finite if finite else float,
            parse_int=_integer,
            parse_constant=_finite if finite else float,
        )
        if _SURROGATE.search(raw):
            json.dumps(result, ensure_ascii=False).encode()
    except MalformedError:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedError("text that isn't JSON") from error
    return result


def _check_depth(raw: bytes) -> None:
    """Counts brackets outside of strings before parsing, since the parser recurses for each of them."""
    if raw.count(b"[") + raw.count(b"{") <= MOST_DEPTH:
        return
    depth = 0
    for token in _TOKEN.finditer(raw):
        first = token[0][:1]
        if first in (b"[", b"{"):
            depth += 1
            if depth > MOST_DEPTH:
                raise MalformedError(f"values nested more than {MOST_DEPTH} deep")
        elif first in (b"]", b"}"):
            depth -= 1


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise MalformedError(f"the key {twice[:_LONGEST_KEY]!r} twice")
    return result


def _finite(text: str) -> float:
    result = float(text)
    if not math.isfinite(result):
        raise MalformedError("a number that is not finite")
    return result


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise MalformedError(f"an integer of more than {_MOST_DIGITS} digits")
    return int(text)
