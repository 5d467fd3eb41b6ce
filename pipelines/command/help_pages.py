"""What `dapple --help` and `dapple JOB --help` print."""

import textwrap
from collections.abc import Mapping

from pipelines.command.words import TOOLS, WORDS, Word
from pipelines.plan import command_line as planning
from pipelines.run.flags import CONFIG_FLAG, FLAG_HELP, OPTIONAL_FLAGS, SWITCHES

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    1: "failed, for a reason that is not one of these",
    2: "settings, flags or input refused; nothing was released",
    3: "refused by the ledger; another try is refused as well, until the budget or the job is another one",
    4: "refused because private data would flow around the noise",
    5: "trust masked: a file or message is not what it must be at this point; verify: the run was altered",
    130: "interrupted by Ctrl-C or SIGTERM; the same command with the same --run_id starts again or goes on",
}
_NEVER: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("prepare", "assign", "evaluate", "shuffle"), (3, 5)),
    **dict.fromkeys(("profile", "encode"), (5,)),
    "decode": (3,),
    "init": (3, 4, 5),
    "verify": (3, 4),
    **dict.fromkeys(("plan", "clean", "ledger"), (4, 5)),
}
"""Exit codes that a word does not have, since it asks no ledger, builds no graph, or takes part in no protocol."""
_COMMON = {
    "--verbose": "show logs and tracebacks of all libraries; they may hold values of rows",
    "--help": "print this page",
}
_WIDTH = 100


def overview() -> str:
    """A line per word."""
    lines = [
        "usage: dapple JOB --config FILE --output DIR [--run_id ID] [--verbose] [Beam flags]",
        "       dapple JOB --help | --help | --version",
        "",
        "Differentially private clustering. Jobs:",
        *_entries({name: word.about for name, word in WORDS.items()}),
        "",
        "Read no private rows:",
        *_entries(TOOLS),
        "",
        _exit_codes(),
    ]
    return "\n".join(lines)


def job_page(name: str, word: Word) -> str:
    """Flags, an example and the exit codes of a job."""
    flags = {flag: FLAG_HELP[flag] for flag in (CONFIG_FLAG, *word.flags)} | _COMMON
    shown = {flag: f"{flag} {_value(flag)}".rstrip() for flag in flags}
    written = [f"[{text}]" if flag in OPTIONAL_FLAGS else text for flag, text in shown.items()]
    usage = " ".join(["dapple", name, *written[: 1 + len(word.flags)], "[--verbose]", "[Beam flags]"])
    lines = [
        f"usage: {usage}",
        "",
        f"{name}: {word.about}.",
        "",
        *_entries({f"{flag} {_value(flag)}".rstrip(): text for flag, text in flags.items()}),
        "  and flags of Beam, such as --runner=FlinkRunner, --direct_num_workers=4 or --temp_location=gs://...",
        "",
        f"Example of the settings ({name}.yaml):",
        textwrap.indent(word.example.rstrip(), "  "),
        "",
        f"All settings: `dapple schema {name} > {name}.schema.json`; editors complete and check them by a first line",
        f"`# yaml-language-server: $schema={name}.schema.json`.",
        "",
        _exit_codes(name),
    ]
    return "\n".join(lines)


def tool_page(name: str, usage: str) -> str:
    """How a word that reads no data is used."""
    return f"usage: {usage}\n\n{name}: {TOOLS[name]}.\n"


def planning_page(name: str) -> str:
    """Flags and exit codes of a word of planning or verifying."""
    tool = planning.TOOLS[name]
    flags = {flag: str(about["help"]) for flag, about in tool.flags.items()}
    return "\n".join([tool_page(name, tool.usage), *_entries(flags), "", _exit_codes(name)])


def ledger_page() -> str:
    """How the ledger's own command is used."""
    lines = {
        "limit": "--dataset NAME --epsilon E --delta D [--unit record|client] [--basic_epsilon E --basic_delta D]",
        "show": "what every data set may spend and has spent, and the state of every run",
        "verify": "[--head DIGEST] says whether the chain of entries holds",
        "plan": "--dataset NAME --runs N [--delta D] says the largest epsilon of each of N runs that fit together",
        "export": "[--format jsonl|csv] [--output FILE] gives all entries",
    }
    usage = "dapple ledger limit|show|plan|verify|export --ledger FILE ..."
    return "\n".join([tool_page("ledger", usage), *_entries(lines), "", _exit_codes("ledger")])


def _exit_codes(name: str = "") -> str:
    """The exit codes of a word, or of all, and their meanings."""
    found = {str(code): text for code, text in EXIT_CODES.items() if code not in _NEVER.get(name, ())}
    return "\n".join(["Exit codes:", *_entries(found), ""])


def _entries(texts: Mapping[str, str]) -> list[str]:
    """Names in one column, what they mean in another."""
    width = max(map(len, texts))
    indent = " " * (width + 4)
    return [
        textwrap.fill(f"  {name:{width}}  {text}", _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        for name, text in texts.items()
    ]


def _value(flag: str) -> str:
    """What follows a flag."""
    values = {"--config": "FILE", "--run_id": "ID", "--client": "NAME"}
    return "" if flag in _COMMON or flag in SWITCHES else values.get(flag, "DIR")
