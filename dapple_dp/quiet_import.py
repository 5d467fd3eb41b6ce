"""Beam says at its import that a client of BigQuery is missing, and gives the root logger a handler to say so."""

import contextlib
import logging
from collections.abc import Iterator

_SAID = "apitools not found"
"""How the line begins. Dapple has no use for BigQuery."""


@contextlib.contextmanager
def without_gaps() -> Iterator[None]:
    """Leaves that line out, and the handler that came with it; whatever else is said is said."""
    root = logging.getLogger()
    had_handlers = bool(root.handlers)

    def is_other(record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_SAID):
            return True
        if not had_handlers:
            root.handlers.clear()
        return False

    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
