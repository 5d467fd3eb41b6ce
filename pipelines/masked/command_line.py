"""Subcommands and flags of `masked party`; imports no Beam, so that help and refusals are fast."""

import importlib
from typing import Any

import click

from dapple_dp.pipelines.run.flags import OR, PATH, Command, Flag, Words, job_command
from dapple_dp.schemas.errors import ConfigError

_JOB = "--config JOB [--client NAME]"
RUN = "run"
"""Subcommand that runs if only flags are given."""
_FORM = (
    "dapple masked party --role client|aggregator|clients --config JOB --exchange EXCHANGE "
    "[--released RELEASED] [--client NAME] [--wait_minutes M] [Beam flags]"
)
_MINUTES: dict[str, Any] = {"type": click.FloatRange(0.0, 60.0 * 24 * 366), "show_default": True}


def _action(name: str, flags: str, about: str, *params: click.Parameter) -> Command:
    """Builds a subcommand that calls the function with this name and prints its result."""

    def run(**given: Any) -> Any:
        # Imported late, since Beam writes to stderr on import, and only here is stderr silenced.
        return getattr(importlib.import_module("dapple_dp.pipelines.masked.party"), name)(**given)

    return Command(name, f"dapple masked party {name} {flags}", *params, callback=run, help=about)


class _Party(Words):
    """The command `party`, which takes part in a run if only flags are given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts the default subcommand before flags."""
        alone = args[:1] != ["--help"] and args[:1] != [] and args[0].startswith("--")
        return super().parse_args(ctx, [RUN, *args] if alone else args)


def _take_part(role: str, wait_minutes: float, poll_seconds: float, late_minutes: float, **given: Any) -> Any:
    """Checks the flags of the role, and takes part in the run."""
    needed = {"client": ("released", "client"), "aggregator": (), "clients": ("released",)}[role]
    for name in ("released", "client"):
        if (given[name] is None) == (name in needed):
            rule, got = ("given", "nothing") if name in needed else ("left out", given[name])
            raise ConfigError(f"--{name} must be {rule} for --role {role}, got {got}; correct it.")
    names = ("config", "exchange", *needed, *(["run_id"] if role == "clients" and given["run_id"] else []))
    words = [word for name in names for word in (f"--{name}", given[name])]
    party_run = importlib.import_module("dapple_dp.pipelines.masked.party_run")
    patience = party_run.Patience(60.0 * wait_minutes, poll_seconds, 60.0 * late_minutes)
    return party_run.take_part(role, [*words, *click.get_current_context().args], patience)


_CONFIG = Flag("--config", "the job's YAML file", type=PATH, required=True)
_CLIENT = Flag("--client", "name of the party", default="")
_EXCHANGE = Flag("--exchange", "of one run; default: all runs", type=PATH, default="")
_NAME = click.Argument(["name"], required=True)
_OUTPUT = Flag("--output", "file of the new key", type=PATH, default="identity", show_default=True)
_JOBS = click.Argument(["files"], nargs=-1, required=True, type=PATH)
_OF_ARUN = [
    Flag("--role", "whose part", type=click.Choice(["client", "aggregator", "clients"]), required=True),
    Flag("--released", "folder of the releases so far, which all clients share", type=PATH, metavar="DIR"),
    Flag("--client", "name of the client that sends", metavar="NAME"),
    Flag("--run_id", "name of the run; default: time and a random part", metavar="ID"),
    Flag("--wait_minutes", "how long to wait for others, in all", default=1440.0, **_MINUTES),
    Flag("--late_minutes", "how long a step stays open for late parties", default=10.0, **_MINUTES),
    Flag("--poll_seconds", "longest pause", type=click.FloatRange(0.01, 3600.0), default=5.0, show_default=True),
]
_ACTIONS = [
    job_command(RUN, _FORM, ("--exchange",), *_OF_ARUN, help="take part to the end", callback=_take_part),
    _action("new", "NAME [--output KEY]", "make a private key, and print the line to send to others", _NAME, _OUTPUT),
    _action("check", "JOB JOB ...", "compare the job files of all parties", _JOBS),
    _action("enroll", _JOB, "make the state of a party, and print its folder", _CONFIG, _CLIENT),
    _action("forget", f"{_JOB} [--exchange EXCHANGE]", "destroy what was sent", _CONFIG, _CLIENT, _EXCHANGE),
]
PARTY = _Party("party", OR.join(action.form for action in _ACTIONS), commands=_ACTIONS, no_args_is_help=False)
