"""From a path to shards to rows. Lists and footers are read inside the pipeline, rows by `shard_rows`."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from schemas.errors import ConfigError, InputError, PrivacyFlowError
from schemas.tables.columns import find, plain
from schemas.tables.contract import TableContract
from schemas.tables.prepared_layout import decode_runs
from schemas.tables.shard import EMPTY_SHARD, ShardRef
from transforms.files import gate
from transforms.files.formats.csv_file import CsvFile
from transforms.files.formats.packed_rows import PackedFile
from transforms.files.formats.parquet_footer import ColumnSize
from transforms.files.gate import RowFile
from transforms.files.lean_fn import LeanFn
from transforms.files.signals.progress import PROGRESS
from transforms.files.stores import is_local, opening_ahead
from transforms.numerics.statistics import lattice
from transforms.tables import hive
from transforms.tables.file_seal import FileSeal, check_content, open_listed, open_sealed, refusal_of
from transforms.tables.listing import FileList, ListedFile, Listing, read_listing
from transforms.tables.shard_rows import Types, batches_of, columns_of, schema_of, shard_name
from transforms.tables.source import Source, find_files

_FILES_AT_ONCE = 512
_CLIENT_ID_BYTES = 24
"""Rough size of a client id in memory."""
_BOMB_BYTES = 1 << 31
_BOMB_RATIO = 100
"""A row group that decodes to more than this many bytes, and this many times what it takes on disk, is refused."""


def first_schema(source: Source, types: Types | None = None) -> tuple[str, pa.Schema]:
    """Path and schema of the first file of a job, which were listed.

    Args:
      source: of the job.
      types: of the columns that a job reads, if the file has none; None gives names alone.

    Raises:
      ConfigError: if there is none, as in a window to which nobody came.
      InputError: if it is not the file that was listed, or was changed since.
    """
    if source.listed is None:
        raise unlisted_refusal()
    if not len(source.listed.files):
        raise ConfigError(
            "data.features must be names of columns (of a list column with data.width) where there may be no file, got "
            f"none at {source.path} that names them; write those of the windows before."
        )
    path, real, seal = source.listed.files.first
    with open_sealed(real, seal, path) as (file, _):
        return path, schema_of(file, types or {})


def guessed_schema(source: Source) -> pa.Schema:
    """`first_schema`, with types that the first rows have if the file has none; for people who will judge them."""
    if source.listed is None:
        raise unlisted_refusal()
    path, real, seal = source.listed.files.first
    with open_sealed(real, seal, path) as (file, _):
        return file.guessed_schema() if isinstance(file, CsvFile) else file.schema_arrow


def unlisted_refusal() -> PrivacyFlowError:
    """The error for a job that would read files which it has not listed."""
    return PrivacyFlowError(
        "a job must list its files once, by pipelines.tables.private_source, before it reads them, got files without "
        "a listing; nothing was read."
    )


class ServerFiles(NamedTuple):
    """Public server files as they were when the job first read them; every later reading finds the same bytes.

    Attributes:
      path: a Parquet or CSV file, a glob, or a folder.
      digests: (path, SHA-256 of all bytes) of every file, by path.
    """

    path: str
    digests: tuple[tuple[str, str], ...]

    @classmethod
    def at(cls, path: str) -> "ServerFiles":
        """Lists and digests the files; raises InputError if one is missing or cannot be read."""
        return cls(path, tuple((name, hashlib.sha256(content).hexdigest()) for name, content in _server_contents(path)))

    @property
    def digest(self) -> str:
        """SHA-256 of all contents, wherever the files are; 64 hex digits."""
        return hashlib.sha256(" ".join(content for _, content in self.digests).encode()).hexdigest()

    def check(self) -> None:
        """Raises InputError if other bytes are there now."""
        if self != ServerFiles.at(self.path):
            raise self._changed()

    def points(self, contract: TableContract) -> NDArray[np.float64]:
        """All rows, shape (q, n_features), feature units.

        Args:
          contract: the features, without a client column.

        Raises:
          InputError: if a file is missing, was changed or cannot be used.
        """
        blocks = []
        for file, shards in self._files(contract.check_schema, contract.types):
            for shard in shards:
                tables = batches_of(file, shard, contract.types)
                blocks += [contract.to_block(table, shard_name(shard)).points for table in tables]
        widths = {block.shape[1] for block in blocks}
        if len(widths) != 1 or not sum(len(block) for block in blocks):
            raise InputError(
                f"server_data must hold rows of one width, got none or several in {self.path}; check the file."
            )
        return np.concatenate(blocks).astype(np.float64)

    def rows(self, types: Types) -> pa.Table:
        """These columns, at least one, of all rows as they are stored, dictionaries decoded.

        Raises:
          InputError: if a file cannot be read, was changed, lacks a column, or holds another type than the others.
        """

        def check(schema: pa.Schema, file: str) -> None:
            for name in types:
                find(schema, name, file)

        tables = [columns_of(file, shard, types) for file, shards in self._files(check, types) for shard in shards]
        decoded = [pa.table({name: plain(table[name]) for name in types}) for table in tables]
        if not decoded:
            raise InputError(f"server_data must hold rows, got none in {self.path}; check the file.")
        try:
            return pa.concat_tables(decoded, promote_options="permissive")
        except pa.ArrowException:
            raise InputError(
                f"server_data must have columns of one type in all files, got {self.path} with several; cast them to "
                "one."
            ) from None

    def _files(self, check: Callable[[pa.Schema, str], None], types: Types) -> Iterator[tuple[RowFile, list[ShardRef]]]:
        """Every file with its row groups; the schema of each is checked."""
        expected = iter(self.digests)
        for name, content in _server_contents(self.path):
            if next(expected, None) != (name, hashlib.sha256(content).hexdigest()):
                raise self._changed()
            file = gate.rows_of(pa.BufferReader(content), name, refusal_of(name))
            check(schema_of(file, types), name)
            n_shards = 1 if isinstance(file, CsvFile) else file.num_row_groups
            yield file, [ShardRef(name, index, 0) for index in range(n_shards)]
        if next(expected, None) is not None:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            f"server_data.path must hold the same bytes while a job reads it, got others at {self.path}; run the job "
            "again when nobody writes to it."
        )


def _server_contents(path: str) -> Iterator[tuple[str, bytes]]:
    setting = "server_data.path"
    for name, real, seal in FileList.of(find_files(path, {}, setting), setting):
        with open_listed(real, seal, name) as (_, _, source):
            source.seek(0)
            content = bytes(source.read())
        yield name, content


def _list_row_groups(listed: ListedFile, contract: TableContract) -> Iterator[ShardRef]:
    """Shards of a file, under its whole seal."""
    path = listed.path
    with open_listed(listed.file, listed.seal, path) as (file, seal, source):
        check_content(source, listed.seal, path)
        contract.check_schema(hive.with_field(schema_of(file, contract.types), path, contract.client_id), path)
        if isinstance(file, CsvFile):
            yield from _whole_file(file, listed, seal, contract)
            return
        metadata = file.metadata
        sizes = _sizes(source, path, contract, file)
        first = 0
        for run in decode_runs(metadata.metadata, metadata.num_row_groups, path):
            groups = [metadata.row_group(first + offset) for offset in range(run)]
            n_rows = sum(group.num_rows for group in groups)
            n_values = n_rows * contract.width
            for offset, group in enumerate(groups):
                columns = sizes[first + offset] if sizes else []
                n_values += _checked_size(group, contract, columns, f"{path}, row group {first + offset}")
            if n_rows:
                n_bytes = 8 * n_values + _CLIENT_ID_BYTES * n_rows
                PROGRESS.found(n_rows, n_bytes)
                yield ShardRef(path, first, n_rows, run, n_bytes, listed.file, seal.text)
            first += run


def _whole_file(file: CsvFile, listed: ListedFile, seal: FileSeal, contract: TableContract) -> Iterator[ShardRef]:
    """The one shard of a CSV file, whose rows are counted; none of a file without rows."""
    n_rows = file.count_rows()
    n_bytes = (8 * contract.width + _CLIENT_ID_BYTES) * n_rows
    if n_bytes > _BOMB_BYTES and n_bytes > _BOMB_RATIO * seal.size:
        raise _bomb(listed.path)
    if n_rows:
        PROGRESS.found(n_rows, n_bytes)
        yield ShardRef(listed.path, 0, n_rows, 1, n_bytes, listed.file, seal.text)


def _sizes(source: BinaryIO, path: str, contract: TableContract, file: pq.ParquetFile) -> list[list[ColumnSize]]:
    """Sizes of the columns by row group, where rows may have any width or a row group is large."""
    n_features, metadata = contract.n_features, file.metadata
    rows = (metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    fixed = not contract.has_lists_of_any_length(file.schema_arrow)
    if fixed and n_features is not None and 8 * n_features * max(rows, default=0) <= _BOMB_BYTES:
        return []
    found = gate.column_sizes(source, refusal_of(path))
    return [[file.as_unpacked(each) for each in group] for group in found] if isinstance(file, PackedFile) else found


def _checked_size(group: pq.RowGroupMetaData, contract: TableContract, columns: list[ColumnSize], place: str) -> int:
    """Values of a list column of unknown width; refuses what few bytes would blow up to fill the memory."""
    prefix = f"{contract.feature_list}."
    n_values = sum(column.n_values for column in columns if column.path.startswith(prefix))
    decoded = 8 * max(group.num_rows * (contract.n_features or 0), n_values)
    stored = sum(column.n_bytes for column in columns)
    if decoded > _BOMB_BYTES and decoded > _BOMB_RATIO * max(stored, 1):
        raise _bomb(place)
    return n_values if contract.n_features is None else 0


def _bomb(place: str) -> InputError:
    return InputError(
        f"{place} must decode to at most 2 GiB or {_BOMB_RATIO} times its size on disk; write smaller ones."
    )


@dataclasses.dataclass(eq=False, kw_only=True)
class ListShards(beam.PTransform):
    """Pipeline root → `ShardRef`s of all rows, and the public `EMPTY_SHARD`.

    A shard is a non-empty row group, a CSV file with rows, or the run of row groups of one client in a prepared file.

    Attributes:
      source: where the files are, and where their listing is.
      contract: every file's schema is checked against it.

    Cost: one reading of the listing, one footer per Parquet file, one pass over CSV files, two shuffles of references.
    """

    source: Source
    contract: TableContract

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads the listing of the files, then lists their row groups."""
        if self.source.listing is None:
            raise unlisted_refusal()
        return (
            root
            | "Once" >> beam.Impulse()
            | "ReadListing" >> beam.ParDo(_FilesFn(self.source.listing))
            | "SpreadFiles" >> beam.Reshuffle()
            | "ListRowGroups" >> beam.ParDo(_ShardsFn(self.contract))
            | "SpreadShards" >> beam.Reshuffle()
        )


