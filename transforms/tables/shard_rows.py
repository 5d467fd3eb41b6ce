"""Reads the rows of a shard where they are used: as a whole, or a few thousand at a time. Needs no Beam."""

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables import columns
from dapple_dp.schemas.tables.columns import find
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats.csv_file import CsvFile, is_csv
from dapple_dp.transforms.files.signals.progress import PROGRESS
from dapple_dp.transforms.files.untrusted import RowFile
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.file_seal import open_sealed

if TYPE_CHECKING:
    from dapple_dp.transforms.files.formats.packed_rows import RowsFile

Types = Mapping[str, pa.DataType]
"""Columns to read, with types for files without types; a Parquet file has its own."""
_BATCH_ROWS = 8192
CLIENT_ID_BYTES = 24
"""Approximate bytes of a client id in memory."""
_BATCH_BYTES = 1 << 24
"""Bytes of float64 numbers in a batch: rows of more than 250 features come fewer at a time."""
_TEXT_BYTES, _MOST_TEXT_BYTES = 1 << 29, 1 << 31
"""Bytes of texts: in a batch, and in a shard that is read as a whole."""


@contextlib.contextmanager
def open_shard(shard: ShardRef) -> Iterator[RowFile]:
    """Opens the file of a shard.

    Raises:
      InputError: if it isn't the file that was listed, or has changed since.
    """
    with open_sealed(shard.file, shard.seal, shard.path, shard.csv) as (file, _):
        yield file


def schema_of(file: RowFile, types: Types) -> pa.Schema:
    """Returns all columns of an open file; a column without any value gets the type for files without types."""
    if isinstance(file, CsvFile):
        return file.schema({name: pa.string() if pa.types.is_nested(kind) else kind for name, kind in types.items()})
    schema = file.schema_arrow
    for index, field in enumerate(schema):
        if field.name in types and _is_empty(field.type):
            schema = schema.set(index, field.with_type(types[field.name]))
    return schema


def _is_empty(kind: pa.DataType) -> bool:
    """Returns whether a type is that of a column, or of lists, without values."""
    return pa.types.is_null(kind) or (columns.is_list(kind) and pa.types.is_null(kind.value_type))


def read_columns(shard: ShardRef, types: Types) -> pa.Table:
    """Reads the named columns of a shard; one that the file lacks is null, or taken from its Hive partition folder.

    Raises:
      InputError: if a row group can't be read.
    """
    with PROGRESS.reading(shard.n_rows), open_shard(shard) as file:
        return columns_of(file, shard, types)


def columns_of(file: RowFile, shard: ShardRef, types: Types) -> pa.Table:
    """Reads columns of an open file, see `read_columns`."""
    if isinstance(file, CsvFile):
        return pa.concat_tables(batches_of(file, shard, types))
    stored = _stored(file.schema_arrow, shard, types)
    shard = _with_pages(file, shard, stored)
    if shard.n_rows * shard.widest > _TEXT_BYTES:
        return _bounded_columns(file, shard, types)
    try:
        table = file.read_row_groups(shard.row_groups, columns=stored, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(shard_name(shard), error) from error
    check_all_read(table.num_rows, n_listed(file, shard.row_groups), shard_name(shard))
    return _completed(table, shard, types)


def _bounded_columns(file: "RowsFile", shard: ShardRef, types: Types) -> pa.Table:
    """Reads columns of a file in which a few bytes could become texts that fill the memory."""
    tables, size = [], 0
    for table in batches_of(file, shard, types):
        size += table.nbytes
        if size > max(_MOST_TEXT_BYTES, 4 * shard.n_bytes):
            raise InputError(f"{shard_name(shard)} holds texts of more than 2 GiB; write smaller row groups.")
        tables.append(table)
    return pa.concat_tables(tables)


def _with_pages(file: "RowsFile", shard: ShardRef, stored: list[str]) -> ShardRef:
    """Checks the pages of a shard on a store; its listing hasn't, since each header is a request.

    Raises:
      InputError: if they differ from the footer, or would fill the memory.
    """
    if not file.is_stream:
        return shard
    where = shard_name(shard)
    refusal = Refusal(kind=InputError, rule=f"{where} must be readable", remedy="write the file again, or leave it out")
    found = [untrusted.checked_pages(file, index, stored, refusal).longest for index in shard.row_groups]
    return dataclasses.replace(shard, widest=max(found, default=0))


def _stored(schema: pa.Schema, shard: ShardRef, types: Types) -> list[str]:
    """Returns the columns that the file holds itself or that nothing else can replace."""
    names, absent = set(schema.names), set(read_fields(shard.absent).names)
    return [name for name in types if name in names or not (name in absent or hive.has_folder(shard.path, name))]


def read_fields(content: str) -> pa.Schema:
    """Parses columns stored as text, since graphs and JSON can't hold an Arrow schema."""
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(content))) if content else pa.schema([])


