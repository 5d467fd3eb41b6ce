"""The input-table contract: schemas, conversion to arrays, invalid rows, grouping by client."""

import decimal
import io
import pickle
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import ConfigError, InputError, SchemaMismatchError
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.tables.columns import group_by_client
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.transforms.tables.on_launcher import ServerFiles

WHERE = "lake/part-0.parquet, row group 3"
NAN, INF = float("nan"), float("inf")


def scalars(*names, **settings):
    return TableContract(features=names, n_features=len(names), **settings)


def embedding(**settings):
    return TableContract(feature_list="x", **settings)


def drop(**settings):
    return {"on_invalid_rows": InvalidRows.DROP} | settings


def refusal(action, *arguments, kind=InputError):
    with pytest.raises(kind) as caught:
        action(*arguments)
    assert type(caught.value) is kind
    assert caught.value.exit_code == 2
    assert caught.value.args == (str(caught.value),)
    assert str(caught.value)[-1] in ".?"
    return str(caught.value)


def test_contract_of_scalar_columns():
    config = DataConfig(path="lake", features=["a", "b"], client_id="id", on_invalid_rows="drop")
    contract = TableContract.from_config(config)
    assert contract == scalars("a", "b", client_id="id", **drop())
    assert contract.columns == ("a", "b")
    by_client = TableContract.from_config(config, by_client=True)
    assert by_client.columns == ("a", "b", "id")
    assert by_client.features_only().columns == ("a", "b")
    assert pickle.loads(pickle.dumps(contract)) == contract


def test_names_of_a_list_column_say_how_wide_it_is():
    config = DataConfig(path="lake", features="x", feature_names=["age", "hours"])
    assert TableContract.from_config(config) == embedding(n_features=2)
    with pytest.raises(ConfigError, match=r"data.feature_names must name all 3 numbers .* got 2 names"):
        TableContract.from_config(config, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_names": ["a", "a"]}, "without duplicates, got 'a' more than once"),
        ({"feature_names": []}, "a non-empty list of names"),
        ({"feature_names": ["a", " "]}, "a non-empty list of names"),
        ({"feature_names": "ab"}, "a non-empty list of names"),
        ({"features": ["a", "b"], "feature_names": ["c", "d"]}, "isn't supported if data.features is a list"),
    ],
)
def test_names_of_a_list_column_are_checked(changes, message):
    with pytest.raises(ConfigError, match=message):
        rejection.check_config(DataConfig, {"path": "lake", "features": "x"} | changes)


def test_names_and_width_are_dumped():
    plain = DataConfig(path="lake", features="x").model_dump(mode="json")
    named = DataConfig(path="lake", features="x", feature_names=["a"], width=1).model_dump(mode="json")
    assert (plain["feature_names"], plain["width"], plain["except"]) == (None, None, None)
    assert named == plain | {"feature_names": ["a"], "width": 1}


def test_the_width_of_a_list_column_may_stand_in_the_job():
    data = DataConfig(path="p", features="x", width=2)
    contract = TableContract.from_config(data)
    assert contract.n_features == 2
    lists = pa.table({"x": pa.array([[1.0, 2.0], [3.0, 4.0]])})
    np.testing.assert_array_equal(contract.to_points(lists, WHERE), [[1, 2], [3, 4]])
    with pytest.raises(SchemaMismatchError, match="have width 2, got 3"):
        contract.check_schema(pa.schema({"x": pa.list_(pa.float64(), 3)}), WHERE)
    with pytest.raises(ConfigError, match=r"data\.width must be 3 like that of the server data or the model, got 2"):
        TableContract.from_config(data, n_features=3)


@pytest.mark.parametrize("width", [0, -1, 1 << 13 | 1, 1 << 31, 1 << 70, 2.0, True, "2", float("nan")], ids=str)
def test_widths_that_no_row_can_have_are_refused(width):
    with pytest.raises(ValueError, match="width"):
        DataConfig(path="p", features="x", width=width)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": ["a"], "width": 1}, "data.width isn't supported if data.features is a list of columns"),
        ({"features": "x", "width": 2, "feature_names": ["a"]}, "data.feature_names must name all 2 numbers that"),
    ],
)
def test_a_width_that_contradicts_the_job_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(path="p", **settings)


