"""The footer of a Parquet file, read before Arrow sees it.

Arrow calls itself for every level of a schema, and ends the process where a column's metadata contradict themselves, so
neither is asked for before it is known to be harmless. Source: thrift's compact protocol, parquet.thrift.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from schemas.settings.refusal import MalformedError

MAGIC = b"PAR1"
MOST_BYTES = 1 << 28
MOST_DEPTH = 64
"""Levels of a schema: groups within each other, lists among them."""
_HARMLESS_BYTES = 1 << 16
_MOST_NESTED = 32
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_SCHEMA, _GROUPS = 2, 4


class ColumnSize(NamedTuple):
    """A column of a row group: path, number of values with nulls, bytes in the file."""

    path: str
    n_values: int
    n_bytes: int


class _Reader:
    """Reads values of thrift's compact protocol."""

    def __init__(self, raw: bytes):
        self._raw = raw
        self._place = 0

    def _byte(self) -> int:
        found = self._raw[self._place]
        self._place += 1
        return found

    def _varint(self) -> int:
        found, shift = 0, 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise MalformedError("a footer with a number that is too long")

    def _integer(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _taken(self, length: int) -> bytes:
        if length > len(self._raw) - self._place:
            raise MalformedError("a footer that ends too soon")
        self._place += length
        return self._raw[self._place - length : self._place]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct, whose value must be read before the next one."""
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer()
            yield number, header & 15

    def items(self) -> Iterator[int]:
        """Type of each item of a list, which must be read before the next one."""
        header = self._byte()
        length = self._varint() if header >> 4 == 15 else header >> 4
        if length > len(self._raw) - self._place:
            raise MalformedError("a footer that ends too soon")
        for _ in range(length):
            yield header & 15

    def value(self, kind: int, depth: int = 0) -> Any:
        """A value of a type: a struct by field numbers."""
        if depth > _MOST_NESTED:
            raise MalformedError("a footer nested too deeply")
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._taken(8)
        if kind == _BINARY:
            return self._taken(self._varint())
        if kind in (_LIST, _SET):
            return [self._byte() if item in (_TRUE, _FALSE) else self.value(item, depth + 1) for item in self.items()]
        if kind == _STRUCT:
            return {number: self.value(inner, depth + 1) for number, inner in self.fields()}
        raise MalformedError("a footer with a value of an unknown type")


def _place(file: Any) -> tuple[int, int]:
    """Where the footer of an open file begins, and its length; raises MalformedError if there is none."""
    file.seek(0, 2)
    size = file.tell()
    file.seek(max(size - 8, 0))
    tail = bytes(file.read(8))
    length = int.from_bytes(tail[:4], "little")
    if size < 12 or tail[4:] != MAGIC or length > min(size - 12, MOST_BYTES):
        raise MalformedError("no Parquet file")
    return size - 8 - length, length


def footer_of(file: BinaryIO | pa.NativeFile) -> bytes:
    """The footer of an open file; raises MalformedError if there is none."""
    start, length = _place(file)
    file.seek(start)
    return bytes(file.read(length))


def check_depth(file: BinaryIO | pa.NativeFile) -> None:
    """Refuses a file whose schema is so deep that Arrow would leave its stack; a short footer has no room for one.

    Raises:
      MalformedError: or LookupError where the footer ends too soon.
    """
    if _place(file)[1] > _HARMLESS_BYTES:
        reader = _Reader(footer_of(file))
        for number, kind in reader.fields():
            if number == _SCHEMA and kind == _LIST:
                _check_levels(reader.value(item).get(5, 0) for item in reader.items())
                return
            reader.value(kind)


def _check_levels(children: Iterator[int]) -> None:
    """Walks the elements of a schema, which are listed in depth-first order with their numbers of children."""
    open_groups: list[int] = []
    for n_children in children:
        while open_groups and open_groups[-1] == 0:
            open_groups.pop()
        if open_groups:
            open_groups[-1] -= 1
        if n_children > 0:
            open_groups.append(n_children)
        if len(open_groups) > MOST_DEPTH:
            raise MalformedError(f"a schema of more than {MOST_DEPTH} levels")


def column_sizes(footer: bytes) -> list[list[ColumnSize]]:
    """Columns of each row group, in order; raises MalformedError or LookupError for another footer."""
    reader = _Reader(footer)
    found: list[list[ColumnSize]] = []
    for number, kind in reader.fields():
        value = reader.value(kind)
        if number == _GROUPS:
            found = [[_column(each[3]) for each in group[1]] for group in value]
    return found


def _column(metadata: dict[int, Any]) -> ColumnSize:
    path = ".".join(part.decode() for part in metadata[3])
    if min(metadata[5], metadata[7]) < 0:
        raise MalformedError("a column of a negative size")
    return ColumnSize(path, metadata[5], metadata[7])
