"""Reads the footer of a Parquet file before Arrow does, since a footer can't be trusted.

Arrow recurses for every level of a schema, allocates as much memory as a footer announces, and aborts the process if a
column's metadata contradict each other. So the footer is checked here first, and fields that aren't needed are skipped.
Source: thrift's compact protocol, parquet.thrift.
"""

import functools
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from dapple_dp.schemas.settings.refusal import MalformedError

MAGIC, ENCRYPTED_MAGIC = b"PAR1", b"PARE"
MOST_BYTES = 1 << 24
MOST_DEPTH = 64
"""Most levels of a schema: groups within each other, lists among them."""
MOST_ELEMENTS = 1 << 17
"""Most columns and groups of a schema: Arrow takes some hundred bytes for each."""
_HARMLESS_BYTES = 1 << 16
_MOST_NESTED = 32
_KNOWN = 1 << 12
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_REPEATED = 2
BYTES, FIXED_BYTES = 6, 7
"""Physical types of values of any length, and of a length that the schema gives."""
CODECS: Mapping[int, str] = dict(enumerate(("none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")))
_OTHER_FORMATS: Mapping[bytes, str] = {
    ENCRYPTED_MAGIC: "an encrypted Parquet file",
    b"\x1f\x8b": "a file that is packed by gzip as a whole",
    b"\x28\xb5\x2f\xfd": "a file that is packed by zstd as a whole",
    b"BZh": "a file that is packed by bzip2 as a whole",
    b"\x04\x22\x4d\x18": "a file that is packed by lz4 as a whole",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"ORC": "an ORC file",
    b"ARROW1": "an Arrow or Feather file",
    b"FEA1": "a Feather file",
    b"Obj\x01": "an Avro file",
    b"version https://git-lfs": "a pointer of Git LFS",
}
"""First bytes of files of other formats, with a description of each."""


class Leaf(NamedTuple):
    """A column of a schema.

    Attributes:
      path: names of the groups and of the column, with dots.
      name: the outermost name, as in tables.
      kind: number of the physical type.
      width: bytes of a value of type `FIXED_BYTES`.
      is_repeated: True if a row may have several values.
    """

    path: str
    name: str
    kind: int
    width: int
    is_repeated: bool


class Chunk(NamedTuple):
    """A column of a row group: its path, number of values with nulls, bytes in the file, and their position."""

    path: str
    n_values: int
    n_bytes: int
    start: int
    leaf: Leaf
    codec: int
    is_encrypted: bool


class RowGroup(NamedTuple):
    """Number of rows by the footer, and the requested columns."""

    n_rows: int
    chunks: list[Chunk]


