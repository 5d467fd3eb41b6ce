"""Resolves the snapshot of a Delta or Iceberg table to its Parquet files.

The libraries `deltalake` and `pyiceberg` are optional and only list files; rows are read as from any
other file. Tables that a list of files can't express (deleted rows, renamed columns) are refused.
"""

import collections
import contextlib
import dataclasses
import importlib
import itertools
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from dapple_dp.schemas.choices import TableFormat
from dapple_dp.schemas.errors import ConfigError, InputError, NoInputYetError, what_installs
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.snapshot import Snapshot
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.shard_rows import fields_as_text
from dapple_dp.transforms.tables.source import Source

_PLAIN_FEATURES = frozenset(
    {"columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Reader features of Delta with which a table is still a list of files; column mapping only in mode none."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _DataFile:
    """A file in a table's log.

    Attributes:
      path: on a Beam filesystem.
      partition: value of each partition column, as Hive writes it before escaping; None for a null.
    """

    path: str
    partition: Mapping[str, str | None]


def resolve(data: DataConfig) -> Source:
    """Returns the files of a job; for a table those of one snapshot, chosen here once and for all.

    Args:
      data: the job's data section.

    Raises:
      ConfigError: if the library that reads the table's log isn't installed.
      InputError: if the table can't be read, lacks the version, or is more than a list of Parquet files.
    """
    partitions, table = data.partition_values(), data.table
    if table is None:
        return Source(path=data.path, partitions=partitions)
    list_snapshot = _delta_files if table.format is TableFormat.DELTA else _iceberg_files
    version, files, nullable = list_snapshot(data)
    paths = sorted(file.path for file in files if _is_wanted(file, partitions, data.path))
    repeated = next((one for one, other in itertools.pairwise(paths) if one == other), None)
    if repeated is not None:
        raise InputError(
            f"The log of the table at data.path names {repeated} twice, so its rows would count twice; repair the log."
        )
    if not paths:
        raise NoInputYetError(f"The table at {data.path} (data.path) has no files; check version and partitions.")
    snapshot = Snapshot(format=table.format, version=version)
    added = fields_as_text(nullable)
    return Source(path=data.path, partitions=partitions, snapshot=snapshot, files=tuple(paths), nullable=added)


def _is_wanted(file: _DataFile, partitions: Mapping[str, str], where: str) -> bool:
    """Returns whether a file has the requested partition values."""
    for column in partitions:
        if column not in file.partition:
            raise InputError(
                f"data.partitions must name columns that {where} is partitioned by without a transform, got "
                f"{column!r}; leave it out."
            )
    return all((file.partition[column] or hive.NULL_FOLDER) == value for column, value in partitions.items())


def _library(module: str, table_format: TableFormat) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"data.table.format {str(table_format)!r} needs a library that is not installed; run "
            f"{what_installs(table_format)}."
        ) from error


@contextlib.contextmanager
def _refusing(sentence: str) -> Iterator[None]:
    """Turns any error of a library into an InputError: they have no base class, and Arrow's and Rust's appear."""
    try:
        yield
    except Exception as error:
        raise InputError(sentence) from error


def _unreadable(data: DataConfig, kind: str) -> str:
    return f"data.path must be {kind}, got {data.path}; check the path, the permissions and data.table.format."


def _unknown_version(data: DataConfig, version: int | None, kind: str) -> str:
    return f"{data.path} has no {kind} {version} (data.table.version); choose another or leave it out for the newest."


def _delta_files(data: DataConfig) -> tuple[int, list[_DataFile], pa.Schema]:
    """Returns the version, the files, and the columns that are null in files without them."""
    deltalake = _library("deltalake", TableFormat.DELTA)
    if "%" in data.path:
        # The library would decode the path like a URL and read another folder's log.
        raise ConfigError(
            f"The path of a Delta table must not contain '%', got {data.path} (data.path); rename the folder."
        )
    wanted = data.table.version if data.table else None
    with _refusing(_unreadable(data, "the root of a Delta table")):
        table = deltalake.DeltaTable(data.path)
    if wanted is not None:
        with _refusing(_unknown_version(data, wanted, "version")):
            table.load_as_version(wanted)
    _check_delta(table, data)
    with _refusing(_unreadable(data, "the root of a Delta table")):
        actions, schema = pa.table(table.get_add_actions(flatten=False)), pa.schema(table.schema().to_arrow())
    columns = table.metadata().partition_columns
    values = actions["partition"].to_pylist() if columns else [{}] * len(actions)
    files = [
        _DataFile(path=_delta_path(data.path, path), partition={name: _text(value[name]) for name in columns})
        for path, value in zip(actions["path"].to_pylist(), values, strict=True)
    ]
    _check_folders(files, data)
    return int(table.version()), files, _nullable(schema, columns)


def _nullable(schema: pa.Schema, values: Iterable[str]) -> pa.Schema:
    """Returns the columns that are null in files without them: nullable ones whose values the log lacks."""
    known = set(values)
    return pa.schema([each for each in schema if each.nullable and each.name not in known])


def _check_delta(table: Any, data: DataConfig) -> None:
    """Refuses a Delta table whose rows or columns differ from those of its files."""
    features = set(table.protocol().reader_features or ()) - _PLAIN_FEATURES
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        features.add("columnMapping")
    if features:
        raise InputError(
            f"The Delta table at {data.path} (data.path) uses {', '.join(sorted(features))}, and deletion vectors, "
            "column mapping and other reader features are not supported; drop the feature, or write the rows to a "
            "plain table."
        )


def _delta_path(root: str, path: str) -> str:
    """Returns a path of a Delta log, URL-encoded and usually relative to the root, as one of a Beam filesystem."""
    decoded = urllib.parse.unquote(path)
    if "://" in decoded or decoded.startswith(("/", "file:")):
        return _local_or_uri(decoded)
    return f"{root.rstrip('/')}/{decoded}"


def _local_or_uri(location: str) -> str:
    """Returns a location as Beam names it: without the scheme `file`, and with Hadoop's names of S3 as `s3`."""
    scheme, colon, rest = location.partition(":")
    if scheme == "file":
        return "/" + rest.lstrip("/")
    return f"s3:{rest}" if colon and scheme in ("s3a", "s3n") else location


def _check_folders(files: Iterable[_DataFile], data: DataConfig) -> None:
    """Refuses a partition column whose values aren't in the folders' names, since Delta files don't hold it."""
    features = (data.features,) if isinstance(data.features, str) else data.features
    for file, name in itertools.product(files, (*features, data.client_id)):
        if name is None or name not in file.partition:
            continue
        if not hive.has_folder(file.path, name) or hive.folder_value(file.path, name) != file.partition[name]:
            setting = "data.client_id" if name == data.client_id else "data.features"
            raise InputError(
                f"{setting} must be a column of the files or of Hive-style folders of {data.path}, and {name!r} is a "
                "partition column that only the table's log has; write the table without it."
            )


def _text(value: object) -> str | None:
    """Returns a partition value as Hive writes it; an empty string is a null there."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _iceberg_files(data: DataConfig) -> tuple[int, list[_DataFile], pa.Schema]:
    """Returns the snapshot id, the files, and the columns that are null in files without them."""
    wanted = data.table.version if data.table else None
    table = _iceberg_table(data)
    with _refusing(_unreadable(data, "an Iceberg table whose snapshots can be read")):
        snapshot = table.current_snapshot() if wanted is None else table.snapshot_by_id(wanted)
    if snapshot is None and wanted is None:
        raise InputError(f"The table at {data.path} (data.path) has no snapshot; write rows to it first.")
    if snapshot is None:
        raise InputError(_unknown_version(data, wanted, "snapshot id"))
    _check_names(table, data)
    with _refusing(_unreadable(data, "an Iceberg table whose manifests can be read")):
        entries = [
            (manifest, entry.data_file)
            for manifest in snapshot.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ]
    _check_iceberg((file for _, file in entries), data)
    files = [
        _DataFile(
            path=_local_or_uri(file.file_path),
            partition=_iceberg_partition(table, manifest.partition_spec_id, file),
        )
        for manifest, file in entries
    ]
    schema = table.schema() if wanted is None else table.schemas().get(snapshot.schema_id, table.schema())
    return int(snapshot.snapshot_id), files, _iceberg_nullable(table, schema, files, data)


def _iceberg_table(data: DataConfig) -> Any:
    """Opens an Iceberg table by its path or by its catalog."""
    if data.table is None or data.table.catalog is None:
        tables = _library("pyiceberg.table", TableFormat.ICEBERG)
        with _refusing(_unreadable(data, "the metadata file of an Iceberg table, or its root with a version hint")):
            return tables.StaticTable.from_metadata(data.path)
    catalogs = _library("pyiceberg.catalog", TableFormat.ICEBERG)
    try:
        return catalogs.load_catalog(data.table.catalog).load_table(data.table.identifier)
    except Exception as error:  # noqa: BLE001 - libraries have no base class for what they raise
        # The library holds the catalog's credentials, so neither its message nor its error is passed on.
        raise InputError(
            f"pyiceberg could not load the table {data.table.identifier!r} of the catalog {data.table.catalog!r} "
            f"({type(error).__name__}) that data.table names; check both names, its configuration, and the permissions."
        ) from None


def _check_iceberg(files: Iterable[Any], data: DataConfig) -> None:
    """Refuses delete files, and data files other than Parquet."""
    for file in files:
        got = "some" if file.content.value else f"a file of format {file.file_format.value}"
        if file.content.value or file.file_format.value != "PARQUET":
            raise InputError(
                f"data.path must be an Iceberg table of Parquet files without delete files, and {data.path} has {got}; "
                "rewrite its data files, or write the rows to a plain table."
            )


def _iceberg_nullable(table: Any, schema: Any, files: Iterable[_DataFile], data: DataConfig) -> pa.Schema:
    """Returns the nullable columns of a schema, without any that older files hold under another name or fill."""
    features = (data.features,) if isinstance(data.features, str) else data.features
    valued = {field.name for field in schema.fields if field.initial_default is not None}
    for name in (*features, data.client_id):
        if name in valued:
            raise InputError(
                f"Column {name!r} of {data.path} has an initial default, which older files don't hold; write the rows "
                "to a new table."
            )
    pairs = {(field.field_id, field.name) for schema in table.schemas().values() for field in schema.fields}
    times = collections.Counter(number for number, _ in pairs)
    moved = {field.name for field in schema.fields if times[field.field_id] > 1}
    folders = itertools.chain.from_iterable(file.partition for file in files)
    return _nullable(schema.as_arrow(), {*valued, *moved, *folders})


def _check_names(table: Any, data: DataConfig) -> None:
    """Refuses a column whose name has changed, or was another's, in an older schema, since Iceberg uses ids."""
    pairs = {(field.name, field.field_id) for schema in table.schemas().values() for field in schema.fields}
    features = (data.features,) if isinstance(data.features, str) else data.features
    for name in features if data.client_id is None else (*features, data.client_id):
        ids = {number for other, number in pairs if other == name}
        if len({pair for pair in pairs if pair[1] in ids}) > 1:
            raise InputError(
                f"Column {name!r} of {data.path} was renamed or replaced since the table was made; write the rows to a "
                "new table."
            )


def _iceberg_partition(table: Any, spec_id: int, file: Any) -> dict[str, str | None]:
    """Returns the values of the columns that a file is partitioned by directly, without a transform."""
    schema, result = table.schema(), {}
    for field, value in zip(table.specs()[spec_id].fields, file.partition, strict=True):
        name = schema.find_column_name(field.source_id)
        if str(field.transform) == "identity" and name is not None:
            kind = schema.find_type(field.source_id)
            plain = value is None or isinstance(value, bool)
            result[name] = _text(value if plain else field.transform.to_human_string(kind, value))
    return result
