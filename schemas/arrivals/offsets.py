"""Which messages of a topic are in a window: offsets, written down before any of them is read.

The numbers are private: the length of a range is an exact number of messages.
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple, Self

import pydantic
from pydantic import Field

from dapple_dp.schemas.settings.json_schema import FileContent, NumberedFile

CHUNK_MESSAGES = 1 << 16
"""Offsets that one reader reads, at most."""
MOST_PARTITIONS = 10_000
_Offset = Annotated[int, Field(ge=0, lt=1 << 63)]


class Chunk(NamedTuple):
    """A part of a range that one reader reads into one file.

    Attributes:
      file: name of the file, without any number that says how many messages there are beyond its place.
      partition: of the topic.
      first: the first offset.
      end: the offset after the last.
    """

    file: str
    partition: int
    first: int
    end: int


class OffsetRange(FileContent):
    """Offsets of one partition: from `first` on, before `end`."""

    partition: Annotated[int, Field(ge=0, lt=MOST_PARTITIONS)]
    first: _Offset
    end: _Offset

    @pydantic.model_validator(mode="after")
    def _ends_after_its_start(self) -> Self:
        if self.end < self.first:
            raise ValueError("a range must not end before it starts")
        return self


class WindowOffsets(NumberedFile):
    """The record of a window.

    Attributes:
      topic: its name.
      topic_id: what the broker calls it; a recreated topic of the same name has another.
      window: date of the window.
      cut: milliseconds since 1970 (UTC): messages that the broker appended before it and after the last cut.
      salt: 32 secret bytes in hex: the ledger holds a digest of the record, by which nobody can try numbers.
      ranges: one for each partition that the topic had, in their order.
    """

    topic: str
    topic_id: str
    window: str
    cut: int
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    ranges: tuple[OffsetRange, ...]

    @pydantic.model_validator(mode="after")
    def _names_every_partition_once(self) -> Self:
        if [each.partition for each in self.ranges] != list(range(len(self.ranges))):
            raise ValueError("partitions must be named once, in their order")
        return self

    @property
    def ends(self) -> dict[int, int]:
        """Where the next window starts, by partition."""
        return {each.partition: each.end for each in self.ranges}

    def chunks(self) -> Iterator[Chunk]:
        """Parts that are read on their own; none of an empty range."""
        for each in self.ranges:
            for place, first in enumerate(range(each.first, each.end, CHUNK_MESSAGES)):
                name = f"part-{each.partition:05d}-{place:07d}.parquet"
                yield Chunk(name, each.partition, first, min(first + CHUNK_MESSAGES, each.end))


class RecordPlace(NamedTuple):
    """Where workers find the record of a window.

    Attributes:
      path: of the file.
      digest: SHA-256 of its bytes, 64 hex digits.
      folder: where the copies of its messages go.
    """

    path: str
    digest: str
    folder: str
