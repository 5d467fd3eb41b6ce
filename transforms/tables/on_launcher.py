"""Reads files of a job on the launcher, without Beam: the first schema, and the server files."""

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyFlowError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.columns import find, is_numeric, is_text, plain
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import CsvConfig
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats.csv_file import CsvFile, is_csv
from dapple_dp.transforms.files.untrusted import RowFile
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.file_seal import open_bytes, open_listed, open_sealed, refusal_of
from dapple_dp.transforms.tables.listing import FileList
from dapple_dp.transforms.tables.shard_rows import (
    Types,
    batches_of,
    columns_of,
    n_listed,
    read_fields,
    schema_of,
    shard_name,
)
from dapple_dp.transforms.tables.source import Source, find_files

if TYPE_CHECKING:
    from dapple_dp.transforms.files.formats.csv_guess import Look, Undecided


def first_schema(source: Source, types: Types | None = None) -> tuple[str, pa.Schema]:
    """Returns path and schema of the first listed file of a job.

    Args:
      source: of the job.
      types: of the columns that a job reads, for files without types; None for names alone.

    Raises:
      ConfigError: if there is none, as in a window without clients.
      InputError: if it isn't the file that was listed, or has changed since.
    """
    if source.listed is None:
        raise unlisted_refusal()
    if not len(source.listed.files):
        raise ConfigError(
            "data.features must list the names of columns (or name a list column, with data.width), because "
            f"{source.path} has no files to read them from; use the names of the windows before."
        )
    first: tuple[str, pa.Schema] | None = None
    for path, real, seal, csv in source.listed.files:
        with open_sealed(real, seal, path, csv) as (file, _):
            schema = with_folders(schema_of(file, types or {}), path, types or {})
            result = path, joined(schema, absent_columns(schema, path, read_fields(source.nullable)))
            if isinstance(file, CsvFile) or n_listed(file):
                return result
        first = first or result
    assert first is not None
    return first


def with_folders(schema: pa.Schema, path: str, types: Types) -> pa.Schema:
    """Returns the schema with the columns that are in the names of folders."""
    for name, kind in types.items():
        schema = hive.with_field(schema, path, name, kind)
    return schema


def absent_columns(schema: pa.Schema, path: str, nullable: pa.Schema) -> pa.Schema:
    """Returns the columns of a table for which a file and its folders have no values, under any name."""
    names, numbers = set(schema.names), {_number(each) for each in schema} - {None}
    return pa.schema(
        [
            pa.field(each.name, each.type)
            for each in nullable
            if each.name not in names and _number(each) not in numbers and not hive.has_folder(path, each.name)
        ]
    )


def _number(field: pa.Field) -> bytes | None:
    """Returns the id by which Iceberg knows a column."""
    return (field.metadata or {}).get(b"PARQUET:field_id")


def joined(schema: pa.Schema, others: pa.Schema) -> pa.Schema:
    """Returns the columns of both, with the metadata of the first."""
    return pa.schema([*schema, *others], schema.metadata)


def first_look(source: Source, csv: CsvConfig | None = None) -> "Look | Undecided":
    """Returns names, types and first rows of the first file, to be judged by a person.

    Args:
      source: of the job.
      csv: known settings of a CSV file; the rest is recognized.

    Raises:
      InputError: if the file can't be read.
    """
    from dapple_dp.transforms.files.formats import csv_guess

    if source.listed is None:
        raise unlisted_refusal()
    path, real, seal, _ = source.listed.files.first
    if is_csv(path):
        with open_bytes(real, seal, path) as (content, _):
            return csv_guess.look(content, path, CsvConfig() if csv is None else csv)
    if csv is not None and csv.model_fields_set:
        raise InputError(f"{path} is not a CSV file; leave out --{' and --'.join(sorted(csv.model_fields_set))}.")
    with open_sealed(real, seal, path) as (file, _):
        assert not isinstance(file, CsvFile)  # by its name
        schema = file.schema_arrow
        once = [field for field in schema if schema.names.count(field.name) == 1]
        types = {field.name: field.type for field in once if is_text(field.type) or is_numeric(field.type)}
        groups = untrusted.row_groups(file, refusal_of(path)) if types else []
        if not groups:
            return csv_guess.Look(schema=schema, rows=schema.empty_table())
        pages = untrusted.checked_pages(file, 0, types, no_pages(f"{path}, row group 0"))
        shard = ShardRef(path, 0, groups[0].n_rows, widest=pages.longest)
        rows = next(batches_of(file, shard, types), schema.empty_table())
        holes = (name for name in rows.column_names if is_numeric(rows[name].type) and _has_hole(rows[name]))
        return csv_guess.Look(schema=schema, rows=rows, holes=tuple(holes))


def _has_hole(values: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))).as_py())


