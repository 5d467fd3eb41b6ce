"""Logs the progress of passes over the rows in shares and seconds; numbers of rows are private, so no line has one."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from dapple_dp.transforms.files.signals.measures import MEASURES, PASS_SECONDS, ROW_BYTES, ROWS

_LOGGER = logging.getLogger(__name__)
_SECONDS = 10.0


class Progress:
    """Follows the passes over rows of the only pipeline in this process, and logs a line from time to time.

    It is silent if several pipelines run at once, and in worker processes, which don't see all rows.

    Args:
      seconds: least time between two lines.
      clock: seconds since some moment.
    """

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic):
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._pipelines = self._rows = self._done = self._passes = 0
        self._began: float | None = None
        self._shown = clock()
        self._step = ""

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[None]:
        """Marks the time that a pipeline runs."""
        with self._lock:
            self._pipelines += 1
            self._forget()
        try:
            yield
        finally:
            with self._lock:
                self._pipelines -= 1

    def found(self, n_rows: int, n_bytes: int = 0) -> None:
        """Adds rows, and their bytes, to every pass."""
        with self._lock:
            self._rows += n_rows
        MEASURES.add(ROWS, value=n_rows)
        MEASURES.add(ROW_BYTES, value=n_bytes)

    @contextlib.contextmanager
    def reading(self, n_rows: int) -> Iterator[None]:
        """Counts rows as read when the context ends without an error."""
        with self._lock:
            if self._began is None:
                self._began = self._clock()
        yield
        with self._lock:
            self._done += n_rows
            line = self._line()
            if self._done >= self._rows:
                self._passes += 1
                # Another thread may have ended the pass while this one was reading; then its beginning is gone.
                if self._began is not None:
                    MEASURES.add(PASS_SECONDS, str(self._passes), self._clock() - self._began)
                self._done, self._began = 0, None
        if line:
            _LOGGER.info("%s", line)

    def step(self, text: str) -> None:
        """Logs a line of a job that knows more than its passes; only once, for any number of bundles."""
        with self._lock:
            is_new = self._pipelines == 1 and text != self._step
            self._step = text
        if is_new:
            _LOGGER.info("%s", text)

    def _forget(self) -> None:
        self._rows = self._done = self._passes = 0
        self._began = None
        self._shown = self._clock()
        self._step = ""

    def _line(self) -> str:
        """Returns the line to log now; empty if there is none."""
        now = self._clock()
        if self._pipelines != 1 or self._began is None or not 0 < self._done < self._rows:
            return ""
        if now - self._shown < self._seconds:
            return ""
        self._shown = now
        left = (now - self._began) * (self._rows - self._done) / self._done
        share = 100 * self._done // self._rows
        return f"pass {self._passes + 1} over the rows: {share}% read, {duration(left)} left"


def duration(seconds: float) -> str:
    """Returns an approximate duration for people.

    Args:
      seconds: >= 0.
    """
    if seconds < 90:
        return f"about {round(seconds)} s"
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes < 90 else f"about {round(minutes / 60)} h"


PROGRESS = Progress()
"""Progress of this process."""
