"""Subcommands and flags of `ledger`; imports no Beam, so that help and refusals are fast."""

from types import SimpleNamespace
from typing import Any

import click

from dapple_dp.pipelines.run.flags import PATH, Command, Flag, Words
from dapple_dp.schemas.core.plan import PrivacyUnit

_FORM = "dapple ledger limit|show|plan|verify|export|copy --ledger FILE"


def _action(name: str, about: str, *flags: Flag) -> Command:
    """Builds a subcommand of `ledger`."""

    def run(**given: Any) -> Any:
        # Imported late, since Beam writes to stderr on import, and only here is stderr silenced.
        from dapple_dp.pipelines.ledger import job

        return job.run(SimpleNamespace(action=name, **given))

    ledger = Flag("--ledger", "the ledger's file, or postgresql://USER@HOST/DATABASE", required=True, type=PATH)
    return Command(name, _FORM, ledger, *flags, callback=run, help=about)


_DATASET = Flag("--dataset", "data.name of the jobs", required=True)
_TOTAL: dict[str, Any] = {"help": "of all runs together", "required": True, "type": float}
_PART: dict[str, Any] = {"help": "part for other than Gaussian runs", "default": 0.0, "type": float}
_ACTIONS = [
    _action(
        "limit",
        "set what all runs on a data set may spend",
        _DATASET,
        *(Flag(name, **_TOTAL) for name in ("--epsilon", "--delta")),
        *(Flag(name, **_PART) for name in ("--basic_epsilon", "--basic_delta")),
        Flag("--unit", "what is protected", type=click.Choice(tuple(map(str, PrivacyUnit)))),
    ),
    _action("show", "show what each data set may spend and has spent, and the state of each run"),
    _action(
        "verify",
        "check the chain of entries",
        Flag("--head", "digest that an earlier verify printed"),
        Flag("--outputs", "folder of outputs that were charged to it", type=PATH),
    ),
    _action(
        "plan",
        "show the largest epsilon at which a number of runs fit together",
        _DATASET,
        Flag("--runs", "how many runs are to fit together", required=True, type=int),
        Flag("--delta", "of each run; default: that of the limit", type=float),
    ),
    _action(
        "export",
        "write all entries",
        Flag("--format", "of the rows", default="jsonl", type=click.Choice(("jsonl", "csv"))),
        Flag("--output", "file to write; default: the standard output", type=PATH),
    ),
    _action(
        "copy",
        "move all entries to an empty ledger, and close this one",
        Flag("--to", "the other ledger: a new file, or postgresql://USER@HOST/DATABASE", required=True, type=PATH),
    ),
]
LEDGER = Words("ledger", _FORM, commands=_ACTIONS, no_args_is_help=False)
