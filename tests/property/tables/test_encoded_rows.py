"""Encoders on any table: rows are encoded one by one, and a column is marked at most once."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import OneHot, PublicSource, QuantileBins, Standardize, Terms

WHERE = "a table"
FEATURES = ("number", "bin", "city", "code")
CHECKED = settings(max_examples=60, deadline=None, derandomize=True)

numbers = st.floats(-1e6, 1e6)
texts = st.sampled_from(["a", "b", "c", "d", ""])
codes = st.integers(-128, 127)
valid_rows = st.tuples(numbers, numbers, texts, codes)
rows = st.tuples(*(part | st.none() for part in (numbers, numbers, texts, codes)))
vocabularies = st.lists(st.sampled_from(["a", "b", "c", "z"]), min_size=1, unique=True).map(tuple)
cuts = st.lists(st.integers(0, 30), max_size=4)


def table_of(values):
    kinds = (pa.float64(), pa.float32(), pa.string(), pa.int8())
    columns = list(zip(*values, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(FEATURES, arrays, strict=True)))


@st.composite
def encoders(draw):
    server = draw(st.lists(valid_rows, min_size=1, max_size=8))
    encodings = {
        "bin": QuantileBins(bins=draw(st.integers(2, 6))),
        "city": OneHot(vocabulary=draw(vocabularies)),
        "code": OneHot(vocabulary=PublicSource.SERVER),
    }
    if draw(st.booleans()):
        encodings["number"] = Standardize(mean=draw(st.floats(-1e3, 1e3)), stddev=draw(st.floats(1e-3, 1e3)))
    return Encoder.learn(FEATURES, encodings, table_of(server))


@CHECKED
@given(encoder=encoders(), values=st.lists(rows, max_size=20), cuts=cuts)
def test_any_split_of_rows_concatenates_to_the_same(encoder, values, cuts):
    table = table_of(values)
    whole = encoder.encode(table, WHERE)
    ends = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    parts = [table.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]
    encoded = [encoder.encode(part, WHERE) for part in parts]
    np.testing.assert_array_equal(np.concatenate([np.zeros((0, encoder.n_features)), *encoded]), whole)
    if parts:
        np.testing.assert_array_equal(encoder.encode(pa.concat_tables(parts), WHERE), whole)


@CHECKED
@given(encoder=encoders(), values=st.lists(rows, max_size=20))
def test_a_row_has_at_most_one_mark_per_column(encoder, values):
    points = encoder.encode(table_of(values), WHERE)
    origin = np.array([encoder.column_of(index).column for index in range(encoder.n_features)])
    for position, column in enumerate(FEATURES[1:], start=1):
        block = points[:, origin == column]
        missing = np.array([row[position] is None for row in values], dtype=bool)
        assert np.isnan(block[missing]).all()
        marks = block[~missing]
        assert np.isin(marks, (0.0, 1.0)).all()
        assert (marks.sum(axis=1) <= 1).all()
        if column == "bin":
            assert (marks.sum(axis=1) == 1).all()


@CHECKED
@given(values=st.lists(st.lists(texts, max_size=6) | st.none(), min_size=1, max_size=20), cut=st.integers(0, 20))
def test_the_direction_of_a_row_depends_on_its_own_terms_alone(values, cut):
    encoder = Encoder.learn(("tags",), {"tags": Terms(words=("a", "b", "c"), width=16)})
    table = pa.table({"tags": pa.array(values, pa.list_(pa.string()))})
    whole = encoder.encode(table, WHERE)
    alone = [encoder.encode(table.slice(index, 1), WHERE) for index in range(len(values))]
    np.testing.assert_array_equal(np.concatenate(alone), whole)
    np.testing.assert_array_equal(
        encoder.encode(pa.concat_tables([table.slice(cut), table[:cut]]), WHERE),
        np.roll(whole, -cut, axis=0) if cut <= len(values) else whole,
    )
    assert (np.linalg.norm(np.nan_to_num(whole), axis=1) <= 1.0 + 1e-12).all()


@CHECKED
@given(encoder=encoders(), values=st.lists(rows, max_size=20))
def test_dictionaries_are_encoded_as_their_values(encoder, values):
    table = table_of(values)
    columns = {name: table[name].dictionary_encode() for name in FEATURES}
    np.testing.assert_array_equal(encoder.encode(pa.table(columns), WHERE), encoder.encode(table, WHERE))
