"""A `fit` job made ready: public data read, noise calibrated, nothing private touched."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.public_fit import PublicFit, statement_of
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import JobRows, private_source, without_files
from dapple_dp.schemas.choices import Algorithm
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, Promise, PromisedPlan, Zone
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.schemas.tables.data_section import CsvForm, DataConfig
from dapple_dp.schemas.tables.encoded_column import read_as
from dapple_dp.schemas.tables.encoder import Encoder
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.kmeans.lloyd.specs import samples_rows
from dapple_dp.transforms.kmeans.protocols import protocol_of, warm_protocol
from dapple_dp.transforms.numerics.kmeans.starts import seeding
from dapple_dp.transforms.rounds.protocol import ProtocolState
from dapple_dp.transforms.tables.on_launcher import ServerFiles, first_schema
from dapple_dp.transforms.tables.source import Source

if TYPE_CHECKING:
    from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
    from dapple_dp.pipelines.tables.epoch_roll import EpochRoll
    from dapple_dp.schemas.kmeans.pooled_config import PooledFitConfig
    from dapple_dp.schemas.kmeans.recurring.drift import Drift
    from dapple_dp.schemas.kmeans.recurring.remembered import Remembered
    from dapple_dp.schemas.reports.config import EncodeConfig
    from dapple_dp.transforms.rounds.memory_rows import PublicRows

_STAND_IN_POINTS = 300


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedFit:
    """A job that is ready to run: everything public, nothing private read.

    Attributes:
      config: the job.
      source: where the rows are, listed; of a table, the files of one snapshot.
      contract: how shards are read.
      initial: state before the first round.
      plan: what will be spent.
      rounds: statistics, plans and server steps.
      previous: the earlier run that this one follows; None for a run of its own.
      server: the server files as they were read; None without.
      chosen: what `privacy.shares: auto` became; None elsewhere.
      roll: who counts in which windows; None where all rows count.
    """

    config: FitConfig
    source: Source
    contract: TableContract
    initial: ProtocolState
    plan: PrivacyPlan
    rounds: tuple[Round, ...]
    previous: "PreviousRun | None" = None
    server: ServerFiles | None = None
    chosen: dict[str, Any] | None = None
    roll: "EpochRoll | None" = None

    @property
    def rows(self) -> JobRows:
        """The rows of the job, for staging."""
        config = self.config
        return JobRows(
            data=config.data,
            source=self.source,
            contract=self.contract,
            prepare=config.prepare,
            keep_staging=config.keep_staging,
            roll=self.roll,
        )

    @property
    def promise(self) -> Promise:
        """What the graph of the job must keep."""
        privacy, shares, plan = self.config.privacy, self.config.masked.shares, self.plan
        planned = PromisedPlan(
            rounds=plan.rounds,
            unit=plan.unit,
            replaces=samples_rows(self.config),
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            shares=shares,
            shares_cost=0.0 if shares is None else self._shares_cost(),
        )
        return Promise(zone=Zone.PUBLIC, plans=(planned,))

    def _shares_cost(self) -> float:
        from dapple_dp.transforms.numerics.masked.noise_shares import closeness_epsilon

        return closeness_epsilon(self.plan.rounds)

    def promise_of(self, first: int, last: int) -> Promise:
        """What the graph of rounds `first` to `last` must keep."""
        chunk = None if (first, last) == (1, len(self.plan.rounds)) else self.plan.rounds[first - 1 : last]
        return dataclasses.replace(self.promise, chunk=chunk)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee that every output repeats."""
        return statement_of(self.config, self.plan, self.chosen)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the coordinates of a center: of columns or encoded columns, or the list column's with an index."""
        return feature_names(self.config.data.features, self.contract.encoder, len(self.initial.frame.lattice.center))

    def in_units(self, model: ClusterModel) -> NDArray[np.float64] | None:
        """Centers in the units of their columns, shape (k, d); None where a feature is no column."""
        return None if self.contract.encoder is None else self.contract.encoder.in_units(model.centers)

    @property
    def labels(self) -> tuple[str, ...]:
        """The same coordinates as pages for people call them."""
        encoder, named = self.contract.encoder, self.config.data.feature_names
        if named is not None:
            return named
        return self.feature_names if encoder is None else encoder.labels


def feature_names(features: str | tuple[str, ...], encoder: Encoder | None, n_features: int) -> tuple[str, ...]:
    """Names of the coordinates of a center, `n_features` of them, for the features of a job."""
    if isinstance(features, str):
        return tuple(f"{features}[{index}]" for index in range(n_features))
    return features if encoder is None else encoder.names


class FitResult(NamedTuple):
    """What a run releases.

    Attributes:
      model: centers, noisy sizes and releases.
      privacy: the guarantee.
      fingerprint: HMAC of the input's files under the run key.
      drift: from the run that this one follows; None if it follows none.
      in_units: shape (k, d): the centers in the units of their columns; None where rows were not encoded, or a column
        became several features.
      remembered: of the runs before it; None without a memory.
    """

    model: ClusterModel
    privacy: PrivacyStatement
    fingerprint: str
    drift: "Drift | None" = None
    in_units: NDArray[np.float64] | None = None
    remembered: "Remembered | None" = None


def plan_fit(config: FitConfig, listed: Source | None = None) -> PlannedFit:
    """Lists the private files, reads the public server data, learns encodings and calibrates the plan.

    Args:
      config: the job.
      listed: its files, if it is a part of a job that has listed them.

    Raises:
      ConfigError: if the settings do not fit the server data or an earlier run, or no noise meets the budget.
      InputError: if the server data or the table's snapshot cannot be used.
    """
    config = with_features(config, listed)
    source = private_source(config, listed)
    files = server_files(config, source)
    return _planned(config, source, files, lambda encoder: feature_count(config.data, source, encoder))


