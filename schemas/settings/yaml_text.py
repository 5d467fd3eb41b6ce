"""YAML as jobs are written: no duplicate keys, plain values by the core schema of YAML 1.2; bounded, not deep.

PyYAML reads plain values by YAML 1.1, where 1:30 is 90, 010 is 8, 1_000 is 1000, `no` is false and 1e-6 is a string.
Here they are what editors take them for: numbers are decimal, but for 0x1f and 0o17, and dates are strings.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.refusal import MalformedError

MOST_BYTES = 1 << 20
"""Bytes of a job's text, at most."""
MOST_DEPTH = 32
"""Lists and mappings within each other."""
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
"""What a plain value is, by the first that fits: its tag, its form, and how it begins. The last one is of YAML 1.1."""


class _Loader(yaml.SafeLoader):
    """Safe loader that refuses a key given twice, and what would cost it its stack, its memory or minutes."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node; it calls itself for what is within."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise MalformedError(f"values nested more than {MOST_DEPTH} deep")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Puts what a mapping merges in its place; merges of merges could double it at each step."""
        merged = [value for key, value in node.value if key.tag == _MERGE_TAG]
        if sum(len(each.value) if isinstance(each, yaml.SequenceNode) else 1 for each in merged) > _MOST_MERGES:
            raise MalformedError(f"a mapping that merges more than {_MOST_MERGES} others")
        super().flatten_mapping(node)
        if merged and len(node.value) > _MOST_MERGED:
            raise MalformedError(f"a mapping that merges more than {_MOST_MERGED} values")

    def construct_scalar(self, node: yaml.Node) -> Any:
        """A scalar; numbers are short, since reading a long one to the base 60 takes minutes."""
        number = node.tag.rpartition(":")[2] in ("int", "float")
        if number and isinstance(node.value, str) and len(node.value) > _LONGEST_NUMBER:
            raise MalformedError(f"a number of more than {_LONGEST_NUMBER} digits")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        """Dict of a mapping node; raises ConfigError on a duplicate key."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_TAG:
                continue
            name = self.construct_object(key)
            if name in seen:
                raise ConfigError(
                    f"{name} must be given once in its section, got it again in line {key.start_mark.line + 1}; "
                    "remove one of the two."
                )
            seen.add(name)
        return super().construct_mapping(node, deep=deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """An integer: decimal whatever it begins with, but for 0x and 0o."""
        text = str(self.construct_scalar(node))
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        if not re.fullmatch(_CORE[2][1], text):
            raise MalformedError(f"{text!r} as an integer")
        return int(text, base)


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes every string `_Loader` would not read back as a string."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """A string; in double quotes if it holds what the other styles would lose, such as U+0085."""
        style = None if text.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)

_Loader.add_constructor(f"{_TAG}int", _Loader.construct_integer)
_Loader.yaml_implicit_resolvers = {}
for _kind, _form, _begins in _CORE:
    # Other readers of what is written here may speak YAML 1.1: what is no string in either is quoted.
    for _resolver in (_Loader, _Dumper):
        _resolver.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_form})$"), list(_begins))
for _resolver in (_Loader, _Dumper):
    _resolver.add_implicit_resolver(f"{_TAG}null", re.compile("^$"), [""])


def parse(text: str) -> object:
    """Python value of one YAML document.

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
        found = yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
        _check_values(found)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"the job must be valid YAML, got {_problem(error)}; correct the text there.") from error
    return found


def _check_values(found: object) -> None:
    """Refuses values that aliases repeat without end or past all counting, and strings that no file can be named."""
    waiting: list[tuple[object, int]] = [(found, 0)]
    n_values = 0
    while waiting:
        value, depth = waiting.pop()
        inside = _inside(value)
        n_values += 1 + len(inside)
        if n_values > _MOST_VALUES or depth > MOST_DEPTH:
            raise MalformedError(f"more than {_MOST_VALUES} values, or aliases without end")
        if isinstance(value, str) and ("\0" in value or (not value.isascii() and is_torn(value))):
            raise MalformedError("a string with a character that no text has")
        waiting += [(each, depth + 1) for each in inside]


def _inside(value: object) -> list[object]:
    """What a value is made of."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple | set) else []


def is_torn(text: str) -> bool:
    """Whether it holds one half of a pair of code points, which UTF-8 cannot say."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def check_text(text: str, setting: str) -> None:
    """Refuses half a character, which a name that is not in UTF-8 becomes in Python; raises ConfigError."""
    if is_torn(text):
        raise ConfigError(f"{setting} must be text in UTF-8, got {text}; rename that file or folder, or correct it.")


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"a fault in line {mark.line + 1}, column {mark.column + 1} ({error.problem})"
    said = isinstance(error, ValueError | yaml.YAMLError)
    return " ".join(str(error).split()) if said else "a value that cannot be read"


def render(data: Mapping[str, object]) -> str:
    """YAML text that `parse` reads back as `data`; keys keep their order."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def flow(value: object, width: int = 100) -> str:
    """YAML text of a value in one line, or as few as it takes, that `parse` reads back."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=True, width=width
    )
    return text.removesuffix("...\n").rstrip("\n")


def quoted(text: str) -> str:
    """A string in double quotes and in one line, for a key or a comment; what no terminal should get is escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    """A letter as it stands in double quotes."""
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
