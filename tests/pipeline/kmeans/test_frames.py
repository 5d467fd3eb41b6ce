"""Tables of pandas, polars and Arrow, as they come from a CSV file, in the estimator: columns of numbers and no others.

pandas and polars are no requirements: `python -m tests.own_environments frames` runs all of it.
"""

import datetime
import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from dapple_dp.estimator.dp_kmeans import DPKMeans
from dapple_dp.estimator.memory_rows import checked_points
from dapple_dp.estimator.private_scaler import PrivateScaler
from dapple_dp.schemas.errors import InputError
from tests.scenes import lake

N_ROWS = 900
SECRET = "Zx4711secret"
DOMAIN = {"age": (-5, 12), "income": (-5, 13)}


def written():
    """A CSV file of two columns of numbers in three groups, and columns that are none."""
    points = lake.mixture(N_ROWS, means=np.array([[0.0, 0.0], [6.0, 1.0], [2.0, 7.0]]))
    columns = {"age": points[:, 0], "income": points[:, 1], "town": [SECRET] * N_ROWS, "id": np.arange(N_ROWS)}
    columns["signed"] = pa.array([datetime.date(2026, 1, 5)] * N_ROWS)
    columns["seen"] = pa.array([datetime.datetime(2026, 1, 5, 10)] * N_ROWS, pa.timestamp("s"))
    sink = io.BytesIO()
    pa_csv.write_csv(pa.table(columns), sink)
    return sink.getvalue()


def by_arrow(content, names):
    return pa_csv.read_csv(pa.BufferReader(content)).select(names)


def by_batch(content, names):
    return by_arrow(content, names).combine_chunks().to_batches()[0]


def by_pandas(content, names):
    pandas = pytest.importorskip("pandas")
    return pandas.read_csv(io.BytesIO(content), parse_dates=["signed", "seen"])[names]


def by_pandas_of_arrow(content, names):
    pandas = pytest.importorskip("pandas")
    return pandas.read_csv(io.BytesIO(content), dtype_backend="pyarrow", parse_dates=["signed", "seen"])[names]


def by_polars(content, names):
    polars = pytest.importorskip("polars")
    return polars.read_csv(content, try_parse_dates=True)[names]


READERS = [by_arrow, by_batch, by_pandas, by_pandas_of_arrow, by_polars]


@pytest.fixture(params=READERS)
def read(request):
    """Reads columns of the file by one of the libraries."""
    return lambda *names: request.param(written(), list(names))


def test_columns_of_numbers_are_rows_and_keep_their_names(read):
    model = DPKMeans(3, epsilon=8.0, delta=1e-6, domain=DOMAIN).fit(read("age", "income"))
    assert model.feature_names_in_.tolist() == ["age", "income"]
    far = np.linalg.norm(model.cluster_centers_[:, None] - [[0.0, 0.0], [6.0, 1.0], [2.0, 7.0]], axis=2).min(axis=0)
    assert far.max() < 1.0
    assert model.predict(read("age", "income")).shape == (N_ROWS,)


def test_the_order_of_the_columns_is_that_of_the_table(read):
    holder = DPKMeans(3, epsilon=1.0, delta=1e-6)
    points = checked_points(holder, read("income", "age"), reset=True)
    assert holder.feature_names_in_.tolist() == ["income", "age"]
    wanted = by_arrow(written(), ["income", "age"])
    # pandas itself rounds some numbers of a text by an ulp.
    np.testing.assert_allclose(points.T, [column.to_numpy() for column in wanted.columns], rtol=1e-12)


@pytest.mark.parametrize("names", [["town"], ["signed"], ["seen"], ["signed", "seen"], ["town", "signed"]])
def test_columns_that_are_no_numbers_are_named_in_a_sentence(read, names):
    columns = f"column{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
    wanted = (
        f"X must hold numbers only, got others in {columns}; drop codes and ids (pass ids of people as groups), "
        "convert text that holds numbers, and count dates in days from a public one."
    )
    for job in (DPKMeans(3, epsilon=1.0, delta=1e-6, domain=DOMAIN), PrivateScaler((-5, 13))):
        with pytest.raises(InputError) as caught:
            job.fit(read("age", *names))
        assert str(caught.value) == wanted
        assert SECRET not in repr(caught.value.__cause__) + repr(caught.value.__context__)


def test_a_table_of_dates_alone_is_not_clustered_by_nanoseconds(read):
    with pytest.raises(InputError, match="got others in columns 'signed', 'seen'"):
        DPKMeans(3, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(read("signed", "seen"))


@pytest.mark.parametrize("kind", ["M8[ns]", "m8[s]"])
def test_an_array_of_times_is_none_of_numbers(kind):
    with pytest.raises(InputError, match="X must hold numbers only, got dates or times; count them in days"):
        DPKMeans(3, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(np.zeros((5, 2), kind))


def test_server_rows_get_the_same_message(read):
    with pytest.raises(InputError, match="server_data must hold numbers only, got others in column 'town'"):
        DPKMeans(3, epsilon=1.0, delta=1e-6).fit(read("age", "income"), server_data=read("age", "town"))


def test_nulls_of_tables_are_reported_as_those_of_arrays():
    table = pa.table({"age": [1.0, None], "income": [2, 3]})
    with pytest.raises(InputError, match="X must be finite, got NaN or infinity"):
        DPKMeans(1, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(table)


def test_columns_beyond_five_are_counted():
    table = pa.table({f"t{index}": ["x"] for index in range(9)})
    with pytest.raises(InputError, match=r"columns 't0', .*'t4' and 4 more; drop"):
        DPKMeans(1, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(table)


def test_a_column_of_arrow_is_no_matrix():
    with pytest.raises(InputError, match="X must be a matrix"):
        DPKMeans(1, epsilon=1.0, delta=1e-6, domain=(0, 1)).fit(pa.chunked_array([[1.0, 2.0]]))
