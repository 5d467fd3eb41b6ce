"""Encoded columns: one column of a table with everything that converts its values to features."""

import abc
import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from dapple_dp.schemas.settings.json_schema import FILE_CONTENT
from dapple_dp.schemas.tables import columns
from dapple_dp.schemas.tables.data_section import indicator_name
from dapple_dp.schemas.tables.encoding import Category, ColumnEncoding, OneHot, Terms, are_bounds

_CATEGORIES: Mapping[type, str] = {str: "strings", int: "integers", bool: "booleans"}
_READ_AS: Mapping[type, pa.DataType] = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
"""Types by which categories are read from files without types."""
_Positive = Annotated[float, Field(gt=0.0)]


def read_as(encoding: ColumnEncoding | None) -> pa.DataType:
    """Returns the type by which a column with this encoding, or none, is read from a file without types."""
    if isinstance(encoding, Terms):
        return pa.string()
    if not isinstance(encoding, OneHot):
        return pa.float64()
    return _READ_AS[str if encoding.needs_server else type(encoding.vocabulary[0])]


def _ascending(edges: tuple[float, ...]) -> tuple[float, ...]:
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise ValueError("edges must ascend")
    return edges


def distinct(values: tuple[Category, ...]) -> tuple[Category, ...]:
    """Returns the categories; raises ValueError unless they are distinct, and of one type."""
    if len(set(values)) < len(values) or len(set(map(type, values))) > 1:
        raise ValueError("categories must be distinct, and of one type")
    return values


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EncodedColumn(abc.ABC):
    """Base of all encoded columns; files store their fields.

    Attributes:
      column: name of the column in the table.
      weight: factor of the column's features, > 0.
    """

    column: str
    weight: _Positive = 1.0

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the features, at least one."""

    @property
    @abc.abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the features for display: short, without signs, edges of bins rounded."""

    @property
    def in_percent(self) -> tuple[bool, ...]:
        """True for each feature whose value in a center is a share of rows, which `decoded` returns in percent."""
        return (True,) * len(self.names)

    @property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Smallest and largest value of each feature in any row."""
        return ((0.0, self.weight),) * len(self.names)

    def in_units(self, block: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Converts features of centers to the unit of the column; None if the column became several features."""
        return None

    def decoded(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """Converts features of centers for display: by default to the share of rows in percent, from 0 to 100.

        Args:
          block: shape (n_centers, n_names); noise may have moved it outside of the range of rows.
        """
        return np.clip(100.0 * block / self.weight, 0.0, 100.0)

    @property
    def read_as(self) -> pa.DataType:
        """Type by which the column is read from a file without types."""
        return pa.float64()

    @property
    @abc.abstractmethod
    def complaint(self) -> tuple[str, str]:
        """Rule for every row, and the violation in an invalid row, in words for errors."""

    @abc.abstractmethod
    def check_type(self, kind: pa.DataType, where: str) -> None:
        """Raises SchemaMismatchError if values of the plain type `kind` can't be encoded."""

    @abc.abstractmethod
    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the features of plain `values` to `block`, zeros of shape (n_rows, n_names); NaN where invalid."""


class _Numbers(EncodedColumn):
    __slots__ = ()

    @property
    def complaint(self) -> tuple[str, str]:
        """Rule and violation: nulls, NaN and infinities are invalid."""
        return "hold finite numbers only", "a null, NaN or infinity"

    def check_type(self, kind: pa.DataType, where: str) -> None:
        if not columns.is_numeric(kind):
            remedy = columns.in_numbers(kind, f"cast it, or write kind: one_hot in encode.{self.column}")
            raise columns.mismatch(self.column, where, "be numeric", str(kind), remedy)


class _OneNumber(_Numbers):
    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def in_percent(self) -> tuple[bool, ...]:
        """Always false, since a mean is in the unit of the column."""
        return (False,)

    def in_units(self, block: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns the same values as `decoded`."""
        return self.decoded(block)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScaledColumn(_OneNumber):
    """One feature, (value - mean) / stddev * weight; the defaults pass the number through.

    Attributes:
      mean: mean, in the unit of the column.
      stddev: standard deviation, > 0, in the unit of the column.
    """

    mean: float = 0.0
    stddev: _Positive = 1.0

    @property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Infinite: values have no bounds."""
        return ((-math.inf, math.inf),)

    def decoded(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns means in the unit of the column."""
        with np.errstate(over="ignore", invalid="ignore"):
            return block / self.weight * self.stddev + self.mean

    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the scaled values; a value that overflows becomes infinite, and so invalid."""
        with np.errstate(over="ignore", invalid="ignore"):
            block[:, 0] = (columns.floats(values).astype(np.float64) - self.mean) / self.stddev * self.weight


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundedColumn(_OneNumber):
    """One feature: the value, clipped to public bounds, mapped to [low, 1] and multiplied by `weight`.

    Attributes:
      lower: lower bound, in the unit of the column; mapped to `low`.
      upper: upper bound, in the unit of the column, > `lower`; mapped to 1.
      low: 0 or -1.
    """

    lower: float
    upper: float
    low: float = 0.0

    def __post_init__(self) -> None:
        """Refuses bounds that rows can't be clipped to; raises ValueError."""
        if not are_bounds(self.lower, self.upper) or self.low not in (0.0, -1.0):
            raise ValueError("bounds must be apart, and become 0 or -1, and 1")

    @property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """The values to which the bounds are mapped."""
        return ((self.low * self.weight, self.weight),)

    def decoded(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns means in the unit of the column; noise may have moved them beyond the bounds."""
        return self.lower + (block / self.weight - self.low) / (1.0 - self.low) * (self.upper - self.lower)

    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the mapped values; infinite values are invalid like nulls, though they could be clipped."""
        numbers = columns.floats(values).astype(np.float64)
        share = (np.clip(numbers, self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        scaled = (self.low + (1.0 - self.low) * share) * self.weight
        block[:, 0] = np.where(np.isfinite(numbers), scaled, np.nan)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BinnedColumn(_Numbers):
    """One feature per bin: `weight` for the bin that contains the value, and 0 for the others.

    Attributes:
      edges: upper ends, inclusive, of all bins but the last; ascending, at least one, in the unit of the column.
    """

    edges: Annotated[tuple[float, ...], Field(min_length=1), AfterValidator(_ascending)]

    @property
    def names(self) -> tuple[str, ...]:
        """Bins as inequalities, for example "age<=25", "25<age<=40", "age>40"."""
        ends = list(map(_shortest, self.edges))
        inner = [f"{low}<{self.column}<={high}" for low, high in itertools.pairwise(ends)]
        return (f"{self.column}<={ends[0]}", *inner, f"{self.column}>{ends[-1]}")

    @property
    def labels(self) -> tuple[str, ...]:
        """Bins as ranges, for example "age up to 25", "age 25 to 40", "age above 40"."""
        ends = _rounded_ends(self.edges)
        inner = [f"{self.column} {low} to {high}" for low, high in itertools.pairwise(ends)]
        return (f"{self.column} up to {ends[0]}", *inner, f"{self.column} above {ends[-1]}")

    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the bins; values beyond the edges are in the first or the last bin."""
        numbers = columns.floats(values).astype(np.float64)
        _mark(block, np.searchsorted(self.edges, numbers), np.isfinite(numbers), self.weight)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OneHotColumn(EncodedColumn):
    """One feature per category: `weight` for the value's category, else 0; unlisted values are all zeros.

    Attributes:
      vocabulary: distinct strings, integers or booleans, at least one.
    """

    vocabulary: Annotated[tuple[Category, ...], Field(min_length=1), AfterValidator(distinct)]

    @property
    def names(self) -> tuple[str, ...]:
        """Categories as equations, for example "sex=Female"."""
        return tuple(f"{self.column}={value}" for value in self.vocabulary)

    @property
    def labels(self) -> tuple[str, ...]:
        """Categories after the column, for example "sex Female"; spaces around a category are removed."""
        return tuple(f"{self.column} {str(value).strip()}" for value in self.vocabulary)

    @property
    def read_as(self) -> pa.DataType:
        """Type of the vocabulary."""
        return _READ_AS[type(self.vocabulary[0])]

    @property
    def complaint(self) -> tuple[str, str]:
        """Rule and violation: only nulls are invalid."""
        return "hold a value in every row", "a null"

    def check_type(self, kind: pa.DataType, where: str) -> None:
        """Checks that the type is that of the vocabulary; otherwise, every row would silently become zeros."""
        wanted = type(self.vocabulary[0])
        if category_type(kind) is not wanted:
            rule = f"hold {_CATEGORIES[wanted]} like its vocabulary"
            remedy = f"cast it or correct encode.{self.column}.vocabulary"
            raise columns.mismatch(self.column, where, rule, str(kind), remedy)

    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the categories, with one lookup for all values."""
        held = [index for index, value in enumerate(self.vocabulary) if _can_hold(values.type, value)]
        listed = pa.array([self.vocabulary[index] for index in held], values.type)
        codes = pc.fill_null(pc.index_in(values, value_set=listed, skip_nulls=True), len(held)).to_numpy()
        _mark(block, np.array([*held, -1])[codes], pc.is_valid(values).to_numpy(), self.weight)


@pydantic.with_config(FILE_CONTENT)
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilledColumn(EncodedColumn):
    """A numeric column whose missing values, null or NaN, are replaced by a public number before encoding.

    Attributes:
      inner: encoding of the numbers.
      fill_value: public number for missing values, in the unit of the column.
      indicator: true for one more feature that marks missing values, 1 if missing and 0 otherwise, mapped to the same
        range as the column if that has bounds.
    """

    inner: ScaledColumn | BoundedColumn | BinnedColumn
    fill_value: Annotated[float, Field(allow_inf_nan=False)]
    indicator: bool = False

    @property
    def _flags(self) -> BoundedColumn:
        """Encoding of the indicator's 0 and 1."""
        low = self.inner.low if isinstance(self.inner, BoundedColumn) else 0.0
        return BoundedColumn(column=self.column, lower=0.0, upper=1.0, low=low, weight=self.inner.weight)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the column's features, and of the indicator."""
        return (*self.inner.names, indicator_name(self.column)) if self.indicator else self.inner.names

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the same features for display."""
        return (*self.inner.labels, indicator_name(self.column)) if self.indicator else self.inner.labels

    @property
    def in_percent(self) -> tuple[bool, ...]:
        """True for each share; the indicator of a center is the share of rows with a missing value."""
        return (*self.inner.in_percent, True) if self.indicator else self.inner.in_percent

    @property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Ends of the column's features, and of the indicator."""
        return (*self.inner.ends, *self._flags.ends) if self.indicator else self.inner.ends

    def decoded(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        """Converts the column as if without missing values, and the indicator to a percentage of rows."""
        own = self.inner.decoded(block[:, : len(self.inner.names)])
        if not self.indicator:
            return own
        return np.hstack([own, np.clip(100.0 * self._flags.decoded(block[:, -1:]), 0.0, 100.0)])

    def in_units(self, block: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Converts the column to its unit, and the indicator to the share of missing values, 0 to 1 plus noise."""
        own = self.inner.in_units(block[:, : len(self.inner.names)])
        if own is None or not self.indicator:
            return own
        return np.hstack([own, self._flags.decoded(block[:, -1:])])

    @property
    def complaint(self) -> tuple[str, str]:
        """Rule and violation: infinities are invalid."""
        return "hold numbers that are not infinite", "an infinity"

    def check_type(self, kind: pa.DataType, where: str) -> None:
        """Checks the type; a column without any value has the null type and counts as missing."""
        if not pa.types.is_null(kind):
            self.inner.check_type(kind, where)

    def fill(self, values: pa.ChunkedArray, block: NDArray[np.float64]) -> None:
        """Writes the features, which depend on the row itself and on public values only."""
        numbers = columns.floats(values).astype(np.float64)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.fill_value, numbers)
        self.inner.fill(pa.chunked_array([pa.array(filled)]), block[:, : len(self.inner.names)])
        if self.indicator:
            self._flags.fill(pa.chunked_array([pa.array(missing.astype(np.float64))]), block[:, -1:])


def category_type(kind: pa.DataType) -> type | None:
    """Returns Python's type for the categories of a plain type; None if it can't hold any."""
    if columns.is_text(kind):
        return str
    if pa.types.is_boolean(kind):
        return bool
    return int if pa.types.is_integer(kind) else None


def _shortest(number: float) -> str:
    """Formats a number in 15 digits if these are exact, else in all, so that different edges get different names."""
    short = f"{number:.15g}"
    return short if float(short) == number else repr(number)


def _rounded_ends(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Rounds the edges of bins to few digits; none moves by more than a fiftieth of the narrowest bin."""
    gaps = [high - low for low, high in itertools.pairwise(edges)] or [abs(edges[0])]
    for digits in range(1, 16):
        rounded = [float(f"{edge:.{digits}g}") for edge in edges]
        if all(abs(short - edge) <= min(gaps) / 50.0 for short, edge in zip(rounded, edges, strict=True)):
            return tuple(map(_shortest, rounded))
    return tuple(map(_shortest, edges))


def _can_hold(kind: pa.DataType, value: Category) -> bool:
    """Returns whether a column of this type can hold the category at all."""
    if not pa.types.is_integer(kind):
        return True
    signed = pa.types.is_signed_integer(kind)
    n_values = 1 << kind.bit_width
    return 0 <= int(value) + (n_values // 2 if signed else 0) < n_values


def _mark(block: NDArray[np.float64], codes: NDArray[np.integer], valid: NDArray[np.bool_], weight: float) -> None:
    """Writes `weight` at each row's code, nothing for a negative code, and NaN into invalid rows."""
    rows = np.flatnonzero(valid & (codes >= 0))
    block[rows, codes[rows]] = weight
    block[~valid] = np.nan
