"""Ctrl-C, SIGTERM, a closed terminal: they stop a run as an error would, with cleanup, and are reported."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from dapple_dp.transforms.rounds.own_process import STOPPING

INTERRUPTED = 130
"""The exit code."""
SENTENCE = (
    "interrupted; what is in the output folder is complete or absent, and the same command, with the --run_id of this "
    "run, resumes it or starts it over."
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 5.0
"""Seconds that threads of a runner have to end."""


class Interruption:
    """Whether this process has been asked to stop; libraries may turn that into errors of their own.

    Attributes:
      asked: set by the first signal; the second one ends the process at once.
      before: handlers of the signals that are watched. Those that are switched off are not, as by nohup.
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
    """Watches for signals; in a thread, where none arrive, only for what others make of them."""
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
    """Ends this process in a few seconds, if threads of a runner that work on keep it from ending on its own."""
    timer = threading.Timer(_GRACE, os._exit, (code,))
    timer.daemon = True
    timer.start()
