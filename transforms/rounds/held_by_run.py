"""What a process keeps of a run from one round to the next, such as rows or other processes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class HeldByRun(Generic[Kept]):
    """One thing for each run; threads may share it.

    Args:
      end: called with a thing that is kept no longer.
    """

    def __init__(self, end: Callable[[Kept], None]):
        self._lock = threading.Lock()
        self._end = end
        self._kept: dict[str, Kept] = {}
        self._held: set[str] = set()

    def of(self, run: str, make: Callable[[], Kept] | None) -> Kept | None:
        """What is kept of a run; runs that nobody holds make room for a new thing.

        Args:
          run: names it among those of this process.
          make: called for the thing if there is none yet; None to make none.
        """
        with self._lock:
            if run not in self._kept and make is not None:
                for other in self._kept.keys() - self._held:
                    self._end(self._kept.pop(other))
                self._kept[run] = make()
            return self._kept.get(run)

    @contextlib.contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Keeps what a run has until its rounds are over, and not longer."""
        with self._lock:
            self._held.add(run)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(run)
                kept = self._kept.pop(run, None)
            if kept is not None:
                self._end(kept)
