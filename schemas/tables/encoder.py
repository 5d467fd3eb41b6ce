"""Conversion of tables to features by an `encode` section with known parameters.

Parameters come from the job or the public server data, never from private rows.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.settings.json_schema import check_content
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.tables import columns
from dapple_dp.schemas.tables.data_section import MissingConfig
from dapple_dp.schemas.tables.encoded_column import (
    BinnedColumn,
    BoundedColumn,
    EncodedColumn,
    FilledColumn,
    OneHotColumn,
    ScaledColumn,
    category_type,
)
from dapple_dp.schemas.tables.encoding import Bounds, ColumnEncoding, OneHot, QuantileBins, Standardize, Terms
from dapple_dp.schemas.tables.terms_column import TermsVector

MOST_CATEGORIES = 4096
"""Maximum number of distinct values of the server data that become features of one column."""


_KINDS: tuple[type[EncodedColumn], ...] = (
    ScaledColumn,
    BoundedColumn,
    BinnedColumn,
    OneHotColumn,
    TermsVector,
    FilledColumn,
)
_FOREIGN = Refusal(kind=InputError, rule="an encoding must be one that fit wrote", remedy="fit again")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Conversion of a table's columns to a matrix of features; a row's features depend on that row alone.

    Attributes:
      columns: encoded columns, in the order of the features.
    """

    columns: tuple[EncodedColumn, ...]

    @classmethod
    def learn(
        cls,
        features: tuple[str, ...],
        encodings: Mapping[str, ColumnEncoding],
        server: pa.Table | None = None,
        where: str = "server_data",
        missing: Mapping[str, MissingConfig] = types.MappingProxyType({}),
    ) -> "Encoder":
        """Creates the encoder of a job; columns without an entry stay numbers.

        Args:
          features: columns in the order of the features.
          encodings: the `encode` section.
          server: public rows, unprocessed, with at least the feature columns; rows with a null or non-finite value in
            one of these are ignored. Required if an encoding learns from them.
          where: name of the server data in messages.
          missing: settings for missing values, by column.

        Raises:
          SchemaMismatchError: if a column of `server` can't be encoded.
          InputError: if `server` is needed and has no valid rows, is constant or has too many categories.
        """
        learned: dict[str, pa.ChunkedArray] = {}
        if any(encoding.needs_server for encoding in encodings.values()):
            learned = _valid_rows(features, encodings, server, where)
        encoded_columns = (_column(name, encodings.get(name), learned.get(name), where) for name in features)
        return cls(columns=tuple(_filled(column, missing.get(column.column)) for column in encoded_columns))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the features for display; `names` if two of them would be equal."""
        labels = tuple(label for column in self.columns for label in column.labels)
        return labels if len(set(labels)) == len(labels) else self.names

    def decoded(self, centers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Converts centers (n_centers, n_features) for display: means in the columns' units, shares in percent."""
        return np.hstack([column.decoded(centers[:, part]) for column, part in self._parts()])

    def in_units(self, centers: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Converts centers to the columns' units if every column is one feature; None otherwise."""
        converted = [column.in_units(centers[:, part]) for column, part in self._parts()]
        known = [values for values in converted if values is not None]
        return np.hstack(known) if len(known) == len(converted) else None

    @property
    def is_projected(self) -> bool:
        """True if single features have no meaning, but only all of them together."""
        return any(isinstance(column, TermsVector) for column in self.columns)

    @property
    def in_percent(self) -> NDArray[np.bool_]:
        """Mask, shape (n_features,), of the features that `decoded` returns as shares in percent."""
        return np.array([flag for column in self.columns for flag in column.in_percent], dtype=np.bool_)

    @property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Smallest and largest values of the features in any row, shape (n_features,) each; infinite if unbounded."""
        ends = [end for column in self.columns for end in column.ends]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    @property
    def n_features(self) -> int:
        """Number of columns of the encoded matrix."""
        return len(self.names)

    def to_json(self) -> list[dict[str, object]]:
        """Returns the columns with all their parameters, as plain data for JSON."""
        return [dataclasses.asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, object]]) -> "Encoder":
        """Inverse of `to_json`; the kind of a column is recognized by its parameters.

        Raises:
          InputError: if a column has other parameters than those that `to_json` writes.
        """
        with _FOREIGN.covers():
            return cls(columns=tuple(map(_from_json, columns)))

    def column_of(self, index: int) -> EncodedColumn:
        """Returns the column that feature `index`, from 0, comes from."""
        return next(column for column, part in self._parts() if index < part.stop)

    def check_types(self, schema: pa.Schema, where: str) -> None:
        """Raises SchemaMismatchError if a column is missing or has a type that its encoding can't use."""
        for column in self.columns:
            column.check_type(columns.plain_type(columns.find(schema, column.column, where).type), where)

    def encode(self, table: pa.Table, where: str) -> NDArray[np.float64]:
        """Returns the features of a table.

        Args:
          table: has at least the encoded columns; chunks, slices and dictionaries are fine.
          where: name of the table in messages.

        Returns:
          Shape (n_rows, n_features), C-contiguous; NaN or infinity where a row is null or not finite in a column.

        Raises:
          SchemaMismatchError: if a column is missing or has a type that its encoding can't use.
        """
        self.check_types(table.schema, where)
        matrix = np.zeros((table.num_rows, self.n_features))
        for column, part in self._parts():
            column.fill(columns.plain(table.column(column.column)), matrix[:, part])
        return matrix

    def _parts(self) -> Iterator[tuple[EncodedColumn, slice]]:
        """Yields the columns with the positions of their features."""
        start = 0
        for column in self.columns:
            stop = start + len(column.names)
            yield column, slice(start, stop)
            start = stop


def _filled(column: EncodedColumn, missing: MissingConfig | None) -> EncodedColumn:
    """Returns the column with its missing values filled, if the job has a fill for it."""
    if missing is None:
        return column
    if not isinstance(column, ScaledColumn | BoundedColumn | BinnedColumn):
        raise TypeError("missing must be of columns of numbers; check the settings first.")
    return FilledColumn(column=column.column, inner=column, fill_value=missing.fill, indicator=missing.indicator)


def _from_json(column: Mapping[str, object]) -> EncodedColumn:
    for kind in _KINDS:
        if {field.name for field in dataclasses.fields(kind)} == column.keys():
            return check_content(column, kind)
    raise MalformedError("other parameters")


def _valid_rows(
    features: tuple[str, ...], encodings: Mapping[str, ColumnEncoding], server: pa.Table | None, where: str
) -> dict[str, pa.ChunkedArray]:
    """Returns plain values of every feature column, without rows that have an invalid value."""
    if server is None:
        raise InputError("server_data is required for an encoding that learns from it; give a table.")
    by_name: dict[str, pa.ChunkedArray] = {}
    valid = np.ones(server.num_rows, dtype=np.bool_)
    for name in features:
        values = by_name[name] = columns.plain(server.column(columns.find(server.schema, name, where).name))
        if isinstance(encodings.get(name), OneHot):
            if category_type(values.type) is None:
                rule, remedy = "hold strings, integers or booleans", f"cast it or change encode.{name}.kind"
                raise columns.mismatch(name, where, rule, str(values.type), remedy)
            valid &= pc.is_valid(values).to_numpy()
        else:
            ScaledColumn(column=name).check_type(values.type, where)
            valid &= np.isfinite(columns.floats(values))
    if not valid.any():
        raise InputError(f"server_data must have a row without nulls to learn from, got none in {where}; add rows.")
    return {name: values.filter(pa.array(valid)) for name, values in by_name.items()}


def _column(name: str, encoding: ColumnEncoding | None, server: pa.ChunkedArray | None, where: str) -> EncodedColumn:
    """Creates one column with its parameters; `server` holds valid values, at least one, if they are needed."""
    match encoding:
        case OneHot():
            return _one_hot(name, encoding, server, where)
        case QuantileBins():
            numbers = columns.floats(server).astype(np.float64)
            edges = np.unique(np.quantile(numbers, np.arange(1, encoding.bins) / encoding.bins))
            return BinnedColumn(column=name, edges=tuple(edges.tolist()), weight=encoding.weight)
        case Standardize():
            return _standardized(name, encoding, server, where)
        case Terms():
            words = encoding.words or ()
            return TermsVector(column=name, vocabulary=words, width=encoding.width, weight=encoding.weight)
        case Bounds():
            lower, upper, low = encoding.lower, encoding.upper, encoding.to.low
            return BoundedColumn(column=name, lower=lower, upper=upper, low=low, weight=encoding.weight)
        case _:
            return ScaledColumn(column=name)


def _standardized(name: str, encoding: Standardize, server: pa.ChunkedArray | None, where: str) -> ScaledColumn:
    """Creates a column from given statistics, or from mean and population stddev of server values."""
    mean, stddev = encoding.mean, encoding.stddev
    if mean is None or stddev is None:
        numbers = columns.floats(server).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(numbers.mean())
            stddev = float(numbers.std()) if numbers.min() < numbers.max() else 0.0
        if not 0.0 < stddev < np.inf:
            raise InputError(
                f"column {name!r} of {where} must have a positive finite standard deviation, got {stddev}; "
                f"give mean and stddev in encode.{name} or leave the column out."
            )
    return ScaledColumn(column=name, mean=mean, stddev=stddev, weight=encoding.weight)


def _one_hot(name: str, encoding: OneHot, server: pa.ChunkedArray | None, where: str) -> OneHotColumn:
    """Creates a column from the given vocabulary, or from the distinct server values, sorted."""
    vocabulary = encoding.vocabulary
    if not isinstance(vocabulary, tuple):
        distinct = pc.unique(server)
        if len(distinct) > MOST_CATEGORIES:
            raise InputError(
                f"column {name!r} of {where} must have at most {MOST_CATEGORIES} distinct values to be one_hot, "
                f"got {len(distinct)}; list the categories in encode.{name}.vocabulary."
            )
        vocabulary = tuple(sorted(distinct.to_pylist()))
    return OneHotColumn(column=name, vocabulary=vocabulary, weight=encoding.weight)
