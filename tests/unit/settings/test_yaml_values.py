"""Plain values of a job's YAML are those of YAML 1.2's core schema, and nothing else: numbers, truth values, dates."""

import math

import pytest

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.yaml_text import parse
from dapple_dp.schemas.tables.data_section import DataConfig


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("+7", 7),
        ("-0", 0),
        ("010", 10),
        ("08", 8),
        ("-012", -12),
        ("0o17", 15),
        ("0x1F", 31),
        ("!!int 010", 10),
        ("1.", 1.0),
        (".5", 0.5),
        ("+.5", 0.5),
        ("1e-6", 1e-6),
        ("1E+3", 1000.0),
        ("12e03", 12000.0),
        ("010.5", 10.5),
        ("-.inf", -math.inf),
        (".INF", math.inf),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("~", None),
        ("NULL", None),
        ("", None),
    ],
)
def test_what_is_a_number_a_truth_value_or_null(text, value):
    found = parse(f"key: {text}")["key"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1:30",
            "190:20:30",
            "190:20:30.15",
            "-1:30",
            "1_000",
            "1_0.5",
            "0b11",
            "0x",
            "0o8",
            "0x1G",
            "1,5",
            "1.2.3",
            "1e",
        ),
        *("e5", ".", "+", "-.", "+.nan", "yes", "Yes", "no", "NO", "on", "off", "Off", "y", "n", "tRUE", "nUll", "="),
        *("2026-01-31", "2026-01-31 10:00:00", "2026-01-31T10:00:00Z", "10:30", "+0x1F", "-0o7", "'010'", '"true"'),
    ],
)
def test_what_is_a_string(text):
    """Values that YAML 1.1 took for a number to the base 60, a truth value or a date are among them."""
    assert parse(f"key: {text}")["key"] == text.strip("'\"")


def test_a_column_may_be_called_as_a_truth_value_of_yaml_1_1():
    assert parse("{on: 1, no: 2, data: {features: [y, off]}}") == {"on": 1, "no": 2, "data": {"features": ["y", "off"]}}


def test_a_tag_that_lies_is_refused():
    with pytest.raises(ConfigError, match="as an integer"):
        parse("key: !!int 1:30")


def test_many_columns_may_each_have_an_entry():
    """It merges nothing, however many keys a mapping has. A merge is bounded still."""
    names = [f"c{number}" for number in range(8192)]
    lines = "\n".join(f"  {name}: {{fill: 1}}" for name in names)
    found = parse(f"missing:\n{lines}\n")
    assert list(DataConfig(path="x", features=names, missing=found["missing"]).missing) == names
    with pytest.raises(ConfigError, match="merges more than 4096 values"):
        parse(f"missing: &all\n{lines}\nother: {{<<: *all}}\n")


def test_too_many_columns_are_refused_before_anything_else():
    with pytest.raises(ValueError, match="at most 8,192 columns"):
        DataConfig(path="x", features=[f"c{number}" for number in range(100_000)])
