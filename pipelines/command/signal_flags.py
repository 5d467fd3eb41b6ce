"""Flags for logs, metrics and lineage, valid for all commands; each has an environment variable."""

import logging
import os
import re
from typing import NamedTuple

from dapple_dp.pipelines.run.signals.exports import Wanted
from dapple_dp.pipelines.run.signals.log_lines import LogFormat
from dapple_dp.schemas.errors import ConfigError

FLAGS = {
    "--log_format": ("DAPPLE_LOG_FORMAT", "text"),
    "--log_level": ("DAPPLE_LOG_LEVEL", "info"),
    "--metrics": ("DAPPLE_METRICS", ""),
    "--lineage": ("DAPPLE_LINEAGE", ""),
}
"""By flag: its environment variable and its default."""
EXPORT_FLAG = "--export_private_metrics"
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_METRICS_MARK, _EVENTS_MARK = b"# HELP dapple_", b'"eventType"'
"""Text in the first line of our own files; a file without it is someone else's and isn't overwritten."""
_URL = re.compile(r"https?://[^/@\s]+(/\S*)?")


class Signals(NamedTuple):
    """Logging and export options of a command.

    Attributes:
      form: format of the log.
      level: level of the log, as in `logging`.
      wanted: exports besides the log.
    """

    form: LogFormat = LogFormat.PLAIN
    level: int = logging.INFO
    wanted: Wanted = Wanted()


def signal_flags(words: list[str]) -> tuple[list[str], Signals]:
    """Splits the words into those without these flags and the options that the flags set.

    Raises:
      ConfigError: if a flag has an invalid value.
    """
    given = {flag: os.environ.get(name) or default for flag, (name, default) in FLAGS.items()}
    rest, coming = list[str](), iter(words)
    for word in coming:
        flag, is_joined, value = word.partition("=")
        if flag in FLAGS:
            given[flag] = value if is_joined else next(coming, "")
            _check_given(flag, given[flag])
        elif word != EXPORT_FLAG:
            rest.append(word)
    form, level = given["--log_format"], given["--log_level"]
    for flag, value, known in (("--log_format", form, list(LogFormat)), ("--log_level", level, list(_LEVELS))):
        if value not in known:
            raise ConfigError(f"{flag} must be one of {', '.join(known)}, got {value or 'nothing'}; name one of them.")
    wanted = Wanted(given["--metrics"], EXPORT_FLAG in words, given["--lineage"])
    _check_places(wanted)
    return rest, Signals(LogFormat(form), _LEVELS[level], wanted)


def _check_given(flag: str, value: str) -> None:
    if not value or value.startswith("--"):
        raise ConfigError(f"{flag} needs a value.")


def _check_places(wanted: Wanted) -> None:
    """Refuses export paths that can't be written, before the job starts."""
    if "://" in wanted.metrics or not os.path.isdir(os.path.dirname(os.path.abspath(wanted.metrics))):
        raise ConfigError(f"--metrics must be in an existing folder on a local disk, got {wanted.metrics}; correct it.")
    if "://" in wanted.lineage and _URL.fullmatch(wanted.lineage) is None:
        raise ConfigError(
            "--lineage must be a file, or an http(s) URL without a password; put a key into OPENLINEAGE_API_KEY."
        )
    for flag, path, mark in (("--metrics", wanted.metrics, _METRICS_MARK), ("--lineage", wanted.lineage, _EVENTS_MARK)):
        if "://" not in path and not _is_own(path, mark):
            raise ConfigError(f"{flag} must be a new file or one that it wrote before; choose another path.")
    if wanted.private and not wanted.metrics and not wanted.lineage:
        raise ConfigError(f"{EXPORT_FLAG} needs --metrics or --lineage; add one, or leave it out.")


def _is_own(path: str, mark: bytes) -> bool:
    """Returns whether the file is missing, empty, or has the mark in its first line."""
    if not os.path.isfile(path):
        return True
    with open(path, "rb") as file:
        line, _, rest = file.read(1 << 16).partition(b"\n")
    return not (line or rest) or mark in line