def unlisted_refusal() -> PrivacyFlowError:
    """Creates the error for a job that would read files which it hasn't listed."""
    return PrivacyFlowError(
        "A job must list its files by pipelines/tables/private_source.py before it reads them, and this one didn't; "
        "nothing was read."
    )


class ServerDigests(NamedTuple):
    """Digests of the public server files that a job has read.

    Attributes:
      path: a Parquet or CSV file, a glob, or a folder.
      digests: (path, SHA-256 of all bytes) of every file, by path.
      csv: text of the `CsvForm` of CSV files.
    """

    path: str
    digests: tuple[tuple[str, str], ...]
    csv: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of all contents, independent of the files' places; 64 hex digits."""
        return hashlib.sha256(" ".join(content for _, content in self.digests).encode()).hexdigest()

    def check(self) -> None:
        """Reads the files again; raises InputError if their bytes have changed."""
        if self != ServerFiles.at(self.path, self.csv).digests:
            raise InputError(
                f"server_data.path was changed while the job read it: {self.path}; run the job again when nobody "
                "writes to it."
            )


class ServerFiles(NamedTuple):
    """Public server files, read once, so that a job uses the same bytes throughout.

    Attributes:
      path: a Parquet or CSV file, a glob, or a folder.
      contents: (path, all bytes) of every file, by path.
      csv: text of the `CsvForm` of CSV files.
    """

    path: str
    contents: tuple[tuple[str, bytes], ...]
    csv: str = ""

    @classmethod
    def at(cls, path: str, csv: str = "") -> "ServerFiles":
        """Lists and reads the files; raises InputError if one is missing or can't be read."""
        return cls(path, tuple(_server_contents(path, csv)), csv)

    @property
    def digests(self) -> ServerDigests:
        """Digests of the files, which outlast their bytes."""
        digests = tuple((name, hashlib.sha256(content).hexdigest()) for name, content in self.contents)
        return ServerDigests(self.path, digests, self.csv)

    def points(self, contract: TableContract) -> NDArray[np.float64]:
        """Returns all rows, shape (q, n_features), feature units.

        Args:
          contract: the features, without a client column.

        Raises:
          InputError: if a file can't be used.
        """
        blocks = []
        for file, shards in self._files(contract.check_schema, contract.types):
            for shard in shards:
                tables = batches_of(file, shard, contract.types)
                blocks += [contract.to_block(table, shard_name(shard)).points for table in tables]
        widths = {block.shape[1] for block in blocks}
        if len(widths) != 1 or not sum(len(block) for block in blocks):
            raise InputError(
                f"the rows of server_data must have one width, and {self.path} has no rows or several widths; check "
                "the file."
            )
        return np.concatenate(blocks).astype(np.float64)

    def rows(self, types: Types) -> pa.Table:
        """Returns these columns, at least one, of all rows as they are stored, with dictionaries decoded.

        Raises:
          InputError: if a file can't be read, lacks a column, or has another type than the others.
        """

        def check(schema: pa.Schema, file: str) -> None:
            for name in types:
                find(schema, name, file)

        tables = [columns_of(file, shard, types) for file, shards in self._files(check, types) for shard in shards]
        decoded = [pa.table({name: plain(table[name]) for name in types}) for table in tables]
        if not decoded:
            raise InputError(f"server_data must have rows, and {self.path} has none; check the file.")
        try:
            return pa.concat_tables(decoded, promote_options="permissive")
        except pa.ArrowException:
            raise InputError(
                f"a column of server_data has different types in the files of {self.path}; cast it to one type."
            ) from None

    def _files(self, check: Callable[[pa.Schema, str], None], types: Types) -> Iterator[tuple[RowFile, list[ShardRef]]]:
        """Yields every file with its row groups, after a check of its schema."""
        for name, content in self.contents:
            file = untrusted.rows_of(pa.BufferReader(content), name, refusal_of(name), self.csv)
            if not isinstance(file, CsvFile) and not n_listed(file):
                continue
            check(with_folders(schema_of(file, types), name, types), name)
            if isinstance(file, CsvFile):
                yield file, [ShardRef(name, 0, 0)]
                continue
            shards = []
            for index, group in enumerate(untrusted.row_groups(file, refusal_of(name))):
                pages = untrusted.checked_pages(file, index, types, no_pages(f"{name}, row group {index}"))
                shards.append(ShardRef(name, index, group.n_rows, widest=pages.longest))
            yield file, shards


def _server_contents(path: str, csv: str) -> Iterator[tuple[str, bytes]]:
    setting = "server_data.path"
    for name, real, seal, form in FileList.of(find_files(path, {}, setting), setting, csv=csv):
        with open_listed(real, seal, name, form) as (_, _, source):
            source.seek(0)
            content = bytes(source.read())
        yield name, content


def no_pages(where: str) -> Refusal:
    """Creates the error for a row group whose pages can't be read."""
    return Refusal(kind=InputError, rule=f"{where} must be readable", remedy="write the file again, or leave it out")
