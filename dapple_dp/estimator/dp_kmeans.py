"""Dapple as a scikit-learn estimator: the rounds of the `fit` job, run in this process."""

import dataclasses
import os
import tempfile
import warnings
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances_argmin, pairwise_distances_argmin_min
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted

from dapple_dp.estimator.job_of_parameters import Place, in_parameters, job_of
from dapple_dp.estimator.memory_rows import (
    POINT,
    checked_points,
    client_column,
    client_ids,
    made_names,
    matched_server,
    refuse_shared,
    write_rows,
)
from dapple_dp.estimator.private_scaler import Bounds, scaled
from dapple_dp.estimator.run_files import ReleasedRun, read_run, run_in_memory, write_run
from pipelines.jobs.forewarnings import forewarnings, sentence
from schemas.errors import ConfigError, InputError, PrivacyWarning
from schemas.kmeans.fit_config import FitConfig
from schemas.privacy.plan import PrivacyUnit
from transforms.numerics.kmeans.center_tree import ward_tree


@dataclasses.dataclass
class _Fits:
    """Fits of an estimator and of its clones, which share this."""

    done: int = 0


class DPKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Differentially private k-means of rows that are in memory, by any algorithm of the `fit` job.

    The centers, sizes and releases after `fit` are private in the stated sense and may be shown. There is no
    `labels_`: the labels of the training rows are not. What `predict`, `transform`, `score` and `fit_predict` return
    reveals each row that they are given, without noise, and must stay where those rows may be seen.

    Every call of `fit` draws fresh noise and spends its own epsilon and delta, also on the same rows, and so does
    every fit of a search or a cross-validation. A `ledger` holds them to a limit.

    A step before this one in a `Pipeline` must learn nothing from private rows: what it learns gets into the centers,
    and nobody accounts for it. `PrivateScaler` learns nothing; `StandardScaler` does.

    Args:
      n_clusters: number of centers, >= 1; or a mapping of max and choose, as in a job.
      algorithm: "auto", or that of a `fit` job, such as "dp_lloyd" or "feddp_kmeans". "auto" takes what
        it takes in a job: dp_lloyd in the domain, which server data join, or else in the ball; feddp_kmeans where there
        are server data and no domain, or also a norm about their mean, or lloyd_steps; central_tree where the
        parameters ask for what only that has. It looks at no row.
      epsilon: spent by one fit, > 0; has no default.
      delta: spent by one fit, in (0, 1); has no default.
      clipping_norm: the largest L2 norm of a row (from the center of `center`), > 0, feature units, chosen without
        looking at the rows; "server_radius" for the radius of the server data, the default where there are some;
        or "private" for a noisy quantile.
      domain: public bounds of the columns, feature units: a pair for all, a list of pairs, or a mapping by name. With
        bounds of their own, columns are scaled to these before distances are taken.
      unit: what one neighbor adds or removes: "record" (a row) or "client" (all rows of one group).
      allocation: how the budget is split: "tuned" or "paper" (Scott et al. 2025).
      client_rows: typical number of rows of a client, >= 1, public; needed by unit "client".
      center: public offset of the clipping ball: "server_mean", or "none" for the origin. Without server data it
        is the origin.
      lloyd_steps: Lloyd rounds after the start, 0 to 50 (in a domain: 1 to 50); None for what the algorithm has.
      public_rows: number of rows (unit "client": of clients) if it is public, else None.
      settings: sections of a job for what has no parameter here: that of the algorithm, such as dp_lloyd or tree,
        feddp_kmeans, lloyd and quality; with experimental: True, what is not supported may be among them.
      ledger: path of the privacy ledger that each fit is charged to; None to spend unrecorded.
      data_name: name of the data set in the ledger.
      random_state: of public randomness (k-means on the server, stand-in points), never of noise; an integer >= 0,
        a `RandomState` or None.

    Attributes:
      cluster_centers_: shape (n_clusters, n_features), feature units.
      noisy_sizes_: shape (n_clusters,): noisy number of rows, or noisy weight of clients; may be negative.
      tree_: shape (n_clusters - 1, 4): Ward linkage of the centers, weighed by their noisy sizes, as the linkage
        matrices of SciPy, whose `dendrogram` draws it and whose `cut_tree` cuts it. Free: it looks at released numbers.
      algorithm_: that of the fit, whatever "auto" stood for.
      privacy_: `PrivacyStatement`: what the fit guarantees.
      releases_: every noised aggregate behind the centers, in the order of the rounds.
      warnings_: what the report of the fit warns of, from settings and released numbers.
      n_features_in_: number of features.
      feature_names_in_: column names, where `X` had them.

    Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
      data"; Diaa, Humphries, Kerschbaum (2025), "FastLloyd"; Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private
      k-means in one round".
    """

    cluster_centers_: NDArray[np.float64]

    def __init__(
        self,
        n_clusters: Any,
        *,
        algorithm: str = "auto",
        epsilon: float,
        delta: float,
        clipping_norm: float | str | None = None,
        domain: Bounds | None = None,
        unit: str = "record",
        allocation: str = "tuned",
        client_rows: int | None = None,
        center: str = "server_mean",
        lloyd_steps: int | None = None,
        public_rows: int | None = None,
        settings: dict[str, Any] | None = None,
        ledger: str | None = None,
        data_name: str | None = None,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.delta = delta
        self.clipping_norm = clipping_norm
        self.domain = domain
        self.unit = unit
        self.allocation = allocation
        self.client_rows = client_rows
        self.center = center
        self.lloyd_steps = lloyd_steps
        self.public_rows = public_rows
        self.settings = settings
        self.ledger = ledger
        self.data_name = data_name
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None, server_data: ArrayLike | None = None
    ) -> Self:
        """Clusters privately.

        The rows are in a folder only this user can read while the rounds run, and are removed with it.

        Args:
          X: shape (n_rows, n_features), feature units, finite; private. An array, or a table of pandas, polars or
            Arrow with columns of numbers, whose names are kept.
          y: ignored.
          groups: shape (n_rows,), integers, strings or bytes: the client of each row, in any order; given if and
            only if `unit` is "client".
          server_data: shape (q, n_features): public rows like the private ones, with the same column names in any
            order where `X` has names, in the units that `X` has here; None if there are none. Rows that are in the
            memory of `X` are refused; a copy of private rows cannot be distinguished from public ones, and must not be
            given.

        Returns:
          This estimator.

        Raises:
          ConfigError: a ValueError, if a parameter breaks its rule.
          InputError: a ValueError, if the data cannot be used; quotes no value of `X` or `groups`.
          LedgerRefusedError: if the ledger refuses the fit; nothing has been read then.
        """
        refuse_shared(X, server_data)
        points = checked_points(self, X, reset=True)
        clients = self._checked_groups(groups, len(points))
        server = None if server_data is None else matched_server(self, server_data)
        run = self._run_on(points, clients, server)
        self._take(run)
        return self

    def _run_on(
        self, points: NDArray[np.floating], clients: ArrayLike | None, server: NDArray[np.floating] | None
    ) -> ReleasedRun:
        """The job on checked rows, which are in a private folder while it runs."""
        with tempfile.TemporaryDirectory(prefix="dapple-") as folder:
            names = self._columns()
            place = Place(
                rows=os.path.join(folder, "rows.parquet"),
                server=None if server is None else os.path.join(folder, "server.parquet"),
                features=POINT if names is None else names,
                client_id=None if clients is None else client_column(names),
            )
            config = self._job(place)
            write_rows(place.rows, points, clients, names, self._beside())
            if server is not None and place.server is not None:
                write_rows(place.server, server, None, names)
            said = self._warn_of_spending(config)
            with in_parameters():
                run = run_in_memory(config, os.path.join(folder, "run"))
        for text in run.warnings:
            if text not in said:
                warnings.warn(text, PrivacyWarning, stacklevel=3)
        return run

    def _job(self, place: Place) -> FitConfig:
        """The job of a fit on rows in a folder."""
        return job_of(self.get_params(deep=False), place)

    def _beside(self) -> dict[str, pa.Array]:
        """Columns beside the features, by name."""
        return {}

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Index of the nearest center of each row: as private as the row, no noise is added.

        Args:
          X: shape (n_rows, n_features), feature units, finite.

        Returns:
          Shape (n_rows,).
        """
        points, centers = self._measured(X)
        return pairwise_distances_argmin(points, centers.astype(points.dtype)).astype(np.int64)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Distance of each row to each center: as private as the row, no noise is added.

        Args:
          X: shape (n_rows, n_features), feature units, finite.

        Returns:
          Shape (n_rows, n_clusters), feature units; where columns have bounds of their own, in their half widths.
        """
        points, centers = self._measured(X)
        return euclidean_distances(points, centers.astype(points.dtype))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest centers: as private as the rows, no noise is added.

        What is chosen by this score, as in a search, depends on the rows without noise: search on public or older rows.

        Args:
          X: shape (n_rows, n_features), feature units, finite.
          y: ignored.
        """
        points, centers = self._measured(X)
        nearest = pairwise_distances_argmin_min(points, centers.astype(points.dtype))[1]
        return -float((nearest.astype(np.float64) ** 2).sum())

    def fit_predict(self, X: ArrayLike, y: object = None, **kwargs: Any) -> NDArray[np.int64]:
        """`fit`, then `predict` of the same rows; the labels are private, unlike the centers."""
        return self.fit(X, y, **kwargs).predict(X)

    def save(self, folder: str) -> None:
        """Writes what `dapple fit` writes, but for the report, for `load`, `dapple assign` and other jobs on a model.

        Nothing of it is private but in the stated sense: no row, and no exact number of rows.

        Args:
          folder: new or empty, on any Beam filesystem.

        Raises:
          ConfigError: if it holds something.
        """
        check_is_fitted(self)
        with in_parameters():
            write_run(self._run, folder)

    @classmethod
    def load(cls, folder: str) -> Self:
        """A fitted estimator from the output folder of `save` or of `dapple fit`.

        Its number of clusters, algorithm, epsilon, delta and unit are those of the fit, other parameters the defaults.

        Args:
          folder: on any Beam filesystem.

        Raises:
          ConfigError: if it holds no finished private fit of plain columns, or a file was changed.
        """
        with in_parameters():
            run = read_run(folder)
        found = cls(
            len(run.centers),
            algorithm=run.algorithm,
            epsilon=run.privacy.epsilon,
            delta=run.privacy.delta,
            unit=str(run.privacy.unit),
        )
        found.n_features_in_ = run.centers.shape[1]
        if run.names is not None:
            found.feature_names_in_ = np.array(run.names, dtype=object)
        found._take(run)
        return found

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns."""
        return len(self.cluster_centers_)

    def _take(self, run: ReleasedRun) -> None:
        """Sets what the fit has released."""
        self._run = run
        self.cluster_centers_ = run.centers
        self.noisy_sizes_ = run.model.noisy_sizes
        self.tree_ = ward_tree(run.model.centers, run.model.noisy_sizes)
        self.releases_ = run.model.releases
        self.algorithm_ = run.algorithm
        self.privacy_ = run.privacy
        self.warnings_ = run.warnings

    def _measured(self, X: ArrayLike) -> tuple[NDArray[np.floating], NDArray[np.float64]]:
        """Rows and centers as distances are taken: in feature units, or scaled by bounds of their own."""
        check_is_fitted(self)
        points, bounds = checked_points(self, X, reset=False), self._run.bounds
        return (points, self.cluster_centers_) if bounds is None else (scaled(points, *bounds), self._run.model.centers)

    def _columns(self) -> tuple[str, ...] | None:
        """Names of the columns of the job; None for one column of lists."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            starred = [name for name in map(str, names) if "*" in name]
            if starred:
                raise InputError(f"X must have column names without '*', got {starred[0]!r}; rename that column.")
            return tuple(map(str, names))
        return None if self.domain is None else made_names(self.n_features_in_)

    def _checked_groups(self, groups: ArrayLike | None, n_rows: int) -> Any:
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
        return None if groups is None else client_ids(groups, n_rows)

    def _warn_of_spending(self, config: FitConfig) -> tuple[str, ...]:
        """Says what the settings alone show, and what this estimator and its clones have spent with this fit.

        Returns:
          The former as the report says it again.
        """
        said = forewarnings(config) or ()
        for text in said:
            warnings.warn(text, PrivacyWarning, stacklevel=4)
        fits = self.__dict__.setdefault("_fits", _Fits())
        fits.done += 1
        if fits.done > 1 and self.ledger is None:
            spent = f"epsilon {fits.done * config.privacy.epsilon:.6g} and delta {fits.done * config.privacy.delta:.3g}"
            warnings.warn(
                f"this is fit {fits.done} of this estimator and its clones: on the same rows they may spend {spent} "
                "together; give a ledger, which holds them to a limit, or compare settings on public rows.",
                PrivacyWarning,
                stacklevel=4,
            )
        return tuple(map(sentence, said))

    def __sklearn_clone__(self) -> Any:
        """A clone that counts its fits with those of this estimator."""
        found = super().__sklearn_clone__()
        found._fits = self.__dict__.setdefault("_fits", _Fits())
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
