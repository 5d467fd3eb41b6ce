"""The `encode` section of a job: conversion of columns to features, by public values or the server data.

No parameter is learned from private rows: each is given in the job or computed from the server data.
"""

import difflib
import enum
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic import BeforeValidator, Field

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings import rejection
from dapple_dp.schemas.settings.section import Finite, Positive, Scalar, Section, Text, python_scalar
from dapple_dp.schemas.settings.vocabulary import VocabularySection
from dapple_dp.schemas.tables.data_section import MOST_WIDTH, MissingConfig
from dapple_dp.schemas.tables.feature_patterns import has_patterns

Category = str | int | bool
_LARGEST = 1e100
_NEAREST = 1e-300


class EncodingKind(enum.StrEnum):
    """Kinds of encodings of a column."""

    STANDARDIZE = "standardize"
    ONE_HOT = "one_hot"
    QUANTILE_BINS = "quantile_bins"
    BOUNDS = "bounds"
    TERMS = "terms"


class BoundsRange(enum.StrEnum):
    """Intervals to which the bounds of a column are mapped."""

    UNIT = "unit"
    SYMMETRIC = "symmetric"

    @property
    def low(self) -> float:
        """Lower end of the interval; the upper one is 1."""
        return 0.0 if self is BoundsRange.UNIT else -1.0


class PublicSource(enum.StrEnum):
    """Sources of parameters that are not given in the job."""

    SERVER = "server"


def interval(value: object) -> tuple[float, float]:
    """Validates two finite numbers, the first one smaller, and returns them."""
    ends = [python_scalar(end) for end in value] if isinstance(value, list | tuple) else []
    numbers = [float(end) for end in ends if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(ends) != 2 or len(numbers) != 2:
        raise rejection.broken_rule("a list of two numbers")
    low, high = numbers
    if not are_bounds(low, high):
        raise rejection.broken_rule("two finite numbers, the smaller one first and clearly apart")
    return low, high


def are_bounds(low: float, high: float) -> bool:
    """Returns whether two numbers are finite, and the second is larger by enough to scale by their distance."""
    return -_LARGEST <= low < high <= _LARGEST and high - low > max(1e-9 * max(abs(low), abs(high)), _NEAREST)


def _vocabulary(value: object) -> object:
    """Validates `server`, or distinct categories of one type."""
    if value == PublicSource.SERVER:
        return PublicSource.SERVER
    values = tuple(map(python_scalar, value)) if isinstance(value, list | tuple) else ()
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int, bool}:
        raise rejection.broken_rule("'server' or a non-empty list of strings, of integers or of booleans")
    if len(set(values)) < len(values):
        raise rejection.broken_rule("a list without duplicates")
    return values


class Standardize(Section):
    """One feature: (value - mean) / stddev."""

    # Serialized by alias, since `from` is a keyword in Python.
    model_config = pydantic.ConfigDict(populate_by_name=True, serialize_by_alias=True)

    kind: Literal[EncodingKind.STANDARDIZE] = Field(
        default=EncodingKind.STANDARDIZE, description="standardize, for one feature of mean 0 and stddev 1"
    )
    mean: Finite | None = Field(default=None, description="the public mean of the column, a finite number, in its unit")
    stddev: Positive | None = Field(
        default=None, description="the public standard deviation of the column, a finite number > 0, in its unit"
    )
    source: PublicSource | None = Field(
        default=None, alias="from", description="server for mean and stddev of the server data, or leave it out"
    )
    weight: Positive = Field(default=1.0, description="the factor of the feature, a finite number > 0")

    @property
    def needs_server(self) -> bool:
        """True if parameters are learned from the server data."""
        return self.source is not None

    @pydantic.model_validator(mode="after")
    def _parameters_come_from_one_place(self) -> Self:
        for name, value in {"mean": self.mean, "stddev": self.stddev}.items():
            if (value is None) != self.needs_server:
                rule = "left out with from: server" if self.needs_server else "given without from: server"
                got = "nothing" if value is None else str(value)
                raise ConfigError(f"{name} must be {rule}, got {got}; give mean and stddev, or only from: server.")
        return self


class OneHot(Section):
    """One feature per category, 1 if the value is that category; values that aren't listed are all zeros."""

    kind: Literal[EncodingKind.ONE_HOT] = Field(
        default=EncodingKind.ONE_HOT, description="one_hot, for one feature per category"
    )
    vocabulary: Annotated[PublicSource | tuple[Category, ...], BeforeValidator(_vocabulary)] = Field(
        union_mode="left_to_right",
        description="a list of public categories, or server for the distinct values of the server data",
    )
    weight: Positive = Field(default=1.0, description="what stands for 1, a finite number > 0")

    @property
    def needs_server(self) -> bool:
        """True if parameters are learned from the server data."""
        return self.vocabulary is PublicSource.SERVER


