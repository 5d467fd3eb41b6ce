"""What can be refused before Beam is imported, which takes longer than everything that is done here."""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dapple_dp.pipelines.command.words import WORDS, Word
from dapple_dp.pipelines.run.flags import CONFIG_FLAG, parse_own
from dapple_dp.pipelines.run.stores import check_stores
from dapple_dp.schemas.errors import ConfigError

BEAMS = ("--cache_megabytes", "--label", "--update")
"""Flags of runs that are called like a setting of some job."""
_MOST_NAMED = 3
_LARGEST = 1 << 20
"""Bytes; larger files are left to the job, which reads them again and refuses them again."""


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
    # Models of all settings are imported with it, and most commands have no flag that asks for them.
    from dapple_dp.pipelines.command.job_schema import job_schema

    schema = job_schema(job)
    return frozenset(_names(schema, schema.get("$defs", {})))


def _names(schema: Mapping[str, Any], kinds: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Dotted names of all settings of a JSON Schema."""
    kind = kinds[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for each in kind.get("anyOf", ()):
        yield from _names(each, kinds, within)
    for name, inner in kind.get("properties", {}).items():
        yield f"{within}{name}"
        yield from _names(inner, kinds, f"{within}{name}.")
