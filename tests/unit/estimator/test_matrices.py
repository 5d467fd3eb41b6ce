"""Conversion of rows: numbers become a matrix, and everything else a sentence that says what to do."""

import datetime
import decimal
import pathlib
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator

from dapple_dp.api import DPKMeans, PrivateScaler
from dapple_dp.estimator.memory_rows import checked_points
from dapple_dp.schemas.errors import InputError

ROWS = np.array([[1.5, 2.0], [3.0, 4.0], [0.0, -7.0]])
SECRET = "Zx4711"


def points_of(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return checked_points(BaseEstimator(), X, reset=True)


class Relation:
    """A table of another library, such as DuckDB, which Arrow can read."""

    columns = ("a", "b")

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]}).__arrow_c_stream__(requested_schema)


class LazyFrame:
    """A query of polars that was not run."""

    columns = ("a", "b")

    def collect(self):
        raise AssertionError("nobody asked for it")


class Distributed:
    """A table of Spark."""

    columns = ("a", "b")

    def toPandas(self):  # noqa: N802 - Spark's name
        raise AssertionError("nobody asked for it")

    def collect(self):
        raise AssertionError("nobody asked for it")


def frame(**columns):
    return pd.DataFrame(columns)


TAKEN = {
    "array": ROWS,
    "list": ROWS.tolist(),
    "objects": ROWS.astype(object),
    "a mask that masks nothing": np.ma.array(ROWS),
    "pandas": frame(a=ROWS[:, 0], b=ROWS[:, 1]),
    "sparse columns": pd.DataFrame.sparse.from_spmatrix(scipy.sparse.csr_matrix(ROWS)),
    "decimals": frame(a=[decimal.Decimal(str(each)) for each in ROWS[:, 0]], b=ROWS[:, 1]),
    "arrow": pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]}),
    "decimals of Arrow": pa.table(
        {"a": pa.array([decimal.Decimal(str(each)) for each in ROWS[:, 0]]), "b": ROWS[:, 1]}
    ),
    "a relation": Relation(),
}


@pytest.mark.parametrize("X", TAKEN.values(), ids=TAKEN)
def test_numbers_are_rows(X):
    np.testing.assert_array_equal(points_of(X), ROWS)


def test_single_precision_stays_and_truth_values_are_numbers():
    single = ROWS.astype(np.float32)
    for X in (single, pd.DataFrame(single), pa.table({"a": single[:, 0], "b": single[:, 1]})):
        assert points_of(X).dtype == np.float32
    assert points_of(frame(a=single[:, 0], b=ROWS[:, 1])).dtype == np.float64
    assert points_of(frame(a=[True, False], b=pd.array([False, True], "boolean"))).tolist() == [[1, 0], [0, 1]]


