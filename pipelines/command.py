"""Dispatch, exit codes and progress of the `dapple` command."""

import importlib
import json
import logging
import sys
import traceback
from collections.abc import Sequence

from rich.console import Console
from rich.logging import RichHandler

from pipelines.failures import describe_unexpected
from schemas.errors import ConfigError, DappleError

JOBS = ("fit", "prepare")
_USAGE = "usage: dapple JOB --config FILE --output DIR [--run_id ID] [--verbose] [Beam flags]; JOB is one of: "


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a job; returns 0, or the exit code of what stopped it after one sentence on stderr.

    Args:
      argv: words after the command's name; None takes them from the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in words
    words = [word for word in words if word != "--verbose"]
    _set_up_logging(verbose)
    try:
        if words and words[0] in ("-h", "--help"):
            sys.stdout.write(_USAGE + ", ".join(JOBS) + "\n")
            return 0
        summary = _job(words).run(words[1:])
    except DappleError as error:
        return _fail(str(error), error.exit_code, verbose)
    except Exception as error:  # noqa: BLE001 - the last handler: type and place only, the message may hold a value
        return _fail(describe_unexpected(error), 1, verbose)
    sys.stdout.write(json.dumps(summary) + "\n")
    sys.stdout.flush()
    return 0


def _job(words: list[str]):  # type: ignore[no-untyped-def]
    """The module of the job that is asked for."""
    if not words or words[0] not in JOBS:
        got = words[0] if words else "nothing"
        raise ConfigError(f"the job must be one of {', '.join(JOBS)}, got {got}; run dapple --help.")
    return importlib.import_module(f"pipelines.{words[0]}")


def _fail(sentence: str, code: int, verbose: bool) -> int:
    """Prints why, and returns the exit code."""
    if verbose:
        traceback.print_exc()
    sys.stderr.write(f"dapple: {sentence}\n")
    return code


def _set_up_logging(verbose: bool) -> None:
    """Progress on stderr: rich on a terminal, plain lines elsewhere. Beam speaks only when asked to."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("dapple: %(message)s"))
    if sys.stderr.isatty():
        handler = RichHandler(console=Console(stderr=True), show_path=False, show_level=False)
    for name in ("pipelines", "transforms"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logging.getLogger("apache_beam").setLevel(logging.INFO if verbose else logging.CRITICAL)
    logging.getLogger().setLevel(logging.INFO if verbose else logging.CRITICAL)
