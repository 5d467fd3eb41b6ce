"""Dapple as a scikit-learn style estimator: the rounds of the `fit` job, run in this process."""

import itertools
import os
import tempfile
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from pipelines.kmeans import fit as fit_job
from pipelines.kmeans.plan.planned_fit import plan_fit
from pipelines.run.options import beam_options
from schemas.choices import ClippingCenter
from schemas.errors import ConfigError, InputError
from schemas.kmeans.fit_config import FitConfig, validated
from schemas.privacy.plan import PrivacyUnit
from schemas.tables.contract import group_by_client

_ROW_GROUP_ROWS = 1 << 16
_POINT, _CLIENT = "point", "client"
_MOST_WORK = 1 << 20
"""Steps after which two arrays whose ranges of memory overlap count as shared."""
_PARAMETERS = {
    "data.public_rows": "public_rows",
    "privacy.unit": "unit",
    "privacy.epsilon": "epsilon",
    "privacy.delta": "delta",
    "privacy.allocation": "allocation",
    "clipping.norm": "clipping_norm",
    "clipping.center": "center",
    "clipping.client_rows": "client_rows",
    "lloyd.steps": "lloyd_steps",
}
"""Settings of a job that the constructor calls otherwise."""


class DPKMeans(ClusterMixin, BaseEstimator):
    """Differentially private k-means (FedDP-KMeans) of rows that lie in memory.

    The centers, sizes and releases after `fit` are private in the stated sense and may be shown. There is no
    `labels_`: the labels of the training rows are not. What `predict` and `fit_predict` return tells of each row
    they are given, without noise, and must stay where those rows may be seen.

    Every call of `fit` draws fresh noise and spends its own epsilon and delta, also on the same rows.

    Args:
      n_clusters: number of centers, >= 1.
      epsilon: spent by one fit, > 0; has no default.
      delta: spent by one fit, in (0, 1); has no default.
      clipping_norm: the largest L2 norm of a centered row, > 0, feature units, chosen without looking at the
        rows; or "server_radius" for the radius of the server data; has no default.
      unit: what one neighbor adds or removes: "record" (a row) or "client" (all rows of one group).
      allocation: how the budget is split: "tuned" or "paper" (Scott et al. 2025).
      client_rows: typical number of rows of a client, >= 1, public; needed by unit "client".
      center: public offset of the clipping ball: "server_mean", or "none" for the origin. Without server data it
        is the origin.
      lloyd_steps: Lloyd rounds after the start, 0 to 50.
      public_rows: number of rows (unit "client": of clients) if it is public, else None.
      seed: of public randomness (k-means on the server, stand-in points), never of noise; >= 0 or None.

    Attributes:
      cluster_centers_: shape (n_clusters, n_features), feature units.
      noisy_sizes_: shape (n_clusters,): noisy number of rows, or noisy weight of clients; may be negative.
      privacy_: `PrivacyStatement`: what the fit guarantees.
      releases_: every noised aggregate behind the centers, in the order of the rounds.
      n_features_in_: number of features.
      feature_names_in_: column names, where `X` had them.

    Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
      data".
    """

    cluster_centers_: NDArray[np.float64]

    def __init__(
        self,
        n_clusters: int,
        *,
        epsilon: float,
        delta: float,
        clipping_norm: float | str,
        unit: str = "record",
        allocation: str = "tuned",
        client_rows: int | None = None,
        center: str = "server_mean",
        lloyd_steps: int = 0,
        public_rows: int | None = None,
        seed: int | None = None,
    ):
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.clipping_norm = clipping_norm
        self.unit = unit
        self.allocation = allocation
        self.client_rows = client_rows
        self.center = center
        self.lloyd_steps = lloyd_steps
        self.public_rows = public_rows
        self.seed = seed

    def fit(
        self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None, server_data: ArrayLike | None = None
    ) -> Self:
        """Clusters privately.

        The rows lie in a folder only this user can read while the rounds run, and are removed with it.

        Args:
          X: shape (n_rows, n_features), feature units, finite; private.
          y: ignored.
          groups: shape (n_rows,), integers, strings or bytes: the client of each row, in any order; given if and
            only if `unit` is "client".
          server_data: shape (q, n_features): public rows like the private ones; None to draw points in the
            clipping ball instead, which needs a number as `clipping_norm`. Rows that lie in the memory of `X` are
            refused; a copy of private rows cannot be told from public ones, and must not be given.

        Returns:
          This estimator.

        Raises:
          ConfigError: a ValueError, if a parameter breaks its rule.
          InputError: a ValueError, if the data cannot be used; quotes no value of `X` or `groups`.
        """
        _refuse_shared(X, server_data)
        points = self._checked(X, reset=True)
        clients = self._checked_groups(groups, len(points))
        server = None if server_data is None else _checked_server(server_data, points.shape[1])
        with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
            config = self._config(folder, has_clients=clients is not None, has_server=server is not None)
            _write_rows(config.data.path, points, clients)
            if server is not None and config.server_data is not None:
                _write_rows(config.server_data.path, server, None)
            run_folder = os.path.join(folder, "run")
            os.mkdir(run_folder)
            result = fit_job.execute(plan_fit(config), beam_options([]), run_folder)
        self.cluster_centers_ = result.model.centers
        self.noisy_sizes_ = result.model.noisy_sizes
        self.releases_ = result.model.releases
        self.privacy_ = result.privacy
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Index of the nearest center of each row: as private as the row, no noise is added.

        Args:
          X: shape (n_rows, n_features), feature units, finite.

        Returns:
          Shape (n_rows,).
        """
        check_is_fitted(self)
        points = self._checked(X, reset=False)
        return pairwise_distances_argmin(points, self.cluster_centers_.astype(points.dtype)).astype(np.int64)

    def fit_predict(self, X: ArrayLike, y: object = None, **kwargs: Any) -> NDArray[np.int64]:
        """`fit`, then `predict` of the same rows; the labels are private, unlike the centers."""
        return self.fit(X, y, **kwargs).predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _checked(self, X: ArrayLike, *, reset: bool) -> NDArray[np.floating]:
        """`X` as a finite float matrix."""
        if not issparse(X):
            _refuse_without_quoting(X)
        return validate_data(self, X, dtype=(np.float64, np.float32), reset=reset)

    def _checked_groups(self, groups: ArrayLike | None, n_rows: int) -> pa.ChunkedArray | None:
        """Client ids of the rows, for the unit that has clients."""
        by_client = self.unit == PrivacyUnit.CLIENT
        if by_client and self.client_rows is None:
            raise ConfigError(
                "client_rows must be given for unit 'client', got None; give the typical number of rows of a client."
            )
        if by_client != (groups is not None):
            rule = "given" if by_client else "left out"
            remedy = "pass one client id per row" if by_client else "set unit to 'client' to protect whole clients"
            got = "None" if groups is None else "some"
            raise InputError(f"groups must be {rule} for unit {self.unit!r}, got {got}; {remedy}.")
        return None if groups is None else _as_ids(groups, n_rows)

    def _config(self, folder: str, *, has_clients: bool, has_server: bool) -> FitConfig:
        """The job that this estimator stands for."""
        at_origin = not has_server and self.center == ClippingCenter.SERVER_MEAN
        settings = {
            "algorithm": "feddp_kmeans",
            "data": {
                "path": os.path.join(folder, "rows.parquet"),
                "features": _POINT,
                "client_id": _CLIENT if has_clients else None,
                "public_rows": self.public_rows,
            },
            "server_data": {"path": os.path.join(folder, "server.parquet")} if has_server else None,
            "n_clusters": self.n_clusters,
            "privacy": {
                "unit": self.unit,
                "epsilon": self.epsilon,
                "delta": self.delta,
                "allocation": self.allocation,
            },
            "clipping": {
                "norm": self.clipping_norm,
                "center": ClippingCenter.NONE if at_origin else self.center,
                "client_rows": self.client_rows,
            },
            "lloyd": {"steps": self.lloyd_steps},
            "seed": self.seed,
        }
        try:
            return validated(settings)
        except ConfigError as error:
            raise ConfigError(_in_parameters(str(error))) from error


def _in_parameters(sentence: str) -> str:
    """An error about a setting in the words of the constructor."""
    for setting, parameter in _PARAMETERS.items():
        sentence = sentence.replace(setting, parameter)
    return sentence.replace("a server_data section", "server_data to fit")


def _refuse_shared(X: Any, server_data: Any) -> None:
    """Refuses public rows that are private ones: the same object, or the same memory."""
    if server_data is None:
        return
    rows, public = (each if isinstance(each, list | tuple) else () for each in (X, server_data))
    same_rows = {id(row) for row in rows} & {id(row) for row in public}
    pairs = itertools.product(_buffers(X), _buffers(server_data))
    if server_data is X or same_rows or any(_share(*pair) for pair in pairs):
        raise InputError(
            "server_data must be public and no part of X, got rows that lie in the memory of X; give other rows, or "
            "leave server_data out."
        )


def _buffers(values: Any) -> list[NDArray[Any]]:
    """Arrays as they lie in memory; of a data frame, its columns. What has no memory of its own is copied."""
    if issparse(values):
        return [np.asarray(values.data)]
    if hasattr(values, "iloc"):
        return [np.asarray(column) for _, column in values.items()]
    try:
        return [np.asarray(values)]
    except ValueError:
        return []


def _share(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays have an element in common; also if that is too hard to tell."""
    try:
        return bool(np.shares_memory(one, other, max_work=_MOST_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _refuse_without_quoting(X: ArrayLike) -> None:
    """Refuses what scikit-learn would refuse too, but with the values in the message."""
    array = np.asarray(X)
    if array.ndim != 2:
        raise InputError(f"X must be a matrix, got shape {array.shape}. Reshape your data to (n_rows, n_features).")
    if array.dtype.kind == "c":
        raise InputError(f"X must be real, got dtype {array.dtype}. Complex data not supported.")
    if array.dtype.kind not in "biuf":
        try:
            array.astype(np.float64)
        except ValueError:
            raise InputError(f"X must hold numbers only, got dtype {array.dtype}; convert the other columns.") from None


def _as_ids(groups: ArrayLike, n_rows: int) -> pa.ChunkedArray:
    """Client ids as Arrow holds them."""
    try:
        ids = pa.chunked_array([pa.array(np.asarray(groups))])
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError(
            "groups must be a vector of integers, of strings or of bytes, got a mixture or another shape; "
            "convert the ids to one type."
        ) from None
    kind = ids.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise InputError(f"groups must hold integers, strings or bytes, got {kind}; convert the ids.")
    if len(ids) != n_rows or ids.null_count:
        got = "nulls" if ids.null_count else f"{len(ids)} ids for {n_rows} rows"
        raise InputError(f"groups must name a client for every row of X, got {got}; give one id per row.")
    return ids


def _checked_server(server_data: ArrayLike, n_features: int) -> NDArray[np.floating]:
    """Public server rows, as wide as the private ones."""
    server = check_array(server_data, dtype=(np.float64, np.float32), input_name="server_data")
    if server.shape[1] != n_features:
        raise InputError(
            f"server_data must have the {n_features} features of X, got {server.shape[1]}; give the same columns."
        )
    return server


def _write_rows(path: str, points: NDArray[np.floating], clients: pa.ChunkedArray | None) -> None:
    """Writes rows to Parquet, no client in more than one row group; clients are numbered, their ids stay in memory."""
    columns = {}
    offsets = np.arange(len(points) + 1, dtype=np.int64)
    if clients is not None:
        order, offsets, _ = group_by_client(clients)
        points = points.take(order, axis=0)
        columns[_CLIENT] = pa.array(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    table = pa.table({_POINT: pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])} | columns)
    starts = np.searchsorted(offsets, np.arange(0, len(points), _ROW_GROUP_ROWS))
    cuts = np.unique(np.append(offsets[starts], len(points))).tolist()
    with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
        for start, stop in itertools.pairwise(cuts):
            writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
