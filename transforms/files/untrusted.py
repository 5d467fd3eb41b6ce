"""The only module that opens and parses files whose content is used: with limits, and with one-sentence errors.

A file that is a pipe or a device, too long, nested too deeply, or not of its schema is refused before it costs time
or memory. Any error of a parser becomes the one that the caller has chosen.
`tests/unit/files/test_untrusted_files.py` finds code that opens files elsewhere.
"""

import dataclasses
import functools
import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.errors import DappleError, InputError
from dapple_dp.schemas.settings import json_schema, json_text, yaml_text
from dapple_dp.schemas.settings.format_number import METADATA, NAME, check_number
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.tables.data_section import CsvForm
from dapple_dp.transforms.files import stores
from dapple_dp.transforms.files.formats import parquet_footer, parquet_pages
from dapple_dp.transforms.files.formats.csv_file import CsvFile, is_csv
from dapple_dp.transforms.files.formats.held_stream import HeldStream
from dapple_dp.transforms.files.formats.parquet_footer import FIXED_BYTES, Chunk, RowGroup
from dapple_dp.transforms.files.formats.parquet_pages import Pages, sum_of

if TYPE_CHECKING:
    # Arrow's Parquet reader loads the clients of every store, and a fit of rows in memory needs none of them.
    import pyarrow.parquet as pq

    from dapple_dp.transforms.files.formats.packed_rows import RowsFile

MOST_BYTES = 1 << 30
"""Most bytes of a file that is read as a whole."""
MOST_ARRAYS = 64
_MOST_TABLE_BYTES = 1 << 32
_LEAST_TABLE_BYTES, _MOST_RATIO = 1 << 28, 100
"""Limits on the memory of a table: so many bytes, or so many times the size of its file."""
_SPARE_BYTES = 1 << 20
"""Room for a page, a dictionary and Arrow's rounding, for tables with a known number of rows."""
_MOST_GROUP_BYTES = 1 << 31
"""Limit on the memory of a row group: so many bytes, or 100 times its size on disk."""
_LONG_VALUE = 1 << 16
"""Bytes of a text that some thousand rows may repeat."""
_MOST_TABLE_ROWS = 1 << 28
_BATCH_ROWS = 1 << 16
_CHUNK = 1 << 22
_Content = TypeVar("_Content")
RowFile: TypeAlias = "RowsFile | CsvFile"
"""An open file of rows; only `shard_rows` and `read` of `dapple_dp.transforms.tables` check which format it has."""


def staged_refusal(path: str) -> Refusal:
    """Creates the refusal of a file in a run's own folder that is not as the workers wrote it."""
    return Refusal(kind=InputError, rule=f"{path} must be the file that this run wrote", remedy="run the job again")


def read_bytes(path: str, refusal: Refusal, most_bytes: int = MOST_BYTES) -> bytes:
    """Reads a whole file on any Beam filesystem.

    Args:
      path: of a regular file; links are followed.
      refusal: if it cannot be read.
      most_bytes: limit on the size of the file; no more are read.
    """
    try:
        with _opened(path) as file:
            too_long = stores.is_local(path) and os.fstat(file.fileno()).st_size > most_bytes
            content = b"" if too_long else bytes(file.read(most_bytes + 1))
    except (OSError, ValueError) as error:
        raise refusal.because(path) from error
    if too_long or len(content) > most_bytes:
        raise refusal.because(f"more than {most_bytes} bytes")
    return content


def digest(path: str, refusal: Refusal) -> str:
    """Returns the SHA-256, 64 hex digits, of a file of any length, read in parts; arguments as in `read_bytes`."""
    found = hashlib.sha256()
    try:
        with _opened(path) as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except (OSError, ValueError) as error:
        raise refusal.because("no readable file") from error
    return found.hexdigest()


