"""A bounded source: the messages of one partition between two offsets, and no other."""

import importlib.util
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from schemas.arrivals.topic import TopicConfig, client_properties
from schemas.errors import ConfigError, InputError, what_installs
from schemas.settings.refusal import Refusal
from transforms.files import gate

ANSWER_SECONDS = 120.0
"""How long a broker may take for its next answer; a transaction that is open may keep messages back for a minute."""
_POLL_SECONDS = 1.0
_MOST_PROPERTY_BYTES = 1 << 16


class TopicClient(NamedTuple):
    """How a client reaches a topic.

    Attributes:
      servers: where brokers listen.
      topic: its name.
      properties: path of a file of client properties, which workers read; empty for none.
    """

    servers: str
    topic: str
    properties: str

    @classmethod
    def of(cls, config: TopicConfig) -> "TopicClient":
        """The client that a job asks for."""
        return cls(config.servers, config.topic, config.properties or "")

    def settings(self) -> dict[str, Any]:
        """Settings of the library, passwords of the file included.

        Raises:
          ConfigError: if the file cannot be read or says something else, or the library is missing.
        """
        if importlib.util.find_spec("confluent_kafka") is None:
            raise ConfigError(
                f"messages must be read by confluent-kafka, got no such library; run {what_installs('kafka')}."
            )
        given: dict[str, str] = {}
        if self.properties:
            rule = f"{self.properties} must be a readable file of client properties"
            refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
            given = client_properties(gate.read_text(self.properties, refusal, _MOST_PROPERTY_BYTES))
        return {**given, "bootstrap.servers": self.servers, "log_level": 0}

    def silent(self) -> InputError:
        """The error for a broker that does not answer; what it would have said may hold values."""
        return InputError(
            f"the brokers at {self.servers} must answer for the topic {self.topic}, got nothing that can be used; "
            "check them, the properties of the client and its rights, and run the job again."
        )

    def gone(self) -> InputError:
        """The error for messages that are gone."""
        return InputError(
            f"the topic {self.topic} must keep the messages of all windows that a release adds up, got a broker that "
            "has dropped some; lengthen retention.ms, and begin anew under another name."
        )


def messages(client: TopicClient, partition: int, first: int, end: int) -> Iterator[bytes | None]:
    """Values of the committed messages of a range, in the order of their offsets; None where there is no value.

    Offsets without a message, such as marks of transactions, are passed over. A range that was read once gives the
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
    # A group's name must be given; nothing is ever kept under it.
    "group.id": "dapple-reads-ranges",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that is gone is an error; another one would be read in its place.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "check.crcs": True,
    "queued.max.messages.kbytes": 1 << 14,
    "fetch.message.max.bytes": 1 << 20,
}


def _until(consumer: Any, client: TopicClient, end: int) -> Iterator[bytes | None]:
    """Messages below an offset."""
    patience = time.monotonic() + ANSWER_SECONDS
    while True:
        found = consumer.poll(_POLL_SECONDS)
        if found is None:
            if time.monotonic() > patience:
                raise client.silent()
            continue
        if found.error() is not None:
            if _at_end(found, client, end):
                return
        elif found.offset() >= end:
            return
        else:
            patience = time.monotonic() + ANSWER_SECONDS
            yield found.value()
            if found.offset() == end - 1:
                return


def _at_end(found: Any, client: TopicClient, end: int) -> bool:
    """Whether a partition's end, which is no error, lies behind the range; errors that pass are waited for."""
    from confluent_kafka import KafkaError

    code = found.error().code()
    if code == KafkaError._PARTITION_EOF:
        return bool(found.offset() >= end)
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise client.gone()
    if not found.error().retriable() and code not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
        raise client.silent()
    return False
