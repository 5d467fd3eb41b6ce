"""YAML as jobs are written: no duplicate keys, `1e-6` is a number, an unquoted date is a string."""

import re
from collections.abc import Mapping

import yaml

from schemas.errors import ConfigError

_FLOAT_TAG = "tag:yaml.org,2002:float"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
# YAML 1.1, which PyYAML speaks, reads 1e-6 as a string; YAML 1.2 reads it as a number.
_EXPONENT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """Safe loader that refuses a key given twice."""

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
        return yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"the job must be valid YAML, got {_problem(error)}; correct the text there.") from error


def _problem(error: Exception) -> str:
    """What is wrong and where, in a few words."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"a fault in line {mark.line + 1}, column {mark.column + 1} ({error.problem})"
    return " ".join(str(error).split())


def render(data: Mapping[str, object]) -> str:
    """YAML text that `parse` reads back as `data`; keys keep their order."""
    return yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True)
