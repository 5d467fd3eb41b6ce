"""Public calendar of windows: their dates, and when each is due, independent of any row."""

import dataclasses
import datetime
from typing import Annotated

from pydantic import BeforeValidator

from dapple_dp.schemas.settings import rejection

MOST_WINDOWS = 10_000


def _date(value: object) -> str:
    """Validates a date, YYYY-MM-DD, and returns it as text; YAML may have parsed it already."""
    text = value.isoformat() if type(value) is datetime.date else value
    try:
        if isinstance(text, str) and datetime.date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise rejection.broken_rule("a date like 2026-01-31")


Date = Annotated[str, BeforeValidator(_date)]


def date_of(first: str, days: int, index: int) -> str:
    """Returns the date of a window, given that of the first one."""
    return (datetime.date.fromisoformat(first) + datetime.timedelta(days=index * days)).isoformat()


def index_of(first: str, days: int, date: str) -> int:
    """Returns the index, from 0, of the window that contains a date; inverse of `date_of`."""
    return (datetime.date.fromisoformat(date) - datetime.date.fromisoformat(first)).days // days


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Consecutive windows of equal length.

    Attributes:
      first: the date of the first window, YYYY-MM-DD.
      days: days in a window.
      windows: number of windows.
      settle: seconds between the end of a window's days and its release.
      until: date of the last window to release for now; None for all.
    """

    first: str
    days: int
    windows: int
    settle: int
    until: str | None = None

    def date(self, index: int) -> str:
        """Returns the date of a window."""
        return date_of(self.first, self.days, index)

    @property
    def n_wanted(self) -> int:
        """Number of windows to release, once they are due."""
        windows = range(self.windows)
        return len(windows) if self.until is None else sum(self.date(index) <= self.until for index in windows)

    def due_at(self, index: int) -> datetime.datetime:
        """Returns the time, in UTC, at which a window is released; it depends on the calendar alone."""
        end = datetime.date.fromisoformat(self.date(index)) + datetime.timedelta(days=self.days)
        midnight = datetime.datetime.combine(end, datetime.time(), datetime.UTC)
        return midnight + datetime.timedelta(seconds=self.settle)

    def is_due(self, index: int, moment: datetime.datetime) -> bool:
        """Returns whether a window's days are over, by the clock alone, and `until` doesn't hold it back.

        Args:
          index: index of the window.
          moment: now, in UTC.
        """
        return self.due_at(index) <= moment and (self.until is None or self.date(index) <= self.until)