def fields_as_text(fields: pa.Schema) -> str:
    """Encodes columns for `read_fields`."""
    return fields.serialize().to_pybytes().hex() if len(fields) else ""


def _completed(table: pa.Table, shard: ShardRef, types: Types) -> pa.Table:
    """Adds the columns that a file lacks, and types for those without values."""
    stored, absent = table.schema, {field.name: field.type for field in read_fields(shard.absent)}
    for name, kind in types.items():
        places = stored.get_all_field_indices(name)
        if name in absent:
            table = table.append_column(name, pa.nulls(table.num_rows, absent[name]))
        elif not places and hive.has_folder(shard.path, name):
            table = hive.with_column(table, shard.path, name, kind)
        elif len(places) == 1 and _is_empty(stored.field(places[0]).type):
            table = table.set_column(places[0], name, pa.chunked_array([pa.nulls(table.num_rows, kind)], kind))
    return table


def n_listed(file: "RowsFile", row_groups: Sequence[int] | None = None) -> int:
    """Returns the rows of some row groups by the footer, or of all."""
    indices = range(file.num_row_groups) if row_groups is None else row_groups
    return sum(file.metadata.row_group(index).num_rows for index in indices)


def check_all_read(n_read: int, n_rows: int, where: str) -> None:
    """Compares the number of rows read with that listed; every reader calls it.

    Raises:
      InputError: without either number, if they differ.
    """
    if n_read != n_rows:
        raise InputError(
            f"{where} doesn't hold the number of rows that {'was counted' if is_csv(where) else 'its footer lists'}, "
            "so the file is damaged or was changed; write it again, or leave it out."
        )


def unreadable(where: str, error: Exception) -> InputError:
    """Creates the error for rows that Arrow can't read; shows nothing of Arrow's message."""
    if "CRC checksum verification failed" in str(error):
        return InputError(
            f"A page of {where} doesn't match its checksum, so the file is damaged; write it again, or leave it out."
        )
    return InputError(
        f"{where} could not be read; check the file (a null list in a fixed-size-list column is not supported) or "
        "leave it out."
    )


def read_blocks(shard: ShardRef, contract: TableContract) -> Iterator[ClientBlock]:
    """Yields the rows of one shard as the contract needs them: in batches, or all at once if clients are grouped.

    The empty shard yields one block without rows.

    Raises:
      InputError: for null or non-finite values, wrong types or missing columns, naming file, row group, column.
    """
    if shard == EMPTY_SHARD:
        offsets = np.zeros(1, dtype=np.int64) if contract.by_client else None
        yield ClientBlock(np.zeros((0, contract.width)), offsets)
    elif contract.by_client:
        block = contract.to_block(read_columns(shard, contract.types), shard_name(shard))
        if contract.participation is not None:
            from dapple_dp.transforms.tables.counted_clients import counted_block

            block = counted_block(block, shard.path, contract.participation)
        yield block
    else:
        for table in read_batches(shard, contract.types):
            yield contract.to_block(table, shard_name(shard))


def read_batches(shard: ShardRef, types: Types) -> Iterator[pa.Table]:
    """Yields `read_columns`, a few thousand rows at a time."""
    with PROGRESS.reading(shard.n_rows), open_shard(shard) as file:
        yield from batches_of(file, shard, types)