class _FilesFn(LeanFn):
    """Gives the files of a listing, and the empty shard."""

    def __init__(self, listing: Listing):
        self._listing = listing

    def process(self, _: bytes) -> Iterator[ListedFile | ShardRef]:
        """The empty shard, then the files or shards of the listing."""
        yield EMPTY_SHARD
        yield from read_listing(self._listing)


class _ShardsFn(LeanFn):
    """Gives the shards of a file, and the empty shard as it is; many files of a store are asked for side by side."""

    def __init__(self, contract: TableContract):
        self._contract = contract

    def start_bundle(self) -> None:
        """Nothing is waiting yet."""
        self._waiting: list[ListedFile] = []

    def process(self, listed: ListedFile | ShardRef) -> Iterator[ShardRef]:
        """For every file on a disk, and for some of a store at once."""
        if isinstance(listed, ShardRef):
            yield listed
        elif is_local(listed.file):
            yield from _list_row_groups(listed, self._contract)
        else:
            self._waiting.append(listed)
            if len(self._waiting) == _FILES_AT_ONCE:
                yield from self._shards()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """For the files that are left."""
        for shard in self._shards():
            yield WindowedValue(shard, GlobalWindow().max_timestamp(), (GlobalWindow(),))

    def _shards(self) -> list[ShardRef]:
        """Those of the files that wait."""
        waiting, self._waiting = self._waiting, []
        with opening_ahead(each.file for each in waiting):
            return [shard for listed in waiting for shard in _list_row_groups(listed, self._contract)]