def read_text(path: str, refusal: Refusal, most_bytes: int = yaml_text.MOST_BYTES) -> str:
    """Reads a whole text in UTF-8; arguments as in `read_bytes`."""
    content = read_bytes(path, refusal, most_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refusal.because(path) from error


def read_json(path: str, kind: type[_Content], refusal: Refusal, most_bytes: int = json_text.MOST_BYTES) -> _Content:
    """Reads and validates a JSON file.

    Args:
      path: see `read_bytes`.
      kind: a model of the content, or another type that pydantic can check.
      refusal: for another file.
      most_bytes: of the file.
    """
    return json_schema.parse_as(read_bytes(path, refusal, most_bytes), kind, refusal, most_bytes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """Limits of a table that its reader knows beforehand: from a plan, a config or the size of its file.

    Attributes:
      schema: its columns, nullability included; None for any.
      n_rows: most rows.
      row_bytes: most bytes of a row, in memory and in its page.
      least_bytes: fewest bytes of a row in the file, if its values are random; 0 if rows may have any length.
      per_byte: bytes in memory besides those of rows for each byte of the file, for lists of unknown length.
      spare: bytes in memory that any table may take.
    """

    schema: pa.Schema | None
    n_rows: int = _MOST_TABLE_ROWS
    row_bytes: int = 0
    least_bytes: int = 0
    per_byte: int = 0
    spare: int = _SPARE_BYTES

    @classmethod
    def by_size(cls, schema: pa.Schema | None = None, n_rows: int = _MOST_TABLE_ROWS) -> "TableForm":
        """Creates limits for a table of unknown size: 256 MiB, or 100 times the bytes of its file."""
        return cls(schema=schema, n_rows=n_rows, per_byte=_MOST_RATIO, spare=_LEAST_TABLE_BYTES)

    def check_columns(self, footer: bytes) -> None:
        """Refuses a schema with other columns before Arrow builds it; Arrow compares the types."""
        if self.schema is None:
            return
        leaves = parquet_footer.leaves_of(footer)
        if list(dict.fromkeys(leaf.name for leaf in leaves)) != self.schema.names or len(leaves) != _leaves(
            self.schema
        ):
            raise MalformedError("other columns")

    def most_bytes(self, n_bytes: int, n_rows: int, n_groups: int) -> int:
        """Returns the most bytes that a table may take in memory.

        Args:
          n_bytes: of its file.
          n_rows: by its footer.
          n_groups: row groups by its footer.

        Raises:
          MalformedError: for more rows than there can be, or more row groups than rows.
        """
        most_rows = min(self.n_rows, n_bytes // self.least_bytes if self.least_bytes else self.n_rows)
        if n_rows > most_rows or n_groups > n_rows + 1:
            raise MalformedError("more rows than such a file can hold")
        return min(_MOST_TABLE_BYTES, max(self.spare, n_rows * self.row_bytes + self.per_byte * n_bytes))


def _leaves(schema: pa.Schema) -> int:
    """Counts the columns of plain values in a schema, including those in lists and structs."""

    def count(kind: pa.DataType) -> int:
        return sum(count(kind.field(index).type) for index in range(kind.num_fields)) if pa.types.is_nested(kind) else 1

    return sum(count(each.type) for each in schema)


def read_table(path: str, refusal: Refusal, form: TableForm) -> pa.Table:
    """Reads a whole Parquet file; arguments as in `table_of`."""
    return table_of(read_bytes(path, refusal), refusal, form)


def table_of(content: bytes, refusal: Refusal, form: TableForm, *, foreign: bool = False) -> pa.Table:
    """Parses the bytes of a Parquet file as a table.

    Arrow reads a Python file by threads that may outlive the call, and a process that ends then aborts. So Arrow gets
    the bytes, and no thread is started.

    Args:
      content: of the file.
      refusal: for another file.
      form: limits of the table.
      foreign: True if others may have written it, without a number of the format.
    """
    import pyarrow.parquet as pq

    from dapple_dp.transforms.files.formats import packed_rows

    with refusal.covers():
        footer = parquet_footer.footer_of(io.BytesIO(content))
        form.check_columns(footer)
        limits = _TableLimits.of(content, parquet_footer.row_groups(footer), form)
        with pq.ParquetFile(pa.BufferReader(content), **packed_rows.OPTIONS) as parquet:
            if form.schema is not None and not parquet.schema_arrow.equals(form.schema):
                raise MalformedError("other columns")
            table = _bounded_table(parquet, limits)
        table.validate(full=True)
        if not foreign:
            check_number((table.schema.metadata or {}).get(METADATA))
        return table


def parquet_of(source: Any, refusal: Refusal) -> "RowsFile":
    """Opens a Parquet file to be read in parts.

    Args:
      source: bytes, as Arrow or Beam opens them.
      refusal: for another file.
    """
    from dapple_dp.transforms.files.formats import packed_rows

    try:
        parquet_footer.check_size(source)
        source.seek(0)
        return packed_rows.open_rows(source if isinstance(source, pa.NativeFile) else HeldStream(source), refusal)
    except DappleError:
        raise
    except Exception as error:
        raise refusal.because(str(error) if isinstance(error, MalformedError) else "") from error


def rows_of(source: Any, name: str, refusal: Refusal, csv: str) -> RowFile:
    """Opens a file as CSV if its name says so, else as Parquet.

    Args:
      source: bytes, as Arrow or Beam opens them.
      name: name of the file in messages.
      refusal: for another Parquet file.
      csv: text of the `CsvForm` of a CSV file.
    """
    return CsvFile(source, name, CsvForm.of_text(csv)) if is_csv(name) else parquet_of(source, refusal)


def row_groups(file: "RowsFile", refusal: Refusal) -> tuple[RowGroup, ...]:
    """Returns the row groups of an open Parquet file and their columns, by its footer.

    Arrow itself would abort the process on metadata that contradict each other.
    """
    with refusal.covers():
        footer, source = parquet_footer.footer_of(file.origin), file.origin
        return _row_groups(footer, source.seek(0, os.SEEK_END) - 8 - len(footer))


@functools.lru_cache(maxsize=1)
def _row_groups(footer: bytes, end: int) -> tuple[RowGroup, ...]:
    """Reads the row groups of a footer and checks them against the file; readers ask for them again and again."""
    found = parquet_footer.row_groups(footer)
    parquet_pages.check_apart((chunk for group in found for chunk in group.chunks), end)
    return tuple(found)


def checked_pages(file: "RowsFile", row_group: int, names: Collection[str], refusal: Refusal) -> Pages:
    """Returns the memory that columns of a row group take, from the headers of their pages.

    Columns of a large object on a store are read as a whole for that, and kept until Arrow reads them.

    Args:
      file: open.
      row_group: its number.
      names: of the columns that are read.
      refusal: for a file whose pages differ from its footer, that can't be unpacked, or of which few bytes would
        fill the memory.
    """
    group = row_groups(file, refusal)[row_group]
    chunks = [chunk for chunk in group.chunks if chunk.leaf.name in names]
    with refusal.covers():
        found = sum_of(_pages_of(file, row_group, group, chunk) for chunk in chunks)
        values = sum(8 * chunk.n_values for chunk in chunks)
        stored = sum(chunk.n_bytes for chunk in group.chunks)
        if max(values, found.n_bytes, 4 * found.held) > max(_MOST_GROUP_BYTES, _MOST_RATIO * stored):
            raise MalformedError("few bytes that unpack to more than 2 GiB and to more than 100 times their size")
        return found


def _pages_of(file: "RowsFile", row_group: int, group: RowGroup, chunk: Chunk) -> Pages:
    """Returns the memory of a column; asks Arrow for the longest text in a large dictionary."""
    parquet_pages.check_readable(chunk)
    source = file.origin

    def read(place: int, size: int) -> bytes:
        source.seek(place)
        return bytes(source.read(size))

    if parquet_pages.is_bounded(chunk):
        return Pages(longest=chunk.leaf.width if chunk.leaf.kind == FIXED_BYTES else 0)
    if isinstance(source, HeldStream):
        source.hold(chunk.start, chunk.n_bytes)
    pages = parquet_pages.pages_of(read, chunk, group.n_rows)
    if pages.longest <= _LONG_VALUE or pages.held > _LEAST_TABLE_BYTES or pages.is_front_coded:
        return pages
    from dapple_dp.transforms.files.formats import packed_rows

    longest = packed_rows.longest_in_dictionary(file, row_group, chunk)
    return pages if longest is None else pages._replace(longest=longest)


def read_arrays(path: str, refusal: Refusal, most_bytes: int = MOST_BYTES) -> dict[str, NDArray[Any]]:
    """Reads the arrays of an npz file by name; arguments as in `read_bytes`."""
    return arrays_of(read_bytes(path, refusal, most_bytes), refusal)


def arrays_of(content: bytes, refusal: Refusal) -> dict[str, NDArray[Any]]:
    """Parses a numbered npz file as `numpy.savez` writes it: no compression, no objects, so nothing is unpickled.

    Args:
      content: of the file.
      refusal: for another one.
    """
    with refusal.covers(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(members) > MOST_ARRAYS or len(set(names)) < len(names):
            raise MalformedError("too many arrays, or one twice")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise MalformedError("compressed arrays")
        if sum(member.file_size for member in members) > len(content):
            raise MalformedError("arrays that overlap")
        arrays = {_array_name(name): _array(archive.read(name)) for name in names}
        found = arrays.pop(NAME, np.empty(0))
        check_number(found.tolist() if found.size else None)
        return arrays


def _opened(path: str) -> BinaryIO:
    """Opens a file to read; on a local disk it must be a regular one, and a pipe is not waited for."""
    if not stores.is_local(path):
        remote: BinaryIO = stores.open_store(path).source
        return remote
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("no regular file")
    return os.fdopen(descriptor, "rb")


class _TableLimits(NamedTuple):
    """Limits on a table and on its batches.

    Attributes:
      n_bytes: of the whole table in memory.
      n_rows: of a batch.
      listed: rows by the footer.
    """

    n_bytes: int
    n_rows: int
    listed: int

    @classmethod
    def of(cls, content: bytes, groups: list[RowGroup], form: TableForm) -> "_TableLimits":
        """Computes limits from the page headers of a file; raises MalformedError for one that would take more."""
        most = form.most_bytes(len(content), sum(group.n_rows for group in groups), len(groups))
        parquet_pages.check_apart((chunk for group in groups for chunk in group.chunks), len(content))
        n_rows, n_bytes, held, longest = 0, 0, 0, 1
        for group in groups:
            pages = []
            for chunk in group.chunks:
                parquet_pages.check_readable(chunk)
                read = parquet_pages.pages_of(lambda place, size: content[place : place + size], chunk, group.n_rows)
                pages.append(read)
                n_bytes += max(8 * chunk.n_values, read.n_bytes)
            found, n_rows = sum_of(pages), n_rows + group.n_rows
            held, longest = max(held, found.held), max(longest, found.longest)
        if max(n_bytes, held, longest) > most:
            raise MalformedError("more values than such a file can hold")
        return cls(most, max(1, min(_BATCH_ROWS, most // longest)), n_rows)


def _bounded_table(file: "pq.ParquetFile", limits: _TableLimits) -> pa.Table:
    """Reads all rows in batches, so that a dictionary that repeats long values can't fill the memory."""
    batches, size = [], 0
    for batch in file.iter_batches(limits.n_rows, use_threads=False):
        size += batch.nbytes
        if size > limits.n_bytes:
            raise MalformedError("more values than such a file can hold")
        batches.append(batch)
    table = pa.Table.from_batches(batches, file.schema_arrow)
    if table.num_rows != limits.listed:
        raise MalformedError("another number of rows than its footer lists")
    return table


def _array_name(member: str) -> str:
    if not member.endswith(".npy"):
        raise MalformedError("a member that is no array")
    return member.removesuffix(".npy")


def _array(content: bytes) -> NDArray[Any]:
    """Parses one array; its header must announce as many bytes as follow, so that no more memory is allocated."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise MalformedError("an array of an unknown format")
    shape, _, dtype = readers[version](file)
    size = dtype.itemsize
    for length in shape:
        size *= length
    if dtype.hasobject or min(shape, default=0) < 0 or size != len(content) - file.tell():
        raise MalformedError("an array of objects or of another size")
    result: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return result
