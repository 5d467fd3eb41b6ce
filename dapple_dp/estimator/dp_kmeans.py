"""DPKMeans, the scikit-learn estimator: runs the rounds of a `fit` job in this process."""

import copy
import dataclasses
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dapple_dp.estimator.bounds import Bounds, tell_of_bounds
from dapple_dp.estimator.client_ids import client_ids
from dapple_dp.estimator.job_of_parameters import Place, in_parameters, job_of, missing_of
from dapple_dp.estimator.memory_rows import (
    POINT,
    checked_points,
    client_column,
    made_names,
    matched_server,
    refuse_others,
    refuse_shared,
)
from dapple_dp.estimator.released_run import ReleasedRun, run_in_memory
from dapple_dp.pipelines.jobs.forewarnings import forewarnings, sentence
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit, plan_rows
from dapple_dp.schemas.core.plan import PrivacyUnit
from dapple_dp.schemas.errors import ConfigError, InputError, PrivacyWarning
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.settings.section import is_number, python_scalar
from dapple_dp.schemas.settings.yaml_text import path_text
from dapple_dp.schemas.tables.data_section import MOST_WIDTH
from dapple_dp.schemas.tables.encoded_column import FilledColumn
from dapple_dp.transforms.numerics.kmeans.center_tree import union_sums, ward_tree
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.rounds.memory_rows import Columns, PublicRows

if TYPE_CHECKING:
    from dapple_dp.estimator.cut import GroupedCenters
    from dapple_dp.estimator.notebook import PlanTable, Report


@dataclasses.dataclass
class _Fits:
    """Record of the fits of an estimator, shared with all of its clones.

    Attributes:
      done: number of fits.
      scored: hashes of the centers for which a score was computed.
    """

    done: int = 0
    scored: set[int] = dataclasses.field(default_factory=set)


_CHOICE = (
    "scores have no noise: settings chosen by them reveal more about the rows than epsilon covers. Search on "
    "public or older rows."
)


_NOT_FITTED = ": call fit first"
_ABSENT = {
    "labels_": ": labels of the rows are not private; call predict(X) where these rows may be seen",
    "inertia_": ": it is not private; call score(X) where these rows may be seen",
    "partial_fit": ": a fit looks at all rows several times; call fit on all of them",
    **dict.fromkeys(("cluster_centers_", "noisy_sizes_", "tree_", "privacy_", "releases_"), _NOT_FITTED),
}
"""Explanations for missing attributes that people often look for, added to the error."""


