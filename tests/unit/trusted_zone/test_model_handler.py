"""The handler for RunInference: rows of any shape find the centers of `assign`, and a bad model changes nothing."""

import decimal
import json
import pathlib
import pickle
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.ml.inference.base import KeyedModelHandler

from dapple_dp import ConfigError, DappleModelHandler, InputError
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.encoded_column import BinnedColumn, OneHotColumn, ScaledColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.terms_column import TermsVector
from dapple_dp.transforms.files.saved_model import load_model
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from tests.scenes import lake
from tests.scenes.models import write_model

CENTERS = lake.MEANS + 0.2
COLUMNS = ["age", "hours"]
ENCODER = Encoder(
    columns=(
        ScaledColumn(column="age", mean=40.0, stddev=12.0),
        BinnedColumn(column="hours", edges=(20.0, 40.0)),
        OneHotColumn(column="sex", vocabulary=("F", "M")),
        OneHotColumn(column="site", vocabulary=(3, 7)),
        OneHotColumn(column="member", vocabulary=(False, True)),
    )
)
RAW = {
    "age": [31, 62.5, 40, 18],
    "hours": [20, 41.0, 0, 39.5],
    "sex": ["F", "M", "other", "F"],
    "site": [7, 3, 3, 99],
    "member": [True, False, True, True],
}


class Person(NamedTuple):
    """A row with a schema."""

    age: float
    hours: float


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def listed(folder):
    return write_model(folder / "listed", CENTERS)


@pytest.fixture(scope="module")
def scalar(folder):
    return write_model(folder / "scalar", np.array([[20.0, 10.0], [60.0, 40.0]]), COLUMNS)


@pytest.fixture(scope="module")
def encoded(folder):
    centers = np.random.default_rng(0).normal(size=(5, ENCODER.n_features))
    return write_model(folder / "encoded", centers, list(ENCODER.names), ENCODER.to_json())


def clusters(handler, rows):
    return [each.inference for each in handler.run_inference(rows, handler.load_model())]


def rows_of(table):
    return pa.table(table).to_pylist()


def test_vectors_of_any_kind_find_the_centers_that_assign_finds(listed):
    points = lake.mixture(50, seed=1)
    expected = NearestCenters.of(CENTERS).labels(points).tolist()
    for rows in (list(points), points.tolist(), [tuple(each) for each in points], [{"x": each} for each in points]):
        assert clusters(DappleModelHandler(listed), rows) == expected
    single = points.astype(np.float32)
    assert clusters(DappleModelHandler(listed), list(single)) == NearestCenters.of(CENTERS).labels(single).tolist()


def test_rows_with_columns_in_any_order_and_dress(scalar):
    rows = [
        {"hours": 41, "age": 61, "other": "text"},
        beam.Row(age=19.0, hours=decimal.Decimal("12.5")),
        Person(age=60, hours=True),
        np.array([18, 9]),
    ]
    assert clusters(DappleModelHandler(scalar), rows) == [1, 0, 1, 0]


def test_raw_columns_are_encoded_as_a_lake_is(encoded):
    model, table = load_model(encoded), pa.table(RAW)
    contract = model.contract(DataConfig(path="lake", features=tuple(RAW)))
    expected = NearestCenters.of(model.centers).labels(contract.to_points(table, "lake")).tolist()
    assert clusters(DappleModelHandler(encoded), rows_of(RAW)) == expected


def test_lists_of_terms_are_encoded_as_a_lake_is(folder):
    encoder = Encoder(columns=(TermsVector(column="tags", vocabulary=("a", "b"), width=8),))
    rows = [["a"], ["b", "unknown"], ["a", "b"]]
    centers = encoder.encode(pa.table({"tags": rows}), "t")
    model = write_model(folder / "terms", centers, list(encoder.names), encoder.to_json())
    assert clusters(DappleModelHandler(model), [{"tags": each} for each in rows]) == [0, 1, 2]
    for wrong in (None, [1], 3, {"a": 1}):
        with pytest.raises(InputError, match="column 'tags' of"):
            clusters(DappleModelHandler(model), [{"tags": wrong}])


