"""Settings of a topic with rows or reports as messages, and the columns of a message."""

import re
from typing import Annotated, NamedTuple

from pydantic import Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.section import Scalar, Section, Text
from dapple_dp.schemas.tables.data_section import DataConfig

MOST_MESSAGE_BYTES = 1 << 20
_LEAST_SETTLE = 10
"""Seconds by which brokers' clocks may lag, so that they append messages to a window after it has ended here."""
_PROGRAMS = ("ssl.engine", "ssl.providers", "sasl.kerberos.kinit.cmd")
"""Prefixes of forbidden client properties: these run a command or load code."""
_PROPERTY = re.compile(r"(?:security|sasl|ssl)\.[a-z._]+|client\.(?:rack|dns\.lookup)|broker\.address\.family")
"""Allowed client properties: they affect the connection, never the data that is read or the handling of errors."""


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
    """A Kafka topic with one JSON object per message."""

    max_message_bytes: Annotated[int, Field(strict=True, ge=1, le=MOST_MESSAGE_BYTES), Scalar] = Field(
        default=1 << 16,
        description="the largest size of a message in bytes, an integer from 1 to 1048576; a longer one is an "
        "invalid row",
    )


class MessageColumns(NamedTuple):
    """The columns to read from a message.

    Attributes:
      numbers: keys of numbers, one per column; empty if `list` is set.
      list: the key of a list of numbers; empty if there is none.
      client_id: the key of the client, text or an integer; empty if there is none.
      most_bytes: maximum size of a message; longer ones are broken.
    """

    numbers: tuple[str, ...]
    list: str
    client_id: str
    most_bytes: int

    @classmethod
    def of(cls, data: DataConfig, topic: RowTopicConfig) -> "MessageColumns":
        """Returns the columns that a job reads.

        Raises:
          ConfigError: if the data section has settings that messages don't support.
        """
        if data.has_patterns or data.table is not None or data.partitions:
            raise ConfigError(
                "rows from a topic don't support data.table, data.partitions or patterns in data.features; leave "
                "these out, and name the keys of the messages in data.features."
            )
        features = data.features
        is_list = isinstance(features, str)
        numbers = () if isinstance(features, str) else features
        return cls(numbers, str(features) if is_list else "", data.client_id or "", topic.max_message_bytes)


class PackedColumns(NamedTuple):
    """Layout of messages with a fixed number of bytes.

    Attributes:
      fields: name and type of each column: Q and H for unsigned integers of 8 and 2 bytes, little-endian, or 24s for
        24 raw bytes.
    """

    fields: tuple[tuple[str, str], ...]


def check_settle(setting: str, seconds: int) -> None:
    """Refuses a `settle` so short that a window could be cut before the brokers' clocks reach its end.

    Args:
      setting: name of the setting.
      seconds: time between the end of a window's days and its cut.

    Raises:
      ConfigError: if it is too short.
    """
    if seconds < _LEAST_SETTLE:
        raise ConfigError(
            f"{setting} must be at least {_LEAST_SETTLE} seconds for a topic, got {seconds}; raise it, since the "
            "clocks of brokers may be that far behind."
        )


def client_properties(text: str) -> dict[str, str]:
    """Parses client properties, one NAME=VALUE per line; empty lines and lines that begin with # are ignored.

    Raises:
      ConfigError: for any other line or property; values are never quoted, since they may be passwords.
    """
    result: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals or not _PROPERTY.fullmatch(name) or name.startswith(_PROGRAMS) or name in result:
            raise ConfigError(
                f"line {number} of the client properties file must be NAME=VALUE, with a name like "
                "security.protocol that appears once; correct it."
            )
        result[name] = value
    return result
