"""Dapple as a scikit-learn estimator: the rounds of the `fit` job, run in this process."""

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
from dapple_dp.schemas.settings.yaml_text import check_text
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
    """Fits of an estimator and of its clones, which share this.

    Attributes:
      done: how many.
      scored: hashes of the centers whose score was computed.
    """

    done: int = 0
    scored: set[int] = dataclasses.field(default_factory=set)


_CHOICE = (
    "scores have no noise, so settings that are chosen by them reveal something of the rows that epsilon does not "
    "cover; search on public or older rows."
)


_NOT_FITTED = ": it comes with fit, which has not been called"
_ABSENT = {
    "labels_": ": labels of the rows are not private; call predict(X) where these rows may be seen",
    "inertia_": ": it is not private; call score(X) where these rows may be seen",
    "partial_fit": ": a fit looks at all rows several times; call fit on all of them",
    **dict.fromkeys(("cluster_centers_", "noisy_sizes_", "tree_", "privacy_", "releases_"), _NOT_FITTED),
}
"""What follows the words on attributes that people look for."""


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
    """Makes an estimator that was fitted to such columns of a number or of names."""
    is_whole = isinstance(columns, int) and is_number(columns, 1, MOST_WIDTH)
    if columns is None or isinstance(columns, str) or (np.ndim(columns) == 0 and not is_whole):
        raise ConfigError(f"columns must be the number of columns or their names, got {columns!r}; try columns=3.")
    if not is_whole:
        holder.feature_names_in_ = np.array([str(name) for name in columns], dtype=object)
    holder.n_features_in_ = columns if is_whole else len(columns)


class DPKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """Differentially private k-means of rows that are in memory, by any algorithm of the `fit` job.

    The centers, sizes and releases after `fit` are private in the stated sense and may be shown. There is no
    `labels_`: the labels of the training rows are not. What `predict`, `transform`, `score` and `fit_predict` return
    reveals each row that they are given, without noise, and must stay where those rows may be seen.

    Every call of `fit` draws fresh noise and spends its own epsilon and delta, also on the same rows, and so does
    every fit of a search or a cross-validation. A `ledger` holds them to a limit. It cannot count what a search chooses
    by its scores, which have no noise: `fit` in a search of scikit-learn is refused with a ledger, and warns without.

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
      missing: columns with missing values, by name, or by place where they have no names, and the public number that
        fills them: {"lab": 6.0}, or {"lab": {"fill": 6.0, "indicator": True}} for a column of its own that is 1 where
        the value was missing. None, NaN and null are missing; in other columns they are refused. An indicator is a
        further column of `cluster_centers_`, after that of its column.
      settings: sections of a job for what has no parameter here: that of the algorithm, such as dp_lloyd or tree,
        feddp_kmeans, lloyd and quality; with experimental: True, what is not supported may be among them.
      ledger: `Ledger`, or its path, that each fit is charged to; None to spend unrecorded.
      data_name: name of the data set in the ledger.
      random_state: of public randomness (k-means on the server, stand-in points), never of noise; an integer >= 0,
        a `RandomState` or None.
      verbose: 1 prints a line after each round, with the time that is left. How long rounds take depends on the rows,
        so the lines are for whoever may see these. 0 prints nothing.

    Attributes:
      cluster_centers_: shape (n_clusters, n_features), feature units.
      noisy_sizes_: shape (n_clusters,): noisy number of rows, or noisy weight of clients; may be negative.
      tree_: shape (n_clusters - 1, 4): Ward linkage of the centers, weighed by their noisy sizes, as a SciPy linkage
        matrix: `scipy.cluster.hierarchy.dendrogram` draws it and `fcluster` cuts it. Its last column counts centers.
        It is computed from released numbers, so it costs no privacy. A single cluster has no tree: no rows.
      tree_sizes_: shape (n_clusters - 1,): the noisy size of the cluster that each row of `tree_` makes, which is the
        sum of the noisy sizes of its parts; may be negative.
      algorithm_: that of the fit, whatever "auto" stood for.
      privacy_: `PrivacyStatement`: what the fit guarantees. It prints six lines: epsilon and delta, unit, neighbors,
        where noise was added, the ledger that was charged, and what checked the fit.
      releases_: every noised aggregate behind the centers, in the order of the rounds.
      warnings_: what the report of the fit warns of, from settings and released numbers.
      n_features_in_: number of features.
      feature_names_in_: column names, where `X` had them.

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
        """Shows what a fit would cost and find at some epsilons, before anything is spent.

        No private row is needed. The fit is simulated on `server_data`, or on made-up clusters inside the bounds, with
        the very noise that it would draw; the numbers are those of `dapple plan`.

        Args:
          n_rows: assumed number of rows (unit "client": of clients): a guess or a public number, never that of the
            private rows.
          epsilons: each > 0, 12 at most; that of this estimator isn't among them by itself.
          columns: how many, or their names. None takes those of `server_data`, of `domain`, or of the last fit.
          server_data: shape (q, n_features): the public rows that `fit` will be given, if any.

        Returns:
          A table that a notebook shows; `rows` has its numbers.

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
        """The plan of a fit of rows with such columns, which others will read; makes this a fit of such columns."""
        _set_columns(self, columns)
        names = self._columns(self)
        config, _ = self._job_on(names, client_column(names) if self._by_client() else None, None)
        self._warn_of_spending(config)
        with in_parameters():
            return plan_rows(config, self.n_features_in_, None)

    def _known_columns(self) -> Any:
        """Names or number of the columns, from the bounds or from the last fit; None before one."""
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

        The rows stay in memory: no file of them is written.

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
          others: refused; rows have no weights.

        Returns:
          This estimator.

        Raises:
          ConfigError: a ValueError, if a parameter breaks its rule.
          InputError: a ValueError, if the data cannot be used; quotes no value of `X` or `groups`.
          LedgerRefusedError: if the ledger refuses the fit; nothing has been read then.
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
        """The job on checked rows."""
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
        """The job of a fit on such columns, and its public rows."""
        features = POINT if names is None else names
        place = Place(
            rows="X", server=None if server is None else "server_data", features=features, client_id=client_id
        )
        return self._job(place), None if server is None else PublicRows(Columns(server), features)

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
        return self._nearest().labels(self._vectors(X))

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Distance of each row to each center: as private as the row, no noise is added.

        Args:
          X: shape (n_rows, n_features), feature units, finite.

        Returns:
          Shape (n_rows, n_clusters), feature units; where columns have bounds of their own, in their half widths.
        """
        return self._nearest().distances(self._vectors(X))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest centers: as private as the rows, no noise is added.

        What is chosen by this score, as in a search, depends on the rows without noise: search on public or older rows.
        Scores of more than one fit of an estimator and its clones warn of it.

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
        """Merges released clusters into fewer, as `tree_` joins them; looks at no row and spends nothing.

        A row is in the cluster of its nearest released center, as with `dapple assign --level`; `transform` and `score`
        take the distance to that center. `cluster_centers_` has the mean of each cluster's centers, weighed by their
        noisy sizes, and `noisy_sizes_` the sums.

        Args:
          n_clusters: from 1 to the number of clusters of the fit.

        Returns:
          A fitted estimator with this many clusters. `report` and `ClustersDisplay` go on to show the fit; to keep a
          cut, save the one that you cut.

        Raises:
          ConfigError: for another number.
        """
        from dapple_dp.estimator.cut import grouped

        check_is_fitted(self)
        cut = copy.copy(self)
        cut._merge(grouped(self._run.model, n_clusters))
        return cut

    def fit_predict(self, X: ArrayLike, y: object = None, **kwargs: Any) -> NDArray[np.int64]:
        """`fit`, then `predict` of the same rows; the labels are private, unlike the centers."""
        return self.fit(X, y, **kwargs).predict(X)

    def report(self) -> "Report":
        """Makes the page of the fit that `dapple fit` writes: released numbers and public settings.

        A notebook shows it; its method `save(path)` writes it.

        Raises:
          ConfigError: after `load` of a folder without a report.
        """
        from dapple_dp.estimator.notebook import Report

        check_is_fitted(self)
        return Report(self._run.report())

    def save(self, folder: str) -> None:
        """Writes what `dapple fit` writes, for `load`, `dapple assign` and other jobs on a model.

        Nothing of it is private but in the stated sense: no row, and no exact number of rows.

        Args:
          folder: new or empty, on any Beam filesystem.

        Raises:
          ConfigError: if it holds something, or this is a `cut`.
        """
        from dapple_dp.estimator.run_files import write_run

        check_is_fitted(self)
        if self._groups is not None:
            raise ConfigError("a cut is not saved by itself; save the model that you cut, and cut it again after load.")
        with in_parameters():
            check_text(folder, "folder")
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
        from dapple_dp.estimator.run_files import read_run

        with in_parameters():
            run = read_run(folder)
        found = cls(
            len(run.centers),
            algorithm=run.algorithm,
            epsilon=run.privacy.epsilon,
            delta=run.privacy.delta,
            unit=str(run.privacy.unit),
        )
        found.n_features_in_ = run.centers.shape[1] if run.encoder is None else len(run.encoder.columns)
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
        self._run, self._groups = run, None
        self.cluster_centers_ = run.centers
        self._take_sizes(run.model.centers, run.model.noisy_sizes)
        self.releases_ = run.model.releases
        self.algorithm_ = run.algorithm
        self.privacy_ = run.privacy
        self.warnings_ = run.warnings

    def _merge(self, groups: "GroupedCenters") -> None:
        """Sets what a cut has."""
        self._groups, self.n_clusters = groups, groups.n_clusters
        self.cluster_centers_ = groups.means(self._run.centers)
        self._take_sizes(groups.means(self._run.model.centers), groups.noisy_sizes)

    def _take_sizes(self, centers: NDArray[np.float64], sizes: NDArray[np.float64]) -> None:
        """Sets sizes, and the tree of centers, which are in feature units."""
        self.noisy_sizes_ = sizes
        self.tree_ = ward_tree(centers, sizes)
        self.tree_sizes_ = union_sums(self.tree_, sizes)

    def _nearest(self) -> "NearestCenters | GroupedCenters":
        """The centers as `dapple assign` compares rows with them; raises NotFittedError before a fit."""
        check_is_fitted(self)
        return NearestCenters.of(self._run.model.centers) if self._groups is None else self._groups

    def _vectors(self, X: ArrayLike) -> NDArray[np.floating]:
        """Rows as distances are taken: in feature units, or scaled by bounds of their own."""
        check_is_fitted(self)
        encoder = self._run.encoder
        columns = () if encoder is None else encoder.columns
        may_miss = {each.column for each in columns if isinstance(each, FilledColumn)}
        points = checked_points(self, X, reset=False, may_miss=may_miss)
        return (
            points
            if encoder is None
            else encoder.encode(
                pa.table(dict(zip((each.column for each in encoder.columns), points.T, strict=True))), "X"
            )
        )

    def _columns(self, holder: Any) -> tuple[str, ...] | None:
        """Names of the columns of the job, which `holder` knows; None for one column of lists."""
        names = getattr(holder, "feature_names_in_", None)
        if names is not None:
            starred = [name for name in map(str, names) if "*" in name]
            if starred:
                raise InputError(f"X must have column names without '*', got {starred[0]!r}; rename that column.")
            return tuple(map(str, names))
        return None if self.domain is None and not self.missing else made_names(holder.n_features_in_)

    def _by_client(self) -> bool:
        """Whether the unit is a client; raises ConfigError for a unit that is none, or without what it needs."""
        if self.unit not in tuple(PrivacyUnit):
            raise ConfigError(
                f"unit must be 'record' or 'client', got {self.unit!r}; take 'client' if people may have several rows."
            )
        by_client = self.unit == PrivacyUnit.CLIENT
        if by_client and self.client_rows is None:
            raise ConfigError(
                "client_rows must be given for unit 'client', got None; give the typical number of rows of a client."
            )
        return by_client

    def _checked_groups(self, groups: ArrayLike | None, n_rows: int) -> Any:
        """Client ids of the rows, for the unit that has clients."""
        by_client = self._by_client()
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

        Raises:
          ConfigError: in a search under a ledger.
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
                f"this is fit {fits.done} of this estimator and its clones: on the same rows they may spend {spent} "
                "together; give a ledger, which holds them to a limit, or compare settings on public rows.",
                PrivacyWarning,
                stacklevel=4,
            )
        return tuple(map(sentence, said))

    def _refuse_or_warn_of_choice(self) -> None:
        """Refuses, or without a ledger warns of, settings that are chosen by a score."""
        if self.ledger is not None:
            raise ConfigError(
                "ledger must be None in a search or a cross-validation, since no ledger can count a choice by scores "
                "without noise; search on public or older rows without it, then fit once with the ledger."
            )
        warnings.warn(_CHOICE, PrivacyWarning, stacklevel=5)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says why there is no such attribute; like those of any class, it raises AttributeError."""
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{said}{_ABSENT.get(name, '')}", name=name, obj=self)

    def __sklearn_clone__(self) -> Any:
        """A clone that counts its fits with those of this estimator."""
        found = super().__sklearn_clone__()
        found._fits = self.__dict__.setdefault("_fits", _Fits())
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
