"""Dispatch, exit codes and progress of the `dapple` command."""

import contextlib
import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.logging import RichHandler

from pipelines.failures import describe_unexpected
from schemas.errors import ConfigError, DappleError

_REPORT_JOBS = ("encode", "shuffle", "decode")
JOBS = (
    "fit",
    "prepare",
    "assign",
    "evaluate",
    "profile",
    "sweep",
    "upload",
    "aggregate",
    "unmask",
    *_REPORT_JOBS,
    "clustered_fl",
    "ledger",
)
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
            sys.stdout.write(_USAGE + ", ".join(JOBS) + "\n")
            return 0
        summary = _job(words).run(words[1:])
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


def _job(words: list[str]):  # type: ignore[no-untyped-def]
    """The module of the job that is asked for."""
    if not words or words[0] not in JOBS:
        got = words[0] if words else "nothing"
        raise ConfigError(f"the job must be one of {', '.join(JOBS)}, got {got}; run dapple --help.")
    return importlib.import_module(f"pipelines.{words[0]}")


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
