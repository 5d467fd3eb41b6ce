"""Completion for shells: a script that asks the command what may come next."""

import os

from click.shell_completion import get_completion_class, shell_complete

from pipelines.run.flags import Words
from schemas.errors import ConfigError

VARIABLE = "_DAPPLE_COMPLETE"
"""Of the environment; a shell that asks says by it what it is."""
SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """What a shell is to read.

    Raises:
      ConfigError: for a shell that is not known.
    """
    found = get_completion_class(shell) if shell in SHELLS else None
    if found is None:
        raise ConfigError(f"the shell must be one of {', '.join(SHELLS)}, got {shell}; name one of them.")
    return found(Words("dapple", ""), {}, "dapple", VARIABLE).source()


def answer(words: Words) -> None:
    """Prints what may come next, for a shell that asks."""
    shell_complete(words, {}, "dapple", VARIABLE, os.environ[VARIABLE])