ODD_LISTS = [[1.0], [1.0, 2.0, 9e9], [], None, [1.0, None], [None, None], [1.0, float("nan")]]


@pytest.mark.parametrize("odd", ODD_LISTS, ids=str)
def test_a_list_that_is_not_of_the_width_is_an_invalid_row(odd):
    lists = pa.table({"x": pa.array([[1.0, 2.0], odd, [3.0, 4.0]], pa.list_(pa.float64()))})
    drop = TableContract.from_config(DataConfig(path="p", features="x", width=2, on_invalid_rows="drop"))
    np.testing.assert_array_equal(drop.to_points(lists, WHERE), [[1, 2], [3, 4]])
    fail = TableContract.from_config(DataConfig(path="p", features="x", width=2))
    with pytest.raises(InputError) as caught:
        fail.to_points(lists, WHERE)
    assert "9" not in str(caught.value).replace(WHERE, "")


def test_contract_of_a_list_column():
    config = DataConfig(path="lake", features="x")
    assert TableContract.from_config(config) == embedding()
    assert TableContract.from_config(config, 5).n_features == 5
    assert TableContract.from_config(config).columns == ("x",)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "features must be given if and only if feature_list is not"),
        ({"features": ("a",), "n_features": 1, "feature_list": "x"}, "features must be given if and only if"),
        ({"features": ("a",), "n_features": 2}, "n_features must be the number of features, 1, got 2"),
        ({"features": ("a",)}, "n_features must be the number of features, 1, got None"),
        ({"feature_list": "x", "by_client": True}, "client_id must be a column if by_client is set, got None"),
    ],
)
def test_a_contract_that_contradicts_itself_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        TableContract(**settings)


def test_extra_columns_and_another_order_are_no_matter():
    schema = pa.schema({"note": pa.string(), "b": pa.int8(), "a": pa.float64()})
    scalars("a", "b").check_schema(schema, WHERE)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.decimal128(5, 2),
        pa.decimal256(50, 2),
        pa.dictionary(pa.int32(), pa.float32()),
    ],
)
def test_every_numeric_type_is_accepted(kind):
    scalars("a").check_schema(pa.schema({"a": kind}), WHERE)
    embedding().check_schema(pa.schema({"x": pa.list_(kind, 3)}), WHERE)
    embedding(n_features=3).check_schema(pa.schema({"x": pa.large_list(kind)}), WHERE)


@pytest.mark.parametrize(
    "kind", [pa.int16(), pa.string(), pa.large_binary(), pa.binary(16), pa.string_view(), pa.uuid()]
)
def test_every_type_of_client_id_is_accepted(kind):
    contract = scalars("a", client_id="id", by_client=True)
    contract.check_schema(pa.schema({"a": pa.int8(), "id": kind}), WHERE)
    contract.check_schema(pa.schema({"a": pa.int8(), "id": pa.dictionary(pa.int8(), pa.string())}), WHERE)


BY_CLIENT = scalars("age", client_id="id", by_client=True)
MISMATCHES = [
    (scalars("age"), {"agee": pa.int8()}, "not found in {}; did you mean 'agee'?"),
    (
        scalars("age"),
        {"x": pa.int8(), "y": pa.int8()},
        "not found in {}; its columns are 'x', 'y'.",
    ),
    (scalars("age"), {}, "not found in {}; its columns are none."),
    (scalars("age"), {"age": pa.string()}, "must be numeric, got string; cast it or leave it out of data.features."),
    (scalars("age"), {"age": pa.null()}, "must be numeric, got null; cast it or leave it out of data.features."),
    (scalars("age"), {"age": pa.timestamp("s")}, "must be numeric, got timestamp[s]; count it in days"),
    (scalars("age"), {"age": pa.dictionary(pa.int8(), pa.string())}, "must be numeric, got string; cast it or"),
    (scalars("age"), {"age": pa.list_(pa.float32(), 2)}, "must be numeric, got fixed_size_list<"),
    (embedding(), {"x": pa.float32()}, "must be a list of numbers, got float; cast it, or write data.features as a"),
    (embedding(), {"x": pa.list_(pa.string(), 2)}, "must be a list of numbers, got fixed_size_list<"),
    (embedding(), {"x": pa.list_(pa.list_(pa.float32()))}, "must be a list of numbers, got list<"),
    (embedding(n_features=3), {"x": pa.list_(pa.float32(), 2)}, "must have width 3, got 2; use data of one width"),
    (embedding(), {"x": pa.list_(pa.float32(), 0)}, "must have width >= 1, got 0; use data of one width"),
    (BY_CLIENT, {"age": pa.int8(), "idd": pa.int8()}, "not found in {}; did you mean 'idd'?"),
    (BY_CLIENT, {"age": pa.int8(), "id": pa.float64()}, "must hold integers, strings or bytes, got double; cast it."),
]


