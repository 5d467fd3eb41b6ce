"""Delta and Iceberg tables for tests, written by their own libraries and, where these cannot, by hand."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from tests.scenes import lake

NAMES = ["a", "b", "c", "d"]


def columns_of(points: Any, **others: Sequence[object]) -> pa.Table:
    """A column per feature, and the others."""
    return pa.table(dict(zip(NAMES, points.T, strict=True)) | {name: pa.array(each) for name, each in others.items()})


def write_server(folder: pathlib.Path) -> str:
    """Public rows with a column per feature."""
    pq.write_table(columns_of(lake.mixture(60, seed=99)), folder / "server.parquet")
    return str(folder / "server.parquet")


def write_delta(folder: pathlib.Path, tables: Sequence[pa.Table], *partitions: str) -> str:
    """A Delta table with a version per table, from 0; returns its root."""
    for each in tables:
        deltalake.write_deltalake(folder, each, mode="append", partition_by=list(partitions) or None)
    return str(folder)


def delta_actions(root: str) -> list[dict[str, Any]]:
    """The actions of version 0."""
    text = (pathlib.Path(root) / "_delta_log" / f"{0:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def rewrite_delta(root: str, actions: Sequence[dict[str, Any]]) -> None:
    """Puts other actions into version 0 of a table that has no other."""
    log = pathlib.Path(root) / "_delta_log"
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    for checksum in log.glob("*.crc"):
        checksum.unlink()


def write_iceberg(folder: pathlib.Path, tables: Sequence[pa.Table], *partitions: str) -> Table:
    """An Iceberg table with a snapshot per table."""
    catalog = InMemoryCatalog("test", warehouse=folder.as_uri())
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.rows", tables[0].schema)
    if partitions:
        with table.update_spec() as update:
            for name in partitions:
                update.add_field(name, IdentityTransform(), name)
    for each in tables:
        table.append(each)
    return table


def metadata_path(table: Table) -> str:
    """The metadata file of a table that `write_iceberg` wrote."""
    return table.metadata_location.removeprefix("file://")


def add_delete_file(table: Table, content: DataFileContent) -> None:
    """A snapshot with a delete file, which the library reads but does not write."""
    file = DataFile.from_args(
        content=content,
        file_path=f"{table.location()}/data/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = 0
    with pytest.MonkeyPatch.context() as patch, table.transaction() as transaction:
        patch.setattr(ManifestWriterV2, "content", lambda self: ManifestContent.DELETES)
        with transaction.update_snapshot().fast_append() as update:
            update.append_data_file(file)
