"""A broker for tests, topics whose messages were appended on days long ago, and streams that read them."""

import contextlib
import hashlib
import json
import pathlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import pytest
import yaml

from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.schemas.privacy.charge import Limit
from deploy.local.kafka_broker import KafkaBroker
from tests.scenes import lake, ledgers
from tests.scenes.conformance import needed

CATCH_UP = ("--catch_up", "2027-12-31")
"""Lets windows of the past be released in one call, as all tests with the time of today do."""
FIRST = "2026-01-01"
START = 1_767_225_600_000
"""Midnight of `FIRST` (UTC), in milliseconds since 1970."""
DAY = 86_400_000


def started(folder: pathlib.Path) -> KafkaBroker:
    """A broker that runs; skips where it cannot be had."""
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka, which the extra kafka brings")
    broker = KafkaBroker(folder)
    with needed("kafka"):
        broker.up()
    return broker


class Topic:
    """A topic of its own.

    Args:
      broker: that runs.
      partitions: how many.
      settings: of the topic.
    """

    def __init__(self, broker: KafkaBroker, partitions: int = 3, **settings: str):
        from confluent_kafka.admin import AdminClient, NewTopic

        self.broker, self.partitions = broker, partitions
        self.name = f"visits-{uuid.uuid4().hex[:12]}"
        self._client = {"bootstrap.servers": broker.servers, "log_level": 0}
        self._admin = AdminClient(self._client)
        # Producers say when a message was appended, until `closed` says that the broker does.
        given = {"message.timestamp.type": "CreateTime"} | {k.replace("_", "."): v for k, v in settings.items()}
        self._admin.create_topics([NewTopic(self.name, partitions, 1, config=given)])[self.name].result(60)

    def send(self, messages: Iterable[tuple[int, int, bytes | None]], transaction: str = "") -> None:
        """Appends messages.

        Args:
          messages: (partition, milliseconds since 1970, value).
          transaction: commit or abort to send them in one; empty for none.
        """
        from confluent_kafka import Producer

        own = {"transactional.id": uuid.uuid4().hex} if transaction else {}
        producer = Producer(self._client | own | {"linger.ms": 5})
        if transaction:
            producer.init_transactions(60)
            producer.begin_transaction()
        for partition, at, value in messages:
            producer.produce(self.name, value, partition=partition, timestamp=at)
        assert producer.flush(60) == 0
        if transaction:
            {"commit": producer.commit_transaction, "abort": producer.abort_transaction}[transaction](60)

    def send_days(self, days: Mapping[int, Any]) -> None:
        """Appends rows of days since `FIRST`, around noon, in turn over the partitions."""
        for day, points in sorted(days.items()):
            at = START + day * DAY + DAY // 2
            self.send((index % self.partitions, at, row_message(row)) for index, row in enumerate(points))

    def alter(self, **settings: str) -> "Topic":
        """Changes settings of the topic, and waits until the broker that appends messages knows them."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(60)
        asked = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        for _ in range(600):
            known = self._admin.describe_configs([asked])[asked].result(60)
            if all(known[name.replace("_", ".")].value == value for name, value in settings.items()):
                return self
            time.sleep(0.1)
        raise TimeoutError(f"the broker has not taken {settings} in a minute")

    def closed(self) -> "Topic":
        """From now on the broker says when a message was appended."""
        return self.alter(message_timestamp_type="LogAppendTime")

    def forget(self, partition: int, before: int) -> None:
        """Drops messages, as a broker does whose retention is over."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(self.name, partition, before)
        for each in self._admin.delete_records([place]).values():
            each.result(60)

    def committed(self, group: str) -> list[int]:
        """Offsets that the broker keeps for a group, by partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._client | {"group.id": group})
        found = consumer.committed([TopicPartition(self.name, each) for each in range(self.partitions)], timeout=60)
        consumer.close()
        return [each.offset for each in found]


def row_message(row: Iterable[float]) -> bytes:
    """The JSON of a row, as a producer sends it."""
    return json.dumps({"x": [float(value) for value in row]}).encode()


@contextlib.contextmanager
def equal_noise() -> Iterator[None]:
    """Runs of one id draw under one key, so that equal exact sums are released as equal bytes."""

    def new(run: str) -> RunNonce:
        return RunNonce(run=run, raw=hashlib.sha256(run.encode()).digest())

    with lake.keys_of_runs(), mock.patch.object(RunNonce, "new", new):
        yield


class StreamPlace:
    """A start and a key for streams, each with a ledger of its own, whose releases are compared.

    Args:
      folder: of all of it.
      windows: of each epoch.
      rows: of the start.
    """

    def __init__(self, folder: pathlib.Path, windows: int = 4, rows: int = 300):
        self.folder, self.windows = folder, windows
        self.job = lake.job("", None, algorithm="dp_lloyd", dp_lloyd={"domain": [-8.0, 8.0], "steps": 2})
        del self.job["server_data"], self.job["clipping"], self.job["feddp_kmeans"]
        self.job["data"] = {"features": "x", "width": 4, "on_invalid_rows": "drop"}
        self.job["key_uri"] = lake.write_key(folder / "key")
        start = self.job | {"data": self.job["data"] | {"path": lake.write_lake(folder / "rows", lake.mixture(rows))}}
        (folder / "start.yaml").write_text(yaml.safe_dump(start))
        words = ("--config", str(folder / "start.yaml"), "--output", str(folder / "start"))
        with lake.without_beam():
            outcome = lake.run_command("fit", *words)
        assert outcome.code == 0, outcome.err

    def write(self, name: str, data: pathlib.Path | str, **changes: Any) -> pathlib.Path:
        """The config of a stream, of rows in folders or of messages; its epoch has the name that all have."""
        own = self.folder / name
        own.mkdir(exist_ok=True)
        if not (own / "ledger.sqlite").exists():
            ledgers.new_ledger(own, Limit(epsilon=5.0, delta=1e-5), "visits")
        section = {"name": "epoch", "start": str(self.folder / "start"), "column": "dt", "first": FIRST, "memory": 4}
        section |= {"windows": self.windows, "band": 3, "once": "made for a test"} | changes
        settings = self.job | {"ledger": str(own / "ledger.sqlite"), "stream": section}
        settings["data"] = self.job["data"] | {"path": str(data), "name": "visits"}
        (own / "job.yaml").write_text(yaml.safe_dump(settings))
        return own / "job.yaml"

    def words(self, name: str, *flags: str) -> tuple[str, ...]:
        """A command line."""
        own = self.folder / name
        return ("stream", "--config", str(own / "job.yaml"), "--output", str(own / "out"), *CATCH_UP, *flags)

    def stream(
        self, name: str, topic: Topic | None, *flags: str, data: pathlib.Path | str | None = None, **changes: Any
    ) -> lake.Outcome:
        """Calls the job once; rows of messages are in a folder of their own meanwhile."""
        if topic is not None:
            changes["kafka"] = {"servers": topic.broker.servers, "topic": topic.name} | changes.get("kafka", {})
        self.write(name, data or self.folder / name / "copies", **changes)
        return lake.run_command(*self.words(name, "--once", *flags))

    def released(self, name: str) -> dict[str, bytes]:
        """Returns what the windows of a stream released, by date."""
        found = sorted((self.folder / name / "out").glob("*/releases.parquet"))
        return {each.parent.name: each.read_bytes() for each in found}

    def record(self, name: str, date: str) -> pathlib.Path:
        """Returns where the offsets of a window are."""
        return self.folder / name / "copies" / "_offsets" / "epoch" / f"{date}.json"

    def private_files(self, name: str) -> list[str]:
        """Names in the folder of the copies."""
        folder = self.folder / name / "copies"
        return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def check_on_a_runner(broker: KafkaBroker, folder: pathlib.Path, flags: Iterable[str]) -> None:
    """Two windows of a topic on a runner release the bytes of the same rows in folders, in memory."""
    place, topic = StreamPlace(folder, windows=2), Topic(broker, partitions=2)
    days = {day: lake.mixture(90, seed=day) for day in range(2)}
    topic.send_days(days)
    for day, points in days.items():
        lake.write_lake(folder / "lake" / f"dt=2026-01-0{day + 1}", points)
    with equal_noise():
        for name, source, more in (("folders", None, ()), ("messages", topic.closed(), tuple(flags))):
            outcome = place.stream(name, source, *more, data=None if source else folder / "lake")
            assert outcome.code == 0, outcome.err
    assert len(place.released("folders")) == 2
    assert place.released("messages") == place.released("folders")


class Killed(BaseException):
    """Kill of a process: nothing that follows is run."""


def kill(*_: object) -> None:
    """Stands for a function in which a process dies."""
    raise Killed
