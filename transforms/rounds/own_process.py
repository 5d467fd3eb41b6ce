"""Settings of a command's process and of those that it starts: stopping, and core dumps."""

import contextlib
import dataclasses
import resource


@dataclasses.dataclass(slots=True)
class Stopping:
    """Flag that a signal handler sets, since it may take no lock; threads poll it, since no signal reaches them.

    Attributes:
      asked: True if the command shall stop.
    """

    asked: bool = False


STOPPING = Stopping()
"""Flag of this process."""


def no_core_dumps() -> None:
    """Disables core dumps for this process and those that it starts, since they would contain rows and keys.

    A limit of one byte is less than any dump, and Linux also respects it if dumps go to a program.
    """
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (1 if hard == resource.RLIM_INFINITY else min(1, hard), hard))
