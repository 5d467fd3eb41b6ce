"""Parquet files that store lists of numbers in a column of bytes, so that a row of many numbers is one value.

Lists take three times as long (`benchmarks/results/measured_once.md`). Columns of numbers are not packed: jobs read
them by name, and unpacking a row would cost what packing saves. Only Dapple's own files are packed; their metadata say
so. Readers see a column of lists.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dapple_dp.schemas.settings.json_schema import parse_as
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.files.formats.held_stream import HeldStream
from dapple_dp.transforms.files.formats.parquet_footer import Chunk

METADATA = b"dapple.packed"
"""Key of the metadata that describe a file's packed column, as JSON."""
_BUFFER_BYTES = 1 << 16
"""Bytes of a column to read from a disk at a time, so that a large row group need not fit into memory. A store is
asked for all bytes of a row group at once: each request takes tens of milliseconds."""
OPTIONS = {"pre_buffer": False, "page_checksum_verification": True}
"""Options for opening any Parquet file. Checksums are verified if a file has them, as files written by Spark do."""
_TYPES = {"float": pa.float32(), "double": pa.float64()}


class Packing(BaseModel):
    """Description of a packed column.

    Attributes:
      column: name of the packed column and of the lists.
      kind: type of the numbers, as Arrow calls it; little-endian.
      width: numbers of a row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    column: str
    kind: Literal["float", "double"]
    width: Annotated[int, Field(ge=1)]

    @classmethod
    def of(cls, schema: pa.Schema, refusal: Refusal) -> "Packing | None":
        """Reads the packing of an open file; None if the file is not packed."""
        text = (schema.metadata or {}).get(METADATA)
        if text is None:
            return None
        found = parse_as(text, cls, refusal)
        n_bytes = found.width * found.dtype.itemsize
        if schema.names.count(found.column) != 1 or schema.field(found.column).type != pa.binary(n_bytes):
            raise refusal.because("a packed column of another size")
        return found

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return np.dtype("<f4" if self.kind == "float" else "<f8")

    @property
    def field(self) -> pa.Field:
        """The column of lists."""
        return pa.field(self.column, pa.list_(_TYPES[self.kind], self.width))

    def unpacked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with lists, if they have the column; raises ArrowInvalid for a row without numbers."""
        place = batch.schema.get_field_index(self.column)
        if place < 0:
            return batch
        flat = pa.array(self._points(batch.column(place)).ravel())
        lists = pa.FixedSizeListArray.from_arrays(flat, self.width)
        return batch.set_column(place, self.field, lists)

    def _points(self, stored: pa.FixedSizeBinaryArray) -> NDArray[np.floating]:
        """Returns a view of the numbers, shape (n_rows, width)."""
        if stored.null_count:
            raise pa.ArrowInvalid("a packed row must have numbers")
        start, size = stored.offset, self.width * self.dtype.itemsize
        buffer = stored.buffers()[1]
        content = memoryview(b"") if buffer is None else memoryview(buffer)[start * size : (start + len(stored)) * size]
        return np.frombuffer(content, self.dtype).reshape(len(stored), self.width)


class RowsFile(pq.ParquetFile):
    """An open file of rows.

    Args:
      source: as Arrow opens it.
      metadata: its footer; None reads it.
      buffer_size: bytes of a column that are read at a time; 0 for all of a row group.

    Attributes:
      origin: the source.
    """

    def __init__(self, source: Any, metadata: pq.FileMetaData | None, buffer_size: int):
        super().__init__(source, metadata=metadata, buffer_size=buffer_size, **OPTIONS)
        self.origin = source

    @property
    def is_stream(self) -> bool:
        """True if it is a large object on a store, each part of which is a request."""
        return isinstance(self.origin, HeldStream)