def plan_rows(config: FitConfig, width: int, server: "PublicRows | None") -> PlannedFit:
    """Calibrates the plan of a job on rows in memory, as `plan_fit` does of files; nothing is read.

    Args:
      config: the job; follows no other, and its path names no files.
      width: number of columns, or of the numbers in the one column of lists.
      server: its public rows; None without.
    """
    config = with_features(config)
    source = without_files(config.data)
    return _planned(config, source, server, lambda encoder: width if encoder is None else encoder.n_features)


def _planned(
    config: FitConfig,
    source: Source,
    server: "ServerFiles | PublicRows | None",
    n_features_of: Callable[[Encoder | None], int],
) -> PlannedFit:
    """A job whose rows, private and public, are there."""
    encoder = learned_encoder(config, server)
    previous = previous_run(config)
    points = public_points(config, encoder, server, lambda: n_features_of(encoder), previous=previous)
    n_features = points.shape[1]
    check_previous(config, previous, encoder, n_features)
    public = public_fit(config, points, previous)
    by_client = config.privacy.unit is PrivacyUnit.CLIENT
    return PlannedFit(
        config=config,
        source=source,
        contract=TableContract.from_config(
            config.data, n_features=n_features, by_client=by_client, encoder=encoder, terms=config.terms
        ),
        initial=public.initial,
        plan=public.plan,
        rounds=public.rounds,
        previous=previous,
        server=server if isinstance(server, ServerFiles) else None,
        chosen=public.chosen,
        roll=_roll_of(config),
    )


def public_fit(config: FitConfig, server: NDArray[np.float64], previous: "PreviousRun | None") -> PublicFit:
    """The rounds of a job, from the centers of an earlier run where it starts warm; errors as of `PublicFit.of`."""
    if previous is None or not config.starts_warm:
        return PublicFit.of(config, server)
    found = PublicFit.of(config, server, warm_protocol(config, previous.model.centers, previous.memory))
    previous.check_frame(found.initial.frame)
    return found


def server_files(
    config: "FitConfig | PooledFitConfig | EncodeConfig", source: Source | None = None
) -> ServerFiles | None:
    """The server files of a job as they are now; when the private files are listed, they must be the same still.

    A path that leads to private rows now and to public ones when both are compared is refused then.
    """
    if config.server_data is None:
        return None
    form = CsvForm.of(config.server_data.csv, lenient=config.data.csv_form.lenient)
    files = ServerFiles.at(config.server_data.path, form.text)
    if source is not None and source.listed is not None:
        source.listed.check(lambda _: files.check())
    return files


def previous_run(config: FitConfig) -> "PreviousRun | None":
    """The earlier run that a job names; see `check_previous`."""
    if config.recurring is None:
        return None
    from dapple_dp.pipelines.kmeans.plan.previous_run import load_previous

    return load_previous(config.recurring.previous)


def _roll_of(config: FitConfig) -> "EpochRoll | None":
    if config.algorithm is not Algorithm.WINDOWS:
        return None
    from dapple_dp.pipelines.kmeans.plan.windows import roll_of

    return roll_of(config)


def check_previous(config: FitConfig, previous: "PreviousRun | None", encoder: Encoder | None, n_features: int) -> None:
    """Refuses an earlier run whose centers do not mean the same."""
    if previous is not None:
        previous.check(config, feature_names(config.data.features, encoder, n_features), encoder)


def message_contract(planned: PlannedFit) -> TableContract:
    """How shards are read where clients send messages: by client if rows say whose they are, else a shard sends one."""
    return dataclasses.replace(planned.contract, by_client=planned.contract.client_id is not None)


def learned_encoder(
    config: "FitConfig | PooledFitConfig | EncodeConfig", server: "ServerFiles | PublicRows | None"
) -> Encoder | None:
    """Encoder of the `encode` section, learned from the server data where it asks for that, or of columns' bounds."""
    features, encodings = config.data.features, config.encodings
    missing = config.data.missing
    if not (encodings or missing) or isinstance(features, str):
        return None
    if server is None or not any(encoding.needs_server for encoding in encodings.values()):
        return Encoder.learn(features, encodings, missing=missing)
    types = {name: read_as(encodings.get(name)) for name in features}
    return Encoder.learn(features, encodings, server.rows(types), server.path, missing)


def feature_count(data: DataConfig, source: Source, encoder: Encoder | None) -> int:
    """Number of coordinates of a row, where no server data say it: as the job says, or as the first file has it."""
    if not isinstance(data.features, str):
        return len(data.features) if encoder is None else encoder.n_features
    if data.width is not None:
        return data.width
    path, schema = first_schema(source)
    return TableContract.from_config(data).list_width(schema, path)


def public_points(
    config: FitConfig,
    encoder: Encoder | None,
    server: "ServerFiles | PublicRows | None",
    n_features: Callable[[], int],
    *,
    previous: "PreviousRun | None" = None,
) -> NDArray[np.float64]:
    """Public points (q, d): the server data, or points in the clipping ball where there are none.

    Of a protocol that starts from centers they are these: its files may be none, and say nothing, not even the width.

    Args:
      config: the job.
      encoder: of its columns.
      server: its server data, if it has some.
      n_features: gives d; asked where there are no server data.
      previous: the earlier run that the job follows, if any.
    """
    if previous is not None and protocol_of(config.algorithm).from_centers:
        return previous.model.centers
    if server is not None:
        return server.points(TableContract.from_config(config.data, encoder=encoder).features_only())
    n_points = max(_STAND_IN_POINTS, 30 * config.max_clusters)
    norm = config.clipping.norm
    radius = norm if isinstance(norm, float) else 1.0
    return seeding.points_in_ball(n_points, n_features(), radius, config.seed or 0)
