"""Turns a listing into shards, digests and row counts inside the pipeline; `shard_rows` reads the rows."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.prepared_layout import decode_runs
from dapple_dp.schemas.tables.shard import EMPTY_SHARD, ShardRef
from dapple_dp.transforms.core.statistics import lattice
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats.csv_file import CsvFile
from dapple_dp.transforms.files.formats.packed_rows import PackedFile, RowsFile
from dapple_dp.transforms.files.formats.parquet_footer import RowGroup
from dapple_dp.transforms.files.signals.progress import PROGRESS
from dapple_dp.transforms.files.stores import is_local, opening_ahead
from dapple_dp.transforms.on_beam.workers import LeanFn
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.file_seal import (
    FileSeal,
    check_content,
    content_digest,
    open_listed,
    refusal_of,
)
from dapple_dp.transforms.tables.listing import ListedFile, Listing, read_listing
from dapple_dp.transforms.tables.on_launcher import absent_columns, joined, no_pages, unlisted_refusal, with_folders
from dapple_dp.transforms.tables.shard_rows import (
    CLIENT_ID_BYTES,
    fields_as_text,
    n_listed,
    read_fields,
    schema_of,
)
from dapple_dp.transforms.tables.source import Source

DIGEST_BYTES = 32
FILES_IN_BLOCK = 1 << 16
"""Digests that a worker or the launcher holds in memory."""
_FILES_AT_ONCE = 512
_BOMB_BYTES = 1 << 31
_BOMB_RATIO = 100
"""Limits on a row group's decoded size, which may not exceed both: so many bytes, and so many times its stored size."""


def _list_row_groups(
    listed: ListedFile, contract: TableContract, others: tuple[str, ...] = (), nullable: str = ""
) -> Iterator[ShardRef]:
    """Yields the shards of a file, under its full seal."""
    path = listed.path
    with open_listed(listed.file, listed.seal, path, listed.csv) as (file, seal, source):
        check_content(source, listed.seal, path)
        if not isinstance(file, CsvFile) and not n_listed(file):
            return  # Without rows there is nothing whose type could be wrong.
        schema = with_folders(schema_of(file, contract.types), path, contract.types)
        absent = absent_columns(schema, path, read_fields(nullable))
        contract.check_schema(hive.with_field(joined(schema, absent), path, contract.client_id), path)
        if isinstance(file, CsvFile):
            yield from _whole_file(file, listed, seal, contract)
            return
        groups = untrusted.row_groups(file, refusal_of(path))
        names = {*contract.columns, *others} | ({contract.client_id} if contract.client_id else set())
        first, nulls = 0, fields_as_text(absent)
        for run in decode_runs(file.metadata.metadata, len(groups), path):
            n_rows = sum(group.n_rows for group in groups[first : first + run])
            n_values, widest = n_rows * contract.width, 0
            for index in range(first, first + run):
                where = f"{path}, row group {index}"
                n_values += _checked_size(file, groups[index], contract, where)
                if not file.is_stream:  # Otherwise the reader of the rows checks their pages.
                    widest = max(widest, untrusted.checked_pages(file, index, names, no_pages(where)).longest)
            if n_rows:
                n_bytes = 8 * n_values + CLIENT_ID_BYTES * n_rows
                PROGRESS.found(n_rows, n_bytes)
                yield ShardRef(path, first, n_rows, run, n_bytes, listed.file, seal.text, widest, absent=nulls)
            first += run


def _whole_file(file: CsvFile, listed: ListedFile, seal: FileSeal, contract: TableContract) -> Iterator[ShardRef]:
    """Yields the one shard of a CSV file, after counting its rows; nothing for a file without rows."""
    n_rows = file.count_rows()
    n_bytes = (8 * contract.width + CLIENT_ID_BYTES) * n_rows
    if n_bytes > _BOMB_BYTES and n_bytes > _BOMB_RATIO * seal.size:
        raise _bomb(listed.path)
    if n_rows:
        PROGRESS.found(n_rows, n_bytes)
        yield ShardRef(listed.path, 0, n_rows, 1, n_bytes, listed.file, seal.text, csv=listed.csv)


def _checked_size(file: RowsFile, group: RowGroup, contract: TableContract, where: str) -> int:
    """Returns the values of a list column of unknown width; refuses few bytes that would fill the memory."""
    chunks = [file.as_unpacked(chunk) for chunk in group.chunks] if isinstance(file, PackedFile) else group.chunks
    n_values = sum(chunk.n_values for chunk in chunks if chunk.path.startswith(f"{contract.feature_list}."))
    decoded = 8 * max(group.n_rows * (contract.n_features or 0), n_values)
    if decoded > max(_BOMB_BYTES, _BOMB_RATIO * sum(chunk.n_bytes for chunk in chunks)):
        raise _bomb(where)
    return n_values if contract.n_features is None else 0


def _bomb(place: str) -> InputError:
    return InputError(
        f"{place} unpacks to more than 2 GiB and {_BOMB_RATIO} times its size on disk; write smaller files or row "
        "groups."
    )


def list_shards(source: Source, contract: TableContract) -> Iterator[ShardRef]:
    """Lists the shards of `ListShards` in this process, without the empty shard."""
    for listed in read_listing(_listing_of(source)):
        yield from _list_row_groups(listed, contract, nullable=_nullable(source, contract))


def _listing_of(source: Source) -> Listing:
    if source.listing is None:
        raise unlisted_refusal()
    return source.listing


def _nullable(source: Source, contract: TableContract, others: tuple[str, ...] = ()) -> str:
    """Returns the fields of a snapshot that may be absent, among the columns that are read."""
    names = {*contract.columns, *others, contract.client_id}
    return fields_as_text(pa.schema([field for field in read_fields(source.nullable) if field.name in names]))


