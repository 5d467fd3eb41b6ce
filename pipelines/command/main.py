"""Dispatch, exit codes and progress of the `dapple` command."""

import contextlib
import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.logging import RichHandler

from pipelines.run.failures import describe_unexpected
from schemas.errors import ConfigError, DappleError

JOBS = {
    "fit": "pipelines.command.fit",
    "prepare": "pipelines.tables.prepare",
    "assign": "pipelines.trusted_zone.assign",
    "evaluate": "pipelines.trusted_zone.evaluate",
    "profile": "pipelines.profile.job",
    "sweep": "pipelines.trusted_zone.sweep",
    "upload": "pipelines.masked.upload",
    "aggregate": "pipelines.masked.aggregate",
    "unmask": "pipelines.masked.unmask",
    "encode": "pipelines.reports.encode",
    "shuffle": "pipelines.reports.shuffle",
    "decode": "pipelines.reports.decode",
    "clustered_fl": "pipelines.clustered_fl.job",
}
"""The module of each job, which holds the record `JOB`; it is imported when its job is asked for."""
_LEDGER = "ledger"
COMMANDS = (*JOBS, _LEDGER)
"""All words: the jobs, and the ledger's own command, which reads no data."""
_USAGE = (
    "usage: dapple JOB --config FILE --output DIR [--run_id ID] [--verbose] [Beam flags]; upload, aggregate and unmask "
    "have --exchange DIR, and upload and unmask --released DIR, instead of --output; ledger has limit, show, verify "
    "or export and --ledger FILE; JOB is one of: "
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a job; returns 0, or the exit code of what stopped it after one sentence on stderr.

    Args:
      argv: words after the command's name; None takes them from the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in words
    with _own_stderr(verbose) as stream:
        _set_up_logging(stream, verbose)
        return _run([word for word in words if word != "--verbose"], stream, verbose)


def _run(words: list[str], stream: TextIO, verbose: bool) -> int:
    """Runs the job that `words` ask for and says on `stream` why it stopped."""
    try:
        if words and words[0] in ("-h", "--help"):
            sys.stdout.write(_USAGE + ", ".join(COMMANDS) + "\n")
            return 0
        summary = _summary(words)
    except DappleError as error:
        return _fail(str(error), error.exit_code, stream, verbose)
    except Exception as error:  # noqa: BLE001 - the last handler: type and place only, the message may hold a value
        return _fail(describe_unexpected(error), 1, stream, verbose)
    if summary is not None:
        sys.stdout.write(json.dumps(summary) + "\n")
    sys.stdout.flush()
    return 0


@contextlib.contextmanager
def _own_stderr(verbose: bool) -> Iterator[TextIO]:
    """Yields stderr and keeps everybody else from writing there, worker processes and their tracebacks included.

    A traceback carries messages of other libraries, and those may carry values; --verbose lets them through.
    """
    if verbose:
        yield sys.stderr
        return
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(open(os.devnull, "w"))
        own = sys.stderr
        with contextlib.suppress(OSError, ValueError):
            descriptor = own.fileno()
            own.flush()
            saved = os.dup(descriptor)
            own = stack.enter_context(os.fdopen(saved, "w", buffering=1))
            stack.callback(os.dup2, saved, descriptor)
            os.dup2(sink.fileno(), descriptor)
        stack.enter_context(contextlib.redirect_stderr(sink))
        yield own


def _summary(words: list[str]) -> dict[str, Any] | None:
    """Runs what is asked for; None if it has printed its answer."""
    if not words or words[0] not in COMMANDS:
        got = words[0] if words else "nothing"
        raise ConfigError(f"the job must be one of {', '.join(COMMANDS)}, got {got}; run dapple --help.")
    # Beam writes to stderr while it is imported, so what needs it is imported where stderr is kept from others.
    from pipelines.ledger import job as ledger_command
    from pipelines.run.jobs import run_job as way

    if words[0] == _LEDGER:
        return ledger_command.run(words[1:])
    return way.run_job(importlib.import_module(JOBS[words[0]]).JOB, words[1:])


def _fail(sentence: str, code: int, stream: TextIO, verbose: bool) -> int:
    """Says why, and returns the exit code."""
    if verbose:
        traceback.print_exc(file=stream)
    stream.write(f"dapple: {sentence}\n")
    return code


def _set_up_logging(stream: TextIO, verbose: bool) -> None:
    """Progress on stderr: rich on a terminal, plain lines elsewhere. Beam speaks only when asked to."""
    handler: logging.Handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("dapple: %(message)s"))
    if stream.isatty():
        handler = RichHandler(console=Console(file=stream), show_path=False, show_level=False)
    for name in ("pipelines", "transforms"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    for name in ("apache_beam", ""):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
