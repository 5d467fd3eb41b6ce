"""Reads a released model from a fit's output folder, with the encoder that applies it to raw columns."""

import dataclasses
import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings import json_schema
from dapple_dp.schemas.settings.refusal import MalformedError, Refusal
from dapple_dp.schemas.settings.run_manifest import CENTERS_FILE, ModelManifest, RunManifest
from dapple_dp.schemas.tables.columns import plain_type
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import DataConfig
from dapple_dp.schemas.tables.encoded_column import FilledColumn
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.files.untrusted import TableForm

MANIFEST = "run.json"
_SIZE = "noisy_size"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedModel:
    """Centers, and the encoder that turns rows into vectors for them.

    Attributes:
      folder: of the model.
      centers: float64, shape (n_clusters, n_features), feature units.
      digest: SHA-256 of the file with the centers, 64 hex digits.
      feature_names: of the coordinates of a center.
      encoder: turns raw columns into features; None if rows are features.
      sizes: shape (n_clusters,): noisy sizes; NaN if none were released.
      numbers: of the clusters, ascending, in the order of `centers`; empty for 0, 1, ...
    """

    folder: str
    centers: NDArray[np.float64]
    digest: str
    feature_names: tuple[str, ...]
    encoder: Encoder | None
    sizes: NDArray[np.float64]
    numbers: tuple[int, ...] = ()

    def contract(self, data: DataConfig, *, by_client: bool = False) -> TableContract:
        """Returns the contract for reading rows of a data set for this model.

        Raises:
          ConfigError: if the data section names other features than the model has.
        """
        n_features = self.centers.shape[1]
        wanted = self.feature_names if self.encoder is None else tuple(column.column for column in self.encoder.columns)
        if isinstance(data.features, str):
            found = tuple(f"{data.features}[{index}]" for index in range(n_features))
        else:
            found = data.features
        if found != wanted:
            raise self._other_features(found, wanted)
        self._check_missing(data)
        return TableContract.from_config(data, n_features=n_features, by_client=by_client, encoder=self.encoder)

    def _check_missing(self, data: DataConfig) -> None:
        """Refuses a data section that fills missing values in another way than the model's fit."""
        columns = () if self.encoder is None else self.encoder.columns
        own = {each.column: (each.fill_value, each.indicator) for each in columns if isinstance(each, FilledColumn)}
        given = {name: (each.fill, each.indicator) for name, each in data.missing.items()}
        if given and given != own:
            raise ConfigError(
                f"data.missing must be the same as in the fit at {self.folder}; leave it out to use what the model "
                "says about missing values."
            )

    def _other_features(self, found: tuple[str, ...], wanted: tuple[str, ...]) -> ConfigError:
        rule = f"data.features must be the {len(wanted)} features of {self.folder} in the same order"
        if len(found) != len(wanted):
            return ConfigError(f"{rule}, got {len(found)}; name the columns that the model was fitted on.")
        index = next(index for index, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
        return ConfigError(f"{rule}, got {found[index]!r} in place of {wanted[index]!r}; use the fit's data.features.")


def load_model(folder: str, setting: str = "model") -> SavedModel:
    """Reads the model in a fit's output folder; arguments and errors as in `read_model`."""
    return read_model(folder, setting)[0]


def read_model(folder: str, setting: str) -> tuple[SavedModel, bytes, bytes]:
    """Reads the model in a fit's output folder, with the bytes of `run.json` and of the centers, each file once.

    Args:
      folder: on any Beam filesystem.
      setting: the setting that names the folder, for messages.

    Raises:
      ConfigError: if the folder holds no finished fit, or its centers aren't those that the fit wrote.
    """
    folder = folder.rstrip("/") or folder
    rule = f"{MANIFEST} in {folder} must be the file that fit wrote"
    foreign = Refusal(kind=ConfigError, rule=rule, remedy="fit again")
    manifest, raw, content = _files(folder, setting, foreign)
    digest = hashlib.sha256(content).hexdigest()
    if manifest.files.get(CENTERS_FILE) != digest:
        raise ConfigError(f"{CENTERS_FILE} in {folder} was changed after the fit wrote it; fit again.")
    centers, numbers, sizes = _centers(content, f"{folder}/{CENTERS_FILE}", setting)
    try:
        encoder = None if manifest.encoding is None else Encoder.from_json(manifest.encoding)
    except InputError as error:
        raise foreign.because("another encoding") from error
    names = tuple(manifest.features)
    if len(names) != centers.shape[1] or (encoder is not None and encoder.names != names):
        raise ConfigError(f"{MANIFEST} in {folder} doesn't list the features of its centers; fit again.")
    saved = SavedModel(
        folder=folder,
        centers=centers,
        digest=digest,
        feature_names=names,
        encoder=encoder,
        sizes=sizes,
        numbers=numbers,
    )
    return saved, raw, content


def _numbers(table: pa.Table) -> tuple[int, ...]:
    """Returns the numbers of the clusters, ascending; empty if they are 0, 1, ...."""
    plain = tuple(range(table.num_rows))
    numbers = tuple(sorted(table.column("cluster").to_pylist())) if "cluster" in table.column_names else plain
    if any(type(number) is not int or number < 0 for number in numbers) or len(set(numbers)) < len(numbers):
        raise MalformedError("clusters that share a number or have none")
    return () if numbers == plain else numbers


def _files(folder: str, setting: str, foreign: Refusal) -> tuple[ModelManifest, bytes, bytes]:
    rule = f"{setting} must be the output folder of a finished fit, with {MANIFEST} and {CENTERS_FILE}"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
    raw = untrusted.read_bytes(join(folder, MANIFEST), refusal)
    json_schema.parse_as(raw, RunManifest, refusal)
    manifest = json_schema.parse_as(raw, ModelManifest, foreign)
    return manifest, raw, untrusted.read_bytes(join(folder, CENTERS_FILE), refusal)


def read_reference(path: str, n_features: int) -> NDArray[np.float64]:
    """Reads centers to compare with, shape (n, n_features).

    Args:
      path: a Parquet file with a list column `center`, or the output folder of a fit.
      n_features: of the model.

    Raises:
      ConfigError: if there is no such file, or its centers have another width.
    """
    path = path.rstrip("/") or path
    inside = join(path, CENTERS_FILE)
    rule = "evaluate.reference must be a Parquet file or the output folder of a fit"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="check the path")
    content = untrusted.read_bytes(inside if STORE.exists(inside) else path, refusal)
    centers, *_ = _centers(content, path, "evaluate.reference", foreign=True)
    if centers.shape[1] != n_features:
        raise ConfigError(
            f"evaluate.reference must hold centers of {n_features} features like the model, got {centers.shape[1]}; "
            "use centers in the same coordinates."
        )
    return centers


def _centers(
    content: bytes, path: str, setting: str, *, foreign: bool = False
) -> tuple[NDArray[np.float64], tuple[int, ...], NDArray[np.float64]]:
    """Reads the matrix in the column `center` of a Parquet file, by number, with the numbers and noisy sizes."""
    rule = f"{setting} must have a list column 'center' of finite numbers, all lists of one length, in {path}"
    refusal = Refusal(kind=ConfigError, rule=rule, remedy="use a file with such a column")
    table = untrusted.table_of(content, refusal, TableForm.by_size(), foreign=foreign)
    try:
        with refusal.covers():
            numbers = _numbers(table)
            ordered = table.sort_by("cluster") if "cluster" in table.column_names else table
            column, has_sizes = ordered.column("center"), _SIZE in table.column_names
            sizes = (
                ordered.column(_SIZE).to_numpy().astype(np.float64) if has_sizes else np.full(table.num_rows, np.nan)
            )
            if not pa.types.is_nested(plain_type(column.type)):
                raise MalformedError("no lists")
            points = TableContract(feature_list="center").to_points(pa.table({"center": column}), path)
            return points.astype(np.float64).reshape(len(column) or -1, -1), numbers, sizes
    except InputError as error:
        raise refusal.because("others") from error