def batches_of(file: RowFile, shard: ShardRef, types: Types) -> Iterator[pa.Table]:
    """Yields batches of an open file, see `read_batches`."""
    if isinstance(file, CsvFile):
        yield from _csv_batches(file, shard, types)
        return
    stored = _stored(file.schema_arrow, shard, types)
    shard = _with_pages(file, shard, stored)
    batches = file.iter_batches(batch_rows(shard), row_groups=shard.row_groups, columns=stored, use_threads=False)
    n_read = 0
    while True:
        try:
            batch = next(batches, None)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(shard_name(shard), error) from error
        if batch is None:
            break
        n_read += batch.num_rows
        yield _completed(pa.Table.from_batches([batch]), shard, types)
    check_all_read(n_read, n_listed(file, shard.row_groups), shard_name(shard))


def batch_rows(shard: ShardRef) -> int:
    """Returns the number of rows to read at a time."""
    by_numbers = _BATCH_BYTES * max(shard.n_rows, 1) // max(shard.n_bytes, 1)
    return max(1, min(_BATCH_ROWS, by_numbers, _TEXT_BYTES // max(shard.widest, 1)))


def _csv_batches(file: CsvFile, shard: ShardRef, types: Types) -> Iterator[pa.Table]:
    """Yields rows in batches like those of a Parquet file; at least one batch, which may be empty."""
    stored = {name: types[name] for name in _stored(file.schema(types), shard, types)}
    for name in stored:
        find(file.schema(types), name, shard.path)
    # A table without columns would lose its number of rows.
    stored = stored or file.some_column
    rest, n_rows, n_read = file.schema(stored).empty_table().select(list(stored)), batch_rows(shard), 0
    for table in file.tables(stored):
        n_read += table.num_rows
        rest = pa.concat_tables([rest, table])
        whole = rest.num_rows // n_rows * n_rows
        for start in range(0, whole, n_rows):
            yield _completed(rest.slice(start, n_rows), shard, types).select(list(types))
        rest = rest.slice(whole)
    yield _completed(rest, shard, types).select(list(types))
    if shard.seal:
        check_all_read(n_read, shard.n_rows, shard.path)


def prefetched_blocks(shard: ShardRef, contract: TableContract) -> Iterator[ClientBlock]:
    """Yields `read_blocks`; reads the next block while the caller works on the present one."""
    blocks = read_blocks(shard, contract)
    if contract.by_client or shard.n_rows <= batch_rows(shard):
        yield from blocks
        return
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        pending = pool.submit(next, blocks, None)
        while (block := pending.result()) is not None:
            pending = pool.submit(next, blocks, None)
            yield block


def read_row_group(file: "RowsFile", row_group: int, where: str, names: Sequence[str]) -> pa.Table:
    """Reads columns of a whole row group, whose types the caller has checked.

    Raises:
      InputError: if it can't be read, or would fill the memory.
    """
    refusal = Refusal(kind=InputError, rule=f"{where} must be readable", remedy="check the file or leave it out")
    pages = untrusted.checked_pages(file, row_group, names, refusal)
    n_rows = n_listed(file, [row_group])
    if n_rows * pages.longest > _MOST_TEXT_BYTES:
        raise refusal.because("values of more than 2 GiB")
    try:
        table = file.read_row_group(row_group, columns=list(names), use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(where, error) from error
    check_all_read(table.num_rows, n_rows, where)
    return table


def shard_name(shard: ShardRef) -> str:
    """Returns the name of a shard in messages."""
    return shard.path if is_csv(shard.path) else f"{shard.path}, row group {shard.row_group}"


class ValidRows(NamedTuple):
    """Some successive rows of a file, without invalid ones.

    Attributes:
      points: shape (n_rows, n_features), feature units, finite.
      places: int64, shape (n_rows,): positions in the file, from 0.
      others: plain columns other than features, n_rows long.
    """

    points: NDArray[np.floating]
    places: NDArray[np.int64]
    others: pa.Table


def read_valid_rows(shard: ShardRef, contract: TableContract, others: Types | None = None) -> Iterator[ValidRows]:
    """Yields the rows of one shard, a few thousand at a time; none for the empty shard.

    Args:
      shard: of a listing.
      contract: sets the features and the treatment of invalid rows; not by client.
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
    """Returns the position of the shard's first row in its file."""
    with open_shard(shard) as file:
        return (
            0
            if isinstance(file, CsvFile)
            else sum(file.metadata.row_group(index).num_rows for index in range(shard.row_group))
        )
