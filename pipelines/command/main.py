"""Dispatch, exit codes and progress messages of the `dapple` command."""

import contextlib
import difflib
import functools
import importlib
import json
import logging
import os
import pathlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import click
from click.shell_completion import get_completion_class, shell_complete

from dapple_dp.pipelines.command.early import refuse_early, refuse_settings
from dapple_dp.pipelines.command.help_pages import Overview, job_page
from dapple_dp.pipelines.command.interruption import GO_ON, INTERRUPTED, SENTENCE, interruptible
from dapple_dp.pipelines.command.signal_flags import Signals, signal_flags
from dapple_dp.pipelines.command.words import GROUPS, PARTY, TOOLS, WORDS, spelled
from dapple_dp.pipelines.run.failures import describe_unexpected
from dapple_dp.pipelines.run.flags import Command, Words, one_sentence
from dapple_dp.pipelines.run.signals.exports import EXPORTS
from dapple_dp.pipelines.run.signals.log_lines import LogFormat, forget_run, formatter
from dapple_dp.schemas.errors import ConfigError, DappleError, not_installed
from dapple_dp.schemas.settings.yaml_text import check_text

_COMPLETE = "_DAPPLE_COMPLETE"
"""Environment variable in which a shell names itself when it asks for completions."""
SHELLS = ("bash", "zsh", "fish")
JOBS = {name: word.module for name, word in WORDS.items()}
"""Module of each job, which defines `JOB`; imported on demand."""
COMMANDS = (*JOBS, *TOOLS)
"""All commands except groups: the jobs, and the tools that read no data."""
_TOP = tuple(dict.fromkeys(spelled(name).partition(" ")[0] for name in COMMANDS))
"""Words that can come right after `dapple`."""
_HELP = ("-h", "--help")
_LOGGER = logging.getLogger(__name__)
_REMEDY = "run dapple --help."


def completion_script(shell: str) -> str:
    """Returns the completion script of a shell.

    Raises:
      ConfigError: if the shell is unknown.
    """
    found = get_completion_class(shell) if shell in SHELLS else None
    if found is None:
        raise ConfigError(f"the shell must be one of {', '.join(SHELLS)}, got {shell}; name one of them.")
    return found(Words("dapple", ""), {}, "dapple", _COMPLETE).source()


def _complete(words: Words) -> None:
    """Prints the possible next words for a shell's completion."""
    shell_complete(words, {}, "dapple", _COMPLETE, os.environ[_COMPLETE])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0, or the exit code of the error after one sentence on stderr.

    Args:
      argv: words after the command's name; None means those of the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in words
    forget_run()
    with _own_stderr(verbose) as stream:
        try:
            for word in words:
                check_text(word, "the command line")
            words, signals = signal_flags([word for word in words if word != "--verbose"])
        except ConfigError as error:
            _set_up_logging(stream, verbose, Signals())
            return _fail(str(error), error.exit_code)
        _set_up_logging(stream, verbose, signals)
        with EXPORTS.of_command(signals.wanted):
            with interruptible() as interruption:
                code, sentence = 0, ""
                cause: Exception | None = None
                job = next((WORDS[word] for word in words[:2] if word in WORDS), None)
                stopped = SENTENCE if job is not None and "--run_id" in job.flags else GO_ON
                try:
                    summary = _summary(words)
                except KeyboardInterrupt:
                    code, sentence = INTERRUPTED, stopped
                except DappleError as error:
                    code, sentence, cause = error.exit_code, str(error), error
                except Exception as error:  # noqa: BLE001 - type and place only, the message may hold a value
                    library = not_installed(error)
                    code, sentence = (ConfigError.exit_code, library) if library else (1, describe_unexpected(error))
                    cause = error
                else:
                    # Last line of stdout.
                    sys.stdout.write("" if summary is None else json.dumps(summary) + "\n")
                    sys.stdout.flush()
                if code:
                    code, sentence = (INTERRUPTED, stopped) if interruption.asked else (code, sentence)
                    _fail(sentence, code, cause if verbose else None)
            EXPORTS.ended(code)
        return code


