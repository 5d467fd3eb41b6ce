"""YAML as jobs are written: no duplicate keys, `1e-6` is a number, an unquoted date is a string; bounded, not deep."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from schemas.errors import ConfigError
from schemas.settings.refusal import MalformedError

MOST_BYTES = 1 << 20
"""Bytes of a job's text, at most."""
MOST_DEPTH = 32
"""Lists and mappings within each other."""
_MOST_VALUES = 1 << 18
_MOST_MERGES = 64
_MOST_MERGED = 1 << 12
_LONGEST_NUMBER = 40
_FLOAT_TAG = "tag:yaml.org,2002:float"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
# YAML 1.1, which PyYAML speaks, reads 1e-6 as a string; YAML 1.2 reads it as a number.
_EXPONENT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


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
        if len(node.value) > _MOST_MERGED:
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


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes every string `_Loader` would not read back as a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _resolver in (_Loader, _Dumper):
    _resolver.add_implicit_resolver(_FLOAT_TAG, _EXPONENT, list("-+.0123456789"))


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
        if isinstance(value, str) and ("\0" in value or (not value.isascii() and _is_torn(value))):
            raise MalformedError("a string with a character that no text has")
        waiting += [(each, depth + 1) for each in inside]


def _inside(value: object) -> list[object]:
    """What a value is made of."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple | set) else []


def _is_torn(text: str) -> bool:
    """Whether it holds one half of a pair of code points, which UTF-8 cannot say."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"a fault in line {mark.line + 1}, column {mark.column + 1} ({error.problem})"
    said = isinstance(error, ValueError | yaml.YAMLError)
    return " ".join(str(error).split()) if said else "a value that cannot be read"


def render(data: Mapping[str, object]) -> str:
    """YAML text that `parse` reads back as `data`; keys keep their order."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
