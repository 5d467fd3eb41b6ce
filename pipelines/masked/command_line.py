"""The words and flags of the `party` command; no Beam here, so that its help and its refusals come at once."""

import importlib
from typing import Any

from pipelines.run.flags import OR, PATH, Command, Flag, Words

_JOB = "--config JOB [--client NAME]"


def _action(name: str, flags: str, about: str, *params: Flag) -> Command:
    """What is done for a party, by a function of that name; what it returns is printed."""

    def run(**given: str) -> Any:
        # Beam writes to stderr while it is imported, so what needs it is imported where stderr is kept from others.
        return getattr(importlib.import_module("pipelines.masked.party"), name)(**given)

    return Command(name, f"dapple party {name} {flags}", *params, callback=run, help=about)


_CONFIG = Flag("--config", "the job's YAML file", type=PATH, required=True)
_CLIENT = Flag("--client", "name of the party", default="")
_EXCHANGE = Flag("--exchange", "of one run; default: all runs", type=PATH, default="")
_OUTPUT = Flag("--output", "file of the new key", type=PATH, required=True)
_ACTIONS = [
    _action("new", "--output KEY", "make a private key, and print its public part", _OUTPUT),
    _action("enroll", _JOB, "make the state of a party, and print its folder", _CONFIG, _CLIENT),
    _action("forget", f"{_JOB} [--exchange EXCHANGE]", "destroy what was sent", _CONFIG, _CLIENT, _EXCHANGE),
]
PARTY = Words("party", OR.join(each.form for each in _ACTIONS), commands=_ACTIONS, no_args_is_help=False)
