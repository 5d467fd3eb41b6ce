"""Flags that any command may have, on what it reports while it works; each has a variable of the environment."""

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
"""By flag: a variable, and what holds without both."""
EXPORT_FLAG = "--export_private_metrics"
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_METRICS_MARK, _EVENTS_MARK = b"# HELP dapple_", b'"eventType"'
"""What the first line of such a file has: a job or a table under that name would be lost."""
_URL = re.compile(r"https?://[^/@\s]+(/\S*)?")


class Signals(NamedTuple):
    """What a command reports.

    Attributes:
      form: of the log.
      level: of the log, as `logging` counts.
      wanted: besides the log.
    """

    form: LogFormat = LogFormat.PLAIN
    level: int = logging.INFO
    wanted: Wanted = Wanted()


def signal_flags(words: list[str]) -> tuple[list[str], Signals]:
    """The words without these flags, and what they say.

    Raises:
      ConfigError: for values that are none.
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
        raise ConfigError(f"{flag} must be one of the values that it may have, got nothing; give one.")


def _check_places(wanted: Wanted) -> None:
    """Refuses places that nobody writes to, before anything is done."""
    if "://" in wanted.metrics or not os.path.isdir(os.path.dirname(os.path.abspath(wanted.metrics))):
        raise ConfigError(f"--metrics must be a file in a folder of a local disk, got {wanted.metrics}; correct it.")
    if "://" in wanted.lineage and _URL.fullmatch(wanted.lineage) is None:
        raise ConfigError(
            "--lineage must be a file, or a URL of http or https without a password, got another; correct it, and give "
            "a key by OPENLINEAGE_API_KEY."
        )
    for flag, path, mark in (("--metrics", wanted.metrics, _METRICS_MARK), ("--lineage", wanted.lineage, _EVENTS_MARK)):
        if "://" not in path and not _is_own(path, mark):
            raise ConfigError(f"{flag} must be a new file or one that it has written, got another; name another path.")
    if wanted.private and not wanted.metrics and not wanted.lineage:
        raise ConfigError(
            f"{EXPORT_FLAG} must come with --metrics or --lineage, got neither; give one, or leave it out."
        )


def _is_own(path: str, mark: bytes) -> bool:
    """Whether there is no such file yet, or one whose first line has the mark; an empty one counts as none."""
    if not os.path.isfile(path):
        return True
    with open(path, "rb") as file:
        line, _, rest = file.read(1 << 16).partition(b"\n")
    return not (line or rest) or mark in line
