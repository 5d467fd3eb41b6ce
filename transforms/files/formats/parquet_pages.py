"""Reads the page headers of a Parquet column to find the memory that its pages take, before any is unpacked.

A page of a few bytes can unpack to two gigabytes, a dictionary can repeat a long value in every row, and a list can
have more numbers than fit anywhere. A footer need not show that. Source: parquet.thrift.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dapple_dp.schemas.settings.refusal import MalformedError
from dapple_dp.transforms.files.formats.parquet_footer import BYTES, CODECS, FIXED_BYTES, Chunk, Reader

Read = Callable[[int, int], bytes]
"""Reads up to this many bytes of a file from a position on: (position, size) -> bytes."""
_I32, _STRUCT = 5, 12
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_HEADERS = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
"""Field of a page's header with its values, by page type."""
_FRONT_CODED = 7
"""The encoding DELTA_BYTE_ARRAY, in which a value reuses the first bytes of the one before."""
_HEADER_BYTES, _MOST_HEADER_BYTES = 1 << 8, 1 << 24
_READABLE = {number for number, name in CODECS.items() if name != "lzo"}
_WITHIN_BOUNDS = {0, 1}
"""Codecs that expand a byte to a few dozen at most."""
_SPARE_BYTES = 100
"""Bytes by which some old writers understate a column's size; Arrow reads as much beyond it."""


class Pages(NamedTuple):
    """Memory that the pages of a column take.

    Attributes:
      held: bytes of the largest page, unpacked, and of the dictionary beside it.
      n_bytes: of all pages of data, unpacked.
      longest: bytes that one value can have beyond its share of a page.
      is_front_coded: True if that is due to front coding rather than to a dictionary.
    """

    held: int = 0
    n_bytes: int = 0
    longest: int = 0
    is_front_coded: bool = False


def sum_of(pages: Iterable[Pages]) -> Pages:
    """Returns the memory for several columns that are read at once."""
    held = n_bytes = longest = 0
    for page in pages:
        held, n_bytes, longest = held + page.held, n_bytes + page.n_bytes, longest + page.longest
    return Pages(held, n_bytes, longest)


def is_bounded(chunk: Chunk) -> bool:
    """Returns whether a column's size in the file and number of rows bound its memory, whatever its pages say."""
    return chunk.codec in _WITHIN_BOUNDS and chunk.leaf.kind != BYTES and not chunk.leaf.is_repeated


def check_readable(chunk: Chunk) -> None:
    """Refuses a column that Arrow can't unpack; raises MalformedError, which names the column."""
    if chunk.is_encrypted:
        raise MalformedError(f"column {chunk.leaf.name!r} encrypted")
    if chunk.codec not in _READABLE:
        name = CODECS.get(chunk.codec, "an unknown codec")
        raise MalformedError(f"column {chunk.leaf.name!r} compressed by {name}")


def check_apart(chunks: Iterable[Chunk], end: int) -> None:
    """Refuses columns that overlap or aren't completely in the file, whose size would then bound nothing.

    Args:
      chunks: of all row groups.
      end: offset at which the pages of the file end.
    """
    last = 0
    for start, n_bytes in sorted((chunk.start, chunk.n_bytes) for chunk in chunks if chunk.n_values):
        if start < last or start + n_bytes > end:
            raise MalformedError("columns that are not in it, or several in one place")
        last = start + n_bytes


def pages_of(read: Read, chunk: Chunk, n_rows: int) -> Pages:
    """Returns the memory that a column takes, without unpacking a page.

    Args:
      read: of the file.
      chunk: of its footer.
      n_rows: of the row group.

    Raises:
      MalformedError: if headers are malformed, or the pages' number of values isn't that of the footer.
    """
    place, n_values, found = chunk.start, 0, Pages()
    dictionary = 0
    while n_values < chunk.n_values and place < chunk.start + chunk.n_bytes:
        page, length = _header(read, place)
        place += length + page.stored
        if page.stored < 0 or page.unpacked < 0 or place > chunk.start + chunk.n_bytes + _SPARE_BYTES:
            raise MalformedError("a page that is not in its column")
        if page.kind == _DICTIONARY_PAGE:
            dictionary = max(dictionary, page.unpacked)
        n_values += page.n_values
        longest = page.unpacked if page.encoding == _FRONT_CODED else 0
        n_bytes = 0 if page.kind == _DICTIONARY_PAGE else page.unpacked
        found = Pages(max(found.held, n_bytes), found.n_bytes + n_bytes, max(found.longest, longest))
    if n_values != chunk.n_values or not (chunk.leaf.is_repeated or n_values == n_rows):
        raise MalformedError("pages with another number of values than its footer lists")
    width = {BYTES: max(found.longest, dictionary), FIXED_BYTES: max(chunk.leaf.width, 0)}
    is_front_coded = found.longest > 0
    return Pages(found.held + dictionary, found.n_bytes, width.get(chunk.leaf.kind, 0), is_front_coded)


class _Page(NamedTuple):
    """A header: type of the page, bytes unpacked and in the file, values (of data pages only) and their encoding."""

    kind: int
    unpacked: int
    stored: int
    n_values: int
    encoding: int


def _header(read: Read, place: int) -> tuple[_Page, int]:
    """Reads the header of a page, and returns its length too; statistics in it may be long."""
    size = _HEADER_BYTES
    while True:
        raw = read(place, size)
        try:
            return _parsed(raw)
        except LookupError:
            if len(raw) < size or size >= _MOST_HEADER_BYTES:
                raise MalformedError("a page without a header") from None
        size <<= 4


def _parsed(raw: bytes) -> tuple[_Page, int]:
    reader = Reader(raw)

    def number() -> int:
        return reader.integer(32)

    def values() -> dict[int, int]:
        return reader.struct({1: (_I32, number), 2: (_I32, number)})

    def values_v2() -> dict[int, int]:
        return reader.struct({1: (_I32, number), 4: (_I32, number)})

    found = reader.struct(
        {
            1: (_I32, number),
            2: (_I32, number),
            3: (_I32, number),
            5: (_STRUCT, values),
            7: (_STRUCT, values),
            8: (_STRUCT, values_v2),
        }
    )
    if not {1, 2, 3} <= found.keys() or (found[1] in _HEADERS and _HEADERS[found[1]] not in found):
        raise MalformedError("a page whose header lacks something")
    kind = found[1]
    facts: dict[int, int] = found[_HEADERS[kind]] if kind in _HEADERS else {1: 0}
    n_values = facts.get(1, -1)
    if n_values < 0:
        raise MalformedError("a page of a negative size")
    encoding = facts.get(4 if kind == _DATA_PAGE_V2 else 2, 0)
    return _Page(kind, found[2], found[3], 0 if kind == _DICTIONARY_PAGE else n_values, encoding), reader.place
