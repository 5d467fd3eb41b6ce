"""Handling of Ctrl-C, SIGTERM and SIGHUP: the run stops with cleanup, as after an error, and reports why."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from dapple_dp.transforms.rounds.own_process import STOPPING

INTERRUPTED = 130
"""Exit code of an interrupted command."""
SENTENCE = (
    "interrupted; every file in the output folder is complete or absent. Run the same command with the --run_id of "
    "this run to resume it or start it over."
)
GO_ON = "interrupted; every file that was written is complete. Run the same command again to go on."
"""Sentence for commands without --run_id, as of a party that waits for others."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 5.0
"""Seconds that a runner's threads get to finish."""


class Interruption:
    """A request to stop this process; libraries may turn the signal into errors of their own.

    Attributes:
      asked: True after the first signal; the second one ends the process at once.
      before: previous handlers of the watched signals. Ignored signals (as under nohup) aren't watched.
    """

    def __init__(self) -> None:
        self.asked = False
        found = {each: signal.getsignal(each) for each in _SIGNALS}
        self.before = {each: handler for each, handler in found.items() if handler not in (signal.SIG_IGN, None)}

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        self.asked = STOPPING.asked = True
        for each in self.before:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Watches for signals; outside the main thread, which gets none, it only yields the flag."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    STOPPING.asked = False
    for each in interruption.before:
        signal.signal(each, interruption.stop)
    try:
        yield interruption
    finally:
        for each, handler in interruption.before.items():
            signal.signal(each, handler)
        STOPPING.asked = False


def end_soon(code: int = INTERRUPTED) -> None:
    """Ends this process after a few seconds, even if threads of a runner are still working."""
    timer = threading.Timer(_GRACE, os._exit, (code,))
    timer.daemon = True
    timer.start()
