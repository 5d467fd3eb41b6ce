"""A public calendar of windows: which dates there are, and from when on each is due. No row decides anything in it."""

import dataclasses
import datetime
from typing import Annotated

from pydantic import BeforeValidator

from dapple_dp.schemas.settings import rejection

MOST_WINDOWS = 10_000


def _date(value: object) -> str:
    """A date as YYYY-MM-DD; YAML reads such words as dates."""
    text = value.isoformat() if type(value) is datetime.date else value
    try:
        if isinstance(text, str) and datetime.date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise rejection.broken_rule("a date like 2026-01-31")


Date = Annotated[str, BeforeValidator(_date)]


def date_of(first: str, days: int, index: int) -> str:
    """The date of a window, from that of the first one."""
    return (datetime.date.fromisoformat(first) + datetime.timedelta(days=index * days)).isoformat()


def index_of(first: str, days: int, date: str) -> int:
    """The number of the window that a date falls in, from 0; the inverse of `date_of`."""
    return (datetime.date.fromisoformat(date) - datetime.date.fromisoformat(first)).days // days


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Windows of equal length, one after another.

    Attributes:
      first: the date of the first window, YYYY-MM-DD.
      days: from one window's date to that of the next.
      windows: how many there are.
      settle: seconds after the end of its days when a window is due.
      until: the date of the last window that is wanted now; None for all.
    """

    first: str
    days: int
    windows: int
    settle: int
    until: str | None = None

    def date(self, index: int) -> str:
        """The date of a window."""
        return date_of(self.first, self.days, index)

    @property
    def n_wanted(self) -> int:
        """How many windows are to be released, as soon as they are due."""
        windows = range(self.windows)
        return len(windows) if self.until is None else sum(self.date(index) <= self.until for index in windows)

    def due_at(self, index: int) -> datetime.datetime:
        """When a window is released, UTC: by the calendar alone."""
        end = datetime.date.fromisoformat(self.date(index)) + datetime.timedelta(days=self.days)
        midnight = datetime.datetime.combine(end, datetime.time(), datetime.UTC)
        return midnight + datetime.timedelta(seconds=self.settle)

    def is_due(self, index: int, moment: datetime.datetime) -> bool:
        """Whether a window's days are over, by the clock alone, and nobody has said to wait.

        Args:
          index: of the window.
          moment: now, in UTC.
        """
        return self.due_at(index) <= moment and (self.until is None or self.date(index) <= self.until)
