"""Settings of a job that someone gives as flags."""

import functools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.command.words import WORDS
from pipelines.run.flags import CONFIG_FLAG
from schemas.errors import ConfigError

BEAMS = ("--cache_megabytes", "--label", "--update")
"""Flags of runs that are called like a setting of some job."""
_MOST_NAMED = 3
_SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "schemas" / "json"


def refuse_settings(name: str, argv: Sequence[str], flags: Sequence[str] | None = None) -> None:
    """Says of the first flag that is a setting of the job, and no flag of Dapple or Beam, where it is written.

    Args:
      name: of the job.
      argv: words after it.
      flags: that are taken; those of the job unless they are given, as by a tool that takes the file of a job.

    Raises:
      ConfigError: in one sentence.
    """
    own = {CONFIG_FLAG, *(WORDS[name].flags if flags is None else flags)}
    given = [word.partition("=")[0] for word in argv if word.startswith("--")]
    for flag in given:
        found = () if flag in own or flag in BEAMS else _places(name, flag[2:].replace("-", "_"))
        if found:
            raise ConfigError(
                f"{flag} must be a setting of the job file, got a flag; write it there as {' or '.join(found)}."
            )


def _places(name: str, wanted: str) -> tuple[str, ...]:
    """Dotted names of the settings that are called so, the job's own and those of outer sections first."""
    own = _settings(name)
    dotted = own | (_settings("fit") if WORDS[name].section else frozenset())
    found = sorted(dotted, key=lambda each: (each not in own, each.count("."), each))
    return tuple(each for each in found if f".{each}".endswith(f".{wanted}"))[:_MOST_NAMED]


@functools.cache
def _settings(job: str) -> frozenset[str]:
    """Dotted names of all settings of a job's file."""
    schema = json.loads((_SCHEMAS / f"{job}.json").read_text(encoding="utf-8"))
    return frozenset(_names(schema, schema.get("$defs", {})))


def _names(schema: Mapping[str, Any], kinds: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Dotted names of all settings of a JSON Schema."""
    kind = kinds[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for each in kind.get("anyOf", ()):
        yield from _names(each, kinds, within)
    for name, inner in kind.get("properties", {}).items():
        yield f"{within}{name}"
        yield from _names(inner, kinds, f"{within}{name}.")
