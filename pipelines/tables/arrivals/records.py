"""Records of windows: the topic offsets in each one, durable before a message is read or noise is drawn.

A record is private, since it reveals the number of messages. It is at `FOLDER/_offsets/EPOCH/DATE.json`. If a ledger
charges the windows, its commits hold the digests of the records, see `Register`.
"""

import contextlib
import dataclasses
import datetime
import secrets
import time

from dapple_dp.pipelines.ledger.private_state import Register, State, digest_of
from dapple_dp.pipelines.run.folder import absolute
from dapple_dp.pipelines.tables.arrivals.broker import Broker, TopicState, check_reaches_back
from dapple_dp.schemas.arrivals.offsets import OffsetRange, RecordPlace, WindowOffsets
from dapple_dp.schemas.errors import InputError, ProtocolError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.calendar import index_of
from dapple_dp.schemas.settings.format_number import FORMAT
from dapple_dp.transforms.arrivals.consume import TopicClient, record_refusal
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import write_once
from dapple_dp.transforms.files.stores import STORE, join

RECORDS = "_offsets"
_DAY = 86_400_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records of an epoch.

    Attributes:
      client: client of the topic.
      folder: private folder of copies and records.
      epoch: name of the epoch.
      days: days between the dates of two windows.
      first: date of the first window.
      register: register of the windows' private state; None for windows that no ledger charges.
    """

    client: TopicClient
    folder: str
    epoch: str
    days: int
    first: str
    register: Register | None = None

    def path(self, date: str) -> str:
        """Path of a window's record."""
        return join(absolute(self.folder), RECORDS, self.epoch, f"{date}.json")

    def place(self, date: str, copies: str) -> RecordPlace:
        """Returns what workers need to copy the messages of a window to a folder."""
        return RecordPlace(self.path(date), self.digest(date), copies)

    def digest(self, date: str) -> str:
        """SHA-256 of the record of a window that was cut."""
        return digest_of(self._raw(date))

    def found(self, date: str) -> WindowOffsets | None:
        """Reads the record of a window; returns None if it isn't cut yet.

        Raises:
          InputError: if the file is another one.
        """
        path = self.path(date)
        if not STORE.exists(path):
            return None
        found = json_schema.parse_as(self._raw(date), WindowOffsets, record_refusal(path))
        if (found.topic, found.window, found.cut) != (self.client.topic, date, self._begins(date) + self.days * _DAY):
            raise record_refusal(path).because("one of another topic or window")
        return found

    def kept(self, date: str) -> WindowOffsets:
        """Reads the record of a window that was cut; raises InputError if it is missing."""
        result = self.found(date)
        if result is None:
            raise record_refusal(self.path(date)).because("nothing")
        return result

    def cut(self, broker: Broker, state: TopicState, date: str, before: WindowOffsets | None) -> WindowOffsets:
        """Returns the record of a window, writing it if there is none; the first of two launchers wins.

        Args:
          broker: broker of the topic.
          state: current state of the topic.
          date: date of the window, whose end the brokers' clocks have passed.
          before: record of the window before; None for the first one of the epoch.

        Raises:
          InputError: if the topic was replaced, the records don't join, or the record of a released window is missing.
        """
        if self.found(date) is None:
            if self.register is not None and self.register.is_over(self._index(date)):
                raise record_refusal(self.path(date)).because("nothing")
            content = self._asked(broker, state, date, before).model_dump_json().encode()
            with contextlib.suppress(ProtocolError):
                write_once(self.path(date), content, private=True)
        result = self.kept(date)
        if result.topic_id != state.topic_id or (before is not None and before.topic_id != state.topic_id):
            raise InputError(
                f"the topic {self.client.topic} must be the one that the windows began with, got another of this name; "
                "start over under another name."
            )
        if before is not None and any(each.first != before.ends.get(each.partition, 0) for each in result.ranges):
            raise record_refusal(self.path(date)).because("one that does not follow the window before")
        return result

    def _asked(self, broker: Broker, state: TopicState, date: str, before: WindowOffsets | None) -> WindowOffsets:
        """Asks the broker for the offsets of a window; a new partition begins at its start."""
        begin = self._begins(date)
        cut = begin + self.days * _DAY
        ends = broker.cut(cut, state.partitions)
        starts = before.ends if before is not None else self._first_starts(broker, state, begin)
        ranges = tuple(
            OffsetRange(partition=index, first=starts.get(index, 0), end=max(end, starts.get(index, 0)))
            for index, end in enumerate(ends)
        )
        topic, salt = self.client.topic, secrets.token_hex(32)
        return WindowOffsets(
            format=FORMAT, topic=topic, topic_id=state.topic_id, window=date, cut=cut, salt=salt, ranges=ranges
        )

    def _first_starts(self, broker: Broker, state: TopicState, begin: int) -> dict[int, int]:
        """First offset of the first window in each partition."""
        kept = [low for low, _ in broker.bounds(state.partitions)]
        starts = broker.cut(begin, state.partitions)
        check_reaches_back(self.client, state, kept, starts, int(time.time() * 1000) - begin)
        return dict(enumerate(starts))

    def _raw(self, date: str) -> bytes:
        path = self.path(date)
        refusal = record_refusal(path)
        if self.register is None:
            return untrusted.read_bytes(path, refusal)
        return self.register.read(State.OFFSETS, self._index(date), path, refusal, may_be_open=True)

    def _index(self, date: str) -> int:
        """Number of the window with this date."""
        return index_of(self.first, self.days, date)

    def _begins(self, date: str) -> int:
        """Start of a window, in milliseconds since 1970 (UTC)."""
        start = datetime.date(1970, 1, 1)
        return (datetime.date.fromisoformat(date) - start).days * _DAY
