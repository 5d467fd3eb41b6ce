"""Rows of a shard, read where they are used: whole, or a few thousand at a time. Nothing here needs Beam."""

import concurrent.futures
import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from schemas.errors import InputError
from schemas.tables import columns
from schemas.tables.client_block import ClientBlock
from schemas.tables.columns import find
from schemas.tables.contract import TableContract
from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.files.formats.csv_file import CsvFile, is_csv
from transforms.files.gate import RowFile
from transforms.files.signals.progress import PROGRESS
from transforms.tables import hive
from transforms.tables.counted_clients import counted_block
from transforms.tables.file_seal import open_sealed

Types = Mapping[str, pa.DataType]
"""Columns to read, with the types as which a file without types is read; a Parquet file has its own."""
_BATCH_ROWS = 8192
_BATCH_BYTES = 1 << 24
"""Of float64 numbers: rows of more than 250 features come fewer at a time."""


@contextlib.contextmanager
def open_shard(shard: ShardRef) -> Iterator[RowFile]:
    """Opens the file of a shard.

    Raises:
      InputError: if it is not the file that was listed, or was changed since.
    """
    with open_sealed(shard.file, shard.seal, shard.path) as (file, _):
        yield file


def schema_of(file: RowFile, types: Types) -> pa.Schema:
    """All columns of an open file."""
    return file.schema(types) if isinstance(file, CsvFile) else file.schema_arrow


def read_columns(shard: ShardRef, types: Types) -> pa.Table:
    """The named columns of a shard; one that the file lacks is taken from its Hive partition folder.

    Raises:
      InputError: if a row group cannot be read.
    """
    with PROGRESS.reading(shard.n_rows), open_shard(shard) as file:
        return columns_of(file, shard, types)


