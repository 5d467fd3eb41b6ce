"""The table of `stream` on a Kafka topic: how messages are sent and kept, beside what a window may be asked.

It needs a broker, from Java and Maven, so it runs on demand: `python -m tests.seams --table kafka`.
"""

import datetime
import functools
import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from deploy.local.kafka_broker import KafkaBroker
from tests.scenes.brokers import DAY, Topic
from tests.seams import streams
from tests.seams.array import Factor, Row, excluded
from tests.seams.desk import table_of
from tests.seams.fits import factor
from tests.seams.places import Settings, changed
from tests.seams.stream_story import StreamStory
from tests.seams.streams import N_DONE, Days

_LONGEST = 1000
"""Bytes of a message that is taken for a row; one that is sent is longer."""


def _of_stream(name: str, *without: str) -> Factor:
    """A factor of streams, without some levels."""
    (found,) = (each for each in streams.FACTORS if each.name == name)
    levels = {level: settings for level, settings in found.levels.items() if level not in without}
    return Factor(name=name, levels=levels, covers=found.covers)


OWN = (
    factor("servers", "stream.kafka.servers", "stream.kafka.topic", known={}),
    factor("properties", none={}, file={"stream.kafka.properties": "client.properties"}, of_others={}, command={}),
    factor("longest", usual={}, short={"stream.kafka.max_message_bytes": _LONGEST}),
    factor("settle", usual={}, least={"stream.settle": 10}, at_once={"stream.settle": 0}),
    factor("partitions", three={}, one={}, more={}),
    factor("sent", plain={}, transactions={}),
    factor("kept", usual={}, compacted={}, by_producer={}, by_size={}, too_short={}),
)
FACTORS = (
    *OWN,
    _of_stream("lake", "apart", "delta"),
    _of_stream("calendar", "settled"),
    _of_stream("start", "feddp", "tree", "pooled", "other_unit"),
    _of_stream("n_clusters", "elbow"),
    *map(
        _of_stream,
        ("unit", "contract", "reach", "called", "columns", "rounds", "epsilon", "clipping", "facts", "speed"),
    ),
)
_LEVELS = {each.name: set(each.levels) for each in FACTORS}
EXCLUDED = (
    excluded("rows from a topic don't support", columns="pattern"),
    excluded("encode isn't supported for rows from a topic", columns="one_hot"),
    excluded("stream.settle must be at least 10 seconds for a topic", settle="at_once"),
    excluded("must be a readable file of client properties", properties="of_others"),
    excluded("of the client properties file must be NAME=VALUE", properties="command"),
    excluded("cleanup.policy of the topic", kept="compacted"),
    excluded("message.timestamp.type of the topic", kept="by_producer"),
    excluded("retention.bytes of the topic", kept="by_size"),
    excluded("retention.ms of the topic", kept="too_short"),
    *(
        rule
        for rule in streams.EXCLUDED
        if all(levels <= _LEVELS.get(name, set()) for name, levels in rule.cells.items())
    ),
)
TABLE = table_of(FACTORS, EXCLUDED)
_KEPT = {
    "compacted": {"cleanup_policy": "compact"},
    "by_producer": {"message_timestamp_type": "CreateTime"},
    "by_size": {"retention_bytes": "1000000"},
    "too_short": {"retention_ms": str(DAY)},
}
_BROKEN = (
    b"",
    None,
    b"{",
    b"[]",
    b'{"x": [1, 2]}',
    b'{"x": "1", "client_id": 1}',
    b'{"more": "' + b"x" * 70_000 + b'"}',
)