REFUSED = {
    "a query": (LazyFrame(), "must be in memory, got a LazyFrame; call its method collect"),
    "a table elsewhere": (Distributed(), "must be in memory, got a Distributed; call its method toPandas"),
    "a path": ("rows.csv", "must be rows in memory, got a str; read the file"),
    "a path of Python": (pathlib.Path("rows.csv"), "must be rows in memory, got a PosixPath"),
    "nothing": (None, "must be a matrix or a table in memory, got a NoneType"),
    "a mapping": ({"a": [1.0]}, "must be a matrix or a table in memory, got a dict"),
    "a generator": ((row for row in ROWS), "must be a matrix or a table in memory, got a generator"),
    "a column": (pd.Series([1.0]), r"must be a matrix, got shape \(1,\)"),
    "rows of two lengths": ([[1.0, 2.0], [3.0]], "got rows of different lengths"),
    "records": (np.zeros(2, [("a", float)]), "got records with fields; make a table"),
    "records of pandas": (frame(a=[1.0]).to_records(), "got records with fields; make a table"),
    "a sparse matrix": (scipy.sparse.csr_matrix(ROWS), r"must be dense, got a sparse matrix; use toarray\(\)"),
    "a sparse array": (scipy.sparse.coo_array(ROWS), "must be dense, got a sparse matrix"),
    "lists in a column": (frame(v=ROWS.tolist()), "one number per row and column, got lists in column 'v'"),
    "arrays in a column": (frame(v=list(ROWS)), "got lists in column 'v'"),
    "lists of Arrow": (pa.table({"a": [1.0], "v": [[1.0]]}), "got lists in column 'v'"),
    "the same name twice": (pd.DataFrame(ROWS, columns=["a", "a"]), "got 'a' more than once; rename or drop"),
    "the same name twice in Arrow": (pa.table([[1.0], [2.0]], names=["a", "a"]), "got 'a' more than once"),
    "an empty name": (pd.DataFrame(ROWS, columns=["a", ""]), "got an empty one; name that column"),
    "an empty name in Arrow": (pa.table([[1.0], [2.0]], names=["", "a"]), "got an empty one; name that column"),
    "an empty table": (pd.DataFrame(), r"must have rows and columns, got 0 feature\(s\)"),
    "an empty table of Arrow": (pa.table({}), r"must have rows and columns, got 0 feature\(s\)"),
    "no rows": (frame(a=[], b=[]).astype(float), r"must have rows and columns, got 0 sample\(s\)"),
    "no columns": (np.zeros((5, 0)), r"must have rows and columns, got 0 feature\(s\)"),
    "digits": (np.array([["1", "2"]]), "got others in columns 0, 1, counted from 0; convert"),
    "digits as bytes": (np.array([[b"1", b"2"]]), "got others in columns 0, 1, counted from 0; convert"),
    "digits beside numbers": ([[1.0, "2"]], "numbers only, got others in column"),
    "digits of pandas": (frame(a=[1.0], b=["2"]), "got others in column 'b'; .*convert text that holds numbers"),
    "digits as objects": (frame(a=[1.0], b=np.array(["2"], object)), "got others in column 'b'"),
    "digits of Arrow": (pa.table({"a": [1.0], "b": ["2"]}), "got others in column 'b'"),
    "texts": (frame(a=[SECRET]), "got others in column 'a'"),
    "texts as categories": (frame(a=pd.Categorical([SECRET])), "got others in column 'a'"),
    "integers as categories": (
        frame(ward=pd.Categorical([4, 7])),
        "got categories in column 'ward'; use a column of 0 and 1",
    ),
    "categories of Arrow": (
        pa.table({"ward": pa.array([4, 7]).dictionary_encode()}),
        "got categories in column 'ward'",
    ),
    "categories of both": (
        frame(
            w=pd.Series(pa.array([4, 7]).dictionary_encode(), dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.int64())))
        ),
        "got categories",
    ),
    "dates": (frame(a=[datetime.date(2026, 1, 1)]), "count dates in days"),
    "times": (frame(a=pd.to_datetime(["2026-01-01"])), "count dates in days"),
    "several kinds": (
        pa.table({"v": [[1.0]], "a": [SECRET], "w": [[1.0]], "b": [SECRET], "c": pa.array([4]).dictionary_encode()}),
        "got lists in columns 'v', 'w'; .*got others in columns 'a', 'b'; .*got categories in column 'c'; ",
    ),
    "several names twice": (pd.DataFrame([[1, 2, 3, 4]], columns=["a", "b", "b", "a"]), "got 'a', 'b' more than once"),
    "texts beside numbers and nothing": (
        np.array([[None, SECRET, 1, "7"]], object),
        "got others in columns 1, 3, counted from 0; convert or drop them",
    ),
    "complex numbers": (frame(a=[1j]), "numbers only"),
    "masked numbers": (np.ma.array(ROWS, mask=ROWS < 0), "must not hold masked values"),
    "masked rows": ([np.ma.array([1.0, 2.0], mask=[True, False])], "must not hold masked values"),
    "masked values in lists": ([[np.ma.masked, 1.0]], "must not hold masked values"),
    "null": (pa.table({"a": pa.nulls(3)}), "must be finite, got NaN or infinity in column 'a'"),
    "NA": (frame(a=pd.array([1, None], "Int64")), "must be finite, got NaN or infinity in column 'a'"),
    "NA among objects": (frame(a=np.array([1, pd.NA], object)), "must be finite"),
    "a number that is too large": (frame(a=np.array([10**400], object)), "must be finite"),
}


@pytest.mark.parametrize(("X", "rule"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused_in_a_sentence(X, rule):
    with pytest.raises(InputError, match=rule) as refused:
        points_of(X)
    text = str(refused.value)
    assert text.startswith("X must ")
    assert SECRET not in text
    assert text.count("\n") == 0


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DPKMeans(1, epsilon=9.0, delta=1e-6, domain=(-9, 9)).fit(np.repeat(ROWS, 20, axis=0))


@pytest.mark.parametrize("method", ["fit", "predict", "transform", "score", "fit_predict", "fit_transform"])
@pytest.mark.parametrize("case", ["masked numbers", "a query", "a sparse matrix", "digits"])
def test_every_method_asks_the_same(fitted, method, case):
    X, rule = REFUSED[case]
    with pytest.raises(InputError, match=rule):
        getattr(fitted, method)(X)


@pytest.mark.parametrize("case", ["masked numbers", "a query", "a sparse matrix", "digits", "the same name twice"])
def test_server_rows_are_asked_the_same(fitted, case):
    X, rule = REFUSED[case]
    with pytest.raises(InputError, match=f"^server_data .*{rule}"):
        DPKMeans(1, epsilon=9.0, delta=1e-6).fit(ROWS + 1.0, server_data=X)


def test_a_scaler_keeps_no_mask_either():
    scaler = PrivateScaler((-9, 9)).fit(ROWS)
    for method in (scaler.fit, scaler.transform, scaler.inverse_transform):
        with pytest.raises(InputError, match="must not hold masked values"):
            method(np.ma.array(ROWS, mask=ROWS < 0))
