"""Encoders: matrices worked out by hand, what is learned from server rows, and tables that are refused."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import InputError, SchemaMismatchError
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.encoded_column import BinnedColumn, BoundedColumn, OneHotColumn
from dapple_dp.schemas.tables.encoder import MOST_CATEGORIES, Encoder
from dapple_dp.schemas.tables.encoding import Bounds, BoundsRange, OneHot, PublicSource, QuantileBins, Standardize

WHERE = "lake/part-0.parquet, row group 3"
SERVER = "server.parquet"
NAN, INF = float("nan"), float("inf")
FROM_SERVER = OneHot(vocabulary=PublicSource.SERVER)


def one_column(encoding, server=None):
    return Encoder.learn(("a",), {"a": encoding}, None if server is None else pa.table({"a": server}), SERVER)


def encoded(encoding, values, server=None):
    return one_column(encoding, server).encode(pa.table({"a": values}), WHERE)


def test_four_kinds_of_columns_in_the_order_of_the_features():
    encoder = Encoder.learn(
        ("score", "age", "hours", "education"),
        {
            "education": OneHot(vocabulary=("HS-grad", "Bachelors"), weight=0.5),
            "hours": Standardize(mean=40.0, stddev=10.0, weight=2.0),
            "age": QuantileBins(bins=2),
        },
        pa.table({"age": [20, 30, 70], "hours": [0, 0, 0], "education": ["?", "?", "?"], "score": [0, 1, 2]}),
    )
    rows = pa.table(
        {
            "education": ["Bachelors", "Masters", "HS-grad"],
            "extra": ["p", "q", "r"],
            "age": [30, 31, -5],
            "hours": [40.0, 50.0, 20.0],
            "score": [7, 8, 9],
        }
    )
    expected = [[7, 1, 0, 0, 0, 0.5], [8, 0, 1, 2, 0, 0], [9, 1, 0, -4, 0.5, 0]]
    points = encoder.encode(rows, WHERE)
    np.testing.assert_array_equal(points, expected)
    assert points.dtype == np.float64
    assert points.flags.c_contiguous
    assert encoder.names == ("score", "age<=30", "age>30", "hours", "education=HS-grad", "education=Bachelors")
    assert encoder.n_features == 6
    assert [encoder.column_of(index).column for index in range(6)] == [
        "score",
        *2 * ["age"],
        "hours",
        *2 * ["education"],
    ]
    assert pickle.loads(pickle.dumps(encoder)) == encoder


def test_edges_are_quantiles_and_equal_ones_are_merged():
    column = one_column(QuantileBins(bins=4), pa.array([1.0, 2, 3, 4, 5])).columns[0]
    assert column.edges == (2.0, 3.0, 4.0)
    assert column.names == ("a<=2", "2<a<=3", "3<a<=4", "a>4")
    merged = one_column(QuantileBins(bins=5), pa.array([0] * 9 + [7])).columns[0]
    assert merged.edges == (0.0,)
    points = encoded(QuantileBins(bins=5), pa.array([-1, 0, 1, 9]), pa.array([0] * 9 + [7]))
    np.testing.assert_array_equal(points, [[1, 0], [1, 0], [0, 1], [0, 1]])


def test_people_read_short_names_and_the_columns_own_units():
    encoder = Encoder.learn(
        ("age", "hours", "education"),
        {"age": QuantileBins(bins=3), "hours": Standardize(mean=40.0, stddev=10.0, weight=2.0), "education": EDUCATION},
        pa.table(
            {"age": [28.143790692847006, 44.813801641588, 52.53548612257147, 70.0], "hours": [0] * 4}
        ).append_column("education", pa.array(["?"] * 4)),
    )
    ages = ("age up to 44.8", "age 44.8 to 52.5", "age above 52.5")
    assert encoder.labels == (*ages, "hours", "education HS-grad", "education Bachelors")
    np.testing.assert_array_equal(encoder.in_percent, [True, True, True, False, True, True])
    centers = np.array([[0.25, 0.5, 0.25, 0.24, 0.31, 0.19], [1.5, -0.5, 0.0, -4.0, -0.1, 0.6]])
    np.testing.assert_allclose(
        encoder.decoded(centers), [[25, 50, 25, 41.2, 62, 38], [100, 0, 0, 20, 0, 100]], rtol=1e-12
    )


EDUCATION = OneHot(vocabulary=(" HS-grad", "Bachelors"), weight=0.5)


@pytest.mark.parametrize(
    ("edges", "ends"),
    [
        ((0.0,), ["up to 0", "above 0"]),
        ((2.0, 3.0, 4.0), ["up to 2", "2 to 3", "3 to 4", "above 4"]),
        ((1e6, 2.5e6), ["up to 1000000", "1000000 to 2500000", "above 2500000"]),
        ((0.1, 0.1 + 2**-56), ["up to 0.1", "0.1 to 0.10000000000000002", "above 0.10000000000000002"]),
        ((-1.25e-7, 3.0e-7), ["up to -1.2e-07", "-1.2e-07 to 3e-07", "above 3e-07"]),
    ],
)
def test_ends_of_bins_have_as_few_digits_as_distinguish_them(edges, ends):
    assert BinnedColumn(column="a", edges=edges).labels == tuple(f"a {end}" for end in ends)


def test_features_with_one_label_keep_their_names():
    columns = (OneHotColumn(column="a", vocabulary=("b c",)), OneHotColumn(column="a b", vocabulary=("c",)))
    assert Encoder(columns=columns).labels == ("a=b c", "a b=c")


def test_names_of_different_edges_differ():
    column = one_column(QuantileBins(bins=3), pa.array([0.1, 0.1, 0.1 + 2**-56, 0.1 + 2**-56])).columns[0]
    assert column.edges == (0.1, 0.1 + 2**-56)
    assert column.names == ("a<=0.1", "0.1<a<=0.10000000000000002", "a>0.10000000000000002")


def test_parameters_are_stored_as_json():
    encoder = Encoder.learn(("a", "b"), {"b": OneHot(vocabulary=("x", "y"))})
    scaled = {"column": "a", "weight": 1.0, "mean": 0.0, "stddev": 1.0}
    assert json.loads(json.dumps(encoder.to_json())) == [
        scaled,
        {"column": "b", "weight": 1.0, "vocabulary": ["x", "y"]},
    ]


def test_a_value_on_an_edge_is_in_the_bin_below():
    points = encoded(QuantileBins(bins=2), pa.array([0.5, np.nextafter(0.5, 1)]), pa.array([0.0, 0.5, 1.0]))
    np.testing.assert_array_equal(points, [[1, 0], [0, 1]])


def test_statistics_of_the_server_data():
    encoding = Standardize(source=PublicSource.SERVER)
    points = encoded(encoding, pa.array([2.0, 6.0]), pa.array([2.0, 6.0, 2.0, 6.0]))
    np.testing.assert_array_equal(points, [[-1], [1]])


def test_rows_with_an_invalid_value_teach_nothing():
    server = pa.table({"a": [1.0, NAN, 3.0, 100.0], "b": ["y", "x", "z", None], "c": [0.0, 0.0, 0.0, 0.0]})
    encodings = {"a": Standardize(source=PublicSource.SERVER), "b": FROM_SERVER}
    encoder = Encoder.learn(("a", "b", "c"), encodings, server)
    assert (encoder.columns[0].mean, encoder.columns[0].stddev) == (2.0, 1.0)
    assert encoder.columns[1].vocabulary == ("y", "z")


@pytest.mark.parametrize(
    ("server", "vocabulary"),
    [
        (pa.array(["b", "a", "b"]), ("a", "b")),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b")),
        (pa.array(["b", "a"], pa.string_view()), ("a", "b")),
        (pa.array([10, 9, 10]), (9, 10)),
        (pa.array([True, False]), (False, True)),
    ],
)
def test_a_vocabulary_of_the_server_data_is_sorted(server, vocabulary):
    column = one_column(FROM_SERVER, server).columns[0]
    assert column.vocabulary == vocabulary
    assert column.names == tuple(f"a={value}" for value in vocabulary)
    points = encoded(FROM_SERVER, server, server)
    np.testing.assert_array_equal(points.argmax(axis=1), [vocabulary.index(value) for value in server.to_pylist()])
    np.testing.assert_array_equal(points.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_strings_of_every_type(kind):
    values = pa.chunked_array([["b", "?"], [], ["a"]], pa.string()).cast(kind)
    points = encoded(OneHot(vocabulary=("a", "b")), values)
    np.testing.assert_array_equal(points, [[0, 1], [0, 0], [1, 0]])


def test_slices_and_chunks_with_different_dictionaries():
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"]).dictionary_encode()])
    encoder = one_column(OneHot(vocabulary=("a", "b", "c")))
    points = encoder.encode(pa.table({"a": chunks}).slice(1, 3), WHERE)
    np.testing.assert_array_equal(points, np.eye(3)[[1, 1, 2]])


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64()])
def test_categories_that_a_column_cannot_hold_are_never_found(kind):
    points = encoded(OneHot(vocabulary=(2**70, 1, -(2**70), 100)), pa.array([100, 1, 0], kind))
    np.testing.assert_array_equal(points, [[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]])


def test_numbers_of_every_type_are_standardized():
    columns = [pa.array([1, 3], kind) for kind in (pa.int8(), pa.uint64(), pa.float16(), pa.float32())]
    columns += [pa.array([1.0, 3.0]).dictionary_encode(), pa.array([1, 3]).cast(pa.decimal128(30, 2))]
    for column in columns:
        np.testing.assert_array_equal(encoded(Standardize(mean=1.0, stddev=2.0), column), [[0], [1]])


def test_booleans_are_numbers_without_an_entry():
    np.testing.assert_array_equal(
        Encoder.learn(("a",), {}).encode(pa.table({"a": [True, False]}), WHERE), [[1.0], [0.0]]
    )


@pytest.mark.parametrize(
    "rows", [pa.table({"a": pa.array([], pa.string())}), pa.schema({"a": pa.string()}).empty_table()]
)
def test_no_rows(rows):
    assert one_column(OneHot(vocabulary=("a", "b"))).encode(rows, WHERE).shape == (0, 2)


def contract(encoding, server=None, **settings):
    encoder = one_column(encoding, server)
    return TableContract(features=("a",), n_features=encoder.n_features, encoder=encoder, **settings)


INVALID = [
    (OneHot(vocabulary=("x",)), None, pa.array(["x", None, "y"]), "hold a value in every row, got a null;"),
    (OneHot(vocabulary=("x",)), None, pa.array(["x", None, "y"]).dictionary_encode(), "hold a value in every row, got"),
    (OneHot(vocabulary=(True,)), None, pa.array([True, None, False]), "hold a value in every row, got a null;"),
    (
        QuantileBins(bins=2),
        pa.array([0.0, 1.0]),
        pa.array([0.0, NAN, 1.0]),
        "hold finite numbers only, got a null, NaN",
    ),
    (QuantileBins(bins=2), pa.array([0.0, 1.0]), pa.array([0.0, -INF, 1.0]), "hold finite numbers only, got a null,"),
    (QuantileBins(bins=2), pa.array([0.0, 1.0]), pa.array([0, None, 1]), "hold finite numbers only, got a null, NaN"),
    (Standardize(mean=0.0, stddev=1.0), None, pa.array([0.0, INF, 1.0]), "hold finite numbers only, got a null, NaN"),
    (Standardize(mean=0.0, stddev=1e-300), None, pa.array([0.0, 1e300, 0.0]), "hold finite numbers only, got a null"),
]


@pytest.mark.parametrize(("encoding", "server", "values", "rest"), INVALID)
def test_an_invalid_row_fails_or_is_dropped(encoding, server, values, rest):
    table = pa.table({"a": values})
    with pytest.raises(InputError) as caught:
        contract(encoding, server).to_points(table, WHERE)
    assert str(caught.value).startswith(f"column 'a' of {WHERE} must {rest}")
    kept = contract(encoding, server, on_invalid_rows=InvalidRows.DROP).to_points(table, WHERE)
    np.testing.assert_array_equal(kept, contract(encoding, server).to_points(table.take([0, 2]), WHERE))


def test_blocks_of_clients_are_encoded():
    encoder = one_column(OneHot(vocabulary=("x", "y")))
    by_client = TableContract(features=("a",), n_features=2, client_id="id", by_client=True, encoder=encoder)
    table = pa.table({"a": ["x", "y", "y"], "id": ["p", "q", "p"]})
    block = by_client.to_block(table, WHERE)
    np.testing.assert_array_equal(block.points, [[1, 0], [0, 1], [0, 1]])
    np.testing.assert_array_equal(block.offsets, [0, 2, 3])


MISMATCHES = [
    (
        OneHot(vocabulary=("x",)),
        pa.int8(),
        "hold strings like its vocabulary, got int8; cast it or correct encode.a.voc",
    ),
    (
        OneHot(vocabulary=(1,)),
        pa.string(),
        "hold integers like its vocabulary, got string; cast it or correct encode.a",
    ),
    (OneHot(vocabulary=(1,)), pa.float64(), "hold integers like its vocabulary, got double; cast it or correct encode"),
    (OneHot(vocabulary=(True,)), pa.int8(), "hold booleans like its vocabulary, got int8; cast it or correct encode.a"),
    (OneHot(vocabulary=("x",)), pa.binary(), "hold strings like its vocabulary, got binary; cast it or correct encode"),
    (Standardize(mean=0.0, stddev=1.0), pa.string(), "be numeric, got string; cast it, or write kind: one_hot in enco"),
    (
        None,
        pa.dictionary(pa.int8(), pa.string()),
        "be numeric, got string; cast it, or write kind: one_hot in encode.a",
    ),
    (None, pa.list_(pa.float32(), 2), "be numeric, got fixed_size_list<"),
]


@pytest.mark.parametrize(("encoding", "kind", "rest"), MISMATCHES)
def test_a_column_of_another_type_is_refused(encoding, kind, rest):
    encoder = Encoder.learn(("a",), {} if encoding is None else {"a": encoding})
    table = pa.schema({"a": kind}).empty_table()
    for refuse in (encoder.encode, TableContract(features=("a",), n_features=1, encoder=encoder).to_points):
        with pytest.raises(SchemaMismatchError) as caught:
            refuse(table, WHERE)
        assert str(caught.value).startswith(f"column 'a' of {WHERE} must {rest}")


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32(), pa.time64("us"), pa.duration("s")])
def test_a_column_of_dates_is_to_be_counted(kind):
    with pytest.raises(
        SchemaMismatchError, match=r"must be numeric, got .*; count it in days from a public date"
    ) as error:
        Encoder.learn(("a",), {}).encode(pa.schema({"a": kind}).empty_table(), WHERE)
    assert "one_hot" not in str(error.value)


def test_a_missing_column_is_refused():
    with pytest.raises(SchemaMismatchError, match=r"column 'a' not found in .*; its columns are"):
        one_column(OneHot(vocabulary=("x",))).encode(pa.table({"z": [1]}), WHERE)


UNTEACHABLE = [
    (FROM_SERVER, pa.array([0.5]), "column 'a' of server.parquet must hold strings, integers or booleans, got double"),
    (QuantileBins(bins=2), pa.array(["x"]), "column 'a' of server.parquet must be numeric, got string; cast it, or"),
    (
        FROM_SERVER,
        pa.array([None], pa.string()),
        "server_data must have a row without nulls to learn from, got none in",
    ),
    (QuantileBins(bins=2), pa.array([], pa.float64()), "server_data must have a row without nulls to learn from, got"),
    (QuantileBins(bins=2), None, "server_data is required for an encoding that learns from it; give a table."),
    (
        Standardize(source=PublicSource.SERVER),
        pa.array([0.1, 0.1, 0.1]),
        "column 'a' of server.parquet must have a positive finite standard deviation, got 0.0; give mean and stddev in",
    ),
    (
        FROM_SERVER,
        pa.array(np.arange(MOST_CATEGORIES + 1)),
        "column 'a' of server.parquet must have at most 4096 distinct values to be one_hot, got 4097; list the",
    ),
]


@pytest.mark.parametrize(("encoding", "server", "start"), UNTEACHABLE)
def test_server_rows_that_teach_nothing_are_refused(encoding, server, start):
    with pytest.raises(InputError) as caught:
        one_column(encoding, server)
    assert str(caught.value).startswith(start)


def test_a_contract_has_the_columns_and_the_width_of_its_encoder():
    encoder = one_column(OneHot(vocabulary=("x", "y")))
    with pytest.raises(ValueError, match=r"encoder must be of the columns in features, \('b',\), got another"):
        TableContract(features=("b",), n_features=2, encoder=encoder)
    with pytest.raises(ValueError, match="n_features must be the number of features, 2, got 1"):
        TableContract(features=("a",), n_features=1, encoder=encoder)


def test_bounds_become_0_and_1_or_minus_1_and_1_and_clip_what_lies_beyond():
    ages = [17.0, 90.0, 53.5, -1e300, 1e300]
    np.testing.assert_array_equal(encoded(Bounds(lower=17, upper=90), ages)[:, 0], [0, 1, 0.5, 0, 1])
    symmetric = Bounds(lower=17, upper=90, to=BoundsRange.SYMMETRIC, weight=3.0)
    np.testing.assert_array_equal(encoded(symmetric, ages)[:, 0], [-3, 3, 0, -3, 3])
    np.testing.assert_array_equal(one_column(symmetric).decoded(np.array([[-3.0], [3.0], [0.0]]))[:, 0], [17, 90, 53.5])


def test_non_finite_values_are_invalid_and_not_clipped():
    values = encoded(Bounds(lower=0, upper=1), [INF, -INF, NAN, None, 0.25])[:, 0]
    np.testing.assert_array_equal(values, [NAN, NAN, NAN, NAN, 0.25])


@pytest.mark.parametrize("bounds", [(-1e100, 1e100), (1e99, 1e100), (1.0, 1.0 + 2e-9), (-1e-300, 1e-300), (0.1, 0.3)])
def test_no_row_leaves_the_box(bounds):
    lower, upper = bounds
    near = [np.nextafter(end, goal) for end in bounds for goal in (-INF, INF)]
    rows = [lower, upper, *near, 0.0, 5e-324, -1.7e308, 1.7e308, *np.linspace(lower, upper, 50)]
    found = encoded(Bounds(lower=lower, upper=upper, to=BoundsRange.SYMMETRIC), rows)
    assert (np.abs(found) <= 1.0).all()


def test_centers_have_units_where_every_feature_is_a_column():
    bounds, hot = Bounds(lower=0, upper=10), OneHot(vocabulary=(1, 2))
    plain = Encoder.learn(("a", "b"), {"a": bounds})
    np.testing.assert_array_equal(plain.in_units(np.array([[0.5, 3.0]])), [[5.0, 3.0]])
    assert Encoder.learn(("a", "b"), {"a": bounds, "b": hot}).in_units(np.zeros((1, 3))) is None


def test_bounds_survive_a_file_and_others_are_refused():
    encoder = one_column(Bounds(lower=-3, upper=4, to=BoundsRange.SYMMETRIC))
    content = json.loads(json.dumps(encoder.to_json()))
    assert Encoder.from_json(content) == encoder
    assert encoder.columns == (BoundedColumn(column="a", lower=-3.0, upper=4.0, low=-1.0),)
    for wrong in ({"lower": 4.0}, {"upper": NAN}, {"low": 0.5}, {"low": "0"}, {"weight": 0.0}):
        with pytest.raises(InputError, match="an encoding must be one that fit wrote"):
            Encoder.from_json([content[0] | wrong])
