"""Checks of flags and settings that run before the slow import of Beam."""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dapple_dp.pipelines.command.words import WORDS, Word
from dapple_dp.pipelines.run.flags import CONFIG_FLAG, parse_own
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.errors import ConfigError

BEAMS = ("--cache_megabytes", "--label")
"""Flags of runs with the same name as a setting of some job."""
_MOST_NAMED = 3
_LARGEST = 1 << 20
"""Bytes. Larger config files aren't checked here; the job itself reads and refuses them."""


def refuse_early(name: str, word: Word, argv: Sequence[str]) -> None:
    """Refuses missing flags and wrong settings as the job itself would; leaves all other errors to the job.

    Raises:
      ConfigError: if a flag or a setting is wrong.
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
    """Reads a small file on this machine; returns None for anything else."""
    with contextlib.suppress(OSError, ValueError):
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
            with open(path, encoding="utf-8") as file:
                return file.read()
    return None


def refuse_settings(name: str, argv: Sequence[str], flags: Sequence[str] | None = None) -> None:
    """Refuses flags that are settings of the job file, naming the place where they belong.

    Args:
      name: name of the job.
      argv: words after the name.
      flags: accepted flags; None means the flags of the job. Tools that read a job's file pass their own.

    Raises:
      ConfigError: for the first flag that is a setting, and no flag of Dapple or Beam.
    """
    own = {CONFIG_FLAG, *(WORDS[name].flags if flags is None else flags)}
    given = [word.partition("=")[0] for word in argv if word.startswith("--")]
    for flag in given:
        found = () if flag in own or flag in BEAMS else _places(name, flag[2:].replace("-", "_"))
        if found:
            raise ConfigError(
                f"{flag} is a setting of the job file, not a flag; write it there as {' or '.join(found)}."
            )


def _places(name: str, wanted: str) -> tuple[str, ...]:
    """Dotted names of the settings with this name; the job's own come first, then those of outer sections."""
    own = _settings(name)
    dotted = own | (_settings("fit") if WORDS[name].section else frozenset())
    found = sorted(dotted, key=lambda each: (each not in own, each.count("."), each))
    return tuple(each for each in found if f".{each}".endswith(f".{wanted}"))[:_MOST_NAMED]


@functools.cache
def _settings(job: str) -> frozenset[str]:
    """Dotted names of all settings in a job's file."""
    # Imported late, since it loads the models of all settings and few commands need them.
    from dapple_dp.pipelines.command.job_schema import job_schema

    schema = job_schema(job)
    return frozenset(_names(schema, schema.get("$defs", {})))


def _names(schema: Mapping[str, Any], kinds: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yields the dotted names of all settings in a JSON Schema."""
    kind = kinds[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for each in kind.get("anyOf", ()):
        yield from _names(each, kinds, within)
    for name, inner in kind.get("properties", {}).items():
        yield f"{within}{name}"
        yield from _names(inner, kinds, f"{within}{name}.")
