"""Model handler for Beam's RunInference: finds every row's nearest center, and switches models while it runs."""

import decimal
import logging
import numbers
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler, PredictionResult
from numpy.typing import NDArray

from dapple_dp.schemas.choices import InvalidRows
from dapple_dp.schemas.errors import ConfigError, DappleError, InputError
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE
from dapple_dp.schemas.settings.yaml_text import path_text
from dapple_dp.schemas.tables.encoded_column import EncodedColumn, FilledColumn, OneHotColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.schemas.tables.terms_column import TermsVector
from dapple_dp.transforms.files.saved_model import MANIFEST, SavedModel, load_model
from dapple_dp.transforms.files.stores import is_local
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters

_WHERE = "a batch of rows"
_LISTED = re.compile(r"(.*)\[0\]", re.DOTALL)
_LOGGER = logging.getLogger(__name__)


class RowFeatures(NamedTuple):
    """Conversion of rows to vectors; an invalid value affects its row only.

    Attributes:
      columns: columns that a row must have.
      list_column: the column with all features as a list; None if each feature has a column.
      n_features: length of a vector.
      encoder: converts columns to features; None if columns are features.
    """

    columns: tuple[str, ...]
    list_column: str | None
    n_features: int
    encoder: Encoder | None

    @classmethod
    def of(cls, model: SavedModel) -> Self:
        """Creates the conversion for a model."""
        n_features = len(model.feature_names)
        if model.encoder is not None:
            return cls(tuple(column.column for column in model.encoder.columns), None, n_features, model.encoder)
        first = _LISTED.fullmatch(model.feature_names[0])
        base = None if first is None else first[1]
        listed = base is not None and model.feature_names == tuple(f"{base}[{index}]" for index in range(n_features))
        return cls(model.feature_names, base if listed else None, n_features, None)

    def points(
        self, rows: Sequence[Any], on_invalid_rows: InvalidRows
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Returns the features of valid rows.

        Args:
          rows: mappings, objects with `_asdict` such as `beam.Row`, or, without encoding, sequences of n_features
            numbers; other columns of a row are ignored.
          on_invalid_rows: handling of rows with a missing, null, non-finite or unsuitable value.

        Returns:
          Shape (n_valid_rows, n_features), finite, and the mask of valid rows, shape (n_rows,).

        Raises:
          InputError: if `on_invalid_rows` is fail and there is an invalid row; names a column, but no value.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            points = self._plain(rows) if self.encoder is None else self._encoded(rows, self.encoder)
        finite = np.isfinite(points)
        valid: NDArray[np.bool_] = np.logical_and.reduce(finite, axis=1)
        if on_invalid_rows is InvalidRows.FAIL and not valid.all():
            raise self._refused(int(finite.all(axis=0).argmin()))
        return points[valid], valid

    def _plain(self, rows: Sequence[Any]) -> NDArray[np.float64]:
        """Returns rows without encoding; invalid ones are NaN."""
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
        """Copies a sequence, if it has the right length."""
        if isinstance(vector, list | tuple) and len(vector) == self.n_features:
            point[:] = [_number(value) for value in vector]
        elif isinstance(vector, np.ndarray) and vector.shape == (self.n_features,) and vector.dtype.kind in "biuf":
            point[:] = vector

    def _encoded(self, rows: Sequence[Any], encoder: Encoder) -> NDArray[np.float64]:
        """Returns rows encoded by the model's encoder."""
        named = [_named(row) or {} for row in rows]
        columns = {each.column: _column([row.get(each.column) for row in named], each) for each in encoder.columns}
        points = encoder.encode(pa.table(columns), _WHERE)
        for column in encoder.columns:
            if isinstance(column, FilledColumn):
                # A value that is present but not a number is invalid, not missing.
                own = [encoder.column_of(index) is column for index in range(self.n_features)]
                points[np.ix_([not _is_fit(row.get(column.column)) for row in named], own)] = np.nan
        return points

    def _refused(self, index: int) -> InputError:
        """Builds the error for rows with an invalid feature."""
        column = (
            self.list_column or self.columns[index] if self.encoder is None else self.encoder.column_of(index).column
        )
        return InputError(
            f"column {column!r} of {_WHERE} must hold a value that the model accepts in every row, got another; "
            "correct the rows or set on_invalid_rows to drop."
        )


def _named(row: Any) -> Mapping[str, Any] | None:
    """Returns the values by column; None if the row has no column names."""
    if isinstance(row, Mapping):
        return row
    as_dict = getattr(row, "_asdict", None)
    return None if as_dict is None else dict(as_dict())


def _is_fit(value: Any) -> bool:
    """Returns whether a value is a number or missing."""
    return value is None or isinstance(value, numbers.Real | np.bool_ | decimal.Decimal)


def _number(value: Any) -> float:
    """Converts a number as if read from a file; NaN for anything else."""
    if not isinstance(value, numbers.Real | np.bool_ | decimal.Decimal):
        return np.nan
    try:
        return float(value)
    except (OverflowError, ValueError):
        return np.nan


def _column(values: list[Any], column: EncodedColumn) -> pa.Array:
    """Returns values in the type of an encoding; null for unsuitable ones."""
    if isinstance(column, TermsVector):
        return pa.array([list(value) if _are_texts(value) else None for value in values], pa.list_(pa.string()))
    if not isinstance(column, OneHotColumn):
        return pa.array([_number(value) for value in values], pa.float64())
    fits, kind = _CATEGORIES[type(column.vocabulary[0])]
    return pa.array([value if fits(value) else None for value in values], kind)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and -(2**63) <= int(value) < 2**63


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


_CATEGORIES: dict[type, tuple[Callable[[Any], bool], pa.DataType]] = {
    str: (_is_text, pa.string()),
    int: (_is_integer, pa.int64()),
    bool: (_is_boolean, pa.bool_()),
}


class ServedModel:
    """A loaded model that can assign rows.

    Attributes:
      saved: the model as stored.
      features: conversion of rows to vectors.

    Args:
      saved: the model as stored.
    """

    def __init__(self, saved: SavedModel):
        self.saved = saved
        self.features = RowFeatures.of(saved)
        self._nearest = NearestCenters.of(saved.centers)

    @classmethod
    def read(cls, folder: str) -> Self:
        """Loads the model in a fit's output folder; raises ConfigError if there is none."""
        return cls(load_model(folder))

    def clusters(self, rows: Sequence[Any], on_invalid_rows: InvalidRows) -> list[int | None]:
        """Returns the number of each row's nearest center, None for an invalid row.

        Args:
          rows: see `RowFeatures.points`.
          on_invalid_rows: fail to raise InputError for an invalid row.
        """
        points, valid = self.features.points(rows, on_invalid_rows)
        labels = iter(self._nearest.labels(points).tolist())
        numbers = self.saved.numbers or range(len(self.saved.centers))
        return [numbers[next(labels)] if is_valid else None for is_valid in valid]


class DappleModelHandler(ModelHandler[Any, PredictionResult, ServedModel]):
    """Assigns rows to the centers of a fit: `rows | RunInference(DappleModelHandler("nights/2026-11-20"))`.

    A row is a mapping from columns to values, a `beam.Row`, a named tuple, or, for a model without encoding, a vector
    of its features. The model's own encoding is applied. The results are those of `dapple assign`: exact, and ties go
    to the lowest index.

    **Not private.** A row's cluster is as private as the row, and Beam's `PredictionResult` contains the row itself,
    so keep the output in the trusted zone. The pipeline is yours: Dapple doesn't check its graph, and refuses a job's
    graph that contains this handler.

    `RunInference(handler, model_metadata_pcoll=...)` switches to another fit when the side input names its folder,
    or `run.json` in it. If the new model can't be read or needs other columns, the current one stays in use, with a
    warning. The field `model_id` of every result names the folder of the model. A folder that is overwritten under the
    same name is not read again.

    Args:
      model: output folder of a fit, on any Beam filesystem. It is read once, here, and pickled with the handler.
      on_invalid_rows: "fail" to stop at a row with a missing, null, non-finite or unsuitable value; "drop" to return
        None for it, so that a single row can't block a stream.
      min_batch_size: rows, at least 1; None leaves it to Beam.
      max_batch_size: rows, at least 1; None leaves it to Beam.
      max_batch_duration_secs: maximum time that a batch may wait in a stream, seconds; None for no wait.

    Raises:
      ConfigError: if the folder isn't that of a finished fit, or `on_invalid_rows` is another word.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        on_invalid_rows: str = "fail",
        min_batch_size: int | None = None,
        max_batch_size: int | None = None,
        max_batch_duration_secs: int | None = None,
    ):
        super().__init__(
            min_batch_size=min_batch_size,
            max_batch_size=max_batch_size,
            max_batch_duration_secs=max_batch_duration_secs,
        )
        if on_invalid_rows not in tuple(InvalidRows):
            raise ConfigError(f"on_invalid_rows must be fail or drop, got {on_invalid_rows!r}; choose one of them.")
        self._on_invalid_rows = InvalidRows(on_invalid_rows)
        self._model = ServedModel.read(_folder_of(path_text(model, "model")))
        self._wanted = self._model.saved.folder

    def load_model(self) -> ServedModel:
        """Returns the requested model; if it can't be used, the current one."""
        if self._wanted != self._model.saved.folder:
            try:
                model = ServedModel.read(self._wanted)
                self._check_columns(model)
                self._model = model
            except DappleError as error:
                _LOGGER.warning("still using the model of %s: %s", self._model.saved.folder, error)
        return self._model

    def _check_columns(self, model: ServedModel) -> None:
        if model.features.columns != self._model.features.columns:
            raise ConfigError(
                f"a new model must have the columns of the model of {self._model.saved.folder}, got others in "
                f"{self._wanted}; start another pipeline for it."
            )

    def update_model_path(self, model_path: str | None = None) -> None:
        """Requests a switch to another model.

        Args:
          model_path: its folder, or the path of `run.json` or `centers.parquet` in it; None or "" keeps the
            current model.
        """
        if model_path:
            self._wanted = _folder_of(model_path)

    def run_inference(
        self, batch: Sequence[Any], model: ServedModel, inference_args: dict[str, Any] | None = None
    ) -> list[PredictionResult]:
        """Returns the cluster of each row, an int, or None; `model_id` is the folder of the model.

        Args:
          batch: rows.
          model: result of `load_model`.
          inference_args: ignored.

        Raises:
          InputError: for an invalid row, if `on_invalid_rows` is fail; contains no value of the row.
        """
        self._model = model
        clusters = model.clusters(batch, self._on_invalid_rows)
        return [PredictionResult(row, label, model.saved.folder) for row, label in zip(batch, clusters, strict=True)]

    def get_metrics_namespace(self) -> str:
        """Returns the namespace of Beam's counters; their row counts and times must stay in the trusted zone, too."""
        return "BeamML_Dapple"


def _folder_of(path: str) -> str:
    """Returns a model's folder, given the folder or a file in it."""
    head, name = os.path.split(os.path.abspath(path) if is_local(path) else path)
    folder = head if name in (MANIFEST, CENTERS_FILE) else path
    return folder.rstrip("/") or folder
