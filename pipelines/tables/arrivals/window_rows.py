"""Sources of the windows' rows: folders that another system writes, or messages of a topic."""

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
    """Settings for reading windows from a topic.

    Attributes:
      calendar: calendar of the windows.
      band: number of windows that a release reads, including its own.
      landing: place for copies of their messages.
      expected: smallest number of messages per window while the producer works; None if not set.
    """

    calendar: Calendar
    band: int
    landing: Landing
    expected: int | None = None


class FolderRows:
    """Rows that are in the folders of their windows already.

    Attributes:
      short: dates of windows with fewer rows than expected from their producer; private.
    """

    def __init__(self) -> None:
        self.short: list[str] = []

    def ready(self, index: int) -> Mapping[str, str]:
        """Makes the rows of a window and of earlier ones readable; returns SHA-256 digests that identify them."""
        return {}

    def released(self, index: int) -> None:
        """Called when a window is released."""

    def _arrived(self, date: str, n_rows: int, expected: int | None) -> None:
        """Tells only the operator that a producer has sent nothing, or too little."""
        if not n_rows:
            MEASURES.put(SILENT, 1.0, date)
            MEASURES.note(f"{date}: {self.nothing}")
        if n_rows < (expected or 0):
            MEASURES.put(SHORT, 1.0, date)
            self.short.append(date)

    nothing = "the folder of the day is missing, or holds no row"
    """Warning on a window that received nothing."""


class LakeRows(FolderRows):
    """Rows in dated folders, which are counted only if someone monitors their arrival.

    Args:
      calendar: calendar of the windows.
      data: data section of the job.
      column: name of the date in folder names.
      expected: smallest number of rows per window while the producer works; None if not set.
    """

    def __init__(self, calendar: Calendar, data: DataConfig, column: str, expected: int | None):
        super().__init__()
        self._calendar, self._data, self._column, self._expected = calendar, data, column, expected

    def ready(self, index: int) -> Mapping[str, str]:
        """Counts the rows in the folder for monitoring; the window is released in any case."""
        if MEASURES.listener is not None or self._expected is not None:
            date = self._calendar.date(index)
            with contextlib.suppress(InputError):
                # Unreadable files are reported by the fit.
                n_rows = rows_on(self._data, self._column, date, self._expected or 1)
                self._arrived(date, n_rows, self._expected)
        return {}


class TopicRows(FolderRows):
    """Messages of a topic, copied to private files while windows are released.

    Args:
      windows: settings of the topic's windows.
      broker: broker of the topic.
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
          InputError: if messages or records are missing, or the broker doesn't answer.
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
        """Tells the broker which offsets are released; failures are ignored, since nothing depends on it."""
        try:
            self._broker.commit(self._landing.records.kept(self._calendar.date(index)).ends)
        except InputError:
            _LOGGER.warning("warning: the broker did not record that a window is released; its tools show an older one")

    def _drop(self, dates: list[str]) -> None:
        """Removes the copies of windows that no later release reads."""
        gone = sorted(self._copied - set(dates))
        if gone:
            self._landing.remove(gone)
            self._copied -= set(gone)


@contextlib.contextmanager
def arriving(windows: TopicWindows | FolderRows, output: str) -> Iterator[FolderRows]:
    """Yields the rows of due windows, and removes copies at the end.

    Args:
      windows: windows of a topic, or rows in folders.
      output: output folder of the job.

    Raises:
      ConfigError: if the folder of copies has other files, or another job uses it.
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
    """Removes copies left by a killed call, if no window is due whose release would do so."""
    if isinstance(windows, TopicWindows):
        windows.landing.clear()
