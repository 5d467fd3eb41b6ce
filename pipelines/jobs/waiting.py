"""Between two windows: a job that waits for the next cut, and ends there when it is asked to."""

import contextlib
import datetime
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_LOOK_SECONDS = 60.0
"""A clock may be set, and a machine may sleep, while a job waits."""


def now() -> datetime.datetime:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Watch:
    """Waits for moments, and knows whether the job has been asked to end.

    SIGTERM lets the window that is under way be released first. A second one, and Ctrl-C in a window, stop the job at
    once, as any job; the next call goes on with that window.

    Attributes:
      before: handlers of signals that the rest is left to.
    """

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self._asked = threading.Event()
        self._waits = False

    @property
    def asked(self) -> bool:
        """Whether the job is to end when no window is under way."""
        return self._asked.is_set()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if self._waits or (number == signal.SIGTERM and not self.asked):
            self._asked.set()
        elif callable(self.before[number]):
            self.before[number](number, frame)
        else:
            raise KeyboardInterrupt

    def until(self, moment: datetime.datetime) -> bool:
        """Waits; returns whether the moment has come, and not a signal.

        Args:
          moment: UTC.
        """
        self._waits = True
        try:
            while not self.asked:
                left = (moment - now()).total_seconds()
                if left <= 0.0:
                    return True
                self._asked.wait(min(left, _LOOK_SECONDS))
        finally:
            self._waits = False
        return False


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Watches for signals; in a thread, where none arrive, for none."""
    watch = Watch()
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    watch.before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    for each in watch.before:
        signal.signal(each, watch.stop)
    try:
        yield watch
    finally:
        for number, handler in watch.before.items():
            signal.signal(number, handler)