class QuantileBins(Section):
    """One feature per bin, 1 if the bin contains the value; edges are quantiles of the server data."""

    kind: Literal[EncodingKind.QUANTILE_BINS] = Field(
        default=EncodingKind.QUANTILE_BINS, description="quantile_bins, for one feature per bin"
    )
    bins: Annotated[int, Field(strict=True, ge=2, le=1000), Scalar] = Field(
        description="the number of bins, an integer from 2 to 1000; equal quantiles are merged"
    )
    weight: Positive = Field(default=1.0, description="what stands for 1, a finite number > 0")

    @property
    def needs_server(self) -> bool:
        """Always true, since edges come from the server data."""
        return True


class Bounds(Section):
    """One feature: the value, clipped to public bounds that are mapped to 0 and 1, or to -1 and 1."""

    kind: Literal[EncodingKind.BOUNDS] = Field(
        default=EncodingKind.BOUNDS, description="bounds, for one feature between public bounds"
    )
    lower: Finite = Field(description="the public lower bound of the column, a finite number, in its unit")
    upper: Finite = Field(description="the public upper bound of the column, a number above lower, in its unit")
    to: BoundsRange = Field(
        default=BoundsRange.UNIT, description="unit for a feature from 0 to 1, or symmetric for one from -1 to 1"
    )
    weight: Positive = Field(default=1.0, description="the factor of the feature, a finite number > 0")

    @property
    def needs_server(self) -> bool:
        """Always false, since bounds are given in the job."""
        return False

    @pydantic.model_validator(mode="after")
    def _lower_is_below_upper(self) -> Self:
        if not are_bounds(self.lower, self.upper):
            raise ConfigError(
                f"upper must be clearly above lower, both from {-_LARGEST:g} to {_LARGEST:g}, got {self.lower} and "
                f"{self.upper}; give the public bounds of the column."
            )
        return self


class Terms(VocabularySection):
    """Public terms of a row as a vector of fixed length: the sum of the vectors of its distinct terms.

    A term's vector has few nonzero entries, drawn by a public generator from its position in the vocabulary.
    """

    kind: Literal[EncodingKind.TERMS] = Field(
        default=EncodingKind.TERMS, description="terms, for lists of tags, codes or words, or strings"
    )
    width: Annotated[int, Field(strict=True, ge=8, le=MOST_WIDTH), Scalar] = Field(
        default=256, description=f"the number of features that they become, an integer from 8 to {MOST_WIDTH}"
    )
    weight: Positive = Field(default=1.0, description="the length of the vector, a finite number > 0")

    @property
    def needs_server(self) -> bool:
        """Always false, since terms are given in the job or its file."""
        return False


ColumnEncoding = Standardize | OneHot | QuantileBins | Bounds | Terms
_MODELS: Mapping[str, type[ColumnEncoding]] = {
    EncodingKind.STANDARDIZE: Standardize,
    EncodingKind.ONE_HOT: OneHot,
    EncodingKind.QUANTILE_BINS: QuantileBins,
    EncodingKind.BOUNDS: Bounds,
    EncodingKind.TERMS: Terms,
}
_LEARNED: Mapping[str, str] = {
    EncodingKind.STANDARDIZE: "from: server",
    EncodingKind.ONE_HOT: "vocabulary: server",
    EncodingKind.QUANTILE_BINS: "kind: quantile_bins",
}
_KINDS = "kind standardize, one_hot, quantile_bins, bounds or terms"


def _parsed(value: object) -> object:
    """Validates every entry by the model of its kind."""
    if not isinstance(value, Mapping):
        return value
    return {column: _parsed_entry(column, settings) for column, settings in value.items()}


def _parsed_entry(column: object, settings: object) -> Section:
    """Validates one entry; errors give the full dotted name."""
    if isinstance(settings, Section):
        return settings
    name = f"encode.{column}"
    if not isinstance(settings, Mapping):
        got = rejection.quote(settings)
        raise ConfigError(f"{name} must be a section of settings, got {got}; give a section with {_KINDS}.")
    kind = settings.get("kind")
    if not isinstance(kind, str) or kind not in _MODELS:
        rule = "'standardize', 'one_hot', 'quantile_bins', 'bounds' or 'terms'"
        raise ConfigError(f"{name}.kind must be {rule}, got {rejection.quote(kind)}; give {_KINDS}.")
    model = _MODELS[kind]
    return rejection.check_config(model, settings, within=name)