@pytest.mark.parametrize(("contract", "fields", "rest"), MISMATCHES)
def test_a_schema_that_breaks_the_contract_is_refused(contract, fields, rest):
    schema = pa.schema(fields)
    column = "id" if contract.by_client else contract.columns[0]
    found = refusal(contract.check_schema, schema, WHERE, kind=SchemaMismatchError)
    said = rest.format(WHERE) if "{}" in rest else f"of {WHERE} {rest}"
    assert found.startswith(f"column {column!r} {said}")
    assert refusal(contract.to_block, schema.empty_table(), WHERE, kind=SchemaMismatchError) == found


def test_a_column_that_appears_twice_is_refused():
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    found = refusal(scalars("a").to_points, table, WHERE, kind=SchemaMismatchError)
    assert found == f"column 'a' of {WHERE} must appear once, got 2 columns of that name; rename the others."


def test_width_of_a_list_column():
    assert embedding().list_width(pa.schema({"x": pa.list_(pa.float32(), 7)}), WHERE) == 7
    schema = pa.schema({"x": pa.list_(pa.float32())})
    found = refusal(embedding().list_width, schema, WHERE, kind=SchemaMismatchError)
    assert found.startswith(f"column 'x' of {WHERE} must be a fixed-size list, got list<")


def test_columns_come_in_the_order_of_the_contract():
    table = pa.table({"b": [1.0, 2.0], "extra": ["p", "q"], "a": [3.0, 4.0]})
    points = scalars("a", "b").to_points(table, WHERE)
    np.testing.assert_array_equal(points, [[3.0, 1.0], [4.0, 2.0]])
    assert points.dtype == np.float64
    assert points.flags.c_contiguous


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.array([2**53 + 1, 2**64 - 1], pa.uint64()), [2.0**53, 2.0**64]),
        (pa.array([True, False]), [1, 0]),
        (pa.array(np.array([0.5, -2], np.float16)), [0.5, -2]),
        (pa.array([decimal.Decimal("1.25"), decimal.Decimal("-3")], pa.decimal128(9, 2)), [1.25, -3]),
        (pa.array([1.5, 2.5]).dictionary_encode(), [1.5, 2.5]),
        (pa.array([7, 7]).dictionary_encode(), [7, 7]),
    ],
)
def test_other_numbers_become_float64(column, expected):
    points = scalars("a").to_points(pa.table({"a": column}), WHERE)
    assert points.dtype == np.float64
    np.testing.assert_array_equal(points[:, 0], expected)
    listed = pa.table({"x": pa.FixedSizeListArray.from_arrays(column, 2)})
    np.testing.assert_array_equal(embedding().to_points(listed, WHERE), [expected])


@pytest.mark.parametrize(
    ("types", "expected"),
    [(("f4", "f4"), np.float32), (("f4", "f8"), np.float64), (("f2", "f2"), np.float64), (("f4", "i2"), np.float64)],
)
def test_float32_is_kept_when_all_columns_are(types, expected):
    table = pa.table({name: np.arange(3, dtype=kind) for name, kind in zip("ab", types, strict=True)})
    points = scalars("a", "b").to_points(table, WHERE)
    assert points.dtype == expected
    np.testing.assert_array_equal(points, [[0, 0], [1, 1], [2, 2]])


