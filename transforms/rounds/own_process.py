"""What holds for the process of a command, and for those that it starts: who stops it, and what a crash leaves."""

import contextlib
import dataclasses
import resource


@dataclasses.dataclass(slots=True)
class Stopping:
    """Set by a handler of signals, which may take no lock; threads that wait look here, since no signal reaches them.

    Attributes:
      asked: whether the command is to stop.
    """

    asked: bool = False


STOPPING = Stopping()
"""Of this process."""


def no_core_dumps() -> None:
    """Switches core dumps off for this process and those that it starts: rows and keys in memory would be in them.

    A limit of one byte is less than any dump has, and the one that Linux also heeds where dumps go to a program.
    """
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (1 if hard == resource.RLIM_INFINITY else min(1, hard), hard))
