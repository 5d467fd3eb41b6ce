"""The gate: every file that is believed is opened and parsed here, bounded and in one sentence.

A file that is a pipe or a device, too long, nested too deeply, or not of its schema is refused before it costs time
or memory. Whatever a parser raises becomes the error that the caller has chosen.
`tests/unit/files/test_gate_is_passed.py` finds code that opens a file around it.
"""

import hashlib
import io
import os
import stat
import zipfile
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from schemas.errors import InputError
from schemas.settings import json_schema, json_text, yaml_text
from schemas.settings.format_number import METADATA, NAME, check_number
from schemas.settings.refusal import MalformedError, Refusal
from transforms.files import stores
from transforms.files.formats import packed_rows, parquet_footer
from transforms.files.formats.csv_file import CsvFile, is_csv
from transforms.files.formats.parquet_footer import ColumnSize

MOST_BYTES = 1 << 30
"""Bytes of a file that is read as a whole, at most."""
MOST_ARRAYS = 64
_MOST_TABLE_BYTES = 1 << 32
_MOST_TABLE_ROWS = 1 << 28
_BATCH_ROWS = 1 << 16
_CHUNK = 1 << 22
_Content = TypeVar("_Content")
RowFile: TypeAlias = pq.ParquetFile | CsvFile
"""An open file of rows; `shard_rows` and `read` of `transforms.tables` alone ask of which format it is."""


def staged_refusal(path: str) -> Refusal:
    """The refusal of a file in a run's own folder that is not as the workers wrote it."""
    return Refusal(kind=InputError, rule=f"{path} must be the file that this run wrote", remedy="run the job again")


def read_bytes(path: str, refusal: Refusal, most_bytes: int = MOST_BYTES) -> bytes:
    """A whole file on any Beam filesystem.

    Args:
      path: of a regular file; links are followed.
      refusal: if it cannot be read.
      most_bytes: of the file; no more are read.
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
    """SHA-256, 64 hex digits, of a file of any length, read in parts; arguments as in `read_bytes`."""
    found = hashlib.sha256()
    try:
        with _opened(path) as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except (OSError, ValueError) as error:
        raise refusal.because("none that can be read") from error
    return found.hexdigest()


def read_text(path: str, refusal: Refusal, most_bytes: int = yaml_text.MOST_BYTES) -> str:
    """A whole text in UTF-8; arguments as in `read_bytes`."""
    content = read_bytes(path, refusal, most_bytes)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refusal.because(path) from error


def read_json(path: str, kind: type[_Content], refusal: Refusal, most_bytes: int = json_text.MOST_BYTES) -> _Content:
    """Content of a JSON file, checked.

    Args:
      path: see `read_bytes`.
      kind: a model of the content, or another type that pydantic can check.
      refusal: for another file.
      most_bytes: of the file.
    """
    return json_schema.parse_as(read_bytes(path, refusal, most_bytes), kind, refusal, most_bytes)


def read_table(path: str, refusal: Refusal, schema: pa.Schema | None = None) -> pa.Table:
    """A whole Parquet file; arguments as in `table_of`."""
    return table_of(read_bytes(path, refusal), refusal, schema)


def table_of(content: bytes, refusal: Refusal, schema: pa.Schema | None = None, *, foreign: bool = False) -> pa.Table:
    """Bytes of a Parquet file as a table.

    Arrow reads a Python file by threads that may outlive the call, and a process that ends just then aborts. So the
    bytes are handed over, and no thread is started.

    Args:
      content: of the file.
      refusal: for another file.
      schema: that the table must have, nullability included; None takes any.
      foreign: whether others may have written it, without a number of the format.
    """
    with refusal.covers():
        file = io.BytesIO(content)
        parquet_footer.check_depth(file)
        _check_values(parquet_footer.column_sizes(parquet_footer.footer_of(file)))
        with pq.ParquetFile(pa.BufferReader(content), pre_buffer=False) as parquet:
            table = _bounded_table(parquet)
        table.validate(full=True)
        if not foreign:
            check_number((table.schema.metadata or {}).get(METADATA))
        if schema is not None and not table.schema.equals(schema):
            raise MalformedError("other columns")
        return table


def parquet_of(source: Any, refusal: Refusal) -> pq.ParquetFile:
    """An open file as Parquet, to be read in parts.

    Args:
      source: bytes, as Arrow or Beam opens them.
      refusal: for another file.
    """
    try:
        parquet_footer.check_depth(source)
        source.seek(0)
        return packed_rows.open_rows(source, refusal)
    except Exception as error:
        raise refusal.because() from error


def rows_of(source: Any, name: str, refusal: Refusal) -> RowFile:
    """An open file as CSV if it is called so, else as Parquet.

    Args:
      source: bytes, as Arrow or Beam opens them.
      name: what messages call the file.
      refusal: for another Parquet file.
    """
    return CsvFile(source, name) if is_csv(name) else parquet_of(source, refusal)


def column_sizes(source: Any, refusal: Refusal) -> list[list[ColumnSize]]:
    """How many values and bytes the columns of each row group of an open Parquet file have.

    Arrow's own answer would end the process where it contradicts itself. Arguments are those of `parquet_of`.
    """
    with refusal.covers():
        return parquet_footer.column_sizes(parquet_footer.footer_of(source))


def read_arrays(path: str, refusal: Refusal, most_bytes: int = MOST_BYTES) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file by name; arguments as in `read_bytes`."""
    return arrays_of(read_bytes(path, refusal, most_bytes), refusal)