class PackedFile(RowsFile):
    """An open file with a packed column, read as if it had lists.

    Args:
      source: as Arrow opens it.
      metadata: its footer.
      packing: of the column, from the metadata.
      buffer_size: bytes of a column that are read at a time; 0 for all of a row group.
    """

    def __init__(self, source: Any, metadata: pq.FileMetaData, packing: Packing, buffer_size: int):
        super().__init__(source, metadata, buffer_size)
        self._packing = packing

    @property
    def schema_arrow(self) -> pa.Schema:
        """Schema with lists in place of the packed column."""
        stored = super().schema_arrow
        return stored.set(stored.get_field_index(self._packing.column), self._packing.field)

    def read_row_groups(self, row_groups: Sequence[int], columns: Any = None, **options: Any) -> pa.Table:
        """Reads row groups, with lists."""
        table = super().read_row_groups(row_groups, columns, **options)
        place = table.schema.get_field_index(self._packing.column)
        schema = table.schema if place < 0 else table.schema.set(place, self._packing.field)
        return pa.Table.from_batches(map(self._packing.unpacked, table.to_batches()), schema)

    def read(self, columns: Any = None, **options: Any) -> pa.Table:
        """Reads the whole file, with lists."""
        return self.read_row_groups(range(self.num_row_groups), columns, **options)

    def read_row_group(self, i: int, columns: Any = None, **options: Any) -> pa.Table:
        """Reads one row group, with lists."""
        return self.read_row_groups([i], columns, **options)

    def iter_batches(
        self, batch_size: int = 65536, row_groups: Any = None, columns: Any = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yields batches, with lists."""
        yield from map(self._packing.unpacked, super().iter_batches(batch_size, row_groups, columns, **options))

    def as_unpacked(self, chunk: Chunk) -> Chunk:
        """Returns a column with the path and the number of values that lists would have."""
        packing = self._packing
        if chunk.path != packing.column:
            return chunk
        return chunk._replace(path=f"{packing.column}.list.element", n_values=chunk.n_values * packing.width)


def pack(points: NDArray[np.floating], column: str) -> tuple[pa.Array, Packing]:
    """Packs rows into a column of bytes.

    Args:
      points: float32 or float64, shape (n_rows, width).
      column: its name.

    Returns:
      The column, and the packing to write into the file's metadata.
    """
    kind: Literal["float", "double"] = "float" if points.dtype.itemsize <= 4 else "double"
    packing = Packing(column=column, kind=kind, width=points.shape[1])
    rows = np.ascontiguousarray(points, dtype=packing.dtype)
    binary = pa.binary(rows.shape[1] * rows.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(binary, len(rows), [None, pa.py_buffer(rows)]), packing


def open_rows(source: Any, refusal: Refusal) -> RowsFile:
    """Opens a file, with lists if they are packed; reads its columns through a buffer if it is on a disk."""
    buffer_size = _BUFFER_BYTES if isinstance(source, pa.OSFile) else 0
    file = RowsFile(source, None, buffer_size)
    packing = Packing.of(file.schema_arrow, refusal)
    return file if packing is None else PackedFile(source, file.metadata, packing, buffer_size)


def longest_in_dictionary(file: RowsFile, row_group: int, chunk: Chunk) -> int | None:
    """Returns the bytes of the longest value in a column's dictionary; None if Arrow doesn't give the dictionary.

    Args:
      file: open.
      row_group: its number.
      chunk: of a column of texts in it, whose dictionary is known to be harmless.
    """
    options = OPTIONS | {"read_dictionary": [chunk.path], "buffer_size": _BUFFER_BYTES}
    coded = pq.ParquetFile(file.origin, metadata=file.metadata, **options)
    batch = next(coded.iter_batches(1, row_groups=[row_group], columns=[chunk.path], use_threads=False), None)
    column = None if batch is None or not batch.num_columns else batch.column(0)
    while isinstance(column, (pa.ListArray, pa.LargeListArray)):
        column = column.values
    if not isinstance(column, pa.DictionaryArray):
        return None
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)


def metadata_of(packing: Packing) -> dict[bytes, bytes]:
    """Returns the metadata that a packed file needs."""
    return {METADATA: json.dumps(packing.model_dump(), separators=(",", ":")).encode()}
