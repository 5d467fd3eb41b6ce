"""Which files a snapshot consists of, and which snapshots are refused."""

import copy
import dataclasses
import json
import pathlib
import shutil
import sys

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.types import LongType

from dapple_dp.schemas.errors import ConfigError, InputError, what_installs
from dapple_dp.schemas.settings.json_schema import check_content
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.snapshot import Snapshot, TableConfig
from dapple_dp.transforms.tables.snapshots import resolve
from dapple_dp.transforms.tables.source import Source
from tests.scenes import tables

CITIES = ["a b", "ü/=%", "a+b", "plain", None, "plain"]
ROWS = pa.table({"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "n": [1, 1, 2, 2, 3, 3], "city": CITIES})


def data_of(path, table_format, version=None, **settings) -> DataConfig:
    section = TableConfig(format=table_format, version=version)
    return DataConfig(**({"path": str(path), "features": ["x"], "table": section} | settings))


def rows_of(source: Source) -> list[float]:
    """Column `x` of all files; each path must exist."""
    return sorted(
        x for path in source.list_files() for x in pa.parquet.read_table(path, partitioning=None)["x"].to_pylist()
    )


@pytest.fixture
def delta(tmp_path) -> str:
    return tables.write_delta(tmp_path / "my table", [ROWS.slice(0, 3), ROWS.slice(3)], "city", "n")


@pytest.fixture
def iceberg(tmp_path):
    return tables.write_iceberg(tmp_path / "my lake", [ROWS.slice(0, 3), ROWS.slice(3)], "city", "n")


def test_a_path_is_listed_when_it_is_needed(tmp_path):
    source = resolve(DataConfig(path=str(tmp_path), features="x", partitions={"n": 1}))
    assert source == Source(path=str(tmp_path), partitions={"n": "1"})
    assert (source.files, source.snapshot) == (None, None)
    with pytest.raises(InputError, match=r"No Parquet or CSV file found at .*\(data\.path\)"):
        source.list_files()


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_versions(table_format, delta, iceberg):
    ids = [0, 1] if table_format == "delta" else [each.snapshot_id for each in iceberg.snapshots()]
    path = delta if table_format == "delta" else tables.metadata_path(iceberg)
    newest = resolve(data_of(path, table_format))
    assert newest.snapshot == Snapshot(format=table_format, version=ids[1])
    assert list(newest.files) == sorted(newest.files)
    assert rows_of(newest) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert resolve(data_of(path, table_format, ids[1])) == newest
    oldest = resolve(data_of(path, table_format, ids[0]))
    assert dataclasses.asdict(oldest.snapshot) == {"format": table_format, "version": ids[0]}
    assert check_content(dataclasses.asdict(oldest.snapshot), Snapshot) == oldest.snapshot
    assert rows_of(oldest) == [1.0, 2.0, 3.0]
    with pytest.raises(InputError, match=r"has no .* 77 \(data\.table\.version\); choose another"):
        resolve(data_of(path, table_format, 77))


FILTERS = [
    ({"city": "a b"}, [1.0]),
    ({"city": "ü/=%"}, [2.0]),
    ({"city": "a+b"}, [3.0]),
    ({"city": "plain"}, [4.0, 6.0]),
    ({"city": "plain", "n": 3}, [6.0]),
    ({"n": 2}, [3.0, 4.0]),
    ({"city": "__HIVE_DEFAULT_PARTITION__"}, [5.0]),
]


@pytest.mark.parametrize(("partitions", "expected"), FILTERS, ids=str)
def test_partitions_are_those_of_the_log(delta, iceberg, partitions, expected):
    assert rows_of(resolve(data_of(delta, "delta", partitions=partitions))) == expected
    assert rows_of(resolve(data_of(tables.metadata_path(iceberg), "iceberg", partitions=partitions))) == expected


def test_partitions_that_select_nothing_or_do_not_exist(delta, iceberg):
    for path, table_format in ((delta, "delta"), (tables.metadata_path(iceberg), "iceberg")):
        with pytest.raises(InputError, match=r"The table at .* has no files; check version"):
            resolve(data_of(path, table_format, partitions={"n": 9}))
        with pytest.raises(InputError, match=r"data\.partitions must name columns that .*, got 'x'; leave it out\."):
            resolve(data_of(path, table_format, partitions={"x": 1}))


def test_a_transformed_partition_column_is_no_filter(tmp_path):
    path = pathlib.Path(tables.metadata_path(tables.write_iceberg(tmp_path, [ROWS], "n")))
    path.write_text(
        path.read_text().replace('"transform":"identity","name":"n"', '"transform":"bucket[4]","name":"n_bucket"')
    )
    assert rows_of(resolve(data_of(path, "iceberg"))) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    for name in ("n", "n_bucket"):
        with pytest.raises(InputError, match=r"data\.partitions must name columns that"):
            resolve(data_of(path, "iceberg", partitions={name: 1}))


def test_booleans_and_dates_as_hive_writes_them(tmp_path):
    days = pa.array(["2026-11-20", "2026-11-21"]).cast(pa.date32())
    rows = pa.table({"x": [1.0, 2.0], "day": days, "new": [True, False]})
    delta = tables.write_delta(tmp_path / "delta", [rows], "day", "new")
    iceberg = tables.metadata_path(tables.write_iceberg(tmp_path / "iceberg", [rows], "day", "new"))
    for path, table_format in ((delta, "delta"), (iceberg, "iceberg")):
        for partitions, expected in (({"day": "2026-11-21"}, [2.0]), ({"new": "true"}, [1.0])):
            assert rows_of(resolve(data_of(path, table_format, partitions=partitions))) == expected


def test_the_root_of_an_iceberg_table_needs_a_version_hint(iceberg):
    metadata = pathlib.Path(tables.metadata_path(iceberg))
    root = metadata.parent.parent
    with pytest.raises(InputError, match=r"data\.path must be the metadata file of an Iceberg table"):
        resolve(data_of(root, "iceberg"))
    (metadata.parent / "version-hint.text").write_text(metadata.name)
    assert resolve(data_of(root, "iceberg")).files == resolve(data_of(metadata, "iceberg")).files


def test_a_file_that_is_named_twice_is_refused(tmp_path):
    """Else a record would count twice, which nobody accounts for."""
    root = tables.write_delta(tmp_path / "t", [ROWS])
    actions = tables.delta_actions(root)
    again = copy.deepcopy(next(each for each in actions if "add" in each))
    name = again["add"]["path"]
    again["add"]["path"] = f"%{ord(name[0]):02X}{name[1:]}"
    tables.rewrite_delta(root, [*actions, again])
    assert deltalake.DeltaTable(root).get_add_actions().num_rows == 2
    with pytest.raises(InputError, match=r"The log of the table at data\.path names .* twice"):
        resolve(data_of(root, "delta"))


def test_absolute_paths_of_a_delta_log(tmp_path):
    root = tables.write_delta(tmp_path / "t", [ROWS])
    actions = tables.delta_actions(root)
    add = next(each["add"] for each in actions if "add" in each)
    moved = tmp_path / "else where" / "rows.parquet"
    moved.parent.mkdir()
    shutil.move(f"{root}/{add['path']}", moved)
    add["path"] = moved.as_uri()
    tables.rewrite_delta(root, actions)
    assert resolve(data_of(root, "delta")).files == (str(moved),)


@pytest.mark.parametrize(
    ("module", "table_format"), [("deltalake", "delta"), ("pyiceberg.table", "iceberg")], ids=["delta", "iceberg"]
)
def test_a_library_that_is_missing(monkeypatch, module, table_format):
    monkeypatch.setitem(sys.modules, module, None)
    expected = (
        f"data.table.format '{table_format}' needs a library that is not installed; run {what_installs(table_format)}."
    )
    with pytest.raises(ConfigError) as caught:
        resolve(data_of("lake", table_format))
    assert str(caught.value) == expected


def test_paths_that_are_no_table(tmp_path):
    with pytest.raises(InputError, match=r"data\.path must be the root of a Delta table, got .*; check the path"):
        resolve(data_of(tmp_path / "nowhere", "delta"))
    with pytest.raises(InputError, match=r"data\.path must be the metadata file of an Iceberg table, or its root"):
        resolve(data_of(tmp_path / "nowhere.metadata.json", "iceberg"))
    with pytest.raises(ConfigError, match=r"The path of a Delta table must not contain '%'"):
        resolve(data_of(tmp_path / "a%20b", "delta"))


def test_an_iceberg_table_without_a_snapshot(tmp_path):
    table = tables.write_iceberg(tmp_path, [ROWS.slice(0, 0)])
    path = pathlib.Path(tables.metadata_path(table))
    content = json.loads(path.read_text())
    content |= {"snapshots": [], "current-snapshot-id": None, "refs": {}, "snapshot-log": []}
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"The table at .* has no snapshot; write rows"):
        resolve(data_of(path, "iceberg"))


def enable(root: str, feature: str, **configuration: str) -> None:
    """Rewrites the log as if the table had been made with a reader feature."""
    actions = tables.delta_actions(root)
    for each in actions:
        if "protocol" in each:
            features = {"readerFeatures": [feature], "writerFeatures": [feature]}
            each["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7} | features
        if "metaData" in each:
            each["metaData"]["configuration"] = configuration
    tables.rewrite_delta(root, actions)


def test_deletion_vectors_are_refused(tmp_path):
    root = tables.write_delta(tmp_path / "t", [ROWS])
    enable(root, "deletionVectors", **{"delta.enableDeletionVectors": "true"})
    with pytest.raises(InputError, match=r"uses deletionVectors, and deletion vectors, .*; drop the feature"):
        resolve(data_of(root, "delta"))


def test_column_mapping_is_refused(tmp_path):
    root = tables.write_delta(tmp_path / "t", [ROWS])
    enable(root, "columnMapping", **{"delta.columnMapping.mode": "none"})
    assert len(resolve(data_of(root, "delta")).files) == 1
    actions = tables.delta_actions(root)
    for each in actions:
        if "metaData" in each:
            each["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
            schema = json.loads(each["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"], start=1):
                marks = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
                field["metadata"] = marks
            each["metaData"]["schemaString"] = json.dumps(schema)
    tables.rewrite_delta(root, actions)
    with pytest.raises(InputError, match=r"uses columnMapping, .*; drop the feature"):
        resolve(data_of(root, "delta"))


@pytest.mark.parametrize("content", [DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES], ids=str)
def test_delete_files_are_refused(tmp_path, content):
    table = tables.write_iceberg(tmp_path, [ROWS])
    first = table.current_snapshot().snapshot_id
    tables.add_delete_file(table, content)
    path = tables.metadata_path(table)
    with pytest.raises(InputError, match=r"an Iceberg table of Parquet files without delete files, and .* has some;"):
        resolve(data_of(path, "iceberg"))
    assert rows_of(resolve(data_of(path, "iceberg", first))) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_rows_deleted_by_rewriting_are_gone(iceberg):
    iceberg.delete("x >= 4.0")
    assert rows_of(resolve(data_of(tables.metadata_path(iceberg), "iceberg"))) == [1.0, 2.0, 3.0]


def test_renamed_and_replaced_columns_of_an_iceberg_table_are_refused(tmp_path):
    table = tables.write_iceberg(tmp_path, [ROWS])
    with table.update_schema() as update:
        update.rename_column("x", "y")
    for name in ("x", "y"):
        with pytest.raises(
            InputError, match=rf"Column '{name}' of .* was renamed or replaced since the table was made"
        ):
            resolve(data_of(tables.metadata_path(table), "iceberg", features=[name]))
    assert resolve(data_of(tables.metadata_path(table), "iceberg", features=["n"], client_id="city")).files
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("n")
    with table.update_schema() as update:
        update.add_column("n", LongType())
    with pytest.raises(InputError, match=r"Column 'n' of .* was renamed or replaced"):
        resolve(data_of(tables.metadata_path(table), "iceberg", features=["city"], client_id="n"))


def test_clients_that_only_the_log_knows_are_refused(delta, tmp_path):
    assert len(resolve(data_of(delta, "delta", client_id="city")).files) == 6
    root = tables.write_delta(tmp_path / "t", [ROWS.slice(3, 1)], "city")
    actions = tables.delta_actions(root)
    add = next(each["add"] for each in actions if "add" in each)
    for path in ("rows.parquet", "city=other/rows.parquet"):
        add["path"] = path
        tables.rewrite_delta(root, actions)
        assert resolve(data_of(root, "delta")).files == (f"{root}/{path}",)
        with pytest.raises(
            InputError,
            match=r"data\.client_id must be a column .*, and 'city' is a partition column that only the table",
        ):
            resolve(data_of(root, "delta", client_id="city"))