def columns_of(file: RowFile, shard: ShardRef, types: Types) -> pa.Table:
    """`read_columns` of an open file."""
    if isinstance(file, CsvFile):
        return pa.concat_tables(batches_of(file, shard, types))
    columns, stored = list(types), _stored(file.schema_arrow, shard, types)
    try:
        table = file.read_row_groups(shard.row_groups, columns=stored, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(shard) from error
    return _completed(table, shard, columns)


def _stored(schema: pa.Schema, shard: ShardRef, types: Types) -> list[str]:
    """Those of the columns that the file holds itself or that no partition folder can replace."""
    names = set(schema.names)
    return [name for name in types if name in names or not hive.has_folder(shard.path, name)]


def _completed(table: pa.Table, shard: ShardRef, columns: list[str]) -> pa.Table:
    """The table with the columns that its file lacks."""
    names = set(table.column_names)
    for name in columns:
        if name not in names and hive.has_folder(shard.path, name):
            table = hive.with_column(table, shard.path, name)
    return table


def _unreadable(shard: ShardRef) -> InputError:
    return InputError(
        f"{shard_name(shard)} must be readable; check the file (a null list in a fixed-size-list column cannot be "
        "read) or leave it out."
    )


def read_blocks(shard: ShardRef, contract: TableContract) -> Iterator[ClientBlock]:
    """Rows of one shard as the contract asks for them: in batches, or all at once where clients are grouped.

    The empty shard yields one block without rows.

    Raises:
      InputError: for null or non-finite values, wrong types or missing columns, naming file, row group, column.
    """
    if shard == EMPTY_SHARD:
        offsets = np.zeros(1, dtype=np.int64) if contract.by_client else None
        yield ClientBlock(np.zeros((0, contract.width)), offsets)
    elif contract.by_client:
        block = contract.to_block(read_columns(shard, contract.types), shard_name(shard))
        yield block if contract.participation is None else counted_block(block, shard.path, contract.participation)
    else:
        for table in read_batches(shard, contract.types):
            yield contract.to_block(table, shard_name(shard))


def read_batches(shard: ShardRef, types: Types) -> Iterator[pa.Table]:
    """`read_columns`, a few thousand rows at a time."""
    with PROGRESS.reading(shard.n_rows), open_shard(shard) as file:
        yield from batches_of(file, shard, types)


def batches_of(file: RowFile, shard: ShardRef, types: Types) -> Iterator[pa.Table]:
    """`read_batches` of an open file."""
    if isinstance(file, CsvFile):
        yield from _csv_batches(file, shard, types)
        return
    columns, stored = list(types), _stored(file.schema_arrow, shard, types)
    batches = file.iter_batches(_batch_rows(shard), row_groups=shard.row_groups, columns=stored, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _unreadable(shard) from error
        if batch is None:
            break
        yield _completed(pa.Table.from_batches([batch]), shard, columns)


def _batch_rows(shard: ShardRef) -> int:
    """Rows that are read at a time."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * max(shard.n_rows, 1) // max(shard.n_bytes, 1)))


def _csv_batches(file: CsvFile, shard: ShardRef, types: Types) -> Iterator[pa.Table]:
    """Rows cut as those of a Parquet file are; at least one batch, which may be empty."""
    stored = {name: types[name] for name in _stored(file.schema(types), shard, types)}
    for name in stored:
        find(file.schema(types), name, shard.path)
    # A table without columns would forget how many rows it has.
    stored = stored or file.some_column
    rest, n_rows = file.schema(stored).empty_table().select(list(stored)), _batch_rows(shard)
    for table in file.tables(stored):
        rest = pa.concat_tables([rest, table])
        whole = rest.num_rows // n_rows * n_rows
        for start in range(0, whole, n_rows):
            yield _completed(rest.slice(start, n_rows), shard, list(types)).select(list(types))
        rest = rest.slice(whole)
    yield _completed(rest, shard, list(types)).select(list(types))


def prefetched_blocks(shard: ShardRef, contract: TableContract) -> Iterator[ClientBlock]:
    """`read_blocks`; where there are several, the next one is read while the caller works on the present one."""
    blocks = read_blocks(shard, contract)
    if contract.by_client or shard.n_rows <= _batch_rows(shard):
        yield from blocks
        return
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(next, blocks, None)
        while (block := pending.result()) is not None:
            pending = pool.submit(next, blocks, None)
            yield block


def read_row_group(file: pq.ParquetFile, row_group: int, where: str) -> pa.Table:
    """A whole row group; raises InputError if it cannot be read."""
    try:
        return file.read_row_group(row_group, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{where} must be readable; check the file or leave it out.") from error


def shard_name(shard: ShardRef) -> str:
    """What messages call a shard."""
    return shard.path if is_csv(shard.path) else f"{shard.path}, row group {shard.row_group}"


class ValidRows(NamedTuple):
    """Some successive rows of a file, invalid ones left out.

    Attributes:
      points: shape (n_rows, n_features), feature units, finite.
      places: int64, shape (n_rows,): positions in the file, from 0.
      others: plain columns that are no features, n_rows long.
    """

    points: NDArray[np.floating]
    places: NDArray[np.int64]
    others: pa.Table


def read_valid_rows(shard: ShardRef, contract: TableContract, others: Types | None = None) -> Iterator[ValidRows]:
    """Rows of one shard, a few thousand at a time; none for the empty shard.

    Args:
      shard: of a listing.
      contract: which features, and what becomes of invalid rows; not by client.
      others: columns to read besides.

    Raises:
      InputError: for null or non-finite features, wrong types or missing columns, naming file, row group, column.
    """
    if shard == EMPTY_SHARD:
        return
    where, start = shard_name(shard), _first_row(shard)
    others = others or {}
    for table in read_batches(shard, contract.types | {n: t for n, t in others.items() if n not in contract.columns}):
        found = {name: columns.plain(table.column(columns.find(table.schema, name, where).name)) for name in others}
        points, valid = contract.to_valid(table, where)
        kept = pa.table({name: column.filter(pa.array(valid)) for name, column in found.items()})
        yield ValidRows(points, start + np.flatnonzero(valid), kept)
        start += table.num_rows


def _first_row(shard: ShardRef) -> int:
    """Position of the shard's first row in its file."""
    with open_shard(shard) as file:
        return (
            0
            if isinstance(file, CsvFile)
            else sum(file.metadata.row_group(index).num_rows for index in range(shard.row_group))
        )