class Reader:
    """Reads values of thrift's compact protocol; raises LookupError if the bytes end too soon.

    Args:
      raw: bytes of a struct.
    """

    def __init__(self, raw: bytes):
        self._raw = raw
        self.place = 0

    def integer(self, bits: int = 64) -> int:
        """Reads a signed number of at most this many bits; refuses a longer one, which thrift would truncate."""
        found = self._varint()
        found = (found >> 1) ^ -(found & 1)
        if not -(1 << bits - 1) <= found < 1 << bits - 1:
            raise MalformedError("a number that is too large for its place")
        return found

    def binary(self) -> bytes:
        """Reads bytes."""
        length = self._varint()
        start = self.place
        self._pass(length)
        return self._raw[start : self.place]

    def struct(self, wanted: Mapping[int, tuple[int, Callable[[], Any]]]) -> dict[int, Any]:
        """Reads some fields of a struct and skips the others.

        Args:
          wanted: number of a field -> its type, and the function that reads it.

        Raises:
          MalformedError: for a field that comes twice or has another type, since two readers may read it differently.
        """
        found: dict[int, Any] = {}
        number, raw = 0, self._raw
        while header := raw[self.place]:
            self.place += 1
            kind = header & 15
            number = number + (header >> 4) if header >> 4 else self.integer(16)
            if number not in wanted:
                self.skip(kind)
                continue
            expected, read = wanted[number]
            if number in found or kind != expected:
                raise MalformedError("a field that is there twice or of another type")
            found[number] = read()
        self.place += 1
        return found

    def items(self, kind: int) -> Iterator[None]:
        """Iterates over a list; the caller must read each item before the next one."""
        header = self._raw[self.place]
        self.place += 1
        length = self._varint() if header >> 4 == 15 else header >> 4
        if header & 15 != kind and length:
            raise MalformedError("a list of another type")
        self._check_length(length)
        for _ in range(length):
            yield

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skips a value of a type without building it."""
        if depth > _MOST_NESTED:
            raise MalformedError("values nested too deeply")
        if _I16 <= kind <= _I64:
            while self._raw[self.place] > 127:
                self.place += 1
            self.place += 1
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind == _STRUCT:
            self._skip_struct(depth)
        elif kind in (_LIST, _SET, _MAP):
            self._skip_items(kind, depth)
        elif kind in (_BYTE, _DOUBLE):
            self._pass(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):
            raise MalformedError("a value of an unknown type")

    def _skip_struct(self, depth: int) -> None:
        raw = self._raw
        while header := raw[self.place]:
            self.place += 1
            if not header >> 4:
                self.integer(16)
            self.skip(header & 15, depth + 1)
        self.place += 1

    def _skip_items(self, kind: int, depth: int) -> None:
        if kind == _MAP:
            length = self._varint()
            if not length:
                return
            kinds = [self._raw[self.place] >> 4, self._raw[self.place] & 15]
            self.place += 1
        else:
            header = self._raw[self.place]
            self.place += 1
            length = self._varint() if header >> 4 == 15 else header >> 4
            kinds = [header & 15]
        self._check_length(length)
        if kinds in ([_TRUE], [_FALSE], [_BYTE]):
            self._pass(length)
            return
        for _ in range(length):
            for each in kinds:
                self.skip(_BYTE if each in (_TRUE, _FALSE) else each, depth + 1)

    def _check_length(self, length: int) -> None:
        if length > len(self._raw) - self.place:
            raise LookupError("more items than bytes")

    def _pass(self, length: int) -> None:
        if length > len(self._raw) - self.place:
            raise LookupError("more bytes than there are")
        self.place += length

    def _varint(self) -> int:
        found, shift = 0, 0
        while True:
            byte = self._raw[self.place]
            self.place += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise MalformedError("a number that is too long")


def footer_of(file: BinaryIO | pa.NativeFile) -> bytes:
    """Returns the footer of an open file; without one, raises MalformedError, which names the format that was found."""
    size = file.seek(0, 2)
    file.seek(max(size - 8, 0))
    tail = bytes(file.read(8))
    length = int.from_bytes(tail[:4], "little")
    if size < 12 or tail[4:] != MAGIC:
        raise MalformedError(_kind_of(file, tail))
    if length > min(size - 12, MOST_BYTES):
        raise MalformedError(f"a footer of more than {MOST_BYTES >> 20} MiB, or than there is of the file")
    file.seek(size - 8 - length)
    return bytes(file.read(length))


def _kind_of(file: BinaryIO | pa.NativeFile, tail: bytes) -> str:
    """Describes a file that isn't a Parquet file."""
    file.seek(0)
    start = bytes(file.read(32))
    if tail[4:] == ENCRYPTED_MAGIC:
        return _OTHER_FORMATS[ENCRYPTED_MAGIC]
    if start[:4] == MAGIC:
        return "the beginning of a Parquet file that was cut off"
    return next((name for first, name in _OTHER_FORMATS.items() if start.startswith(first)), "something else")


def check_size(file: BinaryIO | pa.NativeFile) -> None:
    """Refuses a file whose footer would exhaust Arrow's memory or stack; short footers can't.

    Raises:
      MalformedError: or LookupError if the footer ends too soon.
    """
    footer = footer_of(file)
    if len(footer) > _HARMLESS_BYTES and (digest := hashlib.blake2b(footer, digest_size=16).digest()) not in _known():
        row_groups(footer, ())
        if len(_known()) >= _KNOWN:
            _known().clear()
        _known().add(digest)


@functools.cache
def _known() -> set[bytes]:
    """Digests of harmless footers that this process has read; each row group opens its file again."""
    return set()


def leaves_of(footer: bytes) -> list[Leaf]:
    """Returns the columns of a footer's schema; raises MalformedError, or LookupError, if it is malformed."""
    reader, found = Reader(footer), list[Leaf]()
    if 2 not in reader.struct({2: (_LIST, lambda: found.extend(_leaves(reader)))}):
        raise MalformedError("a footer without a schema")
    return found


