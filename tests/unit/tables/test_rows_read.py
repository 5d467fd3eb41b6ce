"""Rows that are read are those that a footer lists, and pages are those that were written."""

import ast
import dataclasses
import io
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.shard import ShardRef
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats import packed_rows
from dapple_dp.transforms.reports import batches
from dapple_dp.transforms.tables import shard_rows
from dapple_dp.transforms.tables.file_seal import open_parquet, seal_of
from dapple_dp.transforms.tables.listing import ListedFile
from dapple_dp.transforms.tables.on_launcher import ServerFiles
from dapple_dp.transforms.tables.read import _list_row_groups

ROOT = pathlib.Path(__file__).resolve().parents[3]
REFUSAL = Refusal(kind=InputError, rule="it must be whole", remedy="write it again")
SCALARS = TableContract(features=("a", "b"), n_features=2)
CLIENTS = TableContract(features=("a", "b"), n_features=2, client_id="id", by_client=True)
READERS = {
    "batches": lambda path: [list(shard_rows.read_batches(each, SCALARS.types)) for each in shards(path, SCALARS)],
    "whole": lambda path: [shard_rows.read_columns(each, CLIENTS.types) for each in shards(path, CLIENTS)],
    "blocks": lambda path: [list(shard_rows.read_blocks(each, SCALARS)) for each in shards(path, SCALARS)],
    "ahead": lambda path: [list(shard_rows.prefetched_blocks(each, SCALARS)) for each in shards(path, SCALARS)],
    "clients": lambda path: [list(shard_rows.read_blocks(each, CLIENTS)) for each in shards(path, CLIENTS)],
    "valid": lambda path: [list(shard_rows.read_valid_rows(each, SCALARS)) for each in shards(path, SCALARS)],
    "server": lambda path: ServerFiles.at(str(path)).points(SCALARS),
    "server rows": lambda path: ServerFiles.at(str(path)).rows(SCALARS.types),
    "row group": lambda path: row_group(path),
    "table": lambda path: untrusted.table_of(path.read_bytes(), REFUSAL, untrusted.TableForm.by_size(), foreign=True),
}


def shards(path, contract) -> list[ShardRef]:
    return list(_list_row_groups(ListedFile(str(path), str(path), seal_of(str(path)).text), contract))


def row_group(path):
    with open_parquet(str(path)) as file:
        return shard_rows.read_row_group(file, 0, "a file", ["a", "b"])


def written(n_rows: int, **options) -> bytes:
    table = pa.table({"a": np.arange(n_rows) / 7, "b": np.arange(n_rows) / 3, "id": np.arange(n_rows)})
    with io.BytesIO() as file:
        pq.write_table(table, file, **options)
        return file.getvalue()


def with_more_rows(content: bytes, n_rows: int, wanted: int) -> bytes:
    """The file with another number of rows, and of values, in its footer: both take one byte there."""
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:-8].replace(bytes([0x16, 2 * n_rows]), bytes([0x16, 2 * wanted]))
    return content[:start] + footer + content[-8:]


@pytest.fixture(params=[dict(use_dictionary=False), dict(), dict(compression="zstd")], ids=["plain", "usual", "zstd"])
def place(request, tmp_path) -> pathlib.Path:
    path = tmp_path / "x.parquet"
    path.write_bytes(with_more_rows(written(10, write_statistics=False, store_schema=False, **request.param), 10, 20))
    assert pq.ParquetFile(path).metadata.row_group(0).num_rows == 20
    return path


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_rows_that_the_pages_do_not_have_are_missed(place, reader):
    with pytest.raises(InputError):
        reader(place)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_whole_files_are_read(tmp_path, reader):
    (tmp_path / "x.parquet").write_bytes(written(10, write_page_checksum=True))
    reader(tmp_path / "x.parquet")


def test_a_csv_file_that_lost_rows_after_it_was_listed(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "1,2\n" * 10)
    (shard,) = shards(path, SCALARS)
    with pytest.raises(InputError, match="doesn't hold the number of rows that was counted"):
        list(shard_rows.read_batches(dataclasses.replace(shard, n_rows=11), SCALARS.types))


def damaged(content: bytes, column: int) -> bytes:
    """The file with another byte in the middle of the last page of a column."""
    chunk = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(column)
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    place = start + chunk.total_compressed_size - 4
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "options", [dict(use_dictionary=False), dict(compression="zstd"), dict(data_page_version="2.0")]
)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_damaged_page_is_refused(tmp_path, reader, options):
    content = written(1000, write_page_checksum=True, **{"compression": "none"} | options)
    (tmp_path / "x.parquet").write_bytes(damaged(content, 1))
    with pytest.raises(InputError) as caught:
        reader(tmp_path / "x.parquet")
    if reader not in (READERS["table"],):
        assert "doesn't match its checksum" in str(caught.value)


def test_a_damaged_dictionary_is_refused(tmp_path):
    table = pa.table({"a": np.tile([1.25, 77.5], 500), "b": np.tile([1.0, 2.0], 500)})
    pq.write_table(table, tmp_path / "x.parquet", compression="none", write_page_checksum=True, write_statistics=False)
    raw = (tmp_path / "x.parquet").read_bytes()
    assert raw.count(np.float64(77.5).tobytes()) == 1
    (tmp_path / "x.parquet").write_bytes(raw.replace(np.float64(77.5).tobytes(), np.float64(99.5).tobytes()))
    with pytest.raises(InputError, match="doesn't match its checksum"):
        READERS["blocks"](tmp_path / "x.parquet")


def test_a_damaged_page_of_a_packed_file_is_refused(tmp_path):
    column, packing = packed_rows.pack(np.arange(4000.0).reshape(1000, 4), "x")
    table = pa.table({packing.column: column}).replace_schema_metadata(packed_rows.metadata_of(packing))
    pq.write_table(table, tmp_path / "x.parquet", compression="none", use_dictionary=False, write_page_checksum=True)
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(damaged(content, 0))
    contract = TableContract(feature_list="x")
    with pytest.raises(InputError, match="doesn't match its checksum"):
        [list(shard_rows.read_blocks(each, contract)) for each in shards(tmp_path / "x.parquet", contract)]


def test_all_that_decodes_rows_compares_them():
    """Rows leave Parquet files by these calls of Arrow; each is in a module that compares them with the footer."""
    calls = {"read_row_groups", "read_row_group", "iter_batches", "scan_contents"}
    found = set()
    for package in ("schemas", "transforms", "pipelines", "dapple_dp"):
        for path in (ROOT / package).rglob("*.py"):
            if "arquet" not in path.read_text():
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls
                if named:
                    found.add(str(path.relative_to(ROOT)))
    # A packed file hands on what it reads to the callers in `shard_rows`.
    assert found == {
        "transforms/tables/shard_rows.py",
        "transforms/files/untrusted.py",
        "transforms/files/formats/packed_rows.py",
    }


def test_readers_of_reports_use_the_same_function():
    assert batches.read_row_group is shard_rows.read_row_group
