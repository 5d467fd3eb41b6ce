"""Columns that were added to a Delta or Iceberg table are null in the files that are older."""

import dataclasses
import json
import pathlib

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import DoubleType

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import InputError, SchemaMismatchError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.snapshot import TableConfig
from dapple_dp.transforms.tables import shard_rows
from dapple_dp.transforms.tables.listing import FileList, OneListing
from dapple_dp.transforms.tables.on_launcher import first_schema
from dapple_dp.transforms.tables.read import _list_row_groups, _nullable
from dapple_dp.transforms.tables.shard_rows import read_fields
from dapple_dp.transforms.tables.snapshots import resolve
from dapple_dp.transforms.tables.source import Source
from tests.scenes import tables

OLD = pa.table({"x": [1.0, 2.0], "id": [1, 2]})
NEW = pa.table({"y": [30.0, 40.0], "note": ["a", "b"], "id": [3, 4], "x": [3.0, 4.0]})
BY_CLIENT = {"client_id": "id", "by_client": True}


def delta(folder) -> str:
    deltalake.write_deltalake(folder, OLD)
    deltalake.write_deltalake(folder, NEW, mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).alter.add_columns(deltalake.Field("z", "double"))
    return str(folder)


def iceberg(folder) -> str:
    table = tables.write_iceberg(folder, [OLD])
    with table.update_schema() as update:
        update.union_by_name(NEW.schema)
        update.add_column("z", DoubleType())
    table.append(NEW)
    return tables.metadata_path(table)


WRITERS = {"delta": delta, "iceberg": iceberg}


def source_of(path: str, table_format: str, **settings) -> Source:
    data = DataConfig(**({"path": path, "features": ["x"], "table": TableConfig(format=table_format)} | settings))
    source = resolve(data)
    return dataclasses.replace(source, listed=OneListing(lambda: FileList.of(source.found(), "data.path")))


def shards_of(source: Source, contract: TableContract, *others: str):
    nullable = _nullable(source, contract, others)
    return [s for each in source.listed.files for s in _list_row_groups(each, contract, others, nullable)]


def rows(source: Source, *features: str, **settings) -> list[list[float]]:
    contract = TableContract(features=features, n_features=len(features), **settings)
    blocks = [each for s in shards_of(source, contract) for each in shard_rows.read_blocks(s, contract)]
    return sorted(np.concatenate([each.points for each in blocks]).tolist())


@pytest.fixture(params=sorted(WRITERS))
def table(request, tmp_path) -> Source:
    return source_of(WRITERS[request.param](tmp_path / "t"), request.param)


@pytest.mark.parametrize("unit", [{}, BY_CLIENT])
def test_older_rows_have_a_null(table, unit):
    with pytest.raises(InputError, match=r"column 'y' of .* must hold finite numbers only, got a null"):
        rows(table, "y", "x", **unit)
    assert rows(table, "y", "x", on_invalid_rows=InvalidRows.DROP, **unit) == [[30.0, 3.0], [40.0, 4.0]]


def test_missing_values_are_kept_for_who_fills_them(table):
    found = rows(table, "y", "x", may_miss=frozenset({"y"}), **BY_CLIENT)
    np.testing.assert_equal(sorted(found, key=lambda row: row[1])[:3], [[np.nan, 1.0], [np.nan, 2.0], [30.0, 3.0]])


def test_a_column_that_is_in_no_file(table):
    assert rows(table, "z", on_invalid_rows=InvalidRows.DROP) == []
    assert rows(table, "x", "z", on_invalid_rows=InvalidRows.DROP, **BY_CLIENT) == []
    with pytest.raises(InputError, match=r"column 'z' .* got a null"):
        rows(table, "z")