def test_dictionary_of_float32_stays_float32():
    table = pa.table({"a": pa.array([1.5, 1.5], pa.float32()).dictionary_encode()})
    assert scalars("a").to_points(table, WHERE).dtype == np.float32


def test_a_fixed_size_list_of_float32_is_not_copied():
    values = np.arange(12, dtype=np.float32)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(values), 3)})
    points = embedding().to_points(table, WHERE)
    assert np.shares_memory(points, values)
    sliced = embedding().to_points(table.slice(1, 2), WHERE)
    assert np.shares_memory(sliced, values)
    np.testing.assert_array_equal(sliced, values.reshape(4, 3)[1:3])


def _some_lists():
    return [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 10.0]]


LIST_TYPES = [pa.list_(pa.float64(), 2), pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.int16(), 2)]


@pytest.mark.parametrize("kind", LIST_TYPES)
def test_slices_and_chunks_of_lists(kind):
    whole = pa.array(_some_lists(), kind)
    chunks = pa.chunked_array([whole[1:3], whole[:0], whole[4:], whole[:1]])
    points = embedding().to_points(pa.table({"x": chunks}), WHERE)
    np.testing.assert_array_equal(points, [[3, 4], [5, 6], [9, 10], [1, 2]])
    np.testing.assert_array_equal(embedding().to_points(pa.table({"x": chunks}).slice(1, 2), WHERE), [[5, 6], [9, 10]])


@pytest.mark.parametrize("kind", LIST_TYPES)
def test_slices_of_lists_with_nulls(kind):
    whole = pa.array([None, *_some_lists()[:2], None, [5.0, None], [7.0, 8.0]], kind)
    table = pa.table({"x": whole})
    np.testing.assert_array_equal(embedding().to_points(table.slice(1, 2), WHERE), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(embedding(**drop()).to_points(table.slice(2), WHERE), [[3, 4], [7, 8]])


def test_a_null_list_with_finite_numbers_beneath_is_a_null():
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2, mask=pa.array([False, True, False]))
    table = pa.table({"x": lists})
    assert "got a null, NaN or infinity" in refusal(embedding().to_points, table, WHERE)
    np.testing.assert_array_equal(embedding(**drop()).to_points(table, WHERE), [[0, 1], [4, 5]])


@pytest.mark.parametrize("contract", [scalars("a", "b"), scalars("a", "b", **drop())])
def test_no_rows_of_scalars(contract):
    table = pa.table({"a": pa.array([], pa.float32()), "b": pa.array([], pa.float32())})
    assert contract.to_points(table, WHERE).shape == (0, 2)
    assert contract.to_points(table.schema.empty_table(), WHERE).dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "n_features", "width"),
    [(pa.list_(pa.float32(), 4), None, 4), (pa.list_(pa.float32()), 4, 4), (pa.list_(pa.float32()), None, 0)],
)
def test_no_rows_of_lists(kind, n_features, width):
    for table in (pa.table({"x": pa.array([], kind)}), pa.table({"x": pa.chunked_array([], kind)})):
        points = embedding(n_features=n_features).to_points(table, WHERE)
        assert (points.shape, points.dtype) == ((0, width), np.float32)


@pytest.mark.parametrize("value", [None, NAN, INF, -INF])
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_value_that_is_not_finite(value, kind):
    column = pa.array([1.0, value, 2.0], kind)
    table = pa.table({"a": pa.array([1.0, 2.0, 3.0]), "b": column})
    found = refusal(scalars("a", "b").to_points, table, WHERE)
    assert found == (
        f"column 'b' of {WHERE} must hold finite numbers only, got a null, NaN or infinity; "
        "correct the data or set data.on_invalid_rows to drop, or give a fit of "
        "numbers a public fill by data.missing."
    )
    np.testing.assert_array_equal(scalars("a", "b", **drop()).to_points(table, WHERE), [[1, 1], [3, 2]])