class Topics(Days):
    """Rows by day as messages, with a broker of its own; raises UnavailableError where there can be none."""

    def __init__(self, folder: pathlib.Path):
        super().__init__(folder)
        self.broker = KafkaBroker(folder / "kafka")
        self.broker.up()

    def close(self) -> None:
        """Ends the broker."""
        self.broker.kill()

    def lake(self, form: str, days: int) -> str:
        """Rows are nowhere before they are copied."""
        return "copies"

    @functools.cached_property
    def properties(self) -> str:
        """Properties that clients of this broker may have."""
        path = self.folder / "client.properties"
        path.write_text("# of the office\nsecurity.protocol=PLAINTEXT\nclient.dns.lookup = use_all_dns_ips\n")
        return str(path)

    def topic(self, row: Row) -> Topic:
        """A topic with the messages of all windows, kept as a row says."""
        found = Topic(self.broker, 1 if row["partitions"] == "one" else 3)
        days = 7 if row["calendar"] == "weeks" else 1
        for index, date in enumerate(self.dates(days)):
            if row["partitions"] == "more" and index == 1:
                self._add_partitions(found, 5)
            if row["lake"] != "gap" or index != 1:
                self._send(found, row, index, _noon(date))
        return found.closed().alter(**_KEPT.get(row["kept"], {"cleanup_policy": "delete"}))

    def _add_partitions(self, topic: Topic, number: int) -> None:
        from confluent_kafka.admin import NewPartitions

        topic._admin.create_partitions([NewPartitions(topic.name, number)])[topic.name].result(60)
        topic.partitions = number

    def _send(self, topic: Topic, row: Row, index: int, at: int) -> None:
        """The rows of a day.

        A broker dates the mark of a transaction itself, after all windows here. So only the last day is sent in one.
        """
        values: Iterator[bytes | None] = map(_message, self._table(index).to_pylist())
        if row["lake"] == "invalid":
            values = itertools.chain(values, _BROKEN)
        sent = [(place % topic.partitions, at, value) for place, value in enumerate(values)]
        in_one = row["sent"] == "transactions" and index == N_DONE - 1
        topic.send(sent, "commit" if in_one else "")
        if in_one:
            topic.send(sent[:9], "abort")


def _noon(date: str) -> int:
    """Milliseconds since 1970."""
    moment = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.UTC, hour=12)
    return int(moment.timestamp() * 1000)


def _message(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode()


class TopicStory(StreamStory):
    """One row of the table, in a folder of its own."""

    place: Topics

    def __init__(self, row: Row, place: Topics, folder: pathlib.Path):
        usual = {each.name: next(iter(each.levels)) for each in streams.FACTORS}
        super().__init__(usual | row, place, folder)
        self.topic = place.topic(row)
        found: Settings = {"data.path": str(folder / "copies"), "stream.kafka.servers": place.broker.servers}
        found |= {"stream.kafka.topic": self.topic.name, "stream.settle": None}
        # Messages do not say how long a list is.
        found |= {"data.width": 4} if row["columns"] == "listed" else {}
        for each in OWN:
            found |= each.levels[row[each.name]]
        self.job = changed(self.job, found | self._properties())

    def _properties(self) -> Settings:
        """The file of client properties."""
        level, path = self.row["properties"], self.desk.folder / "other.properties"
        if level == "none":
            return {}
        if level == "command":
            path.write_text("sasl.kerberos.kinit.cmd=date\n")
        return {"stream.kafka.properties": self.place.properties if level == "file" else str(path)}

    def tell(self) -> None:
        """The story of a stream, after which nothing is left of messages but the records of windows."""
        super().tell()
        copies = self.desk.folder / "copies"
        left = {str(each.relative_to(copies)) for each in copies.rglob("*") if each.is_file()}
        own = [f"_offsets/spring/{date}.json" for date in self.dates]
        assert left - {f"_offsets/winter/{self.dates[0]}.json"} == set(own)
        for index, path in enumerate(own):
            ranges = json.loads((copies / path).read_text())["ranges"]
            gap = self.row["lake"] == "gap" and index == 1
            sent = (0 if gap else streams.DAY_ROWS) + (len(_BROKEN) if self.row["lake"] == "invalid" else 0)
            assert sum(each["end"] - each["first"] for each in ranges) == sent

    def model_rows(self) -> str:
        """Rows that labels are asked for: messages are gone."""
        return self.place.before
