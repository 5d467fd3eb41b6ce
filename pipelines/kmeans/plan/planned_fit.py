"""A `fit` job made ready: public data read, noise calibrated, nothing private touched."""

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.kmeans.plan.previous_run import PreviousRun, load_previous
from pipelines.tables.client_staging import JobRows
from pipelines.tables.private_source import private_source
from schemas.choices import Trust
from schemas.kmeans.fit_config import FitConfig
from schemas.kmeans.model import ClusterModel
from schemas.kmeans.pooled_config import PooledFitConfig
from schemas.kmeans.recurring.drift import Drift
from schemas.kmeans.recurring.remembered import Remembered
from schemas.privacy.flow import Promise, PromisedPlan, Zone
from schemas.privacy.plan import PrivacyPlan, PrivacyUnit
from schemas.privacy.statement import PrivacyStatement
from schemas.reports.config import EncodeConfig
from schemas.tables.contract import TableContract
from schemas.tables.data_section import DataConfig
from schemas.tables.encoder import Encoder
from transforms.kmeans.protocols import PROTOCOLS, warm_protocol
from transforms.numerics.kmeans.starts import seeding
from transforms.numerics.masked.shared_masks import message_bytes
from transforms.privacy import accounting
from transforms.rounds.protocol import ProtocolState, Round, RoundsProtocol
from transforms.tables.read import first_schema, read_server_points, read_server_rows
from transforms.tables.source import Source

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
    """

    config: FitConfig
    source: Source
    contract: TableContract
    initial: ProtocolState
    plan: PrivacyPlan
    rounds: tuple[Round, ...]
    previous: PreviousRun | None = None

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
        )

    @property
    def promise(self) -> Promise:
        """What the graph of the job must keep."""
        privacy, plan = self.config.privacy, self.plan
        replaces = privacy.unit is PrivacyUnit.RECORD and self.config.data.max_rows_per_client is not None
        planned = PromisedPlan(
            rounds=plan.rounds, unit=plan.unit, replaces=replaces, epsilon=privacy.epsilon, delta=privacy.delta
        )
        return Promise(zone=Zone.PUBLIC, plans=(planned,))

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee that every output repeats."""
        masked = None
        if self.config.trust is Trust.MASKED:
            masked = {
                "scheme": str(self.config.masked.scheme),
                "noise_by": str(self.config.masked.noise_by),
                "message_bytes": {each.path: message_bytes(each.size) for each in self.plan.rounds},
                "roles": "simulated in one job",
            }
        epoch = None if self.config.epoch is None else self.config.epoch.to_json()
        return PrivacyStatement.from_plan(
            self.plan, accounting.describe(self.plan), trust=self.config.trust, masked=masked, epoch=epoch
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the coordinates of a center: of columns or encoded columns, or the list column's with an index."""
        return feature_names(self.config.data.features, self.contract.encoder, len(self.initial.frame.lattice.center))

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
      remembered: of the runs before it; None without a memory.
    """

    model: ClusterModel
    privacy: PrivacyStatement
    fingerprint: str
    drift: Drift | None = None
    remembered: Remembered | None = None


def plan_fit(config: FitConfig, listed: Source | None = None) -> PlannedFit:
    """Lists the private files, reads the public server data, learns encodings and calibrates the plan.

    Args:
      config: the job.
      listed: its files, if it is a part of a job that has listed them.

    Raises:
      ConfigError: if the settings do not fit the server data or an earlier run, or no noise meets the budget.
      InputError: if the server data or the table's snapshot cannot be used.
    """
    source, privacy = private_source(config, listed), config.privacy
    encoder = learned_encoder(config)
    previous = None if config.recurring is None else load_previous(config.recurring.previous)
    server = _server_points(config, source, encoder, previous)
    n_features = server.shape[1]
    if previous is not None:
        previous.check(config, feature_names(config.data.features, encoder, n_features), encoder)
    warm = previous if config.starts_warm else None
    protocol = PROTOCOLS[config.algorithm] if warm is None else _warm_protocol(config, warm)
    initial = protocol.initial_state(config, server, n_features)
    if warm is not None:
        warm.check_frame(initial.frame)
    specs = protocol.round_specs(config, n_features, len(server))
    plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    by_client = privacy.unit is PrivacyUnit.CLIENT
    return PlannedFit(
        config=config,
        source=source,
        contract=TableContract.from_config(config.data, n_features=n_features, by_client=by_client, encoder=encoder),
        initial=initial,
        plan=plan,
        rounds=protocol.rounds(config, plan),
        previous=previous,
    )


def _warm_protocol(config: FitConfig, warm: PreviousRun) -> RoundsProtocol:
    """The rounds that start from an earlier run; in an epoch that is the window before, or the run before the first."""
    epoch = config.epoch
    if epoch is None:
        return warm_protocol(config, warm.model.centers)
    warm.check_window(epoch)
    return warm_protocol(config, warm.model.centers, warm.memory if epoch.index else None)


def message_contract(planned: PlannedFit) -> TableContract:
    """How shards are read where clients send messages: by client if rows say whose they are, else a shard sends one."""
    return dataclasses.replace(planned.contract, by_client=planned.contract.client_id is not None)


def learned_encoder(config: FitConfig | PooledFitConfig | EncodeConfig) -> Encoder | None:
    """Encoder of the `encode` section, learned from the server data where it asks for that; None without section."""
    features, server = config.data.features, config.server_data
    if not config.encode or isinstance(features, str):
        return None
    if server is None or not any(encoding.needs_server for encoding in config.encode.values()):
        return Encoder.learn(features, config.encode)
    return Encoder.learn(features, config.encode, read_server_rows(server.path, features), server.path)


def feature_count(data: DataConfig, source: Source, encoder: Encoder | None) -> int:
    """Number of coordinates of a row, where no server data tell it: that of the first file for a list column."""
    if not isinstance(data.features, str):
        return len(data.features) if encoder is None else encoder.n_features
    path, schema = first_schema(source)
    return TableContract.from_config(data).list_width(schema, path)


def _server_points(
    config: FitConfig, source: Source, encoder: Encoder | None, previous: PreviousRun | None
) -> NDArray[np.float64]:
    """Public server points (q, d): read from the server data, or drawn in the clipping ball where there are none.

    A window of an epoch needs none, and its files may be none: their number tells nothing, not even the width.
    """
    if config.epoch is not None and previous is not None:
        return np.zeros((0, previous.model.centers.shape[1]))
    if config.server_data is not None:
        contract = TableContract.from_config(config.data, encoder=encoder).features_only()
        return read_server_points(config.server_data.path, contract)
    n_features = feature_count(config.data, source, encoder)
    n_points = max(_STAND_IN_POINTS, 30 * config.max_clusters)
    norm = config.clipping.norm
    radius = norm if isinstance(norm, float) else 1.0
    return seeding.points_in_ball(n_points, n_features, radius, config.seed or 0)
