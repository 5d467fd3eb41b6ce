"""The launcher's requests to a Kafka broker: settings of a topic, and offsets of its partitions at a given time."""

import collections
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.arrivals.consume import TopicClient

_SECONDS = 60.0
_Answer = TypeVar("_Answer")


class TopicState(NamedTuple):
    """State of a topic on its broker.

    Attributes:
      topic_id: see `WindowOffsets`.
      partitions: number of partitions.
      settings: settings of the topic, including defaults of the broker.
    """

    topic_id: str
    partitions: int
    settings: Mapping[str, str]


def check_settings(topic: str, settings: Mapping[str, str], least_days: int) -> None:
    """Refuses a topic in which other messages can affect a message's window or its retention.

    Args:
      topic: name of the topic.
      settings: settings of the topic.
      least_days: days for which messages must be kept.

    Raises:
      ConfigError: with the setting and its required value.
    """
    least = least_days * 86_400_000
    said = collections.defaultdict(lambda: "nothing", {name: text for name, text in settings.items() if text})
    retention = int(said["retention.ms"]) if said["retention.ms"].lstrip("-").isdecimal() else 0
    rules = (
        # With producers' timestamps, a single message dated far in the future would move the cuts of all others.
        ("message.timestamp.type", "LogAppendTime", said["message.timestamp.type"] == "LogAppendTime"),
        # With compaction, a message would remove earlier ones with the same key.
        ("cleanup.policy", "delete", said["cleanup.policy"] == "delete"),
        # If a lagging broker becomes leader, messages are lost and others take their offsets.
        ("unclean.leader.election.enable", "false", said["unclean.leader.election.enable"] == "false"),
        # With a size limit, new messages would push out older ones.
        ("retention.bytes", "-1", said["retention.bytes"] == "-1"),
        ("retention.ms", f"-1 or at least {least} ({least_days} days)", retention == -1 or retention >= least),
    )
    for name, wanted, holds in rules:
        if not holds:
            raise ConfigError(f"{name} of the topic {topic} must be {wanted}, got {said[name]}; alter the topic.")


def check_id(topic: str, topic_id: str) -> None:
    """Refuses a topic without an id, which can't be told from another one of its name; brokers have ids since 2.8.

    Raises:
      ConfigError: if the broker has no id for it.
    """
    if topic_id.strip("A=") in ("", "None"):
        raise ConfigError(
            f"the topic {topic} has no id, by which a recreated topic is recognized; upgrade the brokers to version "
            "2.8 or later."
        )


def check_reaches_back(
    client: TopicClient, state: TopicState, kept: Sequence[int], starts: Sequence[int], age: int
) -> None:
    """Refuses a first window so old that the broker may have dropped some of its messages unnoticed.

    Args:
      client: client of the topic.
      state: state of the topic.
      kept: first retained offset, by partition.
      starts: first offset of the window, by partition.
      age: milliseconds since the window began.

    Raises:
      InputError: if dropped messages may belong to the window.
    """
    retention = int(state.settings["retention.ms"] or 0)
    if -1 < retention < age and any(0 < low >= start for low, start in zip(kept, starts, strict=True)):
        raise client.gone()


class Broker:
    """A connection of the launcher.

    Args:
      client: client of the topic.
      admin: confluent_kafka's admin client.
      consumer: confluent_kafka's consumer; reads no messages.
    """

    def __init__(self, client: TopicClient, admin: Any, consumer: Any):
        self._client = client
        self._admin = admin
        self._consumer = consumer

    def state(self) -> TopicState:
        """Reads the state of the topic.

        Raises:
          InputError: if the topic doesn't exist, or the broker doesn't answer.
        """
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import ConfigResource

        topic, resource = self._client.topic, ConfigResource(ConfigResource.Type.TOPIC, self._client.topic)
        about = self._answer(lambda: self._admin.describe_topics(TopicCollection([topic]))[topic].result(_SECONDS))
        found = self._answer(lambda: self._admin.describe_configs([resource])[resource].result(_SECONDS))
        if sorted(each.id for each in about.partitions) != list(range(len(about.partitions))) or not about.partitions:
            raise self._client.silent()
        settings = {name: entry.value for name, entry in found.items()}
        check_id(topic, str(about.topic_id))
        return TopicState(str(about.topic_id), len(about.partitions), settings)

    def bounds(self, partitions: int) -> list[tuple[int, int]]:
        """First retained offset of each partition, and the offset after its last message."""
        from confluent_kafka import TopicPartition

        def asked(index: int) -> tuple[int, int]:
            place = TopicPartition(self._client.topic, index)
            low, high = self._consumer.get_watermark_offsets(place, timeout=_SECONDS, cached=False)
            return int(low), int(high)

        return [self._answer(functools.partial(asked, index)) for index in range(partitions)]

    def cut(self, milliseconds: int, partitions: int) -> list[int]:
        """Offset of the first message in each partition that the broker appended at or after a given time.

        Ends are read first. So if a partition has no such message yet, all messages before its end are earlier.

        Args:
          milliseconds: time since 1970, UTC, which the brokers' clocks have passed.
          partitions: number of partitions.
        """
        from confluent_kafka import TopicPartition

        ends = [end for _, end in self.bounds(partitions)]
        wanted = [TopicPartition(self._client.topic, index, milliseconds) for index in range(partitions)]
        found = self._answer(lambda: self._consumer.offsets_for_times(wanted, timeout=_SECONDS))
        if any(each.error is not None for each in found):
            raise self._client.silent()
        return [each.offset if each.offset >= 0 else end for each, end in zip(found, ends, strict=True)]

    def commit(self, ends: Mapping[int, int]) -> None:
        """Commits released offsets for the consumer group, only for monitoring tools."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(self._client.topic, partition, end) for partition, end in ends.items()]
        self._answer(lambda: self._consumer.commit(offsets=places, asynchronous=False))

    def _answer(self, ask: Callable[[], _Answer]) -> _Answer:
        """Repeats a request while a broker restarts; raises InputError if it gets no answer."""
        from confluent_kafka import KafkaError, KafkaException

        patience = time.monotonic() + _SECONDS
        while True:
            try:
                return ask()
            except (KafkaException, TimeoutError) as error:
                known = isinstance(error, KafkaException) and error.args[0].code() in (
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                )
                if known or time.monotonic() > patience:
                    raise self._client.silent() from error
                time.sleep(1.0)


@contextlib.contextmanager
def connected(client: TopicClient, group: str) -> Iterator[Broker]:
    """Connects to a broker as a consumer group.

    Raises:
      ConfigError: if the library is missing, or a client property is wrong.
      InputError: later, if the broker doesn't answer.
    """
    settings = client.settings()
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

    # An open transaction must not hide messages at the end of a partition, which are already appended.
    reading = {"group.id": group, "isolation.level": "read_uncommitted", "enable.auto.commit": False}
    reading["allow.auto.create.topics"] = False
    try:
        consumer = confluent_kafka.Consumer(settings | reading)
        admin = AdminClient(settings)
    except confluent_kafka.KafkaException as error:
        raise ConfigError(
            f"{client.properties or 'kafka'} has properties that the Kafka client rejects; correct them."
        ) from error
    try:
        yield Broker(client, admin, consumer)
    finally:
        with contextlib.suppress(confluent_kafka.KafkaException):
            consumer.close()
