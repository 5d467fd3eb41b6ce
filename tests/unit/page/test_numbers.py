"""Numbers of a page: as many digits as they are worth, points below points."""

import math

import pytest

from dapple_dp.pipelines.page.numbers import at_most, fixed, on_points, to_noise


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.0001744, 0.9838), ("0.000", "0.984")),
        ((41.234, -3.0), ("41.23", "-3.00")),
        ((12345.6, 1.0), ("12,346", "1")),
        ((0.0, 0.0), ("0.000", "0.000")),
        ((-0.0001, 1.0), ("0.000", "1.000")),
        ((2.5e60, 0.0), ("2.500e+60", "0")),
        ((), ()),
    ],
)
def test_numbers_of_one_kind_have_equally_many_decimals(values, texts):
    assert fixed(values) == texts


@pytest.mark.parametrize(
    ("value", "stddev", "text"),
    [
        (1436.6, 13.45, "1,437"),
        (1436.612, 0.3, "1,436.61"),
        (-0.4, 13.0, "0"),
        (1436.6, 0.0, "1,437"),
        (1e30, 1e28, "1e+30"),
        (0.5, 1e-9, "0.500000"),
    ],
)
def test_noise_decides_on_decimals(value, stddev, text):
    assert to_noise(value, stddev) == text


def test_points_lie_in_line():
    lined = on_points(["1.25", "-12", "3.5", "—", "1,000"])
    assert [text.rstrip("\u2007\u2008") for text in lined] == ["1.25", "-12", "3.5", "—", "1,000"]
    assert [len(text) - len(text.rstrip("\u2007\u2008")) for text in lined] == [0, 3, 1, 0, 3]
    assert on_points(["1", "20%"]) == ("1", "20%")


@pytest.mark.parametrize(
    "bound", [1.0, 1e-6, 0.0001, math.e, math.exp(11.9), 73.1, 0.731058, 999.9, 1234.5, 2.0, 1e-12, 5e8]
)
def test_a_bound_is_never_rounded_below_itself(bound):
    text = at_most(bound)
    assert bound * (1.0 - 1e-11) <= float(text.replace(",", "")) <= bound * 1.01
    assert "e+" not in text


def test_a_bound_of_few_digits_stays_as_it_is():
    assert [at_most(each) for each in (0.0001, 1e-6, 2.5, 1000.0)] == ["0.0001", "1e-06", "2.5", "1,000"]
