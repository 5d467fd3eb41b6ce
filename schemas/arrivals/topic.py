"""Settings of a topic whose messages are rows or reports, and the columns that a message holds."""

import re
from typing import Annotated, NamedTuple

from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.section import Scalar, Section, Text
from dapple_dp.schemas.tables.data_section import DataConfig

MOST_MESSAGE_BYTES = 1 << 20
_LEAST_SETTLE = 10
"""Seconds; brokers' clocks may be behind by as much, and append messages of a window after its end by ours."""
_PROGRAMS = ("ssl.engine", "ssl.providers", "sasl.kerberos.kinit.cmd")
"""What a file of properties may not say: these run a command, or load code."""
_PROPERTY = re.compile(r"(?:security|sasl|ssl)\.[a-z._]+|client\.(?:rack|dns\.lookup)|broker\.address\.family")
"""What a file of properties may say: how to reach the broker, never what is read or what becomes of an error."""


class TopicConfig(Section):
    """A Kafka topic."""

    servers: Text = Field(description="where brokers listen, host:port, several with commas between them")
    topic: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9._-]{1,249}$")] = Field(
        description="the name of the topic: letters, digits, '-', '_' and '.'"
    )
    properties: Text | None = Field(
        default=None,
        description="the path of a file with a line NAME=VALUE for each client property that begins with security, "
        "sasl or ssl, or leave it out",
    )


class RowTopicConfig(TopicConfig):
    """A Kafka topic, one JSON object per message."""

    max_message_bytes: Annotated[int, Field(strict=True, ge=1, le=MOST_MESSAGE_BYTES), Scalar] = Field(
        default=1 << 16,
        description="the largest size of a message in bytes, an integer from 1 to 1048576; a longer one is an "
        "invalid row",
    )


class MessageColumns(NamedTuple):
    """The columns taken from a message.

    Attributes:
      numbers: keys of numbers, a column each; empty if `list` is set.
      list: the key of a list of numbers; empty if there is none.
      client_id: the key of the client, a text or an integer; empty if there is none.
      most_bytes: of a message; a longer one is taken for a broken one.
    """

    numbers: tuple[str, ...]
    list: str
    client_id: str
    most_bytes: int

    @classmethod
    def of(cls, data: DataConfig, topic: RowTopicConfig) -> "MessageColumns":
        """The columns that a job reads.

        Raises:
          ConfigError: for columns that messages cannot be asked for.
        """
        if data.has_patterns or data.table is not None or data.partitions:
            raise ConfigError(
                "data must name the keys of messages in features, without patterns, table or partitions, got one of "
                "these; leave it out where rows come from a topic."
            )
        features = data.features
        is_list = isinstance(features, str)
        numbers = () if isinstance(features, str) else features
        return cls(numbers, str(features) if is_list else "", data.client_id or "", topic.max_message_bytes)


class PackedColumns(NamedTuple):
    """What a message of a fixed number of bytes is made of.

    Attributes:
      fields: a column each, with how its bytes are read: Q and H for unsigned numbers of 8 and 2 bytes,
        little-endian, or 24s for 24 bytes as they are.
    """

    fields: tuple[tuple[str, str], ...]


def check_settle(setting: str, seconds: int) -> None:
    """Refuses windows of a topic that are cut before brokers' clocks have passed their end.

    Args:
      setting: its name.
      seconds: after the end of its days when a window is cut.

    Raises:
      ConfigError: if they are too few.
    """
    if seconds < _LEAST_SETTLE:
        raise ConfigError(
            f"{setting} must be at least {_LEAST_SETTLE} where messages come from a topic, got {seconds}; clocks of "
            "brokers may be behind by this many seconds."
        )


def client_properties(text: str) -> dict[str, str]:
    """Properties of a client, a line NAME=VALUE each; lines that are empty or begin with # are left out.

    Raises:
      ConfigError: for another line, or another property; no value is quoted, since it may be a password.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals or not _PROPERTY.fullmatch(name) or name.startswith(_PROGRAMS) or name in found:
            raise ConfigError(
                f"the file of client properties must hold lines NAME=VALUE with names like security.protocol, each "
                f"once, got another line {number}; correct it."
            )
        found[name] = value
    return found
