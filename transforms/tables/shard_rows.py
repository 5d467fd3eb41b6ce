"""Rows of a shard, read where they are used: whole, or a few thousand at a time. Nothing here needs Beam."""

import concurrent.futures
import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import InputError
from schemas.tables.client_block import ClientBlock
from schemas.tables.contract import TableContract
from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.files.progress import PROGRESS
from transforms.tables import hive
from transforms.tables.counted_clients import counted_block
from transforms.tables.file_seal import open_sealed

_BATCH_ROWS = 8192


@contextlib.contextmanager
def open_shard(shard: ShardRef) -> Iterator[pq.ParquetFile]:
    """Opens the file of a shard.

    Raises:
      InputError: if it is not the file that was listed, or was changed since.
    """
    with open_sealed(shard.file, shard.seal, shard.path) as (file, _):
        yield file


def read_columns(shard: ShardRef, columns: list[str]) -> pa.Table:
    """The named columns of a shard; one that the file lacks is taken from its Hive partition folder.

    Raises:
      InputError: if a row group cannot be read.
    """
    with PROGRESS.reading(shard.n_rows), open_shard(shard) as file:
        return columns_of(file, shard, columns)


def columns_of(file: pq.ParquetFile, shard: ShardRef, columns: list[str]) -> pa.Table:
    """`read_columns` of an open file."""
    stored = _stored(file, shard, columns)
    try:
        table = file.read_row_groups(shard.row_groups, columns=stored, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(shard) from error
    return _completed(table, shard, columns)


def _stored(file: pq.ParquetFile, shard: ShardRef, columns: list[str]) -> list[str]:
    """Those of the columns that the file holds itself or that no partition folder can replace."""
    names = set(file.schema_arrow.names)
    return [name for name in columns if name in names or not hive.has_folder(shard.path, name)]


def _completed(table: pa.Table, shard: ShardRef, columns: list[str]) -> pa.Table:
    """The table with the columns that its file lacks."""
    for name in columns:
        if name not in table.column_names and hive.has_folder(shard.path, name):
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
        yield ClientBlock(np.zeros((0, contract.n_features or 0)), offsets)
    elif contract.by_client:
        block = contract.to_block(read_columns(shard, list(contract.columns)), shard_name(shard))
        yield block if contract.participation is None else counted_block(block, shard.path, contract.participation)
    else:
        for table in read_batches(shard, list(contract.columns)):
            yield contract.to_block(table, shard_name(shard))


def read_batches(shard: ShardRef, columns: list[str]) -> Iterator[pa.Table]:
    """`read_columns`, a few thousand rows at a time."""
    with PROGRESS.reading(shard.n_rows), open_shard(shard) as file:
        yield from batches_of(file, shard, columns)


def batches_of(file: pq.ParquetFile, shard: ShardRef, columns: list[str]) -> Iterator[pa.Table]:
    """`read_batches` of an open file."""
    stored = _stored(file, shard, columns)
    batches = file.iter_batches(_BATCH_ROWS, row_groups=shard.row_groups, columns=stored, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _unreadable(shard) from error
        if batch is None:
            break
        yield _completed(pa.Table.from_batches([batch]), shard, columns)


def prefetched_blocks(shard: ShardRef, contract: TableContract) -> Iterator[ClientBlock]:
    """`read_blocks`; where there are several, the next one is read while the caller works on the present one."""
    blocks = read_blocks(shard, contract)
    if contract.by_client or shard.n_rows <= _BATCH_ROWS:
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
    return f"{shard.path}, row group {shard.row_group}"
