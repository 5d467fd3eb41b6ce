"""A good file, broken in one or several ways; which ways follows from a seed."""

import json
import random
from collections.abc import Callable
from typing import Any

DEEP = (40, 400, 20_000)
LITERALS = (
    "null",
    "true",
    "-1",
    "0",
    "1e308",
    "1e999",
    "-1e-320",
    "NaN",
    "Infinity",
    "1" * 30,
    "9" * 5000,
    "9223372036854775808",
    "0.5",
    '""',
    '"x"',
    '"../x"',
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    "[[]]",
    '{"a": 1, "a": 2}',
    "[1, null]",
)
"""What a value may become, as JSON, which is YAML as well but for a few."""


def truncated(rng: random.Random, content: bytes) -> bytes:
    """A file whose end is missing."""
    return content[: rng.randrange(len(content) + 1)]


def flipped(rng: random.Random, content: bytes) -> bytes:
    """Some bytes are others."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def inserted(rng: random.Random, content: bytes) -> bytes:
    """Bytes too many: brackets, quotes, anything."""
    place = rng.randrange(len(content) + 1)
    more = rng.choice((b"[", b"{", b'"', b"\\", b"\xff", b"\x00", b"- ", b"&a ", b"*a ", b"!!int ", b": ", b"\n"))
    return content[:place] + more * rng.choice((1, 2, 50, 5000)) + content[place:]


def repeated(rng: random.Random, content: bytes) -> bytes:
    """A part of the file comes twice, or many times."""
    start = rng.randrange(len(content) + 1)
    stop = rng.randrange(start, len(content) + 1)
    return content[:stop] + content[start:stop] * rng.choice((1, 2, 20)) + content[stop:]


def removed(rng: random.Random, content: bytes) -> bytes:
    """A part of the file is missing."""
    start = rng.randrange(len(content) + 1)
    return content[:start] + content[rng.randrange(start, len(content) + 1) :]


def replaced(rng: random.Random, content: bytes) -> bytes:
    """Another file altogether."""
    size = rng.choice((0, 1, 8, 1000))
    others = (b"", b"null", b"[]", b"{}", b"0", b"PAR1PAR1", b"PK\x05\x06" + bytes(18), rng.randbytes(size))
    return rng.choice((*others, b"[" * rng.choice(DEEP), b'{"a":' * rng.choice(DEEP), b"{a: " * rng.choice(DEEP)))


BYTES = (truncated, flipped, inserted, repeated, removed, replaced)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns where the values of plain data are."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Plain data with one value changed."""
    if not path:
        return change(value)
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _changed(value[path[0]], path[1:], change)
    return copied


def other_value(rng: random.Random, content: bytes) -> bytes:
    """One value of a JSON text is of another type or size, or very deep or long."""
    found = json.loads(content)
    literal = rng.choice((*LITERALS, "[" * 30 + "]" * 30, "[" * 500 + "]" * 500, json.dumps("x" * 100_000)))
    marked = _changed(found, rng.choice(_places(found)), lambda _: "@here@")
    return json.dumps(marked).replace('"@here@"', literal).encode()


def swapped_value(rng: random.Random, content: bytes) -> bytes:
    """One value of a JSON text stands where another one belongs."""
    found = json.loads(content)
    places = _places(found)
    other: Any = found
    for key in rng.choice(places):
        other = other[key]
    return json.dumps(_changed(found, rng.choice(places), lambda _: other)).encode()


def other_keys(rng: random.Random, content: bytes) -> bytes:
    """A key of a JSON text is missing, is there twice, or is one too many; or a list is shorter or longer."""
    found = json.loads(content)

    def change(value: Any) -> Any:
        if isinstance(value, dict) and value:
            name = rng.choice(list(value))
            kept = {key: each for key, each in value.items() if key != name}
            return rng.choice((kept, value | {"more": 1}, kept | {f"{name}@twice@": value[name], name: value[name]}))
        return (value + value)[: rng.randrange(2 * len(value) + 1)] if isinstance(value, list) else value

    return json.dumps(_changed(found, rng.choice(_places(found)), change)).replace("@twice@", "").encode()


JSON = (*BYTES, other_value, other_value, swapped_value, other_keys)


def mutated(rng: random.Random, content: bytes, ways: tuple[Callable[[random.Random, bytes], bytes], ...]) -> bytes:
    """A broken file; ways that need JSON come first, since what they find must be whole."""
    first = rng.choice(ways)(rng, content)
    return rng.choice(BYTES)(rng, first) if rng.random() < 0.2 else first
