"""Imports without what nobody needs of them: the garbage collector, and a message of Beam."""

import contextlib
import gc
import importlib
import logging
import sys
import threading
from collections.abc import Iterator

_ALONE = threading.Lock()
"""Held while the collector is off."""
_LINE = "apitools not found"
"""Start of the message that Beam logs on a missing BigQuery client, which Dapple doesn't use."""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Imports without the garbage collector, which would scan all libraries over and over: they stay.

    If anything was imported, what is new goes to the oldest generation at once, where the collector finds it rarely.
    """
    if not gc.isenabled() or not _ALONE.acquire(blocking=False):
        yield
        return
    gc.disable()
    n_modules = len(sys.modules)
    try:
        yield
    finally:
        if len(sys.modules) > n_modules and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
        _ALONE.release()


def import_libraries() -> None:
    """Imports what a fit in memory needs of other libraries in addition to the estimator."""
    with uncollected():
        importlib.import_module("dp_accounting")
        importlib.import_module("sklearn.cluster")


@contextlib.contextmanager
def without_gaps() -> Iterator[None]:
    """Suppresses the message of Beam, and the handler that comes with it; all other messages are logged."""
    root = logging.getLogger()
    had_handlers = bool(root.handlers)

    def is_other(record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_LINE):
            return True
        if not had_handlers:
            root.handlers.clear()
        return False

    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