@pytest.mark.parametrize("value", [None, NAN, INF])
@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float64())])
def test_a_value_in_a_list_that_is_not_finite(value, kind):
    table = pa.table({"x": pa.array([[1.0, 2.0], [3.0, value], [5.0, 6.0]], kind)})
    found = refusal(embedding().to_points, table, WHERE)
    assert found.startswith(f"column 'x' of {WHERE} must hold finite numbers only, got a null, NaN or infinity; ")
    np.testing.assert_array_equal(embedding(**drop()).to_points(table, WHERE), [[1, 2], [5, 6]])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None], pa.int64()),
        pa.array([True, None]),
        pa.array([decimal.Decimal(1), None], pa.decimal128(3, 0)),
        pa.DictionaryArray.from_arrays([0, None], pa.array([1.0])),
        pa.DictionaryArray.from_arrays([0, 1], pa.array([1.0, None])),
        pa.chunked_array([pa.array([1.0]), pa.array([None], pa.float64())]),
    ],
)
def test_nulls_of_other_types(column):
    table = pa.table({"a": column})
    assert refusal(scalars("a").to_points, table, WHERE).startswith(f"column 'a' of {WHERE} must hold finite")
    np.testing.assert_array_equal(scalars("a", **drop()).to_points(table, WHERE), [[1.0]])


def test_large_finite_values_are_no_false_alarm():
    for kind in (np.float32, np.float64):
        table = pa.table({"a": np.full(5, np.finfo(kind).max, kind)})
        np.testing.assert_array_equal(scalars("a").to_points(table, WHERE)[:, 0], np.finfo(kind).max)


def test_every_row_may_be_invalid():
    table = pa.table({"a": [NAN, NAN]})
    assert scalars("a", **drop()).to_points(table, WHERE).shape == (0, 1)


def test_messages_hold_no_value():
    secret = 123456.789
    for table in (pa.table({"a": [secret, NAN]}), pa.table({"a": pa.array([2**63 + 1, None], pa.uint64())})):
        found = refusal(scalars("a").to_points, table, WHERE)
        assert "123456" not in found
        assert str(2**63 + 1) not in found


RAGGED = pa.table({"x": pa.array([[1.0, 2.0], [3.0], None, [5.0, 6.0]])})


def test_lists_of_another_length():
    found = refusal(embedding(n_features=2).to_points, RAGGED, WHERE, kind=SchemaMismatchError)
    assert found.startswith(f"column 'x' of {WHERE} must have lists of length 2, got another length; ")
    np.testing.assert_array_equal(embedding(n_features=2, **drop()).to_points(RAGGED, WHERE), [[1, 2], [5, 6]])


@pytest.mark.parametrize("settings", [{}, drop()])
def test_the_width_of_variable_lists_is_not_guessed(settings):
    found = refusal(embedding(**settings).to_points, RAGGED, WHERE, kind=SchemaMismatchError)
    assert found.startswith(f"column 'x' of {WHERE} must have lists of one length, got another length; ")
    nothing = pa.table({"x": pa.array([None, None], pa.list_(pa.float64()))})
    found = refusal(embedding(**settings).to_points, nothing, WHERE, kind=SchemaMismatchError)
    assert found.startswith(f"column 'x' of {WHERE} must have at least one list with a number, got none; ")


def test_record_level_blocks_have_no_offsets():
    contract = scalars("a", client_id="id")
    block = contract.to_block(pa.table({"a": [1.0, 2.0], "id": ["p", None]}), WHERE)
    assert block.offsets is None
    np.testing.assert_array_equal(block.points, [[1], [2]])


CLIENT_IDS = [
    pa.array([30, 10, 30, 20, 10]),
    pa.array(["c", "a", "c", "b", "a"]),
    pa.array(["c", "a", "c", "b", "a"], pa.large_string()),
    pa.array(["c", "a", "c", "b", "a"], pa.string_view()),
    pa.array([b"c", b"", b"c", b"b", b""]),
    pa.array([b"cc", b"aa", b"cc", b"bb", b"aa"], pa.binary(2)),
    pa.array(["c", "a", "c", "b", "a"]).dictionary_encode(),
    pa.chunked_array([pa.array(["c", "a"]).dictionary_encode(), pa.array(["c", "b", "a"]).dictionary_encode()]),
    pa.chunked_array([["c"], [], ["a", "c", "b", "a"]], pa.string()),
    pa.array([uuid.UUID(int=index).bytes for index in (3, 1, 3, 2, 1)], pa.uuid()),
]


