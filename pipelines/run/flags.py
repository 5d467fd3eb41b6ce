"""Dapple's own flags: what they mean, and what is refused of them before Beam is imported."""

import argparse
from collections.abc import Sequence
from typing import Any

from schemas.errors import ConfigError

CONFIG_FLAG = "--config"
OUTPUT_FLAGS = ("--output", "--run_id")
FLAG_HELP = {
    "--config": "the job's YAML file",
    "--output": "folder of the results; must be new or empty",
    "--run_id": "name of the run; default: time and a random part",
    "--exchange": "folder that all roles can reach",
    "--released": "folder of the releases so far, out of the aggregator's reach",
    "--client": "name of the client that sends",
    "--once": "do what is due and end, instead of waiting for more",
}
OPTIONAL_FLAGS = ("--run_id", "--once")
SWITCHES = ("--once",)
"""Flags without a value."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `ConfigError`s.

    Args:
      form: of the command, for errors; other arguments are argparse's.
    """

    def __init__(self, *, form: str = "dapple JOB --config FILE --output DIR [Beam flags]", **more: Any):
        super().__init__(**more)
        self._form = form

    def error(self, message: str) -> None:  # type: ignore[override]
        """Raises instead of exiting."""
        raise ConfigError(f"the command line must be `{self._form}`: {message}.")


def parse_own(job: str, argv: Sequence[str], flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Dapple's flags of a job by name, and the words that are left for Beam.

    Args:
      job: its name.
      argv: words after it.
      flags: of this job besides --config; all must be given but `OPTIONAL_FLAGS`.

    Raises:
      ConfigError: for a missing flag, or a name that can be no part of a file name.
    """
    parser = Parser(prog=f"dapple {job}", allow_abbrev=False)
    for flag in (CONFIG_FLAG, *flags):
        kind: dict[str, Any] = {"action": "store_const", "const": flag} if flag in SWITCHES else {}
        parser.add_argument(flag, required=flag not in OPTIONAL_FLAGS, help=FLAG_HELP[flag], **kind)
    known, rest = parser.parse_known_args(list(argv))
    given = {name: text for name, text in vars(known).items() if text is not None}
    for name, setting in {"client": "--client", "run_id": "run_id"}.items():
        if name in given:
            check_name(given[name], setting)
    if "output" in given:
        given["output"] = given["output"].rstrip("/") or given["output"]
    return given, rest


def check_name(name: str, setting: str) -> None:
    """Refuses a name that can be no part of a file name."""
    plain = name.isascii() and all(letter.isalnum() or letter in "-_." for letter in name)
    if not name or not plain or name.startswith("."):
        raise ConfigError(f"{setting} must be letters, digits, '-', '_' and '.', got {name!r}; choose a simpler name.")
