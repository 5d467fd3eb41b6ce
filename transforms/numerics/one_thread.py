"""One thread for BLAS and OpenMP; their libraries are searched for once, not at every use."""

import sys
import threading
from typing import Any

from threadpoolctl import ThreadpoolController

_known: tuple[int, ThreadpoolController] | None = None
"""Number of loaded modules at the last search for libraries, and its result."""


class _OneThread:
    """Context in which the libraries of this process have one thread each; threads may enter it at the same time.

    The last thread to leave gives the libraries their own threads back, whichever thread entered first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: list[Any] = []

    def __enter__(self) -> None:
        with self._lock:
            known, limits = _known, limit()
            # A library may have been loaded since; otherwise there is nothing new to undo.
            if not self._inside or known is not _known:
                self._limits.append(limits)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            while not self._inside and self._limits:
                self._limits.pop().restore_original_limits()


_ONE_THREAD = _OneThread()


def one_thread() -> _OneThread:
    """Returns the context in which libraries have one thread each."""
    return _ONE_THREAD


def limit() -> Any:
    """Gives the libraries of this process one thread each, permanently; the result can undo it.

    Libraries come with modules, so the search is repeated if modules have been imported since. A search reads
    the memory map of the process, which takes half as long as k-means of some hundred points.
    """
    global _known
    known = _known
    if known is None or known[0] != len(sys.modules):
        known = _known = len(sys.modules), ThreadpoolController()
    return known[1].limit(limits=1)