@contextlib.contextmanager
def _own_stderr(verbose: bool) -> Iterator[TextIO]:
    """Yields stderr and silences everyone else who writes to it, including worker processes and their tracebacks.

    Messages of other libraries in a traceback may hold values of rows; --verbose shows them anyway.
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
    """Runs the command; returns its summary, or None if it has printed its answer itself."""
    if _COMPLETE in os.environ:
        _complete(overview())
        return None
    if words[:1] not in [[word] for word in (*_TOP, *COMMANDS, *_HELP, "--version")]:
        got, remedy = (words[0], _near(words[0], (*_TOP, *COMMANDS))) if words else ("nothing", _REMEDY)
        raise ConfigError(f"the job must be one of {', '.join(_TOP)}, got {got}; {remedy}")
    if words[0] in COMMANDS and words[0] not in _TOP:
        now = spelled(words[0])
        _LOGGER.warning(
            "warning: `dapple %s` is deprecated and will be removed in 0.4.0, not before 2027-05-31; use `dapple %s`",
            words[0],
            now,
        )
        words = [*now.split(), *words[1:]]
    command = overview(words)
    name, rest = _asked(words)
    if name in WORDS and not any(word in _HELP for word in words):
        refuse_early(name, WORDS[name], rest)
    if name == "plan":
        flags = [flag for param in command.commands["plan"].params for flag in param.opts]
        refuse_settings("fit", rest, flags)
    with contextlib.suppress(click.exceptions.Exit), one_sentence(), command.make_context("dapple", words) as context:
        result = command.invoke(context)
        if not isinstance(result, str):
            return result
        sys.stdout.write(result)
    return None


def overview(words: Sequence[str] = ()) -> Overview:
    """Builds the `dapple` command; `words` select the subcommands to load, all by default."""
    name, rest = _asked(words)
    asked = [name] if name in COMMANDS else COMMANDS
    pages = [job_page(name, functools.partial(_run_job, name, rest)) for name in WORDS if name in asked]
    tools = [_tool(name) for name in TOOLS if name in asked]
    for tool in tools:
        tool.help = f"{TOOLS[str(tool.name)]}."
    return Overview([*pages, *tools])


def _asked(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Returns the job or tool that the words name ("" for none), and the words after it."""
    n_words = 2 if words[:1] and words[0] in GROUPS else 1
    name = next(iter(words[n_words - 1 : n_words]), "")
    return name if spelled(name).split() == list(words[:n_words]) else "", words[n_words:]


def _tool(name: str) -> Command:
    """Builds a command that reads no data; imports what it needs on demand."""
    if name == "ledger":
        from dapple_dp.pipelines.ledger.command_line import LEDGER

        return LEDGER
    if name == PARTY:
        from dapple_dp.pipelines.masked import command_line

        return command_line.PARTY
    if name == "schema":
        return Command("schema", "dapple tools schema JOB", _argument("job", WORDS), callback=_schema)
    if name == "schedule":
        return Command("schedule", "dapple tools schedule", callback=lambda: f"{schedule_folder()}\n")
    if name == "completion":
        shell = _argument("shell", SHELLS)
        return Command("completion", "dapple tools completion bash|zsh|fish", shell, callback=completion_script)
    from dapple_dp.pipelines.plan.command_line import TOOLS as PLANNING

    return PLANNING[name]


def _argument(name: str, known: Iterable[str]) -> click.Argument:
    """An argument whose known values shells can complete."""
    return click.Argument([name], shell_complete=lambda ctx, param, start: [w for w in known if w.startswith(start)])


def _run_job(name: str, words: Sequence[str], **_: Any) -> dict[str, Any]:
    from dapple_dp.pipelines.jobs import run_job as way

    return way.run_job(importlib.import_module(JOBS[name]).JOB, words)


def _schema(job: str) -> str:
    if job not in WORDS:
        raise ConfigError(f"the job must be one of {', '.join(WORDS)}, got {job}; {_near(job, WORDS)}")
    from dapple_dp.pipelines.command import job_schema

    return job_schema.text_of(job_schema.job_schema(job))


def _near(got: str, known: Iterable[str]) -> str:
    """Suggests the nearest known word, as a remedy."""
    matches = difflib.get_close_matches(got, list(known), n=1)
    return f"did you mean {matches[0]}?" if matches else _REMEDY


def schedule_folder() -> pathlib.Path:
    """Path of the files for cron, Airflow and Dataflow, in the installed package or the repository."""
    return pathlib.Path(__file__).resolve().parents[2] / "schedule"


def _fail(sentence: str, code: int, shown: Exception | None = None) -> int:
    """Logs the sentence as the last line, after the traceback of `shown`, and returns the exit code."""
    if shown is not None:
        traceback.print_exception(shown, file=sys.stderr)
    # Always the last line, in every log format and for all handlers.
    _LOGGER.error("%s", sentence, extra={"exit_code": code})
    return code


def _set_up_logging(stream: TextIO, verbose: bool, signals: Signals) -> None:
    """Logs progress to stderr, with times unless it is a terminal; Beam's logs appear only with --verbose."""
    handler = logging.StreamHandler(stream)
    is_plain = stream.isatty() and signals.form is LogFormat.TEXT
    handler.setFormatter(formatter(LogFormat.PLAIN if is_plain else signals.form))
    logger = logging.getLogger("dapple_dp")
    logger.handlers[:] = [handler]
    logger.setLevel(signals.level)
    logger.propagate = False
    for name in ("apache_beam", ""):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.CRITICAL)
