"""Lines of the log: what they say besides their message, and in which form.

A line has its time, and how long something takes depends on the rows. So the log is the operator's, as the files are
that a run keeps to itself. Messages have no value that was computed from rows.
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
    """The form of a line.

    TEXT: time (UTC), level and run id, then the message. JSON: an object with these as keys. PLAIN: the message alone.
    """

    TEXT = "text"
    JSON = "json"
    PLAIN = "plain"


class _Run:
    """The run that this process works on; a stream works on a window within it. Threads of the run share it."""

    job, run_id = "", ""


_RUN = _Run()


@contextlib.contextmanager
def of_run(job: str, run_id: str) -> Iterator[None]:
    """While lines are those of a run."""
    before = _RUN.job, _RUN.run_id
    _RUN.job, _RUN.run_id = job, run_id
    # The sentence that says why a command failed is of the run that failed, so only a good end takes this back.
    yield
    _RUN.job, _RUN.run_id = before


def forget_run() -> None:
    """At the begin of a command."""
    _RUN.job, _RUN.run_id = "", ""


class _Plain(logging.Formatter):
    """A message alone, in one line: a name that it quotes can't begin another one."""

    def __init__(self, form: str = "dapple: %(message)s", time_form: str | None = None) -> None:
        super().__init__(form, time_form)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging calls it)
        return one_line(super().formatMessage(record))


class _Text(_Plain):
    """`2026-11-24T03:15:00Z INFO week47 dapple: plan: 9 rounds`; a hyphen where there is no run."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(run)s dapple: %(message)s", _ZULU)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        record.run = _RUN.run_id or "-"
        return super().format(record)


class _Json(logging.Formatter):
    """An object per line."""

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
    """What makes lines of records.

    Args:
      form: of the lines.
    """
    if form is LogFormat.PLAIN:
        return _Plain()
    return _Json() if form is LogFormat.JSON else _Text()