@dataclasses.dataclass(eq=False, kw_only=True)
class ListShards(beam.PTransform):
    """Pipeline root → `ShardRef`s of all rows, and the public `EMPTY_SHARD`.

    A shard is a non-empty row group, a CSV file with rows, or the run of row groups of one client in a prepared file.

    Attributes:
      source: place of the files and of their listing.
      contract: every file's schema is checked against it.
      others: columns to read besides those of the contract.

    Cost: one reading of the listing, one footer per Parquet file, one pass over CSV files, two shuffles of references.
    """

    source: Source
    contract: TableContract
    others: tuple[str, ...] = ()

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Reads the listing of the files, then lists their row groups."""
        nullable = _nullable(self.source, self.contract, self.others)
        return (
            root
            | "Once" >> beam.Impulse()
            | "ReadListing" >> beam.ParDo(_FilesFn(_listing_of(self.source)))
            | "SpreadFiles" >> beam.Reshuffle()
            | "ListRowGroups" >> beam.ParDo(_ShardsFn(self.contract, self.others, nullable))
            | "SpreadShards" >> beam.Reshuffle()
        )


class _FilesFn(LeanFn):
    """Yields the empty shard and the files of a listing."""

    def __init__(self, listing: Listing):
        self._listing = listing

    def process(self, _: bytes) -> Iterator[ListedFile | ShardRef]:
        """Yields the empty shard, then the files or shards of the listing."""
        yield EMPTY_SHARD
        yield from read_listing(self._listing)


class _ShardsFn(LeanFn):
    """Yields the shards of files, and passes on the empty shard; asks for many files of a store side by side."""

    def __init__(self, contract: TableContract, others: tuple[str, ...], nullable: str):
        self._contract = contract
        self._others = others
        self._nullable = nullable

    def start_bundle(self) -> None:
        """Starts with an empty list of waiting files."""
        self._waiting: list[ListedFile] = []

    def process(self, listed: ListedFile | ShardRef) -> Iterator[ShardRef]:
        """Yields the shards of each file on a disk, and of files of a store several at a time."""
        if isinstance(listed, ShardRef):
            yield listed
        elif is_local(listed.file):
            yield from self._shards_of(listed)
        else:
            self._waiting.append(listed)
            if len(self._waiting) == _FILES_AT_ONCE:
                yield from self._shards()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the shards of the remaining files."""
        for shard in self._shards():
            yield WindowedValue(shard, GlobalWindow().max_timestamp(), (GlobalWindow(),))

    def _shards(self) -> list[ShardRef]:
        """Returns the shards of the waiting files."""
        waiting, self._waiting = self._waiting, []
        with opening_ahead(each.file for each in waiting):
            return [shard for listed in waiting for shard in self._shards_of(listed)]

    def _shards_of(self, listed: ListedFile) -> Iterator[ShardRef]:
        return _list_row_groups(listed, self._contract, self._others, self._nullable)


class _RowsFn(LeanFn):
    """Counts the rows of shards, or of blocks."""

    def process(self, shard: Any) -> Iterator[tuple[None, int]]:
        """Yields (None, rows)."""
        yield None, shard.n_rows


class _CheckTotalFn(LeanFn):
    """Stops the job if it has too few rows, or too many."""

    def __init__(self, may_be_empty: bool):
        self._may_be_empty = may_be_empty

    def process(self, keyed: tuple[None, int]) -> Iterator[None]:
        """Yields nothing; raises InputError."""
        check_total(keyed[1], self._may_be_empty)
        yield from ()


def check_total(n_rows: int, may_be_empty: bool) -> None:
    """Refuses a number of rows that is too small, or too large for a sum; raises InputError."""
    if n_rows == 0 and not may_be_empty:
        raise InputError("The files have no rows; check data.path and partitions.")
    lattice.check_rows(n_rows)


@dataclasses.dataclass(eq=False, kw_only=True)
class CheckRows(beam.PTransform):
    """`ShardRef`s or blocks → nothing; stops the job if there are no rows or more than an int64 sum can hold.

    Attributes:
      may_be_empty: True if there may be no rows.
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


@dataclasses.dataclass(eq=False, kw_only=True)
class DigestFiles(beam.PTransform):
    """Pipeline root → (number of a block, bytes): SHA-256 of every listed file, block by block of the listing.

    Block i has the digests, 32 bytes each, of files 65,536 i and on. Every file is compared with its seal, so a
    retried bundle gives the same digests, or stops the job.

    Attributes:
      listing: of at least one file.

    Privacy: none. Digests confirm a guess of a file, so they stay in the trusted zone. Cost: one reading of all
    bytes, a shuffle of references and one of 32 bytes per file.
    """

    listing: Listing

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Spreads the files, reads them, and puts their digests in order."""
        return (
            root
            | "Listing" >> beam.Create([self.listing], reshuffle=False)
            | "ReadListing" >> beam.FlatMap(_numbered)
            | "SpreadFiles" >> beam.Reshuffle()
            | "Digest" >> beam.Map(_digested)
            | "Together" >> beam.GroupByKey()
            | "InOrder" >> beam.Map(_in_order)
        )


def _numbered(listing: Listing) -> Iterator[tuple[int, ListedFile]]:
    return enumerate(read_listing(listing))


def _digested(numbered: tuple[int, ListedFile]) -> tuple[int, tuple[int, bytes]]:
    number, (path, file, seal, _) = numbered
    block, place = divmod(number, FILES_IN_BLOCK)
    return block, (place, content_digest(file, seal, path))


def _in_order(block: tuple[int, Iterable[tuple[int, bytes]]]) -> tuple[int, bytes]:
    number, digests = block
    return number, b"".join(digest for _, digest in sorted(set(digests)))