def row_groups(footer: bytes, names: Collection[str] | None = None) -> list[RowGroup]:
    """Returns the row groups in order, with the requested columns.

    Args:
      footer: of a file.
      names: of columns of tables; None for all.

    Raises:
      MalformedError: or LookupError, if the footer is malformed.
    """
    reader = Reader(footer)
    leaves: list[Leaf] = []
    groups: list[RowGroup] = []

    def schema() -> None:
        leaves.extend(_leaves(reader))

    def all_groups() -> None:
        groups.extend(_row_group(reader, leaves, names) for _ in reader.items(_STRUCT))

    # The total number of rows is ignored: some writers get it wrong, and only row groups are read.
    if not {2, 4} <= reader.struct({2: (_LIST, schema), 4: (_LIST, all_groups)}).keys():
        raise MalformedError("a footer without a schema or row groups")
    return groups


def _leaves(reader: Reader) -> list[Leaf]:
    """Reads the columns of a schema, whose elements are in depth-first order with their numbers of children."""
    number = functools.partial(reader.integer, 32)
    wanted: dict[int, tuple[int, Callable[[], Any]]] = {each: (_I32, number) for each in (1, 2, 3, 5)}
    wanted[4] = _BINARY, reader.binary
    found: list[Leaf] = []
    above: list[tuple[int, str, bool]] = []
    for count, _ in enumerate(reader.items(_STRUCT)):
        element = reader.struct(wanted)
        if count >= MOST_ELEMENTS:
            raise MalformedError(f"a schema of more than {MOST_ELEMENTS} columns and groups")
        name, n_children = element.get(4, b"").decode(), element.get(5, 0)
        while above and above[-1][0] == 0:
            above.pop()
        path, repeated = "", element.get(3) == _REPEATED
        if above:
            left, path, inside = above[-1]
            above[-1] = (left - 1, path, inside)
            path, repeated = f"{path}.{name}".lstrip(".") if path else name, repeated or inside
        if n_children > 0 or 1 not in element:
            above.append((n_children, path, repeated and count > 0))
            if len(above) > MOST_DEPTH:
                raise MalformedError(f"a schema of more than {MOST_DEPTH} levels")
        else:
            outer = above[1][1] if len(above) > 1 else name
            found.append(Leaf(path, outer, element[1], element.get(2, 0), repeated))
    return found


def _row_group(reader: Reader, leaves: list[Leaf], names: Collection[str] | None) -> RowGroup:
    chunks: list[Chunk] = []

    def columns() -> None:
        rest = iter(leaves)
        for _ in reader.items(_STRUCT):
            leaf = next(rest, None)
            if leaf is None:
                raise MalformedError("a row group with more columns than its schema")
            chunk = _chunk(reader, leaf)
            if names is None or leaf.name in names:
                chunks.append(chunk)
        if next(rest, None) is not None:
            raise MalformedError("a row group without all columns")

    found = reader.struct({1: (_LIST, columns), 3: (_I64, reader.integer)})
    if not {1, 3} <= found.keys() or found[3] < 0:
        raise MalformedError("a row group of a negative size")
    return RowGroup(found[3], chunks)


_CODEC, _VALUES, _STORED, _DATA, _DICTIONARY = 4, 5, 7, 9, 11


def _chunk(reader: Reader, leaf: Leaf) -> Chunk:
    number = functools.partial(reader.integer, 32)
    wanted: dict[int, tuple[int, Callable[[], Any]]] = {_CODEC: (_I32, number)}
    wanted |= {each: (_I64, reader.integer) for each in (_VALUES, _STORED, _DATA, _DICTIONARY)}
    metadata = functools.partial(reader.struct, wanted)
    fields: dict[int, tuple[int, Callable[[], Any]]] = {3: (_STRUCT, metadata)}
    found = reader.struct(fields | {8: (_STRUCT, functools.partial(reader.skip, _STRUCT))})
    is_encrypted = 8 in found
    facts: dict[int, int] = found.get(3, dict.fromkeys((_CODEC, _VALUES, _STORED, _DATA), 0) if is_encrypted else {})
    start, dictionary = facts[_DATA], facts.get(_DICTIONARY, 0)
    if min(facts[_VALUES], facts[_STORED], start) < 0:
        raise MalformedError("a column of a negative size")
    # Arrow begins at a dictionary page where one is before the first page of data.
    start = dictionary if 0 < dictionary < start else start
    return Chunk(leaf.path, facts[_VALUES], facts[_STORED], start, leaf, facts[_CODEC], is_encrypted)
