"""Formats of log lines.

Log lines have times, and the duration of a step depends on the rows. So the log belongs to the operator, like the
private files of a run. Messages contain no values computed from rows.
"""

import contextlib
import enum
import json
import logging
import time
from collections.abc import Iterator

from dapple_dp.schemas.errors import one_line

_ZULU = "%Y-%m-%dT%H:%M:%SZ"


class LogFormat(enum.StrEnum):
    """Format of a log line.

    TEXT: time (UTC), level, run id and message. JSON: an object with these as keys. PLAIN: only the message.
    """

    TEXT = "text"
    JSON = "json"
    PLAIN = "plain"


class _Run:
    """Current run of this process, or the current window of a stream; shared by the run's threads."""

    job, run_id = "", ""


_RUN = _Run()


@contextlib.contextmanager
def of_run(job: str, run_id: str) -> Iterator[None]:
    """Marks log lines as those of a run."""
    before = _RUN.job, _RUN.run_id
    _RUN.job, _RUN.run_id = job, run_id
    # Not restored after an error, so that the final error line belongs to the failed run.
    yield
    _RUN.job, _RUN.run_id = before


def forget_run() -> None:
    """Resets the run at the start of a command."""
    _RUN.job, _RUN.run_id = "", ""


class _Plain(logging.Formatter):
    """Formats only the message, on one line, so that a quoted name can't start another line."""

    def __init__(self, form: str = "dapple: %(message)s", time_form: str | None = None) -> None:
        super().__init__(form, time_form)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging calls it)
        return one_line(super().formatMessage(record))


class _Text(_Plain):
    """Formats lines like `2026-11-24T03:15:00Z INFO week47 dapple: plan: 9 rounds`; a hyphen replaces a missing run."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(run)s dapple: %(message)s", _ZULU)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        record.run = _RUN.run_id or "-"
        return super().format(record)


class _Json(logging.Formatter):
    """Formats an object per line."""

    def __init__(self) -> None:
        super().__init__(datefmt=_ZULU)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": self.formatTime(record, _ZULU),
            "level": record.levelname.lower(),
            "job": _RUN.job or None,
            "run_id": _RUN.run_id or None,
            "logger": record.name,
            "message": record.getMessage(),
        }
        code = getattr(record, "exit_code", None)
        return json.dumps(content if code is None else content | {"exit_code": code})


def formatter(form: LogFormat) -> logging.Formatter:
    """Returns the formatter for a log format.

    Args:
      form: format of the lines.
    """
    if form is LogFormat.PLAIN:
        return _Plain()
    return _Json() if form is LogFormat.JSON else _Text()