def test_clients_and_other_columns_are_null_of_their_own_type(table):
    contract = TableContract(features=("x",), n_features=1)
    types = {"note": pa.string(), "y": pa.float64()}
    found = [
        each for s in shards_of(table, contract, *types) for each in shard_rows.read_valid_rows(s, contract, types)
    ]
    others = pa.concat_tables([each.others for each in found], promote_options="permissive")
    assert sorted(others["note"].to_pylist(), key=lambda note: note or "") == [None, None, "a", "b"]
    assert others["y"].null_count == others["note"].null_count == 2
    assert len(rows(table, "x", client_id="note", by_client=True, on_invalid_rows=InvalidRows.DROP)) == 2


def test_the_first_schema_has_all_columns(table):
    _, schema = first_schema(table)
    assert sorted(schema.names) == ["id", "note", "x", "y", "z"]
    assert schema.field("y").type == pa.float64()


def test_a_column_that_the_table_does_not_have_is_an_error(table):
    with pytest.raises(SchemaMismatchError, match=r"column 'w' not found in"):
        rows(table, "x", "w")


def test_files_by_path_must_have_every_column(tmp_path):
    pq.write_table(OLD, tmp_path / "old.parquet")
    pq.write_table(NEW, tmp_path / "new.parquet")
    source = Source(path=str(tmp_path))
    listed = dataclasses.replace(source, listed=OneListing(lambda: FileList.of(source.found(), "data.path")))
    with pytest.raises(SchemaMismatchError, match=r"column 'y' not found in"):
        rows(listed, "y", "x", on_invalid_rows=InvalidRows.DROP)


def test_a_version_has_the_columns_of_its_time(tmp_path):
    first = TableConfig(format="delta", version=0)
    found = resolve(DataConfig(path=delta(tmp_path / "d"), features=["x"], table=first))
    assert read_fields(found.nullable).names == ["x", "id"]
    metadata = json.loads(pathlib.Path(path := iceberg(tmp_path / "i")).read_text())
    first = TableConfig(format="iceberg", version=metadata["snapshots"][0]["snapshot-id"])
    assert read_fields(resolve(DataConfig(path=path, features=["x"], table=first)).nullable).names == ["x", "id"]


def test_partition_columns_and_required_columns_are_never_null(tmp_path):
    required = pa.schema([pa.field("x", pa.float64(), nullable=False), ("id", pa.int64()), ("day", pa.string())])
    written = OLD.append_column("day", pa.array(["a", "b"])).cast(required)
    assert read_fields(source_of(tables.write_delta(tmp_path / "d", [written], "day"), "delta").nullable).names == [
        "id"
    ]
    path = tables.metadata_path(tables.write_iceberg(tmp_path / "i", [written], "day"))
    assert read_fields(source_of(path, "iceberg").nullable).names == ["id"]


def changed(path: str, change) -> str:
    """An Iceberg table whose newest schema is changed by hand."""
    with open(path) as file:
        content = json.load(file)
    newest = next(each for each in content["schemas"] if each["schema-id"] == content["current-schema-id"])
    change(content, newest)
    with open(path, "w") as file:
        json.dump(content, file)
    return path


def test_an_initial_default_is_refused(tmp_path):
    def change(content, schema):
        content["format-version"] = 3
        content["next-row-id"] = 0
        next(each for each in schema["fields"] if each["name"] == "y")["initial-default"] = 7.0

    path = changed(iceberg(tmp_path), change)
    with pytest.raises(InputError, match=r"Column 'y' of .* has an initial default"):
        source_of(path, "iceberg", features=["x", "y"])
    assert "y" not in read_fields(source_of(path, "iceberg").nullable).names


def test_a_renamed_column_whose_old_schema_is_gone_is_not_null(tmp_path):
    """The older file holds it, under a name that only the number of the column leads to."""

    def change(content, schema):
        next(each for each in schema["fields"] if each["name"] == "x")["name"] = "renamed"
        content["schemas"] = [schema]

    source = source_of(changed(iceberg(tmp_path), change), "iceberg", features=["renamed"])
    with pytest.raises(SchemaMismatchError, match=r"column 'renamed' not found in"):
        rows(source, "renamed", on_invalid_rows=InvalidRows.DROP)
