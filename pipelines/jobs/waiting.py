"""Waiting between two windows: sleeps until the next one is due, and stops on a signal."""

import contextlib
import datetime
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_LOOK_SECONDS = 60.0
"""The clock may be set, or the machine may sleep, during a wait."""


def now() -> datetime.datetime:
    """Returns the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Watch:
    """Waits for points in time, and records requests to stop.

    On SIGTERM the current window is released first. A second SIGTERM, or Ctrl-C within a window, stops the job at once,
    like any other job; the next call resumes with that window.

    Attributes:
      before: previous handlers of the signals.
    """

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self._asked = threading.Event()
        self._waits = False

    @property
    def asked(self) -> bool:
        """True if the job should stop once no window is in progress."""
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
        """Waits; returns True at the moment, False if a signal came first.

        Args:
          moment: end of the wait, in UTC.
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
    """Watches for signals; outside the main thread, which gets none, it watches nothing."""
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
