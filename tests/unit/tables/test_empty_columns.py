"""Columns without a value, files without rows, and columns that are in the names of folders."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.encoded_column import OneHotColumn, ScaledColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.tables import shard_rows
from dapple_dp.transforms.tables.file_seal import seal_of
from dapple_dp.transforms.tables.listing import FileList, ListedFile, OneListing
from dapple_dp.transforms.tables.on_launcher import first_schema
from dapple_dp.transforms.tables.read import _list_row_groups
from dapple_dp.transforms.tables.source import Source, find_files

DROP = {"on_invalid_rows": InvalidRows.DROP}
CLIENTS = {"client_id": "id", "by_client": True}
EMPTY = pa.nulls(2)


def rows(folder, columns, name="x.parquet", **settings) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / name)
    pq.write_table(pa.table(columns), path)
    contract = TableContract(**settings)
    shards = _list_row_groups(ListedFile(path, path, seal_of(path).text), contract)
    blocks = [block.points for shard in shards for block in shard_rows.read_blocks(shard, contract)]
    return np.concatenate(blocks) if blocks else np.zeros((0, 0))


@pytest.mark.parametrize("unit", [{}, CLIENTS])
def test_a_column_without_a_value_is_one_of_missing_values(tmp_path, unit):
    columns = {"a": EMPTY, "b": [1.0, 2.0], "id": [1, 2]}
    settings = {"features": ("a", "b"), "n_features": 2} | unit
    assert len(rows(tmp_path, columns, **settings, **DROP)) == 0
    with pytest.raises(InputError, match=r"column 'a' .* got a null, NaN or infinity"):
        rows(tmp_path, columns, **settings)


def test_a_column_of_clients_without_a_value(tmp_path):
    columns = {"a": [1.0, 2.0], "id": EMPTY}
    settings = {"features": ("a",), "n_features": 1} | CLIENTS
    assert len(rows(tmp_path, columns, **settings, **DROP)) == 0
    with pytest.raises(InputError, match=r"column 'id' .* got a null"):
        rows(tmp_path, columns, **settings)


@pytest.mark.parametrize("column", [EMPTY, pa.array([None, []], pa.list_(pa.null())), pa.array([[None], [None, None]])])
def test_lists_without_a_number(tmp_path, column):
    settings = {"feature_list": "x", "n_features": 2}
    assert len(rows(tmp_path, {"x": column}, **settings, **DROP)) == 0
    with pytest.raises(InputError):
        rows(tmp_path, {"x": column}, **settings)


def test_encoded_columns_without_a_value(tmp_path):
    columns = (ScaledColumn(column="a"), OneHotColumn(column="s", vocabulary=("u", "v")))
    settings = {"features": ("a", "s"), "n_features": 3, "encoder": Encoder(columns=columns)}
    assert len(rows(tmp_path, {"a": [1.0, 2.0], "s": EMPTY}, **settings, **DROP)) == 0
    assert len(rows(tmp_path, {"a": EMPTY, "s": ["u", "v"]}, **settings, **DROP)) == 0
    with pytest.raises(InputError, match="column 's'"):
        rows(tmp_path, {"a": [1.0, 2.0], "s": EMPTY}, **settings)


@pytest.mark.parametrize("kind", [pa.string(), pa.null(), pa.date32(), pa.list_(pa.string())])
def test_a_file_without_rows_has_no_type_to_object_to(tmp_path, kind):
    assert rows(tmp_path, {"a": pa.array([], kind)}, features=("a",), n_features=1).size == 0
    with pytest.raises(InputError, match="must be numeric"):
        rows(tmp_path, {"a": ["text"]}, features=("a",), n_features=1)


def test_the_first_file_with_rows_says_the_types(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "b.parquet")
    listed = OneListing(lambda: FileList.of(find_files(str(tmp_path), {}), "data.path"))
    path, schema = first_schema(Source(path=str(tmp_path), listed=listed), {"a": pa.float64()})
    assert path == str(tmp_path / "b.parquet")
    assert schema.field("a").type == pa.float64()


def test_columns_in_the_names_of_folders_are_features(tmp_path):
    settings = {"features": ("b", "a"), "n_features": 2}
    assert rows(tmp_path / "a=1.5", {"b": [3.0]}, **settings).tolist() == [[3.0, 1.5]]
    assert rows(tmp_path / "a=1" / "a=2", {"b": [3.0]}, **settings).tolist() == [[3.0, 2.0]]
    assert rows(tmp_path / "a=7", {"b": [3.0], "a": [4.0]}, **settings).tolist() == [[3.0, 4.0]]
    null = tmp_path / "a=__HIVE_DEFAULT_PARTITION__"
    assert len(rows(null, {"b": [3.0]}, **settings, **DROP)) == 0
    with pytest.raises(InputError, match="got a null, NaN or infinity"):
        rows(null, {"b": [3.0]}, **settings)
    with pytest.raises(InputError, match="is in the name of a folder and must be double"):
        rows(tmp_path / "a=north", {"b": [3.0]}, **settings)


def test_categories_in_the_names_of_folders(tmp_path):
    columns = (ScaledColumn(column="a"), OneHotColumn(column="s", vocabulary=("u v", "w")))
    settings = {"features": ("a", "s"), "n_features": 3, "encoder": Encoder(columns=columns)}
    assert rows(tmp_path / "s=u%20v", {"a": [1.0]}, **settings).tolist() == [[1.0, 1.0, 0.0]]
