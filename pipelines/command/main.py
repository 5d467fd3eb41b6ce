"""Dispatch, exit codes and progress of the `dapple` command."""

import contextlib
import difflib
import importlib
import json
import logging
import os
import pathlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from pipelines.command import help_pages
from pipelines.command.early import refuse_early
from pipelines.command.interruption import INTERRUPTED, SENTENCE, interruptible
from pipelines.command.words import TOOLS, WORDS
from pipelines.ledger.command_line import parsed
from pipelines.plan import command_line as planning
from pipelines.run.failures import describe_unexpected
from pipelines.run.versions import version
from schemas.errors import DISTRIBUTION, ConfigError, DappleError

JOBS = {name: word.module for name, word in WORDS.items()}
"""The module of each job, which holds the record `JOB`; it is imported when its job is asked for."""
COMMANDS = (*JOBS, *TOOLS)
"""All words: the jobs, and those that read no data."""
_HELP = ("-h", "--help")
_NO_WORD = {
    "party": "dapple party new --output KEY` or `dapple party enroll|forget --config JOB",
    "schema": "dapple schema JOB",
    "schedule": "dapple schedule",
    "completion": "dapple completion bash|zsh|fish",
}
"""How the words are used that print something and are done."""


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
    with interruptible() as interruption:
        cause: Exception
        try:
            summary = _summary(words)
        except KeyboardInterrupt:
            return _fail(SENTENCE, INTERRUPTED, stream)
        except DappleError as error:
            sentence, code, cause = str(error), error.exit_code, error
        except Exception as error:  # noqa: BLE001 - the last handler: type and place only, the message may hold a value
            sentence, code, cause = describe_unexpected(error), 1, error
        else:
            return _print(summary)
        if interruption.asked:
            sentence, code = SENTENCE, INTERRUPTED
        return _fail(sentence, code, stream, cause if verbose else None)


def _print(summary: dict[str, Any] | None) -> int:
    """The last line of the standard output; returns the exit code."""
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
    text = _answer(words)
    if text is not None:
        sys.stdout.write(text)
        return None
    name, rest = words[0], words[1:]
    if name == "ledger":
        parsed(rest)
        # Beam writes to stderr while it is imported, so what needs it is imported where stderr is kept from others.
        from pipelines.ledger import job as ledger_command

        return ledger_command.run(rest)
    if name in planning.TOOLS:
        planning.parsed(name, rest)
        found: dict[str, Any] = importlib.import_module(planning.TOOLS[name].module).run(rest)
        return found
    refuse_early(name, WORDS[name], rest)
    from pipelines.jobs import run_job as way

    return way.run_job(importlib.import_module(JOBS[name]).JOB, rest)


def _answer(words: list[str]) -> str | None:
    """What is printed for words that ask for no job; None if they ask for one, or for the ledger."""
    if words and words[0] in _HELP:
        return help_pages.overview()
    if words and words[0] == "--version":
        return f"dapple {version(DISTRIBUTION)}\n"
    if not words or words[0] not in COMMANDS:
        raise ConfigError(_unknown_word(words))
    name, rest = words[0], words[1:]
    asks = any(word in _HELP for word in rest)
    if name in WORDS:
        return help_pages.job_page(name, WORDS[name]) if asks else None
    if name in planning.TOOLS:
        return help_pages.planning_page(name) if asks else None
    if name not in _NO_WORD:
        return help_pages.ledger_page() if asks and rest[0] in _HELP else None
    return help_pages.tool_page(name, _NO_WORD[name]) if asks else _printed(name, rest)


def _printed(name: str, rest: list[str]) -> str:
    """What a word prints that reads no data."""
    if name == "party":
        # Beam writes to stderr while it is imported; see `_summary`.
        from pipelines.masked import party

        return party.command(rest)
    if len(rest) != (name != "schedule"):
        raise ConfigError(f"the command line must be `{_NO_WORD[name]}`, got {len(rest)} words after {name}.")
    if name == "schedule":
        return f"{schedule_folder()}\n"
    if name == "completion":
        from pipelines.command import completion

        return completion.script(rest[0])
    if rest[0] not in WORDS:
        raise ConfigError(f"the job must be one of {', '.join(WORDS)}, got {rest[0]}; {_near(rest[0], WORDS)}")
    from pipelines.command import job_schema

    return job_schema.text_of(job_schema.job_schema(rest[0]))


def schedule_folder() -> pathlib.Path:
    """Where the files for cron, Airflow and Dataflow are: in the public package, or in the repository."""
    root = pathlib.Path(__file__).resolve().parents[2]
    installed = root / "dapple_dp" / "schedule"
    return installed if installed.is_dir() else root / "schedule"


def _unknown_word(words: list[str]) -> str:
    """The sentence about a first word that is none."""
    got, remedy = (words[0], _near(words[0], COMMANDS)) if words else ("nothing", "run dapple --help.")
    return f"the job must be one of {', '.join(COMMANDS)}, got {got}; {remedy}"


def _near(got: str, known: Iterable[str]) -> str:
    """The nearest known word, as a remedy."""
    near = difflib.get_close_matches(got, list(known), n=1)
    return f"did you mean {near[0]}?" if near else "run dapple --help."


def _fail(sentence: str, code: int, stream: TextIO, shown: Exception | None = None) -> int:
    """Says why, with the traceback of an error that is to be shown, and returns the exit code."""
    if shown is not None:
        traceback.print_exception(shown, file=stream)
    stream.write(f"dapple: {sentence}\n")
    return code


def _set_up_logging(stream: TextIO, verbose: bool) -> None:
    """Progress on stderr: rich on a terminal, plain lines elsewhere. Beam speaks only when asked to."""
    handler: logging.Handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("dapple: %(message)s"))
    if stream.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(file=stream), show_path=False, show_level=False)
    for name in ("pipelines", "transforms", "dapple_dp"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False
    for name in ("apache_beam", ""):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
