"""Imports of Beam without its log message on a missing BigQuery client, which Dapple doesn't use."""

import contextlib
import logging
from collections.abc import Iterator

_LINE = "apitools not found"
"""Start of the message that Beam logs."""


@contextlib.contextmanager
def without_gaps() -> Iterator[None]:
    """Suppresses that message, and the handler that comes with it; all other messages are logged."""
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