def arrays_of(content: bytes, refusal: Refusal) -> dict[str, NDArray[Any]]:
    """Arrays of a numbered npz file as `numpy.savez` writes it: not compressed, no objects, so nothing is unpickled.

    Args:
      content: of the file.
      refusal: for another one.
    """
    with refusal.covers(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        names = [each.filename for each in members]
        if len(members) > MOST_ARRAYS or len(set(names)) < len(names):
            raise MalformedError("too many arrays, or one twice")
        if any(each.compress_type != zipfile.ZIP_STORED for each in members):
            raise MalformedError("compressed arrays")
        if sum(each.file_size for each in members) > len(content):
            raise MalformedError("arrays that overlap")
        arrays = {_array_name(name): _array(archive.read(name)) for name in names}
        found = arrays.pop(NAME, np.empty(0))
        check_number(found.tolist() if found.size else None)
        return arrays


def _opened(path: str) -> BinaryIO:
    """A file to read; on a local disk it must be a regular one, and a pipe is not waited for."""
    if not stores.is_local(path):
        remote: BinaryIO = stores.open_store(path).source
        return remote
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("no regular file")
    return os.fdopen(descriptor, "rb")


def _check_values(groups: list[list[ColumnSize]]) -> None:
    """Refuses a table whose footer announces more than a file read as a whole may hold."""
    if 8 * sum(column.n_values for group in groups for column in group) > _MOST_TABLE_BYTES:
        raise MalformedError("more values than such a file can hold")


def _bounded_table(file: pq.ParquetFile) -> pa.Table:
    """All rows, in batches, so that a dictionary that repeats long values cannot fill the memory."""
    if file.metadata.num_rows > _MOST_TABLE_ROWS:
        raise MalformedError("more rows than such a file can hold")
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    longest = max((group.total_byte_size for group in groups), default=0)
    rows = max(1, min(_BATCH_ROWS, _MOST_TABLE_BYTES // max(longest, 1)))
    batches, size = [], 0
    for batch in file.iter_batches(rows, use_threads=False):
        size += batch.nbytes
        if size > _MOST_TABLE_BYTES:
            raise MalformedError("more values than such a file can hold")
        batches.append(batch)
    return pa.Table.from_batches(batches, file.schema_arrow)


def _array_name(member: str) -> str:
    if not member.endswith(".npy"):
        raise MalformedError("a member that is no array")
    return member.removesuffix(".npy")


def _array(content: bytes) -> NDArray[Any]:
    """One array; its header must announce as many bytes as follow, so that no more memory is asked for."""
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
    found: NDArray[Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return found
