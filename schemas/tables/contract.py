"""Contract of an input table: the columns that a job reads, the rules for them, and their conversion to arrays.

`where` names the piece of data in messages, such as "lake/part-0.parquet, row group 3".
"""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.tables.columns import check_identifiers, group_by_client, in_numbers
from dapple_dp.schemas.tables.columns import find as _find
from dapple_dp.schemas.tables.columns import floats as _floats
from dapple_dp.schemas.tables.columns import is_identifier as _is_identifier
from dapple_dp.schemas.tables.columns import is_list as _is_list
from dapple_dp.schemas.tables.columns import is_numeric as _is_numeric
from dapple_dp.schemas.tables.columns import mismatch as _mismatch
from dapple_dp.schemas.tables.columns import plain as _plain
from dapple_dp.schemas.tables.columns import plain_type as _plain_type
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.feature_patterns import FeaturePatterns

if TYPE_CHECKING:
    from dapple_dp.schemas.tables.participation import Participation
    from dapple_dp.schemas.tables.terms_column import TermsColumn

_TURNED_ROWS = 256
"""Number of rows that are transposed at once, so that they stay in the cache."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableContract:
    """Columns of one table; either `features` or `feature_list` is set.

    Other columns are ignored and may differ from file to file.

    Attributes:
      features: columns in the order of the features, numeric unless `encoder` converts them; empty if
        `feature_list` is set.
      feature_list: one column of lists of numbers, all of one length.
      client_id: column that identifies the client; required if `by_client`.
      n_features: required width: `len(features)`, or the width of the encoder's matrix; None while the width of
        `feature_list` is unknown.
      on_invalid_rows: handling of rows with a null or non-finite feature, a null client id, or a list whose length
        isn't `n_features`.
      by_client: true if `to_block` groups rows by client.
      encoder: converts the columns in `features` to features; None if they are features as they are.
      patterns: patterns that gave `features` in the first file, checked in all others; None if the job lists names.
      participation: clients that count in the windows of an epoch; readers skip the rows of all others. None if all
        clients count.
      may_miss: columns whose nulls and NaN stay NaN, to be filled later; only without an encoder.
      terms: column of public terms that follow a row's features, as numbers; None without one.
    """

    features: tuple[str, ...] = ()
    feature_list: str | None = None
    client_id: str | None = None
    n_features: int | None = None
    on_invalid_rows: InvalidRows = InvalidRows.FAIL
    by_client: bool = False
    encoder: Encoder | None = None
    patterns: FeaturePatterns | None = None
    participation: "Participation | None" = None
    may_miss: frozenset[str] = frozenset()
    terms: "TermsColumn | None" = None

    def __post_init__(self) -> None:
        if bool(self.features) == (self.feature_list is not None):
            raise ValueError(
                f"features must be given if and only if feature_list is not, got {self.features!r} and "
                f"{self.feature_list!r}; give one of the two."
            )
        if self.encoder is not None and tuple(column.column for column in self.encoder.columns) != self.features:
            raise ValueError(
                f"encoder must be of the columns in features, {self.features!r}, got another; learn it for them."
            )
        width = len(self.features) if self.encoder is None else self.encoder.n_features
        if self.features and self.n_features != width:
            raise ValueError(
                f"n_features must be the number of features, {width}, got {self.n_features}; give that number."
            )
        if self.by_client and self.client_id is None:
            raise ValueError("client_id must be a column if by_client is set, got None; name the column.")

    @classmethod
    def from_config(
        cls,
        config: DataConfig,
        n_features: int | None = None,
        *,
        by_client: bool = False,
        encoder: Encoder | None = None,
        terms: "TermsColumn | None" = None,
    ) -> "TableContract":
        """Creates the contract of a job's table.

        Args:
          config: the job's section `data`.
          n_features: required width, if known from another source such as the server data.
          by_client: true if the privacy unit is the client.
          encoder: from the job's section `encode`, if there is one.
          terms: column of terms in addition to the features, if there is one.

        Raises:
          ConfigError: if `n_features` contradicts `data.feature_names` or `data.width`.
          ValueError: if `n_features` contradicts the number of named columns.
        """
        names = () if isinstance(config.features, str) else config.features
        n_features = _named_width(config, n_features)
        width = len(names) if encoder is None else encoder.n_features
        return cls(
            features=names,
            feature_list=config.features if isinstance(config.features, str) else None,
            client_id=config.client_id,
            n_features=width if names and n_features is None else n_features,
            on_invalid_rows=config.on_invalid_rows,
            by_client=by_client,
            encoder=encoder,
            patterns=config.found_patterns,
            terms=terms,
        )

    def features_only(self) -> "TableContract":
        """Returns the contract for a table without clients, such as server data."""
        return dataclasses.replace(self, client_id=None, by_client=False, patterns=None, terms=None)

    def encoded(self) -> "TableContract":
        """Returns the contract of the table after encoding, with terms converted to numbers."""
        names = self.features if self.encoder is None else self.encoder.names
        patterns = self.patterns if self.encoder is None else None
        if self.terms is not None and self.feature_list is None:
            names = (*names, *self.terms.names)
        width = None if self.n_features is None else self.width
        return dataclasses.replace(self, features=names, n_features=width, encoder=None, patterns=patterns, terms=None)

    @property
    def width(self) -> int:
        """Number of values per row in blocks, terms included; 0 for features of unknown width."""
        return (self.n_features or 0) + (0 if self.terms is None else self.terms.most)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to read; the client id is the last one and read only if `by_client`."""
        features = self.features if self.feature_list is None else (self.feature_list,)
        if self.terms is not None and self.terms.column not in features:
            features = (*features, self.terms.column)
        return (*features, self.client_id) if self.by_client and self.client_id is not None else features

    @property
    def types(self) -> dict[str, pa.DataType]:
        """`columns`, with the types by which files without types are read."""
        encoded = {} if self.encoder is None else {column.column: column.read_as for column in self.encoder.columns}
        features = {name: encoded.get(name, pa.float64()) for name in self.features}
        if self.feature_list is not None:
            features[self.feature_list] = pa.list_(pa.float64())
        return {name: features.get(name, pa.string()) for name in self.columns}

    def check_schema(self, schema: pa.Schema, where: str) -> None:
        """Validates names and types; other columns are ignored.

        Args:
          schema: schema of a file or a table, Hive partition columns included.
          where: name of the data in messages.

        Raises:
          SchemaMismatchError: if a column is missing, ambiguous or of another type, lists have another width, or
            patterns match other columns.
        """
        if self.patterns is not None:
            self.patterns.check(schema.names, self.features, where)
        types = {name: _plain_type(_find(schema, name, where).type) for name in self.columns}
        if self.encoder is not None:
            self.encoder.check_types(schema, where)
        for name in self.features if self.encoder is None else ():
            if not _is_numeric(types[name]):
                remedy = in_numbers(types[name], "cast it or leave it out of data.features")
                raise _mismatch(name, where, "be numeric", str(types[name]), remedy)
        if self.feature_list is not None:
            self._check_list(types[self.feature_list], where)
        if self.terms is not None:
            self.terms.check_type(types[self.terms.column], where)
        if self.by_client and self.client_id is not None and not _is_identifier(types[self.client_id]):
            got = str(types[self.client_id])
            raise _mismatch(self.client_id, where, "hold integers, strings or bytes", got, "cast it")

    def _check_list(self, kind: pa.DataType, where: str) -> None:
        name = str(self.feature_list)
        if not _is_list(kind) or not _is_numeric(kind.value_type):
            remedy = "cast it, or write data.features as a list to name scalar columns"
            raise _mismatch(name, where, "be a list of numbers", str(kind), remedy)
        if not pa.types.is_fixed_size_list(kind):
            return
        if kind.list_size < 1 or self.n_features not in (None, kind.list_size):
            remedy = "use data of one width everywhere, server data and data.feature_names included"
            raise _mismatch(name, where, f"have width {self.n_features or '>= 1'}", str(kind.list_size), remedy)

    def list_width(self, schema: pa.Schema, where: str) -> int:
        """Returns the width of the fixed-size-list column.

        Raises:
          SchemaMismatchError: if the schema breaks the contract, or has lists of variable size.
        """
        self.check_schema(schema, where)
        kind = _plain_type(_find(schema, str(self.feature_list), where).type)
        if not pa.types.is_fixed_size_list(kind):
            remedy = "give data.width, cast it, or give server_data of that width"
            raise _mismatch(str(self.feature_list), where, "be a fixed-size list", str(kind), remedy)
        return int(kind.list_size)

    def to_points(self, table: pa.Table, where: str) -> NDArray[np.floating]:
        """Returns the feature matrix of a table.

        Args:
          table: has at least the feature columns; chunks, slices and dictionaries are fine.
          where: name of the data in messages.

        Returns:
          Shape (n_valid_rows, n_features), C-contiguous, finite; float32 if every feature is, else float64;
          always float64 with an encoder.
          May be a read-only view of the table.

        Raises:
          SchemaMismatchError: if the table breaks the contract.
          InputError: if `on_invalid_rows` is fail and there is an invalid row.
        """
        return self.features_only()._screened(table, where)[0]

    def to_block(self, table: pa.Table, where: str) -> ClientBlock:
        """Returns the rows of a table for statistics; arguments and errors as in `to_points`.

        Returns:
          Rows in the table's order with offsets None; if `by_client`, rows sorted stably by client, clients
          in the order in which they first appear.
        """
        points, ids = self._screened(table, where)
        if ids is None:
            return ClientBlock(points)
        order, offsets, clients = group_by_client(ids)
        ordered = bool((order[1:] > order[:-1]).all())
        return ClientBlock(points if ordered else points.take(order, axis=0), offsets, clients)

    def to_rows(self, table: pa.Table, where: str) -> tuple[NDArray[np.floating], pa.ChunkedArray]:
        """Returns valid rows with their clients, not grouped; arguments and errors as in `to_points`.

        Returns:
          Features, shape (n_valid_rows, n_features), and client ids without nulls, both in the table's order.

        Raises:
          TypeError: if the contract isn't `by_client`.
        """
        points, ids = self._screened(table, where)
        if ids is None:
            raise TypeError("to_rows must be asked of a contract by client; set by_client.")
        return points, ids

    def to_valid(self, table: pa.Table, where: str) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """Returns valid rows and their mask, without grouping by client; arguments and errors as in `to_points`.

        Returns:
          Features, shape (n_valid_rows, n_features), and the mask of valid rows, shape (n_rows,).
        """
        self.check_schema(table.schema, where)
        points = self._points(table, where)
        if _all_finite(points):
            return points, np.ones(len(points), dtype=np.bool_)
        if self.on_invalid_rows is InvalidRows.FAIL:
            raise self._invalid_row(points, where)
        valid = np.isfinite(points).all(axis=1)
        return points[valid], valid

    def _screened(self, table: pa.Table, where: str) -> tuple[NDArray[np.floating], pa.ChunkedArray | None]:
        """Returns valid rows: features, and client ids if `by_client`."""
        self.check_schema(table.schema, where)
        points = self._points(table, where)
        ids = table.column(self.client_id) if self.by_client else None
        if ids is not None:
            check_identifiers(ids)
        ids_valid = None if ids is None else _valid_ids(ids)
        if _all_finite(points) and (ids_valid is None or ids_valid.all()):
            return points, ids
        valid = self._valid(points).all(axis=1)
        if self.on_invalid_rows is InvalidRows.FAIL and not (valid.all() and (ids_valid is None or ids_valid.all())):
            raise self._invalid_row(points, where)
        valid = valid if ids_valid is None else valid & ids_valid
        return points[valid], None if ids is None else ids.filter(pa.array(valid))

    def _valid(self, points: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Returns a mask, shape of `points`, of values that are finite, or missing in a column of `may_miss`."""
        valid = np.isfinite(points)
        for index, name in enumerate(self.features if self.may_miss else ()):
            if name in self.may_miss:
                valid[:, index] |= np.isnan(points[:, index])
        return valid

    def _points(self, table: pa.Table, where: str) -> NDArray[np.floating]:
        """Returns the matrix of all rows; invalid rows have a value that isn't finite."""
        if self.terms is not None:
            plain = dataclasses.replace(self, terms=None)
            return self.terms.beside(plain._points(table, where), _plain(table.column(self.terms.column)))
        if self.encoder is not None:
            return self.encoder.encode(table, where)
        return self._scalars(table) if self.feature_list is None else self._lists(table, where)

    def _scalars(self, table: pa.Table) -> NDArray[np.floating]:
        """Returns the matrix of scalar columns; nulls are NaN."""
        columns = [_plain(table.column(name)) for name in self.features]
        single = all(pa.types.is_float32(column.type) for column in columns)
        transposed = np.empty((len(columns), table.num_rows), dtype=np.float32 if single else np.float64)
        for row, column in zip(transposed, columns, strict=True):
            row[:] = _floats(column)
        points = np.empty(transposed.shape[::-1], dtype=transposed.dtype)
        for start in range(0, len(points), _TURNED_ROWS):
            points[start : start + _TURNED_ROWS] = transposed[:, start : start + _TURNED_ROWS].T
        return points

    def _lists(self, table: pa.Table, where: str) -> NDArray[np.floating]:
        """Returns the matrix of the list column; rows that are null or of another length are NaN."""
        column = _plain(table.column(self.feature_list))
        width = self._width(column, where)
        parts = [_list_points(chunk, width) for chunk in column.chunks if len(chunk)]
        if not parts:
            single = pa.types.is_float32(_plain_type(column.type.value_type))
            return np.zeros((0, width), dtype=np.float32 if single else np.float64)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _width(self, column: pa.ChunkedArray, where: str) -> int:
        """Returns the width of the list column; lists of variable size are checked one by one."""
        if pa.types.is_fixed_size_list(column.type):
            return int(column.type.list_size)
        lengths = pc.unique(pc.list_value_length(column)).drop_null().to_pylist()
        width = self.n_features or max(lengths, default=0)
        tolerated = self.n_features is not None and self.on_invalid_rows is InvalidRows.DROP
        if not tolerated and set(lengths) - {width}:
            rule = f"have lists of length {self.n_features}" if self.n_features else "have lists of one length"
            raise _mismatch(str(self.feature_list), where, rule, "another length", "correct or remove such rows")
        if width == 0 and len(column):
            rule = "have at least one list with a number"
            raise _mismatch(str(self.feature_list), where, rule, "none", "correct or remove such rows")
        return int(width)

    def _invalid_row(self, points: NDArray[np.floating], where: str) -> InputError:
        """Builds the error for an invalid row; names the first wrong column."""
        name, rule, got = self.client_id, "name a client in every row", "a null"
        finite = self._valid(points).all(axis=0)
        if not finite.all():
            first = int(finite.argmin())
            rule, got = "hold finite numbers only", "a null, NaN or infinity"
            if self.encoder is not None:
                name, (rule, got) = self.encoder.column_of(first).column, self.encoder.column_of(first).complaint
            else:
                name = self.feature_list or self.features[first]
        fills = "" if finite.all() or self.feature_list else ", or give a fit of numbers a public fill by data.missing"
        return InputError(
            f"column {name!r} of {where} must {rule}, got {got}; correct the data or set data.on_invalid_rows to "
            f"drop{fills}."
        )


def _named_width(config: DataConfig, n_features: int | None) -> int | None:
    """Returns the known width of a list column, from the data, the job, or the number of feature names."""
    if config.width is not None and n_features not in (None, config.width):
        raise ConfigError(
            f"data.width must be {n_features} like that of the server data or the model, got {config.width}; correct "
            "it, or leave it out."
        )
    n_features = n_features or config.width
    n_names = None if config.feature_names is None else len(config.feature_names)
    if n_names is not None and n_features not in (None, n_names):
        raise ConfigError(
            f"data.feature_names must name all {n_features} numbers in the lists of column {config.features!r}, "
            f"got {n_names} names; give one for each, in their order."
        )
    return n_features if n_names is None else n_names


def _list_points(chunk: pa.Array, width: int) -> NDArray[np.floating]:
    """Returns the matrix of one chunk of lists, a view of it if possible."""
    usable = pc.is_valid(chunk)
    if not pa.types.is_fixed_size_list(chunk.type):
        usable = pc.fill_null(pc.equal(pc.list_value_length(chunk), width), False)
    mask = usable.to_numpy(zero_copy_only=False)
    n_usable = int(mask.sum())
    # `values` would ignore slices; `flatten` respects them and skips null lists.
    flat = (chunk if n_usable == len(chunk) else chunk.filter(usable)).flatten()
    values = _floats(_plain(pa.chunked_array([flat]))).reshape(n_usable, width)
    if n_usable == len(chunk):
        return values
    points = np.full((len(chunk), width), np.nan, dtype=values.dtype)
    points[mask] = values
    return points


def _valid_ids(ids: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns a mask, shape (n_rows,), of client ids that are not null, in the dictionary or outside."""
    if pa.types.is_dictionary(ids.type):
        ids = _plain(ids)
    return np.ones(len(ids), dtype=np.bool_) if not ids.null_count else pc.is_valid(ids).to_numpy()


def _all_finite(points: NDArray[np.floating]) -> bool:
    """Returns whether every value is finite; computed from the sum of squares unless that overflows."""
    flat = points.ravel()
    with np.errstate(all="ignore"):
        return math.isfinite(np.dot(flat, flat)) or bool(np.isfinite(flat).all())
