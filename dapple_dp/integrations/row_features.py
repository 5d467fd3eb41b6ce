"""Rows that come one by one, without a schema, as the feature matrix of a released model."""

import decimal
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.choices import InvalidRows
from schemas.errors import InputError
from schemas.tables.encoded_column import EncodedColumn, OneHotColumn
from schemas.tables.encoder import Encoder
from transforms.files.saved_model import SavedModel

_WHERE = "a batch of rows"
_LISTED = re.compile(r"(.*)\[0\]", re.DOTALL)


class RowFeatures(NamedTuple):
    """How rows become vectors; a value that does not fit makes its row invalid, and never another one.

    Attributes:
      columns: that a row has.
      list_column: the one column with all features; None if each has a column.
      n_features: of a vector.
      encoder: turns columns into features; None if columns are features.
    """

    columns: tuple[str, ...]
    list_column: str | None
    n_features: int
    encoder: Encoder | None

    @classmethod
    def of(cls, model: SavedModel) -> Self:
        """What a model takes."""
        n_features = len(model.feature_names)
        if model.encoder is not None:
            return cls(tuple(each.column for each in model.encoder.columns), None, n_features, model.encoder)
        first = _LISTED.fullmatch(model.feature_names[0])
        base = None if first is None else first[1]
        listed = base is not None and model.feature_names == tuple(f"{base}[{index}]" for index in range(n_features))
        return cls(model.feature_names, base if listed else None, n_features, None)

    def points(
        self, rows: Sequence[Any], on_invalid_rows: InvalidRows
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Features of valid rows.

        Args:
          rows: mappings, objects with `_asdict` such as `beam.Row`, or, without encoding, sequences of n_features
            numbers; other columns of a row do not matter.
          on_invalid_rows: what becomes of a row with a missing, null, non-finite or unfit value.

        Returns:
          Shape (n_valid_rows, n_features), finite, and the mask of valid rows, shape (n_rows,).

        Raises:
          InputError: if `on_invalid_rows` is fail and there is an invalid row; names a column, and no value.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            points = self._plain(rows) if self.encoder is None else self._encoded(rows, self.encoder)
        finite = np.isfinite(points)
        valid: NDArray[np.bool_] = np.logical_and.reduce(finite, axis=1)
        if on_invalid_rows is InvalidRows.FAIL and not valid.all():
            raise self._refused(int(finite.all(axis=0).argmin()))
        return points[valid], valid

    def _plain(self, rows: Sequence[Any]) -> NDArray[np.float64]:
        """Rows without encoding; an invalid one is NaN."""
        points = np.full((len(rows), self.n_features), np.nan)
        for point, row in zip(points, rows, strict=True):
            named = _named(row)
            if named is None:
                self._fill(point, row)
            elif self.list_column is not None and self.list_column in named:
                self._fill(point, named[self.list_column])
            else:
                point[:] = [_number(named.get(name)) for name in self.columns]
        return points

    def _fill(self, point: NDArray[np.float64], vector: Any) -> None:
        """Copies a sequence of the right length."""
        if isinstance(vector, list | tuple) and len(vector) == self.n_features:
            point[:] = [_number(value) for value in vector]
        elif isinstance(vector, np.ndarray) and vector.shape == (self.n_features,) and vector.dtype.kind in "biuf":
            point[:] = vector

    def _encoded(self, rows: Sequence[Any], encoder: Encoder) -> NDArray[np.float64]:
        """Rows through the model's encoding."""
        named = [_named(row) or {} for row in rows]
        columns = {each.column: _column([row.get(each.column) for row in named], each) for each in encoder.columns}
        return encoder.encode(pa.table(columns), _WHERE)

    def _refused(self, index: int) -> InputError:
        """The error for rows with a feature that is not valid."""
        column = (
            self.list_column or self.columns[index] if self.encoder is None else self.encoder.column_of(index).column
        )
        return InputError(
            f"column {column!r} of {_WHERE} must hold a value in every row that the model can take, got another; "
            "correct the rows or set on_invalid_rows to drop."
        )


def _named(row: Any) -> Mapping[str, Any] | None:
    """Values by column; None if the row names none."""
    if isinstance(row, Mapping):
        return row
    as_dict = getattr(row, "_asdict", None)
    return None if as_dict is None else dict(as_dict())


def _number(value: Any) -> float:
    """A number as Dapple reads it from a file; NaN for anything else."""
    if not isinstance(value, numbers.Real | np.bool_ | decimal.Decimal):
        return np.nan
    try:
        return float(value)
    except (OverflowError, ValueError):
        return np.nan


def _column(values: list[Any], column: EncodedColumn) -> pa.Array:
    """Values for an encoding; null where one does not fit."""
    if not isinstance(column, OneHotColumn):
        return pa.array([_number(value) for value in values], pa.float64())
    fits, kind = _CATEGORIES[type(column.vocabulary[0])]
    return pa.array([value if fits(value) else None for value in values], kind)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


_CATEGORIES: dict[type, tuple[Callable[[Any], bool], pa.DataType]] = {
    str: (_is_text, pa.string()),
    int: (_is_integer, pa.int64()),
    bool: (_is_boolean, pa.bool_()),
}
