"""Conversion of a record of named values to a vector; only the standard library, so that devices can import it."""

import bisect
import math
from collections.abc import Mapping

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.reports.parameters import ReportParameters

Value = str | int | float | bool | None


def features_of(record: Mapping[str, Value], parameters: ReportParameters) -> list[float]:
    """Returns the features of one record, as `encode` computes them for a table.

    Args:
      record: values by column; other columns are ignored.
      parameters: public parameters of the reports.

    Returns:
      One number per feature. A value that is null, not finite or of another type gives NaN, which a report treats as
      0, so that a client sends a report for any value.

    Raises:
      ConfigError: if a column is missing.
    """
    columns = parameters.columns or [{"column": name} for name in parameters.features]
    missing = [column["column"] for column in columns if column["column"] not in record]
    if missing:
        raise ConfigError(
            f"column {missing[0]!r} of the report parameters not found in the record; give None for an unknown value."
        )
    return [feature for column in columns for feature in _features(record[column["column"]], column)]


def _features(value: Value, column: Mapping[str, object]) -> list[float]:
    weight = float(column.get("weight", 1.0))  # type: ignore[arg-type]
    if isinstance(vocabulary := column.get("vocabulary"), list):
        if type(value) is not type(vocabulary[0]):
            return [math.nan] * len(vocabulary)
        return [weight if category == value else 0.0 for category in vocabulary]
    number = _number(value)
    if isinstance(edges := column.get("edges"), list):
        if not math.isfinite(number):
            return [math.nan] * (len(edges) + 1)
        place = bisect.bisect_left(edges, number)
        return [weight if index == place else 0.0 for index in range(len(edges) + 1)]
    if "lower" in column:
        lower, upper, low = (float(column[name]) for name in ("lower", "upper", "low"))  # type: ignore[arg-type]
        share = (min(max(number, lower), upper) - lower) / (upper - lower)
        return [(low + (1.0 - low) * share) * weight if math.isfinite(number) else math.nan]
    mean, stddev = float(column.get("mean", 0.0)), float(column.get("stddev", 1.0))  # type: ignore[arg-type]
    return [(number - mean) / stddev * weight]


def _number(value: Value) -> float:
    if not isinstance(value, int | float):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan
