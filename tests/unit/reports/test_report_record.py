"""Records on a device give the features that a lake gives."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import ReportParameters, canonical
from dapple_dp.schemas.reports.record import features_of
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.encoding import Bounds, BoundsRange, OneHot, QuantileBins, Standardize
from tests.scenes.reports import parameters

COLUMNS = ("age", "hours", "education", "score", "wage")
ENCODER = Encoder.learn(
    COLUMNS,
    {
        "age": QuantileBins(bins=3, weight=2.0),
        "hours": Standardize(mean=40.0, stddev=12.0, weight=0.5),
        "education": OneHot(vocabulary=("HS-grad", "Bachelors"), weight=0.5),
        "wage": Bounds(lower=-10.0, upper=1e3, to=BoundsRange.SYMMETRIC, weight=0.3),
    },
    pa.table(
        {"wage": [0.0] * 4, "age": [20, 30, 40, 70], "hours": [1.0] * 4, "education": ["?"] * 4, "score": [1.0] * 4}
    ),
)


def encoded() -> ReportParameters:
    return dataclasses.replace(parameters(), features=ENCODER.names, encoding=canonical(ENCODER.to_json()))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    age=st.one_of(st.integers(-(2**53), 2**53), st.sampled_from([20, 30, 40])),
    hours=st.floats(-1e9, 1e9),
    education=st.sampled_from(["HS-grad", "Bachelors", "Masters"]),
    score=st.floats(-1e9, 1e9),
    wage=st.floats(-1e4, 1e4),
)
def test_a_record_has_the_features_of_its_row(age, hours, education, score, wage):
    record = {"age": age, "hours": hours, "education": education, "score": score, "wage": wage}
    row = ENCODER.encode(pa.table({name: [value] for name, value in record.items()}), "here")
    np.testing.assert_array_equal(features_of(record, encoded()), row[0])


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "text", 10**400])
def test_values_that_are_no_numbers_count_as_nothing_known(value):
    record = {"age": value, "hours": value, "education": None, "score": value, "wage": value, "other": 1}
    assert np.isnan(features_of(record, encoded())).all()


def test_records_without_an_encoding_are_their_columns_in_order():
    public = dataclasses.replace(parameters(), features=("a", "b", "c", "d"))
    assert features_of({"d": 4, "c": 3.5, "b": True, "a": -1}, public) == [-1.0, 1.0, 3.5, 4.0]
    with pytest.raises(ConfigError, match="column 'a' of the report parameters not found in the record"):
        features_of({"b": 1}, public)


def test_parameters_with_an_encoding_survive_json_and_keep_their_promise():
    public = encoded()
    again = ReportParameters.from_json(public.to_json())
    assert again == public
    assert Encoder.from_json(again.columns or []) == ENCODER


def test_a_record_needs_the_standard_library_only():
    code = (
        "import sys\nfrom dapple_dp.schemas.reports.record import features_of\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'numpy', 'apache_beam', 'pydantic', 'pyarrow'}, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
