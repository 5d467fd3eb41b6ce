"""A planned `fit` job: public data read, noise calibrated, nothing private read."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.pipelines.kmeans.plan.public_facts import PublicFacts, feature_count, feature_names, server_files
from dapple_dp.pipelines.kmeans.plan.public_fit import statement_of
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import JobRows, private_source, without_files
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, Promise, PromisedPlan, Zone
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.kmeans.model import ClusterModel
from dapple_dp.schemas.privacy.statement import PrivacyStatement
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.core.round import Round
from dapple_dp.transforms.kmeans.lloyd.specs import samples_rows
from dapple_dp.transforms.rounds.protocol import ProtocolState
from dapple_dp.transforms.tables.on_launcher import ServerDigests
from dapple_dp.transforms.tables.source import Source

if TYPE_CHECKING:
    from dapple_dp.pipelines.kmeans.plan.previous_run import PreviousRun
    from dapple_dp.pipelines.tables.epoch_clients import EpochClientList
    from dapple_dp.schemas.kmeans.recurring.drift import Drift
    from dapple_dp.schemas.kmeans.recurring.remembered import Remembered
    from dapple_dp.transforms.rounds.memory_rows import PublicRows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedFit:
    """A `fit` job that is ready to run; only public data has been read.

    Attributes:
      config: the job.
      source: listed files of the rows; for a table, the files of one snapshot.
      contract: how to read shards.
      initial: state before the first round.
      plan: planned privacy spending.
      rounds: statistics, plans and server steps.
      previous: earlier run that this one follows; None if it follows none.
      server: digests of the server files; None without any.
      chosen: resolved value of `privacy.shares: auto`; None if the setting isn't auto.
      client_list: client list of the windows' participation; None if all rows count.
    """

    config: FitConfig
    source: Source
    contract: TableContract
    initial: ProtocolState
    plan: PrivacyPlan
    rounds: tuple[Round, ...]
    previous: "PreviousRun | None" = None
    server: ServerDigests | None = None
    chosen: dict[str, Any] | None = None
    client_list: "EpochClientList | None" = None

    @property
    def rows(self) -> JobRows:
        """Rows of the job, for staging."""
        config = self.config
        return JobRows(
            data=config.data,
            source=self.source,
            contract=self.contract,
            client_list=self.client_list,
        )

    @property
    def promise(self) -> Promise:
        """Promise that the graph of the job must keep."""
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
        """Promise that the graph of rounds `first` to `last` must keep."""
        chunk = None if (first, last) == (1, len(self.plan.rounds)) else self.plan.rounds[first - 1 : last]
        return dataclasses.replace(self.promise, chunk=chunk)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee that every output states."""
        return statement_of(self.config, self.plan, self.chosen)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of a center's coordinates: columns, encoded columns, or indices into the list column."""
        return feature_names(self.config.data.features, self.contract.encoder, len(self.initial.frame.lattice.center))

    def in_units(self, model: ClusterModel) -> NDArray[np.float64] | None:
        """Centers in the units of their columns, shape (k, d); None if rows aren't encoded."""
        return None if self.contract.encoder is None else self.contract.encoder.in_units(model.centers)

    @property
    def labels(self) -> tuple[str, ...]:
        """Readable names of a center's coordinates, for pages."""
        encoder, named = self.contract.encoder, self.config.data.feature_names
        if named is not None:
            return named
        return self.feature_names if encoder is None else encoder.labels


class FitResult(NamedTuple):
    """Release of a run.

    Attributes:
      model: centers, noisy sizes and releases.
      privacy: the guarantee.
      fingerprint: HMAC of the input's files under the run key.
      drift: drift from the previous run; None without one.
      in_units: centers in the units of their columns, shape (k, d); None if rows were not encoded, or a column became
        several features.
      remembered: summary of earlier runs; None without a memory.
    """

    model: ClusterModel
    privacy: PrivacyStatement
    fingerprint: str
    drift: "Drift | None" = None
    in_units: NDArray[np.float64] | None = None
    remembered: "Remembered | None" = None


def plan_files(config: FitConfig, listed: Source | None = None) -> PlannedFit:
    """Lists the private files of a job, reads its public ones, and plans the job.

    Args:
      config: the job.
      listed: files of the job, if a larger job has listed them.

    Raises:
      ConfigError: if the settings don't fit the server data or an earlier run, or no noise meets the budget.
      InputError: if the server data or the table's snapshot can't be used.
    """
    config = with_features(config, listed)
    source = private_source(config, listed)
    server = server_files(config.server_data, config.data, source)
    public = PublicFacts.of(config, server, lambda encoder: feature_count(config.data, source, encoder))
    return plan_fit(config, source, public)


def plan_rows(config: FitConfig, width: int, server: "PublicRows | None") -> PlannedFit:
    """Plans a job on rows in memory; reads nothing.

    Args:
      config: the job; it follows no earlier run, and its path names no files.
      width: number of columns, or length of the lists in the single list column.
      server: public rows; None without any.
    """
    config = with_features(config)
    public = PublicFacts.of(config, server, lambda encoder: width if encoder is None else encoder.n_features)
    return plan_fit(config, without_files(config.data), public)


def plan_fit(config: FitConfig, source: Source, public: PublicFacts) -> PlannedFit:
    """Calibrates the plan of a job; reads nothing.

    Args:
      config: the job, with columns by name.
      source: private files of the job.
      public: facts from its public files.

    Raises:
      ConfigError: if the settings don't fit the public facts, or no noise meets the budget.
    """
    fit = public.fit(config)
    by_client = config.privacy.unit is PrivacyUnit.CLIENT
    return PlannedFit(
        config=config,
        source=source,
        contract=TableContract.from_config(
            config.data, n_features=public.n_features, by_client=by_client, encoder=public.encoder, terms=config.terms
        ),
        initial=fit.initial,
        plan=fit.plan,
        rounds=fit.rounds,
        previous=public.previous,
        server=public.server,
        chosen=fit.chosen,
        client_list=_client_list_of(config),
    )


def _client_list_of(config: FitConfig) -> "EpochClientList | None":
    """The windows' client list, for windows at client level; None if all rows count."""
    if str(config.algorithm) != "windows" or config.privacy.unit is PrivacyUnit.RECORD:
        return None
    from dapple_dp.pipelines.tables.epoch_clients import EpochClientList
    from dapple_dp.schemas.kmeans.windows_config import WindowsFit
    from dapple_dp.transforms.numerics.tables.participation import Rule

    assert isinstance(config, WindowsFit)
    epoch, (column, dates) = config.epoch, config.folders
    return EpochClientList(
        facts=epoch.model_dump(exclude={"window"}, exclude_none=True) | {"dataset": str(config.data.name)},
        column=column,
        dates=dates,
        index=epoch.index,
        rule=Rule(epoch.times, epoch.separation, len(config.weights), epoch.binds),
        client_id=str(config.data.client_id),
        ledger=str(config.ledger),
        state=config.state,
    )


def message_contract(planned: PlannedFit) -> TableContract:
    """The contract for masked messages: one per client if rows have client ids, else one per shard."""
    return dataclasses.replace(planned.contract, by_client=planned.contract.client_id is not None)
