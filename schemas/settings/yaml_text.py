"""YAML parser for jobs: no duplicate keys, scalars by the core schema of YAML 1.2, bounded size and depth.

PyYAML parses scalars by YAML 1.1, where 1:30 is 90, 010 is 8, 1_000 is 1000, `no` is false and 1e-6 is a string.
Here they are what people expect: numbers are decimal, except for 0x1f and 0o17, and dates are strings.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.refusal import MalformedError

MOST_BYTES = 1 << 20
"""Maximum characters of a job's text."""
MOST_DEPTH = 32
"""Maximum nesting of lists and mappings."""
_MOST_VALUES = 1 << 18
_MOST_MERGES = 64
_MOST_MERGED = 1 << 12
_LONGEST_NUMBER = 40
_TAG = "tag:yaml.org,2002:"
_MERGE_TAG = f"{_TAG}merge"
_CORE = (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
)
"""Types of plain scalars, the first match wins: tag, pattern, possible first characters. The last is YAML 1.1."""


class _Loader(yaml.SafeLoader):
    """Safe loader that refuses duplicate keys, and input that would exhaust its stack, memory or time."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composes the next node; recurses into its values."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise MalformedError(f"values nested more than {MOST_DEPTH} deep")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Expands the merge keys of a mapping; limited, since merges of merges can double its size at each step."""
        merged = [value for key, value in node.value if key.tag == _MERGE_TAG]
        if sum(len(node.value) if isinstance(node, yaml.SequenceNode) else 1 for node in merged) > _MOST_MERGES:
            raise MalformedError(f"a mapping that merges more than {_MOST_MERGES} others")
        super().flatten_mapping(node)
        if merged and len(node.value) > _MOST_MERGED:
            raise MalformedError(f"a mapping that merges more than {_MOST_MERGED} values")

    def construct_scalar(self, node: yaml.Node) -> Any:
        """Returns the value of a scalar; refuses long numbers, since parsing one in base 60 takes minutes."""
        number = node.tag.rpartition(":")[2] in ("int", "float")
        if number and isinstance(node.value, str) and len(node.value) > _LONGEST_NUMBER:
            raise MalformedError(f"a number of more than {_LONGEST_NUMBER} digits")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        """Returns the dict of a mapping node; raises ConfigError on a duplicate key."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_TAG:
                continue
            name = self.construct_object(key)
            if name in seen:
                raise ConfigError(
                    f"{name} appears twice in its section, again in line {key.start_mark.line + 1}; remove one of "
                    "the two."
                )
            seen.add(name)
        return super().construct_mapping(node, deep=deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Returns an integer: decimal even with leading zeros, except for 0x and 0o."""
        text = str(self.construct_scalar(node))
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        if not re.fullmatch(_CORE[2][1], text):
            raise MalformedError(f"{text!r} as an integer")
        return int(text, base)


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes every string that `_Loader` would read back as another type."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Represents a string; in double quotes if other styles would lose a character, such as U+0085."""
        style = None if text.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)

_Loader.add_constructor(f"{_TAG}int", _Loader.construct_integer)
_Loader.yaml_implicit_resolvers = {}
for _kind, _form, _begins in _CORE:
    # Other programs may read this output as YAML 1.1, so whatever isn't a string in either version is quoted.
    for _resolver in (_Loader, _Dumper):
        _resolver.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_form})$"), list(_begins))
for _resolver in (_Loader, _Dumper):
    _resolver.add_implicit_resolver(f"{_TAG}null", re.compile("^$"), [""])


def parse(text: str) -> object:
    """Parses one YAML document.

    Args:
      text: YAML; tags of Python objects are refused.

    Raises:
      ConfigError: if the text is not one YAML document, or a mapping has a key twice.

    Example:
      >>> parse("delta: 1e-6")
      {'delta': 1e-06}
    """
    try:
        if len(text) > MOST_BYTES:
            raise MalformedError(f"more than {MOST_BYTES} characters")
        result = yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
        _check_values(result)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"the job must be valid YAML, got {_problem(error)}; correct the text there.") from error
    return result


def _check_values(content: object) -> None:
    """Refuses values that aliases repeat without end or too often, and strings that can't be a file name."""
    waiting: list[tuple[object, int]] = [(content, 0)]
    n_values = 0
    while waiting:
        value, depth = waiting.pop()
        inside = _inside(value)
        n_values += 1 + len(inside)
        if n_values > _MOST_VALUES or depth > MOST_DEPTH:
            raise MalformedError(f"more than {_MOST_VALUES} values, or endless aliases")
        if isinstance(value, str) and ("\0" in value or (not value.isascii() and is_torn(value))):
            raise MalformedError("a string with an invalid character")
        waiting += [(part, depth + 1) for part in inside]


def _inside(value: object) -> list[object]:
    """Returns the values directly inside a value."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple | set) else []


def is_torn(text: str) -> bool:
    """Returns whether text holds a lone surrogate, which UTF-8 can't encode."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def check_text(text: str, setting: str) -> None:
    """Refuses a lone surrogate, which Python makes of a file name that isn't UTF-8; raises ConfigError."""
    if is_torn(text):
        raise ConfigError(f"{setting} must be text in UTF-8, got {text}; rename that file or folder, or correct it.")


def path_text(path: object, setting: str) -> str:
    """Returns a path as text; raises ConfigError unless it is a path or text, not empty and in UTF-8."""
    given = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(given, str) or not given:
        got = "nothing" if given == "" else f"a {type(path).__name__}"
        raise ConfigError(f"{setting} must be a path, got {got}; give a string or a Path.")
    check_text(given, setting)
    return given


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"an error in line {mark.line + 1}, column {mark.column + 1} ({error.problem})"
    said = isinstance(error, ValueError | yaml.YAMLError)
    return " ".join(str(error).split()) if said else "a value that cannot be read"


def render(data: Mapping[str, object]) -> str:
    """Returns YAML text that `parse` reads back as `data`; keys keep their order."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def flow(value: object, width: int = 100) -> str:
    """Returns YAML text of a value, in one line if it fits `width`, that `parse` reads back."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=True, width=width
    )
    return text.removesuffix("...\n").rstrip("\n")


def quoted(text: str) -> str:
    """Returns a string in double quotes and in one line, for a key or a comment; control characters are escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    """Escapes a character for a string in double quotes."""
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
