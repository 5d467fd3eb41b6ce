"""Help pages of `dapple --help` and `dapple JOB --help`."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from dapple_dp.pipelines.command.words import GROUPS, NEVER, PARTY, TOOLS, WORDS, spelled
from dapple_dp.pipelines.run.flags import CONFIG_FLAG, FLAGS, OR, Command, Flag, Words, job_command
from dapple_dp.pipelines.run.versions import version
from dapple_dp.schemas.choices import Runner, Tier
from dapple_dp.schemas.errors import DISTRIBUTION

_RUN = "run"
"""Command that `dapple masked party` runs if only flags follow it."""
_ABSENT, _SHORT = 6, 67
EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "failed for another reason",
    2: "settings, flags or input refused; nothing was released",
    3: "refused by the ledger; a retry is refused, too, until the budget or the job changes",
    4: "refused because private data would bypass the noise",
    5: "trust masked: a file or message is not what the protocol allows at this point; verify: the run was altered",
    _ABSENT: "party: another party has not answered within --wait_minutes; the same command resumes",
    66: "there is no input yet; retry when it has arrived, or correct the path",
    _SHORT: "stream: all due windows are released, and one had fewer rows than stream.expected_rows",
    75: "a store, a broker or the ledger's server does not answer; retry later with the same --run_id",
    130: "interrupted by Ctrl-C or SIGTERM; the same command with the same --run_id resumes or starts over",
}
_FORM = f"dapple JOB --config FILE --output DIR [--run_id ID] [--verbose] [Beam flags]{OR}dapple JOB --help"
_VERBOSE = Flag(
    "--verbose",
    "show logs and tracebacks of all libraries; they may hold values of rows",
    is_flag=True,
    expose_value=False,
)
_AFTER = """  and flags of Beam, such as --runner=FlinkRunner, --direct_num_workers=4 or --temp_location=gs://...

Runners: {runners}.
With `experimental: true` in the job also {others} and all others.

Example of the settings ({name}.yaml):
{example}

All settings: `dapple tools schema {name} > {name}.schema.json`; editors complete and check them by a
first line `# yaml-language-server: $schema={name}.schema.json`.
"""


def job_page(name: str, run: Callable[..., Any]) -> Command:
    """Builds the command of a job, whose help page has an example; `run` is called to run it."""
    word = WORDS[name]
    flags = [FLAGS[flag] for flag in (CONFIG_FLAG, *word.flags)]
    named = [(f"{each.opts[0]} {each.metavar or ''}".rstrip(), each.required) for each in flags]
    written = " ".join(text if required else f"[{text}]" for text, required in named)
    form = f"dapple {spelled(name)} {written} [--verbose] [Beam flags]"
    page = job_command(name, form, word.flags, _VERBOSE, help=f"{word.line}.", callback=run)
    runners = ", ".join(runner for runner in word.runners if runner.tier is Tier.SUPPORTED)
    example, others = textwrap.indent(word.example.rstrip(), "  "), ", ".join(Runner.tiers())
    page.after = _AFTER.format(name=name, example=example, runners=runners, others=others)
    return page


class Overview(Words):
    """The `dapple` command with its subcommands, and one line for each on its help page."""

    def __init__(self, words: Sequence[Command]):
        settings = {"help_option_names": ["-h", "--help"], "terminal_width": 100}
        eager: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
        shown = Flag("--version", "Show the version and exit.", callback=_print_version, **eager)
        about = "Differentially private clustering."
        super().__init__("dapple", _FORM, shown, help=about, context_settings=settings)
        for word in (self, *words):
            for each in (word, *getattr(word, "commands", {}).values()):
                # Only the overview and the commands of a party have the codes of all jobs, and that of waiting.
                waits = word is self or (word.name == PARTY and each.name in (PARTY, _RUN))
                never = () if waits else (*NEVER.get(str(word.name), ()), _ABSENT)
                never = never if word is self or word.name == "stream" else (*never, _SHORT)
                each.codes = {code: text for code, text in EXIT_CODES.items() if code not in never}
        for word in words:
            if spelled(str(word.name)) == word.name:
                self.add_command(word)
        for name, (about, names) in GROUPS.items():
            if inside := [word for word in words if word.name in names]:
                form, line = f"dapple {name} {'|'.join(names)} ...", f"{about[0].upper()}{about[1:]}."
                group = Words(name, form, commands=inside, help=line, no_args_is_help=False)
                group.codes = dict(sorted(code for word in inside for code in word.codes.items()))
                self.add_command(group)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the subcommands in two sections: jobs, and tools that read no private rows."""
        jobs = {name: word.line for name, word in WORDS.items()} | {PARTY: TOOLS[PARTY]}
        tools = {name: about for name, about in TOOLS.items() if name != PARTY}
        for title, words in {"Jobs": jobs, "Read no private rows": tools}.items():
            lines = {spelled(name).split()[0]: about for name, about in words.items()}
            lines |= {name: f"{about}: {', '.join(names)}" for name, (about, names) in GROUPS.items() if name in lines}
            with formatter.section(title):
                formatter.write_dl(list(lines.items()))


def _print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"dapple {version(DISTRIBUTION)}")
        ctx.exit()