def _in_search() -> bool:
    """Returns whether scikit-learn's model selection is calling, which compares fits by scores of their rows."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("sklearn.model_selection.") and frame.f_code.co_name != "_fit_and_predict":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _set_columns(holder: Any, columns: Any) -> None:
    """Sets the columns of an estimator, given their number or their names, as if it was fitted to them."""
    is_whole = isinstance(columns, int) and is_number(columns, 1, MOST_WIDTH)
    if columns is None or isinstance(columns, str) or (np.ndim(columns) == 0 and not is_whole):
        raise ConfigError(f"columns must be the number of columns or their names, got {columns!r}; try columns=3.")
    if not is_whole:
        holder.feature_names_in_ = np.array([str(name) for name in columns], dtype=object)
    holder.n_features_in_ = columns if is_whole else len(columns)


class DPKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Differentially private k-means on rows in memory, by any algorithm of the `fit` job.

    After `fit`, the centers, sizes and releases carry the stated guarantee, and you may share them. There is no
    `labels_`, since labels of the training rows aren't private. The results of `predict`, `transform`, `score` and
    `fit_predict` have no noise and reveal the rows that you pass; keep them where you may keep those rows.

    Every call of `fit` draws fresh noise and spends epsilon and delta again, even on the same rows; so does every fit
    in a search or a cross-validation. A `ledger` limits their total. It can't account for a choice by scores, which
    have no noise: inside a search of scikit-learn, `fit` is refused with a ledger, and warns without one.

    An earlier step in a `Pipeline` must not learn from private rows: the centers would depend on it, and nothing
    accounts for that. `PrivateScaler` doesn't learn from rows; `StandardScaler` does.

    Args:
      n_clusters: number of centers, >= 1; or a mapping of max and choose, as in a job.
      algorithm: "auto", or an algorithm of the `fit` job, such as "dp_lloyd" or "feddp_kmeans". "auto" chooses as in a
        job, without reading a row: dp_lloyd with a domain, also with server data, or else with a clipping norm;
        feddp_kmeans with server data and no domain, or also with a norm around their mean or lloyd_steps; central_tree
        if only that supports the parameters.
      epsilon: spent by one fit, > 0; has no default.
      delta: spent by one fit, in (0, 1); has no default.
      clipping_norm: the largest L2 norm of a row (from the center of `center`), > 0, feature units, chosen without
        looking at the rows; "server_radius" for the radius of the server data, the default if there are some; or
        "private" for a noisy quantile.
      domain: public bounds of the columns, feature units: a pair for all, a list of pairs, or a mapping by name. If
        columns have separate bounds, they are scaled to these before distances are computed.
      unit: the privacy unit, which a neighbor adds or removes: "record" (a row) or "client" (all rows of one group).
      allocation: split of the budget: "tuned" or "paper" (Scott et al. 2025).
      client_rows: public typical number of rows of a client, >= 1; required for unit "client".
      center: public center of the clipping ball: "server_mean", or "none" for the origin; always the origin without
        server data.
      lloyd_steps: Lloyd rounds after the start, 0 to 50 (in a domain: 1 to 50); None for the algorithm's default.
      public_rows: number of rows (unit "client": of clients) if it is public, else None.
      missing: public fill values for columns with missing values, by the name of the column, or by its index if it has
        none: {"lab": 6.0}, or {"lab": {"fill": 6.0, "indicator": True}} to add a column that is 1 if the value was
        missing. None, NaN and null count as missing; other columns must not have any. The indicator is a further column
        of `cluster_centers_`, after that of its column.
      settings: sections of a job for settings without a parameter here: that of the algorithm, such as dp_lloyd or
        tree, feddp_kmeans, lloyd and quality; add experimental: True for unsupported ones.
      ledger: `Ledger`, or its path, to charge each fit to; None to spend unrecorded.
      data_name: name of the data set in the ledger.
      random_state: seed of public randomness (k-means on the server, stand-in points), never of noise; an integer >= 0,
        a `RandomState` or None.
      verbose: 1 prints a line after each round, with the remaining time. Times depend on the rows, so only people who
        may see the rows may see these lines. 0 prints nothing.

    Attributes:
      cluster_centers_: shape (n_clusters, n_features), feature units.
      noisy_sizes_: shape (n_clusters,): noisy number of rows, or noisy weight of clients; may be negative.
      tree_: shape (n_clusters - 1, 4): Ward linkage of the centers, weighted by their noisy sizes, as a SciPy linkage
        matrix for `scipy.cluster.hierarchy.dendrogram` and `fcluster`. Its last column counts centers. It is computed
        from releases, so it costs no privacy. With a single cluster, it has no rows.
      tree_sizes_: shape (n_clusters - 1,): noisy size of the cluster that each row of `tree_` creates, the sum of the
        noisy sizes of its parts; may be negative.
      algorithm_: algorithm of the fit, also if "auto" chose it.
      privacy_: `PrivacyStatement`: the guarantee of the fit. It prints six lines: epsilon and delta, unit, neighbors,
        where noise was added, the charged ledger, and how the fit was checked.
      releases_: every noised aggregate behind the centers, in the order of the rounds.
      warnings_: warnings in the report of the fit, from settings and releases.
      n_features_in_: number of features.
      feature_names_in_: column names, if `X` has them.

    Source: Scott, Lampert, Saulpic (2025), "Differentially private federated k-means clustering with server-side
      data"; Diaa, Humphries, Kerschbaum (2025), "FastLloyd"; Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private
      k-means in one round".
    """

    cluster_centers_: NDArray[np.float64]
    _groups: "GroupedCenters | None" = None

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
        missing: Mapping[Any, Any] | None = None,
        settings: dict[str, Any] | None = None,
        ledger: str | os.PathLike[str] | None = None,
        data_name: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
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
        self.missing = missing
        self.settings = settings
        self.ledger = ledger
        self.data_name = data_name
        self.random_state = random_state
        self.verbose = verbose

    def plan(
        self,
        n_rows: int,
        epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0),
        *,
        columns: int | Sequence[str] | None = None,
        server_data: ArrayLike | None = None,
    ) -> "PlanTable":
        """Predicts the cost and accuracy of a fit at some epsilons, before you spend any budget.

        You need no private rows: the fit is simulated on `server_data`, or on made-up clusters inside the bounds, with
        the noise that a fit would add. The numbers are those of `dapple plan` for a job with this algorithm ("auto",
        too).

        Args:
          n_rows: assumed number of rows (unit "client": of clients): a guess or a public number, never that of the
            private rows.
          epsilons: at most 12 numbers > 0; this estimator's epsilon isn't included automatically.
          columns: their number or names; None takes those of `server_data`, of `domain`, or of the last fit.
          server_data: shape (q, n_features): the public rows that you will pass to `fit`, if any.

        Returns:
          A table that a notebook displays; `rows` contains its numbers.

        Raises:
          ConfigError: if a parameter breaks its rule, or the columns are unknown.
          InputError: if the public rows can't be used.
        """
        from dapple_dp.estimator.notebook import PlanTable

        holder, server = BaseEstimator(), None
        if server_data is not None:
            may_miss = missing_of(self.missing)
            server = checked_points(holder, server_data, reset=True, name="server_data", may_miss=may_miss)
        else:
            _set_columns(holder, self._known_columns() if columns is None else python_scalar(columns))
        names = self._columns(holder)
        client_id = client_column(names) if self.unit == PrivacyUnit.CLIENT else None
        config, public = self._job_on(names, client_id, server)
        with in_parameters():
            return PlanTable.of(config, n_rows, holder.n_features_in_, public, epsilons)

    def _plan_for(self, columns: Sequence[str]) -> PlannedFit:
        """Plans a fit on rows with these columns, to be read elsewhere, and sets the columns of this estimator."""
        _set_columns(self, columns)
        names = self._columns(self)
        config, _ = self._job_on(names, client_column(names) if self._by_client() else None, None)
        self._warn_of_spending(config)
        with in_parameters():
            return plan_rows(config, self.n_features_in_, None)

    def _known_columns(self) -> Any:
        """Returns names or number of the columns, from the bounds or from the last fit; None before a fit."""
        if isinstance(self.domain, Mapping):
            return list(self.domain)
        if self.domain is not None and np.ndim(self.domain) == 2:
            return len(self.domain)
        return getattr(self, "feature_names_in_", getattr(self, "n_features_in_", None))

    def fit(
        self,
        X: ArrayLike,
        y: object = None,
        *,
        groups: ArrayLike | None = None,
        server_data: ArrayLike | None = None,
        **others: Any,
    ) -> Self:
        """Clusters privately.

        The rows stay in memory and are never written to a file.

        Args:
          X: shape (n_rows, n_features), feature units, finite; private. An array, or a table of pandas, polars or Arrow
            with numeric columns, whose names are kept.
          y: ignored.
          groups: shape (n_rows,), integers, strings or bytes: the client of each row, in any order; required for unit
            "client", and refused otherwise.
          server_data: shape (q, n_features): public rows like the private ones, in the same units, with the same column
            names in any order if `X` has names; None if there are none. Rows that share memory with `X` are refused;
            a copy of private rows cannot be distinguished from public ones, so never pass one.
          others: refused; rows have no weights.

        Returns:
          This estimator.

        Raises:
          ConfigError: a ValueError, if a parameter breaks its rule.
          InputError: a ValueError, if the data can't be used; contains no value of `X` or `groups`.
          LedgerRefusedError: if the ledger refuses the fit, before any row is read.
        """
        refuse_others(others)
        refuse_shared(X, server_data)
        may_miss = missing_of(self.missing)
        points = checked_points(self, X, reset=True, may_miss=may_miss, can_fill=True)
        clients = self._checked_groups(groups, len(points))
        server = None if server_data is None else matched_server(self, server_data, may_miss)
        run = self._run_on(points, clients, server)
        self._take(run)
        names = getattr(self, "feature_names_in_", None)
        tell_of_bounds(points, names, domain=self.domain, norm=self.clipping_norm)
        return self

    def _run_on(
        self, points: NDArray[np.floating], clients: pa.ChunkedArray | None, server: NDArray[np.floating] | None
    ) -> ReleasedRun:
        """Runs the job on validated rows."""
        names = self._columns(self)
        config, public = self._job_on(names, None if clients is None else client_column(names), server)
        said = self._warn_of_spending(config)
        with in_parameters():
            tell = print if self.verbose else None
            run = run_in_memory(config, Columns(points, clients, self._beside()), public, tell)
        for text in run.warnings:
            if text not in said:
                warnings.warn(text, PrivacyWarning, stacklevel=3)
        return run

    def _job_on(
        self, names: tuple[str, ...] | None, client_id: str | None, server: NDArray[np.floating] | None
    ) -> tuple[FitConfig, PublicRows | None]:
        """Returns the job of a fit on these columns, and its public rows."""
        features = POINT if names is None else names
        place = Place(
            rows="X", server=None if server is None else "server_data", features=features, client_id=client_id
        )
        return self._job(place), None if server is None else PublicRows(Columns(server), features)

    def _job(self, place: Place) -> FitConfig:
        """Returns the job of a fit on rows at a place."""
        return job_of(self.get_params(deep=False), place)

    def _beside(self) -> dict[str, pa.Array]:
        """Returns the columns in addition to the features, by name."""
        return {}

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Returns the index of each row's nearest center: as private as the row, since no noise is added.

        Args:
          X: shape (n_rows, n_features), feature units, finite.

        Returns:
          Shape (n_rows,).
        """
        return self._nearest().labels(self._vectors(X))

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns the distance of each row to each center: as private as the row, since no noise is added.

        Args:
          X: shape (n_rows, n_features), feature units, finite.

        Returns:
          Shape (n_rows, n_clusters), feature units; if columns have separate bounds, in units of their half widths.
        """
        return self._nearest().distances(self._vectors(X))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Returns minus the sum of squared distances to the nearest centers: as private as the rows, without noise.

        A choice by this score, as in a search, depends on the rows without noise: search on public or older rows. You
        get a warning for scores of more than one fit of an estimator and its clones.

        Args:
          X: shape (n_rows, n_features), feature units, finite.
          y: ignored.
        """
        from dapple_dp.transforms.numerics.trusted_zone.clustering_sums import model_cost

        vectors = self._vectors(X)
        fits: _Fits = self.__dict__.setdefault("_fits", _Fits())
        fits.scored.add(hash(self._run.centers.tobytes()))
        if len(fits.scored) > 1 and not _in_search():
            warnings.warn(_CHOICE, PrivacyWarning, stacklevel=2)
        return -float(model_cost(vectors, NearestCenters.of(self._run.model.centers)).squared.value)

    def cut(self, n_clusters: int) -> Self:
        """Merges released clusters into fewer, along `tree_`; reads no rows and spends nothing.

        A row is in the cluster of its nearest released center, as with `dapple assign --level`; `transform` and `score`
        use the distance to that center. `cluster_centers_` contains the mean of each cluster's centers, weighted by
        their noisy sizes, and `noisy_sizes_` the sums.

        Args:
          n_clusters: from 1 to the number of clusters of the fit.

        Returns:
          A fitted estimator with this many clusters. `report` and `ClustersDisplay` still show the original fit; to
          save a cut, save the estimator that you cut.

        Raises:
          ConfigError: for any other number.
        """
        from dapple_dp.estimator.cut import grouped

        check_is_fitted(self)
        cut = copy.copy(self)
        cut._merge(grouped(self._run.model, n_clusters))
        return cut

    def fit_predict(self, X: ArrayLike, y: object = None, **kwargs: Any) -> NDArray[np.int64]:
        """Calls `fit`, then `predict` on the same rows; unlike the centers, the labels are not protected."""
        return self.fit(X, y, **kwargs).predict(X)

    def report(self) -> "Report":
        """Creates the report of the fit, as `dapple fit` writes it: releases and public settings.

        A notebook displays it; `save(path)` writes it to a file.

        Raises:
          ConfigError: after `load` of a folder without a report.
        """
        from dapple_dp.estimator.notebook import Report

        check_is_fitted(self)
        return Report(self._run.report())

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the output folder of `dapple fit`, for `load`, `dapple assign` and other jobs on a model.

        You may share the folder under the guarantee of the fit: it contains no row, and no exact number of rows.

        Args:
          folder: new or empty, on any Beam filesystem.

        Raises:
          ConfigError: if it isn't empty, or this estimator is a `cut`.
        """
        from dapple_dp.estimator.run_files import write_run

        check_is_fitted(self)
        if self._groups is not None:
            raise ConfigError("a cut is not saved by itself; save the model that you cut, and cut it again after load.")
        with in_parameters():
            write_run(self._run, path_text(folder, "folder"))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Loads a fitted estimator from the output folder of `save` or `dapple fit`.

        Number of clusters, algorithm, epsilon, delta and unit are those of the fit; others are the defaults.

        Args:
          folder: on any Beam filesystem.

        Raises:
          ConfigError: if it isn't the folder of a finished private fit of plain columns, or a file was changed.
        """
        from dapple_dp.estimator.run_files import read_run

        with in_parameters():
            run = read_run(path_text(folder, "folder"))
        result = cls(
            len(run.centers),
            algorithm=run.algorithm,
            epsilon=run.privacy.epsilon,
            delta=run.privacy.delta,
            unit=str(run.privacy.unit),
        )
        result.n_features_in_ = run.centers.shape[1] if run.encoder is None else len(run.encoder.columns)
        if run.names is not None:
            result.feature_names_in_ = np.array(run.names, dtype=object)
        result._take(run)
        return result

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns."""
        return len(self.cluster_centers_)

    def _take(self, run: ReleasedRun) -> None:
        """Sets the attributes of a fit."""
        self._run, self._groups = run, None
        self.cluster_centers_ = run.centers
        self._take_sizes(run.model.centers, run.model.noisy_sizes)
        self.releases_ = run.model.releases
        self.algorithm_ = run.algorithm
        self.privacy_ = run.privacy
        self.warnings_ = run.warnings

    def _merge(self, groups: "GroupedCenters") -> None:
        """Sets the attributes of a cut."""
        self._groups, self.n_clusters = groups, groups.n_clusters
        self.cluster_centers_ = groups.means(self._run.centers)
        self._take_sizes(groups.means(self._run.model.centers), groups.noisy_sizes)

    def _take_sizes(self, centers: NDArray[np.float64], sizes: NDArray[np.float64]) -> None:
        """Sets sizes, and the tree of centers, which are in feature units."""
        self.noisy_sizes_ = sizes
        self.tree_ = ward_tree(centers, sizes)
        self.tree_sizes_ = union_sums(self.tree_, sizes)

    def _nearest(self) -> "NearestCenters | GroupedCenters":
        """Returns the centers, to compare rows with as in `dapple assign`; raises NotFittedError before a fit."""
        check_is_fitted(self)
        return NearestCenters.of(self._run.model.centers) if self._groups is None else self._groups

    def _vectors(self, X: ArrayLike) -> NDArray[np.floating]:
        """Returns rows as distances need them: in feature units, or scaled by separate bounds."""
        check_is_fitted(self)
        encoder = self._run.encoder
        columns = () if encoder is None else encoder.columns
        may_miss = {column.column for column in columns if isinstance(column, FilledColumn)}
        points = checked_points(self, X, reset=False, may_miss=may_miss)
        return (
            points
            if encoder is None
            else encoder.encode(
                pa.table(dict(zip((column.column for column in encoder.columns), points.T, strict=True))), "X"
            )
        )

    def _columns(self, holder: Any) -> tuple[str, ...] | None:
        """Returns the column names of the job, given the fitted `holder`; None for one column of lists."""
        names = getattr(holder, "feature_names_in_", None)
        if names is not None:
            starred = [name for name in map(str, names) if "*" in name]
            if starred:
                raise InputError(f"X must have column names without '*', got {starred[0]!r}; rename that column.")
            return tuple(map(str, names))
        return None if self.domain is None and not self.missing else made_names(holder.n_features_in_)

    def _by_client(self) -> bool:
        """Returns whether the unit is a client; raises ConfigError for an unknown unit, or without client_rows."""
        if self.unit not in tuple(PrivacyUnit):
            raise ConfigError(
                f"unit must be 'record' or 'client', got {self.unit!r}; take 'client' if people may have several rows."
            )
        by_client = self.unit == PrivacyUnit.CLIENT
        if by_client and self.client_rows is None:
            raise ConfigError("client_rows is required for unit 'client'; give the public typical number of rows.")
        return by_client

    def _checked_groups(self, groups: ArrayLike | None, n_rows: int) -> Any:
        """Returns the client ids of the rows; None for unit "record"."""
        by_client = self._by_client()
        if by_client != (groups is not None):
            raise InputError(
                "groups is required for unit 'client'; pass one client id per row."
                if by_client
                else "groups isn't supported for unit 'record'; set unit to 'client' to protect whole clients."
            )
        return None if groups is None else client_ids(groups, n_rows)

    def _warn_of_spending(self, config: FitConfig) -> tuple[str, ...]:
        """Warns of problems that settings alone show, and of the total that this estimator and its clones spend.

        Returns:
          The warnings about settings, in the words of the report.

        Raises:
          ConfigError: inside a search, with a ledger.
        """
        said = forewarnings(config) or ()
        for text in said:
            warnings.warn(text, PrivacyWarning, stacklevel=4)
        if _in_search():
            self._refuse_or_warn_of_choice()
        fits = self.__dict__.setdefault("_fits", _Fits())
        fits.done += 1
        if fits.done > 1 and self.ledger is None:
            spent = f"epsilon {fits.done * config.privacy.epsilon:.6g} and delta {fits.done * config.privacy.delta:.3g}"
            warnings.warn(
                f"fit {fits.done} of this estimator and its clones: on the same rows, {spent} in total; use a "
                "ledger, or public rows.",
                PrivacyWarning,
                stacklevel=4,
            )
        return tuple(map(sentence, said))

    def _refuse_or_warn_of_choice(self) -> None:
        """Refuses a choice of settings by scores; without a ledger, just warns of it."""
        if self.ledger is not None:
            raise ConfigError(
                "ledger isn't supported in a search or a cross-validation, since it doesn't count choices by "
                "scores, which have no noise; search on public or older rows without it, then fit once with the "
                "ledger."
            )
        warnings.warn(_CHOICE, PrivacyWarning, stacklevel=5)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError, with an explanation for well-known attributes."""
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{said}{_ABSENT.get(name, '')}", name=name, obj=self)

    def __sklearn_clone__(self) -> Any:
        """Returns a clone that counts its fits together with those of this estimator."""
        result = super().__sklearn_clone__()
        result._fits = self.__dict__.setdefault("_fits", _Fits())
        return result

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
