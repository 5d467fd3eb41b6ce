"""Offsets of the messages in a window, recorded before any of these messages is read.

The numbers are private: the length of a range is an exact number of messages.
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.settings.json_schema import FileContent, NumberedFile

CHUNK_MESSAGES = 1 << 16
"""Largest number of offsets that one reader reads."""
MOST_PARTITIONS = 10_000
_Offset = Annotated[int, Field(ge=0, lt=1 << 63)]


class Chunk(NamedTuple):
    """Part of an offset range that one reader copies to one file.

    Attributes:
      file: name of the file; except for the part's number, it doesn't depend on the number of messages.
      partition: index of the topic's partition.
      first: the first offset.
      end: the offset after the last.
    """

    file: str
    partition: int
    first: int
    end: int


class OffsetRange(FileContent):
    """Offsets of one partition, from `first` (included) to `end` (excluded)."""

    partition: Annotated[int, Field(ge=0, lt=MOST_PARTITIONS)]
    first: _Offset
    end: _Offset

    @pydantic.model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.end < self.first:
            raise ValueError("a range must not end before it starts")
        return self


class WindowOffsets(NumberedFile):
    """Record of a window's offsets.

    Attributes:
      topic: name of the topic.
      topic_id: the broker's id of the topic; a recreated topic of the same name has another.
      window: date of the window.
      cut: milliseconds since 1970 (UTC); the window has the messages appended before it and since the last cut.
      salt: 32 secret bytes in hex, so that nobody can guess offsets from the record's digest in the ledger.
      ranges: one for each partition of the topic, in their order.
    """

    topic: str
    topic_id: str
    window: str
    cut: int
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    ranges: tuple[OffsetRange, ...]

    @pydantic.model_validator(mode="after")
    def _names_every_partition_once(self) -> Self:
        if [span.partition for span in self.ranges] != list(range(len(self.ranges))):
            raise ValueError("partitions must be named once, in their order")
        return self

    @property
    def ends(self) -> dict[int, int]:
        """Start of the next window, by partition."""
        return {span.partition: span.end for span in self.ranges}

    def chunks(self) -> Iterator[Chunk]:
        """Yields the parts to read; an empty range has none."""
        for span in self.ranges:
            for place, first in enumerate(range(span.first, span.end, CHUNK_MESSAGES)):
                name = f"part-{span.partition:05d}-{place:07d}.parquet"
                yield Chunk(name, span.partition, first, min(first + CHUNK_MESSAGES, span.end))


class RecordPlace(NamedTuple):
    """Place from which workers read the record of a window.

    Attributes:
      path: path of the record.
      digest: SHA-256 of its bytes, 64 hex digits.
      folder: folder for the copies of the messages.
    """

    path: str
    digest: str
    folder: str
