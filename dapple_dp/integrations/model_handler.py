"""A released model in Beam's RunInference: the nearest center of every row, and a new model without a restart."""

import logging
from collections.abc import Sequence
from typing import Any, Self

from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from dapple_dp.integrations.row_features import RowFeatures
from schemas.choices import InvalidRows
from schemas.errors import ConfigError, DappleError
from transforms.files.publish import CENTERS_FILE
from transforms.files.saved_model import MANIFEST, SavedModel, load_model
from transforms.numerics.statistics.nearest import NearestCenters

_LOGGER = logging.getLogger(__name__)


class ServedModel:
    """A model that is ready to take rows.

    Attributes:
      saved: as it was read.
      features: how rows become vectors for it.

    Args:
      saved: as it was read.
    """

    def __init__(self, saved: SavedModel):
        self.saved = saved
        self.features = RowFeatures.of(saved)
        self._nearest = NearestCenters.of(saved.centers)

    @classmethod
    def read(cls, folder: str) -> Self:
        """The model in a fit's output folder; raises ConfigError if there is none."""
        return cls(load_model(folder))

    def clusters(self, rows: Sequence[Any], on_invalid_rows: InvalidRows) -> list[int | None]:
        """The number of the nearest center of each row, None for a row that is not valid.

        Args:
          rows: see `RowFeatures.points`.
          on_invalid_rows: fail to raise InputError for such a row.
        """
        points, valid = self.features.points(rows, on_invalid_rows)
        labels = iter(self._nearest.labels(points).tolist())
        numbers = self.saved.numbers or range(len(self.saved.centers))
        return [numbers[next(labels)] if each else None for each in valid]


class DappleModelHandler(ModelHandler[Any, PredictionResult, ServedModel]):
    """Assigns rows to the centers of a fit: `rows | RunInference(DappleModelHandler("nights/2026-11-20"))`.

    A row is a mapping from columns to values, a `beam.Row`, a named tuple, or, for a model without encoding, a vector
    of its features. The model's own encoding is applied. The arithmetic is that of `dapple assign`: exact, and ties go
    to the lowest index.

    **Not private.** Which center a row belongs to is as private as the row, and Beam's `PredictionResult` carries the
    row itself. So the output stays in the trusted zone. The pipeline is the user's own: Dapple's checker of graphs does
    not see it, and refuses a job's graph with this handler in it.

    `RunInference(handler, model_metadata_pcoll=...)` puts another fit into use once the side input names its folder,
    or `run.json` in it. If a new model cannot be read or takes other columns, then the one in use
    stays, and a warning says so. The field `model_id` of every result names the folder that was used. A folder that is
    written anew under its old name is not read again.

    Args:
      model: the output folder of a fit, on any Beam filesystem. It is read once, here, and travels with the handler.
      on_invalid_rows: "fail" to stop at a row with a missing, null, non-finite or unfit value; "drop" to give such rows
        the inference None, so that one of them cannot block a stream.
      min_batch_size: rows, at least 1; None leaves it to Beam.
      max_batch_size: rows, at least 1; None leaves it to Beam.
      max_batch_duration_secs: how long a batch may wait in a stream, seconds; None for no wait.

    Raises:
      ConfigError: if the folder holds no finished fit, or `on_invalid_rows` is another word.
    """

    def __init__(
        self,
        model: str,
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
        self._model = ServedModel.read(_folder_of(model))
        self._wanted = self._model.saved.folder

    def load_model(self) -> ServedModel:
        """The model that is wanted; if it cannot be used, the one in use."""
        if self._wanted != self._model.saved.folder:
            try:
                found = ServedModel.read(self._wanted)
                self._check_columns(found)
                self._model = found
            except DappleError as error:
                _LOGGER.warning("the model of %s stays in use: %s", self._model.saved.folder, error)
        return self._model

    def _check_columns(self, found: ServedModel) -> None:
        """Refuses a model for other rows."""
        if found.features.columns != self._model.features.columns:
            raise ConfigError(
                f"a new model must take the columns of the model of {self._model.saved.folder}, got {self._wanted} of "
                "others; start another pipeline for it."
            )

    def update_model_path(self, model_path: str | None = None) -> None:
        """Makes another model the wanted one.

        Args:
          model_path: its folder, or the path of `run.json` or `centers.parquet` in it; None or "" keeps the
            model.
        """
        if model_path:
            self._wanted = _folder_of(model_path)

    def run_inference(
        self, batch: Sequence[Any], model: ServedModel, inference_args: dict[str, Any] | None = None
    ) -> list[PredictionResult]:
        """The cluster of each row, an int, or None; `model_id` is the folder of the model.

        Args:
          batch: rows.
          model: from `load_model`.
          inference_args: none are known.

        Raises:
          InputError: for a row that is not valid, if `on_invalid_rows` is fail; without a value of the row.
        """
        self._model = model
        clusters = model.clusters(batch, self._on_invalid_rows)
        return [PredictionResult(row, each, model.saved.folder) for row, each in zip(batch, clusters, strict=True)]

    def get_metrics_namespace(self) -> str:
        """Of Beam's counters; they hold numbers of rows and times, which stay in the trusted zone, too."""
        return "BeamML_Dapple"


def _folder_of(path: str) -> str:
    """A model's folder, if it is given by a file in it."""
    head, name = FileSystems.split(path)
    folder = head if name in (MANIFEST, CENTERS_FILE) else path
    return folder.rstrip("/") or folder