@pytest.mark.parametrize("ids", CLIENT_IDS, ids=lambda ids: str(ids.type))
def test_rows_are_sorted_stably_by_client(ids):
    contract = scalars("a", client_id="id", by_client=True)
    block = contract.to_block(pa.table({"a": [0.0, 1.0, 2.0, 3.0, 4.0], "id": ids}), WHERE)
    np.testing.assert_array_equal(block.points[:, 0], [0, 2, 1, 4, 3])
    np.testing.assert_array_equal(block.offsets, [0, 2, 4, 5])
    assert block.offsets.dtype == np.int64


def test_unique_ids_go_with_the_offsets():
    order, offsets, unique = group_by_client(pa.chunked_array([["c", "a"], ["c", "b", "a"]]))
    assert order.tolist() == [0, 2, 1, 4, 3]
    assert order.dtype == offsets.dtype == np.int64
    assert offsets.tolist() == [0, 2, 4, 5]
    assert unique.to_pylist() == ["c", "a", "b"]


def test_rows_that_are_grouped_already_are_not_copied():
    values = np.arange(8, dtype=np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values), 2)
    contract = embedding(client_id="id", by_client=True)
    block = contract.to_block(pa.table({"x": lists, "id": ["b", "b", "a", "c"]}), WHERE)
    assert np.shares_memory(block.points, values)
    assert block.offsets.tolist() == [0, 2, 3, 4]


NULL_IDS = [
    pa.array(["p", None, "q", "p"]),
    pa.array([1, None, 2, 1]),
    pa.DictionaryArray.from_arrays([0, 2, 1, 0], pa.array(["p", "q", None])),
]


@pytest.mark.parametrize("ids", NULL_IDS, ids=lambda ids: str(ids.type))
def test_a_null_client_id_makes_a_row_invalid(ids):
    table = pa.table({"a": [1.0, 2.0, NAN, 4.0], "id": ids})
    contract = scalars("a", client_id="id", by_client=True)
    found = refusal(contract.to_block, table.set_column(0, "a", pa.array([1.0, 2.0, 3.0, 4.0])), WHERE)
    assert found == (
        f"column 'id' of {WHERE} must name a client in every row, got a null; "
        "correct the data or set data.on_invalid_rows to drop."
    )
    block = scalars("a", client_id="id", by_client=True, **drop()).to_block(table, WHERE)
    np.testing.assert_array_equal(block.points, [[1], [4]])
    np.testing.assert_array_equal(block.offsets, [0, 2])


def test_points_do_not_depend_on_client_ids():
    table = pa.table({"a": [1.0, 2.0], "id": pa.array([None, 1])})
    np.testing.assert_array_equal(scalars("a", client_id="id", by_client=True).to_points(table, WHERE), [[1], [2]])


def test_no_clients():
    contract = scalars("a", client_id="id", by_client=True)
    schema = pa.schema({"a": pa.float64(), "id": pa.string()})
    for table in (schema.empty_table(), pa.table({"a": pa.array([], pa.float64()), "id": pa.array([], pa.string())})):
        block = contract.to_block(table, WHERE)
        assert block.points.shape == (0, 1)
        assert block.offsets.tolist() == [0]


def test_grouping_refuses_nulls():
    with pytest.raises(ValueError, match="ids must have no nulls"):
        group_by_client(pa.chunked_array([[1, None]]))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(ids=st.lists(st.integers(0, 6), max_size=40), cut=st.integers(0, 40))
def test_grouping_is_a_stable_partition(ids, cut):
    order, offsets, unique = group_by_client(pa.chunked_array([ids[:cut], ids[cut:]], pa.int64()))
    assert sorted(order.tolist()) == list(range(len(ids)))
    assert len(set(unique.to_pylist())) == len(unique) == len(offsets) - 1
    for client, start, stop in zip(unique.to_pylist(), offsets[:-1], offsets[1:], strict=True):
        assert order[start:stop].tolist() == [row for row, each in enumerate(ids) if each == client]


_FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def matrices(draw):
    n_rows, width = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(_FINITE, min_size=width, max_size=width), min_size=n_rows, max_size=n_rows))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return np.array(rows, dtype=dtype).reshape(n_rows, width)


def as_lists(points, kind):
    fixed_size = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
    return fixed_size if kind == "fixed" else fixed_size.cast(pa.list_(fixed_size.type.value_type))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(points=matrices(), cut=st.integers(0, 6), kind=st.sampled_from(["fixed", "variable"]))
def test_lists_round_trip(points, cut, kind):
    lists = as_lists(points, kind)
    table = pa.table({"x": pa.chunked_array([lists[:cut], lists[cut:]])})
    found = embedding(n_features=points.shape[1]).to_points(table, WHERE)
    assert found.dtype == points.dtype
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, points)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(points=matrices(), cut=st.integers(0, 6))
def test_scalars_round_trip(points, cut):
    names = [f"c{index}" for index in range(points.shape[1])]
    whole = pa.table(dict(zip(names, np.ascontiguousarray(points.T), strict=True)))
    table = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    found = scalars(*names).to_points(table, WHERE)
    assert found.dtype == points.dtype
    np.testing.assert_array_equal(found, points)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(points=matrices(), data=st.data())
def test_dropping_leaves_exactly_the_valid_rows(points, data):
    rows = points.astype(object)
    bad = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from([None, NAN, INF]))))
    for row, column, value in bad:
        if row < rows.shape[0] and column < rows.shape[1]:
            rows[row, column] = value
    valid = np.array([all(each is not None and np.isfinite(each) for each in row) for row in rows], dtype=bool)
    names = [f"c{index}" for index in range(points.shape[1])]
    columns = {name: pa.array(list(rows[:, index]), pa.float64()) for index, name in enumerate(names)}
    found = scalars(*names, **drop()).to_points(pa.table(columns), WHERE)
    np.testing.assert_array_equal(found, points[valid])
    lists = pa.table({"x": pa.array([list(row) for row in rows], pa.list_(pa.float64(), points.shape[1]))})
    np.testing.assert_array_equal(embedding(**drop()).to_points(lists, WHERE), points[valid])


@pytest.mark.parametrize("kind", LIST_TYPES)
def test_parquet_round_trip(kind):
    # Arrow writes null fixed-size lists to Parquet but refuses to read them back.
    null = [None, None] if pa.types.is_fixed_size_list(kind) else None
    rows = [*_some_lists(), null, [1.0, None]]
    table = pa.table({"x": pa.array(rows, kind), "id": ["p", "q", "p", "q", "p", "q", "p"]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=4)
    file = pq.ParquetFile(sink)
    contract = embedding(n_features=2, client_id="id", by_client=True, **drop())
    contract.check_schema(file.schema_arrow, WHERE)
    first, second = (contract.to_block(file.read_row_group(index), WHERE) for index in range(2))
    np.testing.assert_array_equal(first.points, [[1, 2], [5, 6], [3, 4], [7, 8]])
    np.testing.assert_array_equal(second.points, [[9, 10]])


def test_server_rows_find_their_columns_by_name(tmp_path):
    """Swapped columns are the same rows, and columns under other names are refused."""
    rows = pa.table({"age": [31.0, 52.0], "hours": [40.0, 12.5]})
    for name, table in {"same": rows, "swapped": rows.select(["hours", "age"])}.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    pq.write_table(rows.rename_columns(["age", "hour"]), tmp_path / "other.parquet")
    found = [ServerFiles.at(str(tmp_path / f"{name}.parquet")) for name in ("same", "swapped", "other")]
    contract = scalars("age", "hours")
    assert found[0].points(contract).tolist() == found[1].points(contract).tolist() == [[31.0, 40.0], [52.0, 12.5]]
    assert found[0].rows(contract.types) == found[1].rows(contract.types)
    for action, argument in ((found[2].points, contract), (found[2].rows, contract.types)):
        assert refusal(action, argument, kind=SchemaMismatchError).startswith("column 'hours' not found in ")
