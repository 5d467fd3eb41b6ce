"""Where the rows of windows come from: folders that somebody else writes, or messages of a topic."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator

from pipelines.tables.arrivals.broker import Broker, check_settings, connected
from pipelines.tables.arrivals.landing import Landing, check_kept
from schemas.errors import InputError
from schemas.settings.calendar import Calendar

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicWindows:
    """Windows of a topic.

    Attributes:
      calendar: of them.
      band: how many windows a release reads, its own among them.
      landing: where their messages go.
    """

    calendar: Calendar
    band: int
    landing: Landing


class FolderRows:
    """Rows that lie in the folders of their windows already."""

    def ready(self, index: int) -> None:
        """Makes the rows of a window and of those before it readable."""

    def released(self, index: int) -> None:
        """Takes note that a window is released."""


class TopicRows(FolderRows):
    """Messages of a topic, copied to private files while windows are released.

    Args:
      windows: of the topic.
      broker: of the topic.
    """

    def __init__(self, windows: TopicWindows, broker: Broker):
        self._calendar = windows.calendar
        self._band = windows.band
        self._landing = windows.landing
        self._broker = broker
        self._copied: set[str] = set()

    def ready(self, index: int) -> None:
        """Cuts the window, unless it was cut before, and copies the messages that its release reads.

        Raises:
          ConfigError: if other messages could move a cut, or push messages out.
          InputError: if messages or records are gone, or the broker does not answer.
        """
        records, broker, date = self._landing.records, self._broker, self._calendar.date
        state = broker.state()
        least_days = (self._band + 1) * self._calendar.days
        check_settings(records.client.topic, state.settings, least_days)
        before = records.kept(date(index - 1)) if index else None
        records.cut(broker, state, date(index), before)
        dates = [date(each) for each in range(max(0, index + 1 - self._band), index + 1)]
        wanted = [each for each in dates if each not in self._copied]
        check_kept(records.client, broker, [records.kept(each) for each in wanted])
        self._drop(dates)
        self._landing.copy(wanted)
        self._copied.update(wanted)
        after = broker.state()
        check_settings(records.client.topic, after.settings, least_days)
        if after.topic_id != state.topic_id:
            raise records.client.gone()

    def released(self, index: int) -> None:
        """Tells the broker how far windows are released; if it does not listen, nothing depends on it."""
        try:
            self._broker.commit(self._landing.records.kept(self._calendar.date(index)).ends)
        except InputError:
            _LOGGER.warning("warning: the broker was not told that a window is released; its tools show an older one")

    def _drop(self, dates: list[str]) -> None:
        """Removes the copies of windows that no later release reads."""
        gone = sorted(self._copied - set(dates))
        if gone:
            self._landing.remove(gone)
            self._copied -= set(gone)


@contextlib.contextmanager
def arriving(windows: TopicWindows | None, output: str) -> Iterator[FolderRows]:
    """The rows of windows, while some are due.

    Args:
      windows: of a topic; None of rows that lie in folders.
      output: folder of the job.

    Raises:
      ConfigError: if the folder of the copies holds anything else, or another job uses it.
    """
    if windows is None:
        yield FolderRows()
        return
    landing = windows.landing
    landing.check(output)
    with landing.alone(), connected(landing.records.client, f"dapple-{landing.records.epoch}") as broker:
        landing.remove()
        try:
            yield TopicRows(windows, broker)
        finally:
            landing.remove()
