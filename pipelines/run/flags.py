"""Dapple's own flags and commands, validated before Beam is imported."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from dapple_dp.schemas.errors import ConfigError

CONFIG_FLAG = "--config"
OUTPUT_FLAGS = ("--output", "--run_id")
FORM = "dapple JOB --config FILE --output DIR [Beam flags]"
OR = "` or `"
"""Separator of a command's usage forms."""
PATH = click.Path(readable=False)
"""Paths that shells can complete; the job checks whether they exist."""


class Flag(click.Option):
    """A flag: name, help line, and further options of click; its value is never another flag."""

    def __init__(self, name: str, help: str, **more: Any):
        super().__init__([name], help=help, **more)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Refuses a value that looks like a flag; otherwise as in click."""
        if isinstance(value, str) and value.startswith("--"):
            flag = value.partition("=")[0]
            raise click.BadOptionUsage(self.opts[0], f"{self.opts[0]} needs a value, got the flag {flag}", ctx)
        return super().process_value(ctx, value)


_NEEDED: dict[str, Any] = {"metavar": "DIR", "type": PATH, "required": True}
_OWN = (
    Flag("--config", "the job's YAML file", **_NEEDED | {"metavar": "FILE"}),
    Flag("--output", "folder of the results; must be new or empty", **_NEEDED),
    Flag("--run_id", "name of the run; default: time and a random part", metavar="ID"),
    Flag("--exchange", "folder that all roles can reach", **_NEEDED),
    Flag("--released", "folder of the releases so far, out of the aggregator's reach", **_NEEDED),
    Flag("--client", "name of the client that sends", metavar="NAME", required=True),
    Flag("--level", "clusters that are left of the tree of centers; default: all", metavar="K", type=click.IntRange(1)),
    Flag(
        "--least_size",
        "noisy size below which a cluster joins its nearest relative; default: none does",
        metavar="N",
        type=click.FloatRange(0.0, min_open=True),
    ),
    Flag("--once", "do what is due and end, instead of waiting for more", is_flag=True, flag_value="once"),
    Flag("--drain", "finish what has begun and end, and charge nothing", is_flag=True, flag_value="drain"),
    Flag(
        "--catch_up",
        "release windows up to this date if several are due at once",
        metavar="DATE",
        type=click.DateTime(["%Y-%m-%d"]),
    ),
)
FLAGS = {each.opts[0]: each for each in _OWN}


class Command(click.Command):
    """A command: name, usage, flags, and further options of click.

    Attributes:
      after: text of the help page after the flags.
      codes: exit codes and their meanings.
    """

    after = ""
    codes: Mapping[int, str] = {}

    def __init__(self, name: str, form: str, *params: click.Parameter, **more: Any):
        super().__init__(name, params=list(params), **more)
        self.form = form

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes a usage line for each form of the command."""
        for form in self.form.split(OR):
            formatter.write_usage("dapple", form.removeprefix("dapple "), prefix="usage: ")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the text after the flags, and the exit codes."""
        formatter.write(self.after)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in self.codes.items()])


class Words(Command, click.Group):
    """A command with subcommands."""


def job_command(name: str, form: str, flags: Sequence[str], *params: Flag, **more: Any) -> Command:
    """Builds a job's command with flags from `FLAGS`; unknown words are left for Beam."""
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    own = (FLAGS[flag] for flag in (CONFIG_FLAG, *flags))
    return Command(name, form, *own, *params, context_settings=settings, **more)


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Converts usage errors of click to ConfigError."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message().rstrip(".")
        if error.ctx is not None and isinstance(error, click.MissingParameter):
            given = error.ctx.params
            missing = [each for each in error.ctx.command.params if each.required and given.get(str(each.name)) is None]
            message = f"the following arguments are required: {', '.join(each.opts[0] for each in missing)}"
        form = getattr(error.ctx and error.ctx.command, "form", FORM)
        raise ConfigError(f"the command line must be `{form}`: {message}{'' if message[-1] == '?' else '.'}") from error


def read(command: click.Command, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Parses the flags of a command; returns their values by name, and the remaining words. Raises ConfigError."""
    with one_sentence():
        context = command.make_context(command.name, list(argv))
    return context.params, context.args


def parse_own(job: str, argv: Sequence[str], flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Parses Dapple's flags of a job; returns them by name, and the remaining words for Beam.

    Args:
      job: name of the job.
      argv: words after the name.
      flags: flags of this job besides --config.

    Raises:
      ConfigError: if a flag is missing, or a name can't be part of a file name.
    """
    params, rest = read(job_command(job, FORM, flags), argv)
    given = {name: str(value) for name, value in params.items() if value is not None}
    for name, setting in {"client": "--client", "run_id": "run_id"}.items():
        if name in given:
            check_name(given[name], setting)
    if "output" in given:
        given["output"] = given["output"].rstrip("/") or given["output"]
    return given, rest


def check_name(name: str, setting: str) -> None:
    """Refuses a name that can't be part of a file name."""
    plain = name.isascii() and all(letter.isalnum() or letter in "-_." for letter in name)
    if not name or not plain or name.startswith("."):
        raise ConfigError(f"{setting} must be letters, digits, '-', '_' and '.', got {name!r}; choose a simpler name.")
