"""Messages of one partition between two offsets, and no other, copied to private files that a job reads as any."""

import dataclasses
import hashlib
import importlib.util
import os
import secrets
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam

from dapple_dp.schemas.arrivals.messages import table_of
from dapple_dp.schemas.arrivals.offsets import Chunk, RecordPlace, WindowOffsets
from dapple_dp.schemas.arrivals.topic import MessageColumns, PackedColumns, TopicConfig, client_properties
from dapple_dp.schemas.errors import ConfigError, InputError, UnavailableError, what_installs
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes, write_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.stores import is_local, join, local_path

ANSWER_SECONDS = 120.0
"""Seconds that a broker may take for its next answer; an open transaction may hold messages back for a minute."""
_POLL_SECONDS = 1.0
_MOST_PROPERTY_BYTES = 1 << 16


class TopicClient(NamedTuple):
    """Connection of a client to a topic.

    Attributes:
      servers: addresses of the brokers.
      topic: its name.
      properties: path of a file of client properties, which workers read; empty for none.
    """

    servers: str
    topic: str
    properties: str

    @classmethod
    def of(cls, config: TopicConfig) -> "TopicClient":
        """Creates the client that a job's config describes."""
        return cls(config.servers, config.topic, config.properties or "")

    def settings(self) -> dict[str, Any]:
        """Returns the settings of the library, including passwords from the file.

        Raises:
          ConfigError: if the file can't be read or isn't a file of properties, or the library is missing.
        """
        if importlib.util.find_spec("confluent_kafka") is None:
            raise ConfigError(
                f"Reading messages needs confluent-kafka, which is not installed; run {what_installs('kafka')}."
            )
        given: dict[str, str] = {}
        if self.properties:
            rule = f"{self.properties} must be a readable file of client properties"
            refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
            given = client_properties(untrusted.read_text(self.properties, refusal, _MOST_PROPERTY_BYTES))
        return {**given, "bootstrap.servers": self.servers, "log_level": 0}

    def silent(self) -> UnavailableError:
        """Creates the error for a broker that doesn't answer; its own message is left out, since it may hold values."""
        return UnavailableError(
            f"No usable answer from the brokers at {self.servers} for the topic {self.topic}; check the brokers, the "
            "client's properties and its permissions, and run the job again."
        )

    def gone(self) -> InputError:
        """Creates the error for messages that the broker has dropped."""
        return InputError(
            f"The topic {self.topic} must keep the messages of all windows that a release adds up, but the broker has "
            "dropped some; set a longer retention.ms, and start over under another name."
        )


def messages(client: TopicClient, partition: int, first: int, end: int) -> Iterator[bytes | None]:
    """Yields the values of the committed messages of a range, by offset; None for a message without a value.

    Offsets without a message, such as markers of transactions, are skipped. A range that was read once gives the
    same messages again.

    Args:
      client: of the topic.
      partition: of it.
      first: the first offset.
      end: the offset after the last; the partition reaches so far.

    Raises:
      InputError: if the broker has dropped messages, or does not answer.
    """
    import confluent_kafka

    consumer = confluent_kafka.Consumer(client.settings() | _READS_ONLY)
    try:
        consumer.assign([confluent_kafka.TopicPartition(client.topic, partition, first)])
        yield from _until(consumer, client, end)
    except confluent_kafka.KafkaException as error:
        raise client.silent() from error
    finally:
        consumer.close()


_READS_ONLY = {
    # A group name is required, but nothing is ever stored under it.
    "group.id": "dapple-reads-ranges",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A dropped offset is an error; otherwise the client would read another one instead.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "queued.max.messages.kbytes": 1 << 14,
    "fetch.message.max.bytes": 1 << 20,
}


def _until(consumer: Any, client: TopicClient, end: int) -> Iterator[bytes | None]:
    """Yields the values of messages below an offset."""
    patience = time.monotonic() + ANSWER_SECONDS
    while True:
        found = consumer.poll(_POLL_SECONDS)
        if found is None or found.error() is not None:
            if found is not None and _at_end(found, client, end):
                return
            # A broker may answer with nothing but errors.
            if time.monotonic() > patience:
                raise client.silent()
            continue
        if found.offset() >= end:
            return
        patience = time.monotonic() + ANSWER_SECONDS
        yield found.value()
        if found.offset() == end - 1:
            return


def _at_end(found: Any, client: TopicClient, end: int) -> bool:
    """Returns whether an end-of-partition event is past the range; ignores errors that a retry may solve."""
    from confluent_kafka import KafkaError

    code = found.error().code()
    if code == KafkaError._PARTITION_EOF:
        return bool(found.offset() >= end)
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise client.gone()
    if not found.error().retriable() and code not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
        raise client.silent()
    return False


def record_refusal(path: str) -> Refusal:
    """Creates the refusal of a record that is not as the job wrote it."""
    rule = f"{path} must be the record of offsets that this job wrote"
    return Refusal(kind=InputError, rule=rule, remedy="restore it, or start over under another name")


def chunks_of(place: RecordPlace) -> Iterator[tuple[str, Chunk]]:
    """Yields the parts of a window with the folder of their copies; runs on workers, so that no graph holds offsets.

    Raises:
      InputError: if the record is not that of the launcher.
    """
    refusal = record_refusal(place.path)
    content = untrusted.read_bytes(place.path, refusal)
    if hashlib.sha256(content).hexdigest() != place.digest:
        raise refusal.because("another one")
    record = json_schema.parse_as(content, WindowOffsets, refusal)
    yield from ((place.folder, chunk) for chunk in record.chunks())


def copy_chunk(element: tuple[str, Chunk], client: TopicClient, columns: MessageColumns | PackedColumns) -> None:
    """Writes the messages of a part as one file; a second attempt replaces it with an equal one.

    Args:
      element: folder and part.
      client: of the topic.
      columns: parts to take from each message.
    """
    folder, chunk = element
    table = table_of(messages(client, chunk.partition, chunk.first, chunk.end), columns)
    path = join(folder, chunk.file)
    if not is_local(path):
        write_bytes(path, table_bytes(table))
        return
    # A disk shows a file before it is complete, and another attempt may be writing the same one.
    part = join(folder, f".{chunk.file}.{secrets.token_hex(8)}")
    write_bytes(part, table_bytes(table))
    os.replace(local_path(part), local_path(path))


@dataclasses.dataclass(eq=False, kw_only=True)
class CopyMessages(beam.PTransform):
    """Pipeline root → private files with the messages of windows.

    Attributes:
      places: of the records of the windows.
      client: of the topic.
      columns: parts to take from each message.

    Privacy: none, the files are as private as the messages. Cost: every message is read once; a worker holds one
    part of a window.
    """

    places: tuple[RecordPlace, ...]
    client: TopicClient
    columns: MessageColumns | PackedColumns

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads the records, spreads their parts over workers and copies them."""
        return (
            root
            | "Records" >> beam.Create(self.places, reshuffle=False)
            | "Chunks" >> beam.FlatMap(chunks_of)
            | "Spread" >> beam.Reshuffle()
            | "Copy" >> PrivateSink(write=copy_chunk, places=(self.client, self.columns))
        )
