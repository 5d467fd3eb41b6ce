"""A public calendar of windows: which dates there are, and from when on each is due. No row decides anything in it."""

import dataclasses
import datetime


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
        first = datetime.date.fromisoformat(self.first)
        return (first + datetime.timedelta(days=index * self.days)).isoformat()

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