class _RowsFn(LeanFn):
    """Counts the rows of shards."""

    def process(self, shard: ShardRef) -> Iterator[tuple[None, int]]:
        """(None, rows)."""
        yield None, shard.n_rows


class _CheckTotalFn(LeanFn):
    """Stops the job at too few rows, or too many."""

    def __init__(self, may_be_empty: bool):
        self._may_be_empty = may_be_empty

    def process(self, keyed: tuple[None, int]) -> Iterator[None]:
        """Gives nothing; raises InputError."""
        if keyed[1] == 0 and not self._may_be_empty:
            raise InputError("data must have at least one row, got files without rows; check data.path and partitions.")
        lattice.check_rows(keyed[1])
        yield from ()


@dataclasses.dataclass(eq=False, kw_only=True)
class CheckRows(beam.PTransform):
    """`ShardRef`s → nothing; stops the job if there are no rows or more than an int64 sum can hold.

    Attributes:
      may_be_empty: whether there may be no rows.
    """

    may_be_empty: bool = False

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Adds up the footers' row counts; the number goes nowhere."""
        return (
            shards
            | "Rows" >> beam.ParDo(_RowsFn())
            | "Total" >> beam.CombinePerKey(sum)
            | "Check" >> beam.ParDo(_CheckTotalFn(self.may_be_empty))
        )
