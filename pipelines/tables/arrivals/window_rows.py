"""Where the rows of windows come from: folders that another system writes, or messages of a topic."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping

from dapple_dp.pipelines.ledger.private_state import State
from dapple_dp.pipelines.tables.arrivals.broker import Broker, check_settings, connected
from dapple_dp.pipelines.tables.arrivals.landing import Landing, check_kept
from dapple_dp.pipelines.tables.private_source import rows_on
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.calendar import Calendar
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.files.signals.measures import ARRIVED, MEASURES, SHORT, SILENT

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicWindows:
    """How messages of a topic become the rows of windows.

    Attributes:
      calendar: of them.
      band: how many windows a release reads, its own among them.
      landing: where their messages go.
      expected: messages that each window has at least while its producer works; None if nobody says so.
    """

    calendar: Calendar
    band: int
    landing: Landing
    expected: int | None = None


class FolderRows:
    """Rows that are in the folders of their windows already.

    Attributes:
      short: dates of windows with fewer rows than their producer is expected to send; private.
    """

    def __init__(self) -> None:
        self.short: list[str] = []

    def ready(self, index: int) -> Mapping[str, str]:
        """Makes the rows of a window and of those before it readable; SHA-256 of what says which rows these are."""
        return {}

    def released(self, index: int) -> None:
        """Takes note that a window is released."""

    def _arrived(self, date: str, n_rows: int, expected: int | None) -> None:
        """Informs the operator, and nobody else, of a producer that has sent nothing, or less than it should."""
        if not n_rows:
            MEASURES.put(SILENT, 1.0, date)
            MEASURES.note(f"{date}: {self.nothing}")
        if n_rows < (expected or 0):
            MEASURES.put(SHORT, 1.0, date)
            self.short.append(date)

    nothing = "the folder of the day is missing, or holds no row"
    """The warning on a window to which nobody has written."""


class LakeRows(FolderRows):
    """Rows in folders of dates, which are looked at where someone wants to know whether they came.

    Args:
      calendar: of the windows.
      data: of the job.
      column: of the dates in the names of folders.
      expected: rows that each window has at least while its producer works; None if nobody says so.
    """

    def __init__(self, calendar: Calendar, data: DataConfig, column: str, expected: int | None):
        super().__init__()
        self._calendar, self._data, self._column, self._expected = calendar, data, column, expected

    def ready(self, index: int) -> Mapping[str, str]:
        """Looks into the folder; whatever is there, the window is released."""
        if MEASURES.listener is not None or self._expected is not None:
            date = self._calendar.date(index)
            with contextlib.suppress(InputError):
                # What cannot be read ends the fit, which says so.
                n_rows = rows_on(self._data, self._column, date, self._expected or 1)
                self._arrived(date, n_rows, self._expected)
        return {}


class TopicRows(FolderRows):
    """Messages of a topic, copied to private files while windows are released.

    Args:
      windows: of the topic.
      broker: of the topic.
    """

    nothing = "the offsets of the topic did not move"

    def __init__(self, windows: TopicWindows, broker: Broker):
        super().__init__()
        self._expected = windows.expected
        self._calendar = windows.calendar
        self._band = windows.band
        self._landing = windows.landing
        self._broker = broker
        self._copied: set[str] = set()

    def ready(self, index: int) -> Mapping[str, str]:
        """Cuts the window, unless it was cut before, and copies the messages that its release reads.

        Raises:
          ConfigError: if other messages could move a cut, or push messages out.
          InputError: if messages or records are gone, or the broker does not answer.
        """
        records, broker, date = self._landing.records, self._broker, self._calendar.date
        if records.register is not None:
            records.register.look_again()
        state = broker.state()
        least_days = (self._band + 1) * self._calendar.days
        check_settings(records.client.topic, state.settings, least_days)
        before = records.kept(date(index - 1)) if index else None
        n_messages = sum(each.end - each.first for each in records.cut(broker, state, date(index), before).ranges)
        MEASURES.put(ARRIVED, n_messages, date(index))
        self._arrived(date(index), n_messages, self._expected)
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
        return {State.OFFSETS: records.digest(date(index))}

    def released(self, index: int) -> None:
        """Informs the broker how far windows are released; if it does not listen, nothing depends on it."""
        try:
            self._broker.commit(self._landing.records.kept(self._calendar.date(index)).ends)
        except InputError:
            _LOGGER.warning("warning: the broker does not know that a window is released; its tools show an older one")

    def _drop(self, dates: list[str]) -> None:
        """Removes the copies of windows that no later release reads."""
        gone = sorted(self._copied - set(dates))
        if gone:
            self._landing.remove(gone)
            self._copied -= set(gone)


@contextlib.contextmanager
def arriving(windows: TopicWindows | FolderRows, output: str) -> Iterator[FolderRows]:
    """The rows of windows, while some are due.

    Args:
      windows: of a topic, or rows that are in folders.
      output: folder of the job.

    Raises:
      ConfigError: if the folder of the copies holds anything else, or another job uses it.
    """
    if isinstance(windows, FolderRows):
        yield windows
        return
    landing = windows.landing
    landing.check(output)
    with landing.alone(), connected(landing.records.client, f"dapple-{landing.records.epoch}") as broker:
        landing.remove()
        try:
            yield TopicRows(windows, broker)
        finally:
            landing.remove()


def clear(windows: TopicWindows | LakeRows | None) -> None:
    """Removes copies that a killed call has left, where no window is due whose release would."""
    if isinstance(windows, TopicWindows):
        windows.landing.clear()