Encodings = Annotated[dict[Text, ColumnEncoding], BeforeValidator(_parsed)]


def _check_encodings(
    encodings: Mapping[str, ColumnEncoding], features: str | tuple[str, ...], *, has_server: bool
) -> None:
    """Checks an `encode` section against the rest of its job; with patterns, the check waits for their resolution."""
    if encodings and isinstance(features, str):
        raise ConfigError(
            f"data.features must be a list of columns if there is an encode section, got {features!r}; list the "
            "columns or remove encode."
        )
    if has_patterns(features):
        return
    columns = frozenset(features)
    for column, encoding in encodings.items():
        if column not in columns:
            close = difflib.get_close_matches(column, features, n=1)
            remedy = f"did you mean encode.{close[0]}?" if close else f"the columns there are {', '.join(features)}."
            raise ConfigError(f"encode.{column} must name a column of data.features, got {column!r}; {remedy}")
        if encoding.needs_server and not has_server:
            raise ConfigError(
                f"encode.{column} must have public values if there is no server_data, got "
                f"{_LEARNED[encoding.kind]}; write the values into the job or give a server_data section."
            )


def with_vocabularies(encodings: Mapping[str, ColumnEncoding], read: Callable[[str, str], str]) -> Encodings:
    """Returns the section with the terms of its files; arguments and errors as in `VocabularySection.with_words`."""
    return {
        column: encoding.with_words(read, f"encode.{column}") if isinstance(encoding, Terms) else encoding
        for column, encoding in encodings.items()
    }


def _check_terms(job: Any, column: str) -> None:
    """Refuses vectors of terms next to other features, and in jobs that don't compare rows by direction alone."""
    if not getattr(job, "compares_directions", False):
        raise ConfigError(
            f"encode.{column}.kind must not be terms here; use `dapple topics`, which compares only the directions "
            "of rows, or another kind."
        )
    if len(job.data.features) > 1:
        raise ConfigError(
            f"data.features must name only column {column!r}, whose terms become directions, got others as well; "
            "leave them out."
        )


def check_fills(
    missing: Mapping[str, MissingConfig],
    encodings: Mapping[str, ColumnEncoding],
    interval: tuple[float, float] | None = None,
) -> None:
    """Checks that columns with fills are numeric, and that fills lie within the range of their values.

    Args:
      missing: the section `missing`.
      encodings: encodings of columns; columns without one are features as they are.
      interval: interval to which all features are clipped; None without one.

    Raises:
      ConfigError: one sentence.
    """
    for column, entry in missing.items():
        name, encoding = f"data.missing.{column}", encodings.get(column)
        if isinstance(encoding, OneHot | Terms):
            raise ConfigError(
                f"{name} must name a column of numbers, got one with encode.{column}.kind {encoding.kind}; use a "
                "category of its own for missing values in the data."
            )
        low, high = (encoding.lower, encoding.upper) if isinstance(encoding, Bounds) else (None, None)
        if encoding is None and interval is not None:
            low, high = interval
        if isinstance(encoding, Standardize) and None not in (encoding.mean, encoding.stddev) and interval is not None:
            scale, mean = float(encoding.stddev or 1.0) / encoding.weight, float(encoding.mean or 0.0)
            low, high = (mean + scale * end for end in interval)
        if low is not None and high is not None and not low <= entry.fill <= high:
            raise ConfigError(
                f"{name}.fill must be inside the bounds of its column, {low:g} to {high:g}, got {entry.fill:g}; give a "
                "public value that rows can have."
            )
        if entry.indicator and interval is not None and not encodings:
            raise ConfigError(
                "dp_lloyd.domain must have one interval for each column if data.missing adds an indicator, got one "
                "for all; list them, since an indicator goes from 0 to 1 whatever its column does."
            )
        outside = interval is not None and not interval[0] <= 0.0 < 1.0 <= interval[1]
        if entry.indicator and outside and not isinstance(encoding, Bounds):
            raise ConfigError(
                f"dp_lloyd.domain must contain 0 and 1 for the indicator of {name}, got {interval}; widen it."
            )


_Job = TypeVar("_Job", bound=Any)


def check_encodings(job: _Job) -> _Job:
    """Returns the job; raises ConfigError if its sections `data`, `encode` and `server_data` are inconsistent."""
    _check_encodings(job.encode, job.data.features, has_server=job.server_data is not None)
    for column, encoding in job.encode.items():
        if isinstance(encoding, Terms):
            _check_terms(job, column)
    if not has_patterns(job.data.features):
        check_fills(job.data.missing, job.encodings, getattr(job, "common_interval", None))
    return job
