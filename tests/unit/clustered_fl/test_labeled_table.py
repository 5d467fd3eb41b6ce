"""Labeled rows: which are valid, in which order, and what is said of the others."""

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.errors import InputError, SchemaMismatchError
from dapple_dp.schemas.tables.contract import TableContract

TABLE = pa.table(
    {
        "a": [0.0, 1.0, 2.0, 3.0],
        "b": [0.5, 1.5, None, 3.5],
        "y": pa.array([2, None, 1, 0], pa.int8()),
        "who": ["p", "q", "p", "q"],
        "kind": ["s", "t", "s", "t"],
    }
)


def contract(on_invalid_rows: InvalidRows = InvalidRows.FAIL, group: str | None = "kind") -> LabeledContract:
    table = TableContract(
        features=("a", "b"), client_id="who", n_features=2, by_client=True, on_invalid_rows=on_invalid_rows
    )
    return LabeledContract(table=table, label="y", n_classes=3, group=group)


def test_columns_are_read_once():
    assert contract().columns == ("a", "b", "who", "y", "kind")
    assert contract(group=None).columns == ("a", "b", "who", "y")


def test_invalid_rows_are_dropped():
    rows = contract(InvalidRows.DROP).to_rows(TABLE, "here")
    np.testing.assert_array_equal(rows.points, [[0.0, 0.5], [3.0, 3.5]])
    np.testing.assert_array_equal(rows.labels, [2, 0])
    assert rows.labels.dtype == np.int64
    assert rows.ids.to_pylist() == ["p", "q"]
    assert rows.groups.to_pylist() == ["s", "t"]


@pytest.mark.parametrize("label", [3, -1])
def test_labels_that_are_no_class_are_invalid(label):
    table = TABLE.slice(0, 1).set_column(2, "y", pa.array([label]))
    assert len(contract(InvalidRows.DROP).to_rows(table, "here").labels) == 0
    with pytest.raises(InputError, match=r"column 'y' of here must hold integers from 0 to 2 only"):
        contract().to_rows(table, "here")


@pytest.mark.parametrize(("name", "named"), [("who", "'who' or 'kind'"), ("kind", "'who' or 'kind'")])
def test_rows_name_their_client_and_group(name, named):
    index = TABLE.column_names.index(name)
    table = TABLE.slice(0, 1).set_column(index, name, pa.array([None], pa.string()))
    with pytest.raises(InputError, match=f"column {named} of here must name a client and its group"):
        contract().to_rows(table, "here")


def test_errors_hold_no_value():
    with pytest.raises(InputError) as error:
        contract().to_rows(TABLE.slice(2, 1).set_column(0, "a", pa.array([np.inf])), "here")
    assert "inf " not in str(error.value)
    assert "'a' of here" in str(error.value)


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("y", pa.array([0.0]), "column 'y' of here must hold integer classes"),
        ("kind", pa.array([0.0]), "column 'kind' of here must hold integers or strings"),
        ("a", pa.array(["x"]), "column 'a' of here must be numeric"),
    ],
)
def test_other_types_are_refused(name, values, rule):
    table = TABLE.slice(0, 1).set_column(TABLE.column_names.index(name), name, values)
    with pytest.raises(SchemaMismatchError, match=rule):
        contract().to_rows(table, "here")


def test_dictionaries_are_read_as_what_they_stand_for():
    table = TABLE.slice(0, 1)
    for name in ("y", "who", "kind"):
        index = table.column_names.index(name)
        table = table.set_column(index, name, table.column(name).dictionary_encode())
    rows = contract().to_rows(table, "here")
    assert (rows.labels.tolist(), rows.groups.to_pylist()) == ([2], ["s"])


def test_no_rows_are_no_error():
    assert len(contract().to_rows(TABLE.slice(0, 0), "here").labels) == 0