def test_ties_go_to_the_lowest_index(folder):
    model = write_model(folder / "ties", np.array([[-1.0], [1.0]]), ["a"])
    assert clusters(DappleModelHandler(model), [[0.0], [1e-300], [-1e300]]) == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"age": None},
        {"age": "31"},
        {"age": float("nan")},
        {"age": 10**400},
        {"age": decimal.Decimal("sNaN")},
        {"hours": [1.0]},
        {"sex": None},
        {"sex": 1},
        {"sex": "\ud800"},
        {"site": 7.0},
        {"site": True},
        {"site": 2**70},
        {"member": 1},
    ],
)
def test_a_value_that_does_not_fit_costs_its_own_row_only(encoded, change):
    good = rows_of(RAW)
    expected = clusters(DappleModelHandler(encoded), good)
    bad = good[0] | change
    rows = [good[0], bad, *good[1:]]
    found = clusters(DappleModelHandler(encoded, on_invalid_rows="drop"), rows)
    assert found == [expected[0], None, *expected[1:]]
    (column,) = change
    with pytest.raises(InputError, match=f"column '{column}' of a batch of rows must hold a value") as refused:
        clusters(DappleModelHandler(encoded), rows)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("row", [[1.0], [[1.0, 2.0]], "ab", None, {}, {"age": 1.0}, np.array(["1", "2"]), b"\1\2", 3])
def test_a_row_of_another_shape_is_not_valid(scalar, row):
    assert clusters(DappleModelHandler(scalar, on_invalid_rows="drop"), [row, [60, 40]]) == [None, 1]
    with pytest.raises(InputError, match="of a batch of rows must hold"):
        clusters(DappleModelHandler(scalar), [row])


def test_a_batch_of_invalid_rows_and_an_empty_one(scalar):
    handler = DappleModelHandler(scalar, on_invalid_rows="drop")
    assert clusters(handler, [None, None]) == [None, None]
    assert clusters(handler, []) == []


def test_a_new_model_is_named_by_its_folder_or_a_file_in_it(folder, scalar):
    other = write_model(folder / "nights" / "2026-11-21", np.array([[60.0, 40.0], [20.0, 10.0]]), COLUMNS)
    for path in (other, f"{other}/", f"{other}/run.json", f"{other}/centers.parquet"):
        handler = pickle.loads(pickle.dumps(DappleModelHandler(scalar)))
        assert clusters(handler, [[60, 40]]) == [1]
        handler.update_model_path(path)
        (result,) = handler.run_inference([[60, 40]], handler.load_model())
        assert (result.inference, result.model_id) == (0, other)
        for nothing in (None, ""):
            handler.update_model_path(nothing)
            assert handler.load_model().saved.folder == other


def _absent(folder):
    return str(folder / "absent")


def _of_other_columns(folder):
    return write_model(folder / "other_columns", np.eye(2), ["age", "weight"])


def _half_written(folder):
    path = write_model(folder / "half", np.eye(2), COLUMNS)
    (pathlib.Path(path) / "centers.parquet").write_bytes(b"PAR1")
    return path


def _without_manifest(folder):
    path = write_model(folder / "bare", np.eye(2), COLUMNS)
    (pathlib.Path(path) / "run.json").write_text(json.dumps({"format": 1, "files": {}}))
    return path


@pytest.mark.parametrize("make", [_absent, _of_other_columns, _half_written, _without_manifest])
def test_a_new_model_that_cannot_be_used_leaves_the_one_in_use(tmp_path, scalar, caplog, make):
    handler, later = DappleModelHandler(scalar), write_model(tmp_path / "later", np.eye(2), COLUMNS)
    handler.update_model_path(later)
    handler.load_model()
    handler.update_model_path(f"{make(tmp_path)}/run.json")
    assert handler.load_model().saved.folder == later
    assert f"still using the model of {later}: " in caplog.text


def test_the_model_in_use_counts_though_another_copy_had_read_it(tmp_path, scalar):
    """Beam reads a model once for all copies of the handler in a process."""
    later = write_model(tmp_path / "later", np.eye(2), COLUMNS)
    reader, other = DappleModelHandler(scalar), DappleModelHandler(scalar)
    reader.update_model_path(later)
    other.run_inference([[1, 0]], reader.load_model())
    other.update_model_path(str(tmp_path / "absent"))
    assert other.load_model().saved.folder == later


def test_keys_pass_by(scalar):
    handler = KeyedModelHandler(DappleModelHandler(scalar))
    found = handler.run_inference([("ada", [60, 40])], handler.load_model())
    assert [(key, each.inference) for key, each in found] == [("ada", 1)]


def test_what_cannot_be_served_is_refused_at_once(tmp_path, scalar):
    with pytest.raises(ConfigError, match="must be the output folder of a finished fit"):
        DappleModelHandler(tmp_path)
    with pytest.raises(ConfigError, match="on_invalid_rows must be fail or drop, got 'skip'"):
        DappleModelHandler(scalar, on_invalid_rows="skip")
