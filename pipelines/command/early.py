"""What can be refused before Beam is imported, which takes longer than everything that is done here."""

import contextlib
import os
from collections.abc import Sequence

from pipelines.command.misplaced import refuse_settings
from pipelines.command.words import Word
from pipelines.run.flags import parse_own
from pipelines.run.stores import check_stores
from schemas.errors import ConfigError

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
