"""Rows packed into one column of bytes read as if they were not; a file that is wrong about its packing is refused."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.formats import packed_rows
from dapple_dp.transforms.files.formats.packed_rows import METADATA, PackedFile
from dapple_dp.transforms.tables.file_seal import seal_of
from dapple_dp.transforms.tables.listing import ListedFile
from dapple_dp.transforms.tables.read import _list_row_groups
from dapple_dp.transforms.tables.shard_rows import read_blocks

REFUSAL = Refusal(kind=InputError, rule="the file must be a good one", remedy="write it again")
POINTS = np.array([[1.5, -2.0, 0.1], [np.nan, 1e30, 5e-324], [0.0, -0.0, 3.0], [7.0, 8.0, 9.0]])
IDS = [7, 7, 8, 9]
CONTRACT = TableContract(feature_list="x", n_features=20)


def written(points, compression: str = "none", **changed) -> io.BytesIO:
    """A packed file of row groups of three rows, which may say something else than it holds."""
    column, packing = packed_rows.pack(points, "x")
    table = pa.table({"x": column, "id": [IDS[row % 4] for row in range(len(points))]})
    file = io.BytesIO()
    named = table.replace_schema_metadata({METADATA: json.dumps(packing.model_dump() | changed)})
    pq.write_table(named, file, row_group_size=3 if len(points) < 9 else len(points), compression=compression)
    return file


def matrix(table: pa.Table) -> np.ndarray:
    return np.concatenate([chunk.flatten().to_numpy() for chunk in table["x"].chunks]).reshape(len(table), -1)


@pytest.mark.parametrize("kind", [np.float64, np.float32, ">f8"])
def test_rows_are_those_that_were_packed(kind):
    points = POINTS.astype(kind)
    file = untrusted.parquet_of(written(points), REFUSAL)
    assert isinstance(file, PackedFile)
    whole = file.read()
    assert matrix(whole).tobytes() == points.astype(points.dtype.newbyteorder("<")).tobytes()
    assert whole["id"].to_pylist() == IDS
    assert file.schema_arrow.equals(whole.schema)
    assert file.schema_arrow.names == ["x", "id"]
    assert matrix(file.read_row_group(1)).tolist() == [[7.0, 8.0, 9.0]]
    batches = list(file.iter_batches(2, columns=["x"]))
    assert matrix(pa.Table.from_batches(batches)).tobytes() == matrix(whole).tobytes()


def test_columns_come_as_they_are_asked_for():
    file = untrusted.parquet_of(written(POINTS), REFUSAL)
    assert file.read(["id"])["id"].to_pylist() == IDS
    assert file.read(["id"]).column_names == ["id"]
    assert next(file.iter_batches(2, row_groups=[1], columns=["x"]))["x"].to_pylist() == [[7.0, 8.0, 9.0]]


LIES = (
    {"width": 4},
    {"width": 0},
    {"width": 1 << 40},
    {"kind": "float"},
    {"kind": "half"},
    {"column": "id"},
    {"column": "y"},
    {"more": 1},
)


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_file_that_lies_about_its_packing_is_refused(lie):
    with pytest.raises(InputError, match="must be a good one"):
        untrusted.parquet_of(written(POINTS, **lie), REFUSAL)


def rows_of(path, file: io.BytesIO) -> list:
    contract = TableContract(feature_list="x", client_id="id", by_client=True)
    path.write_bytes(file.getvalue())
    shards = _list_row_groups(ListedFile(str(path), str(path), seal_of(str(path)).text), contract)
    return [block.points for shard in shards for block in read_blocks(shard, contract)]


def test_a_row_without_numbers_is_refused_where_it_is_read(tmp_path):
    table = pq.read_table(written(POINTS[2:]))
    column = pa.array([table[0][0].as_py(), None], table.schema.field(0).type)
    file = io.BytesIO()
    pq.write_table(table.set_column(0, table.schema.field(0), column), file)
    with pytest.raises(InputError, match="could not be read"):
        rows_of(tmp_path / "a.parquet", file)


def test_few_bytes_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    """The width of a list is known by the packing only, and a packed column is one value a row."""
    monkeypatch.setattr("dapple_dp.transforms.tables.read._BOMB_BYTES", 1 << 20)
    with pytest.raises(InputError, match="times its size on disk"):
        rows_of(tmp_path / "a.parquet", written(np.zeros((400, 4096)), "zstd"))


def test_the_width_of_lists_need_not_be_known(tmp_path):
    (first, second) = rows_of(tmp_path / "a.parquet", written(POINTS[[0, 2, 3, 3]]))
    assert first.tolist() == POINTS[[0, 2, 3]].tolist()
    assert second.tolist() == POINTS[[3]].tolist()


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_row_group_on_a_disk_is_not_held_as_a_whole(tmp_path, packed):
    points = np.random.default_rng(0).normal(size=(100_000, 20))
    plain = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 20)})
    table = pq.read_table(written(points)).select(["x"]) if packed else plain
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=len(points), use_dictionary=False)
    shards = list(_list_row_groups(ListedFile(str(path), str(path), seal_of(str(path)).text), CONTRACT))
    del table, plain
    start, most, found = pa.total_allocated_bytes(), 0, []
    for block in read_blocks(shards[0], CONTRACT):
        most = max(most, pa.total_allocated_bytes() - start)
        found.append(block.points.copy())
    assert len(shards) == 1
    assert np.array_equal(np.concatenate(found), points)
    assert most < points.nbytes // 3


def test_wide_rows_come_fewer_at_a_time(tmp_path):
    points, path = np.arange(4000 * 1200, dtype=np.float64).reshape(4000, 1200), tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 1200)}), path)
    contract = TableContract(feature_list="x", n_features=1200)
    (shard,) = _list_row_groups(ListedFile(str(path), str(path), seal_of(str(path)).text), contract)
    blocks = [block.points for block in read_blocks(shard, contract)]
    assert max(map(len, blocks)) < 2000
    assert np.array_equal(np.concatenate(blocks), points)
