"""Bounds that are exactly the ends of the rows: a Python warning, which nothing else follows from."""

import logging
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

from dapple_dp.api import DPKMeans, PrivateScaler
from dapple_dp.estimator.bounds import tell_of_bounds
from dapple_dp.schemas.errors import PrivacyWarning

ROWS = np.array([[18.0, 0.3], [94.0, 7.9], [40.0, 2.2]])
NAMES = ["age", "lab"]


def said(points=ROWS, names=None, **given):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tell_of_bounds(points, names, **given)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("domain", "names", "where"),
    [
        ((0.3, 94.0), None, "X"),
        ([0.3, 94], None, "X"),
        (np.array([0.3, 94.0]), None, "X"),
        ([(0, 120), (0.3, 7.9)], None, "column 1"),
        (np.array([[18, 94], [0, 9]]), None, "column 0"),
        ({"age": (18, 94), "lab": (0, 9)}, NAMES, "column 'age'"),
        ([(0, 120), (0.3, 7.9)], NAMES, "column 'lab'"),
    ],
)
def test_both_ends_are_noticed(domain, names, where):
    assert [f"value of {where}." in text for text in said(names=names, domain=domain)] == [True]


@pytest.mark.parametrize("domain", [(0, 94.0), (0.3, 95), [(18, 95), (0, 7.9)], (18, 94), None])
def test_one_end_alone_or_that_of_another_column_is_nothing(domain):
    assert said(domain=domain) == []


def test_ranges_that_many_columns_have_are_nothing():
    assert said(np.array([[0.0], [1.0]]), domain=(0, 1)) == []
    assert said(np.array([[-1.0], [1.0]]), domain=[(-1, 1)]) == []
    assert said(np.array([[1.0]]), norm=1.0) == []


def test_missing_values_do_not_hide_the_ends():
    assert len(said(np.array([[18.0], [np.nan], [94.0]]), domain=(18, 94))) == 1


def test_single_precision_has_ends_too():
    rows = ROWS.astype(np.float32)
    assert len(said(rows, domain=(float(rows.min()), float(rows.max())))) == 1


def test_the_longest_row_is_noticed():
    longest = float(np.linalg.norm(ROWS, axis=1).max())
    assert len(said(norm=longest)) == len(said(norm=np.float64(longest))) == 1
    assert said(norm=longest + 1) == said(norm="private") == said(norm=None) == []


def test_a_warning_has_at_most_25_words():
    for text in said(domain=(0.3, 94.0)) + said(norm=float(np.linalg.norm(ROWS, axis=1).max())):
        assert len(text.split()) <= 25, text


def test_a_fit_says_it_to_the_caller_and_to_nobody_else(caplog):
    rows = pd.DataFrame(np.tile(ROWS, (50, 1)), columns=NAMES)
    job = DPKMeans(1, epsilon=5.0, delta=1e-6, domain={"age": (18, 94), "lab": (0, 9)})
    with caplog.at_level(logging.DEBUG), pytest.warns(PrivacyWarning, match="value of column 'age'") as caught:
        job.fit(rows)
    assert any(each.filename == __file__ for each in caught if "column 'age'" in str(each.message))
    assert not any("equals the smallest" in text for text in (*job.warnings_, caplog.text))
    assert b"equals the smallest" not in pickle.dumps(job)


def test_a_filter_that_makes_errors_of_warnings_says_nothing_of_the_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        tell_of_bounds(ROWS, None, domain=(0.3, 94.0))
        PrivateScaler((0.3, 94.0)).fit(ROWS)


def test_a_scaler_says_it_too():
    with pytest.warns(PrivacyWarning, match="^bounds equals the smallest"):
        PrivateScaler((0.3, 94.0)).fit(ROWS)
