"""What can be refused before Beam is imported, which takes longer than everything that is done here."""

import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.command.words import WORDS, Word
from pipelines.run.flags import CONFIG_FLAG, parse_own
from pipelines.run.stores import check_stores
from schemas.errors import ConfigError

BEAMS = ("--cache_megabytes", "--label", "--update")
"""Flags of runs that are called like a setting of some job."""
_MOST_NAMED = 3
_SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "schemas" / "json"
_LARGEST = 1 << 20
"""Octets; larger files are left to the job, which reads them again and refuses them again."""


def refuse_settings(name: str, argv: Sequence[str]) -> None:
    """Says of the first flag that is a setting of the job, and no flag of Dapple or Beam, where it is written.

    Args:
      name: of the job.
      argv: words after it.

    Raises:
      ConfigError: in one sentence.
    """
    own = {CONFIG_FLAG, *WORDS[name].flags}
    given = [word.partition("=")[0] for word in argv if word.startswith("--")]
    for flag in given:
        found = () if flag in own or flag in BEAMS else _places(name, flag[2:].replace("-", "_"))
        if found:
            raise ConfigError(
                f"{flag} must be a setting of the job file, got a flag; write it there as {' or '.join(found)}."
            )


def _places(name: str, wanted: str) -> tuple[str, ...]:
    """Dotted names of the settings that are called so, those of outer sections first."""
    dotted = _settings(name) | (_settings("fit") if WORDS[name].section else frozenset())
    found = sorted(dotted, key=lambda each: (each.count("."), each))
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


def refuse_early(name: str, word: Word, argv: Sequence[str]) -> None:
    """Refuses missing flags and wrong settings as the job itself would; whatever else is wrong is left to the job.

    Raises:
      ConfigError: in one sentence.
    """
    refuse_settings(name, argv)
    given, _ = parse_own(name, argv, word.flags)
    check_stores({f"--{flag}": text for flag, text in given.items()})
    path = given["config"]
    if "://" not in path and not os.path.exists(path):
        raise ConfigError(f"--config must be a readable YAML file, got {path}; check the path.")
    text = _local_text(path)
    if text is not None:
        check_stores(word.loaded(text))


def _local_text(path: str) -> str | None:
    """A small file of this machine; None of anything else."""
    with contextlib.suppress(OSError, ValueError):
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
            with open(path, encoding="utf-8") as file:
                return file.read()
    return None
