"""Plan of a `clustered_fl` job: the clients, the public parameters, and the privacy cost of each client."""

import dataclasses
import functools
import hashlib
import hmac
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.round_driver import plan_digest
from dapple_dp.pipelines.tables.private_source import private_source, staged_listing
from dapple_dp.schemas.choices import ModelKind
from dapple_dp.schemas.clustered_fl.config import ChunksConfig, ClusteredFLConfig, SearchedClusters
from dapple_dp.schemas.clustered_fl.labeled_contract import LabeledContract
from dapple_dp.schemas.clustered_fl.plan import SiloBudget, SiloPlan, SiloStatement
from dapple_dp.schemas.clustered_fl.records import (
    GIVEN_SEPARATION,
    SEARCHED_SEPARATION,
    ClusteringParams,
    Federation,
    ModelShape,
    Silo,
    TrainingParams,
)
from dapple_dp.schemas.core.plan import TRUSTED_ZONE
from dapple_dp.schemas.errors import ConfigError, InputError
from dapple_dp.schemas.settings.digest import config_digest
from dapple_dp.schemas.tables.contract import TableContract
from dapple_dp.transforms.clustered_fl.labeled_clients import Clients, InspectClients, parts_path, read_parts
from dapple_dp.transforms.clustered_fl.scarce_rows import Beginning, begin
from dapple_dp.transforms.clustered_fl.silo_accounting import selection_rounds, silo_events, silo_plan
from dapple_dp.transforms.files.checkpoint import RunBinding
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.privacy.key_files import key_digest, read_key
from dapple_dp.transforms.tables.read import CheckRows, ListShards
from dapple_dp.transforms.tables.source import Source


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedFederation:
    """A job that is ready to run.

    Attributes:
      config: the job.
      contract: how to read rows.
      clients: clients and the places of their rows.
      federation: public parameters of the training.
      beginning: how R-DPCFL starts, and why.
      budget: budget of each client.
      epsilon: the largest epsilon that any client spends.
    """

    config: ClusteredFLConfig
    contract: LabeledContract
    clients: Clients
    federation: Federation
    beginning: Beginning
    budget: SiloBudget
    epsilon: float

    @property
    def statement(self) -> SiloStatement:
        """The guarantee that every output states."""
        return SiloStatement(
            adjacency=self.config.privacy.adjacency,
            epsilon=self.epsilon,
            delta=self.config.privacy.delta,
            accountant=str(self.config.privacy.accountant_used),
            events=tuple(self.events(self.federation.training.rounds)),
            first_round=self.beginning.to_json(),
        )

    def events(self, n_rounds: int) -> list[dict[str, Any]]:
        """Lists every kind of privacy event in the first `n_rounds` rounds, per client, with its largest count."""
        if not n_rounds:
            return []
        training = dataclasses.replace(self.federation.training, rounds=n_rounds)
        most = min(self.federation.clustering.selection_rounds, n_rounds)
        clustering = dataclasses.replace(self.federation.clustering, selection_rounds=most)
        return [
            {"client_id": silo.client_id, "public_rows": silo.n_rows} | event.to_json()
            for silo in self.federation.silos
            for event in silo_events(silo.n_rows, training, clustering, self.budget, silo.noise_multiplier)
        ]

    def binding(self, key_uri: str) -> RunBinding:
        """The digests that a resumed run must share with this one."""
        # A run may be resumed with another size of chunks.
        digest = config_digest(self.config.model_copy(update={"chunks": ChunksConfig()}))
        content = f"{digest} {self.clients.digest}".encode()
        return RunBinding(
            config_digest=digest,
            input_fingerprint=hmac.new(read_key(key_uri), content, hashlib.sha256).hexdigest(),
            key_digest=key_digest(key_uri),
            plan_digest=plan_digest(self.events(self.federation.training.rounds)),
        )


def labeled_contract(config: ClusteredFLConfig) -> LabeledContract:
    """Returns the contract by which a job's rows are read."""
    data = config.data
    table = TableContract.from_config(data, by_client=True)
    return LabeledContract(
        table=table,
        label=data.label,
        n_classes=data.classes,
        group=data.group,
        feature_norm=config.training.feature_norm,
    )


def plan_federation(config: ClusteredFLConfig, options: PipelineOptions, folder: str) -> PlannedFederation:
    """Validates all rows in one pass, lists the clients, and calibrates the noise of each client.

    Args:
      config: the job.
      options: Beam options.
      folder: private folder of the run.

    Raises:
      DappleError: if the rows or settings are invalid.
    """
    contract = labeled_contract(config)
    clients = _inspected(config, contract, options, folder)
    _check_sizes(config, clients)
    shape, seed = _shape(config, clients.n_features), hashlib.sha256(f"clustered_fl {config.seed}".encode()).digest()
    budget = SiloBudget(**dict(config.privacy) | {"accountant": config.privacy.accountant_used})
    training = TrainingParams(**config.training.model_dump(exclude={"model", "feature_norm", "hidden_units"}))
    beginning = begin(training, _clustering(config, clients), budget, clients.n_rows, shape.n_parameters, seed)
    training, clustering = beginning.training, beginning.clustering
    by_size = {n_rows: silo_plan(n_rows, training, clustering, budget) for n_rows in sorted(set(clients.n_rows))}
    plans = tuple(by_size[n_rows] for n_rows in clients.n_rows)
    federation = Federation(
        shape=shape,
        training=training,
        clustering=clustering,
        silos=_silos(clients, plans),
        public_seed=seed,
    )
    table = dataclasses.replace(contract.table, n_features=clients.n_features)
    return PlannedFederation(
        config=config,
        contract=dataclasses.replace(contract, table=table),
        clients=clients,
        federation=federation,
        beginning=beginning,
        budget=budget,
        epsilon=max(plan.epsilon for plan in plans),
    )


def _inspected(config: ClusteredFLConfig, contract: LabeledContract, options: PipelineOptions, folder: str) -> Clients:
    """Finds the clients in a pass over all rows; their row counts are the declared ones, if there are any."""
    path = parts_path(folder)
    with staged_listing(private_source(config), folder) as source:
        run_graph(functools.partial(_build, source=source, contract=contract, path=path), options, TRUSTED_ZONE)
    parts = read_parts(path)
    STORE.delete(path)
    if not parts:
        raise InputError("The data have no valid row; check the data and data.on_invalid_rows.")
    return _declared(config, Clients.of(parts, contract))


def _build(root: beam.Pipeline, source: Source, contract: LabeledContract, path: str) -> None:
    shards = root | "List" >> ListShards(source=source, contract=contract.table, others=contract.columns)
    _ = shards | "CheckRows" >> CheckRows()
    _ = shards | "InspectClients" >> InspectClients(contract=contract, path=path)


def _declared(config: ClusteredFLConfig, clients: Clients) -> Clients:
    """Replaces the clients' row counts with the numbers that the job declares public."""
    declared = config.data.public_rows
    if declared is None:
        return clients
    if isinstance(declared, int):
        return dataclasses.replace(clients, n_rows=(declared,) * len(clients.names))
    for name in clients.names:
        if name not in declared:
            raise InputError(f"data.public_rows must name every client, got none for {name}; add its number of rows.")
    return clients.with_declared(declared)


def _check_sizes(config: ClusteredFLConfig, clients: Clients) -> None:
    batch = config.training.batch_size
    for name, n_rows in zip(clients.names, clients.n_rows, strict=True):
        if n_rows < batch:
            raise InputError(
                f"client {name} must have at least training.batch_size = {batch} rows, got {n_rows}; lower the batch "
                "size or leave the client out."
            )


def _shape(config: ClusteredFLConfig, n_features: int) -> ModelShape:
    n_hidden = config.training.hidden_units if config.training.model is ModelKind.MLP else 0
    return ModelShape(
        kind=config.training.model,
        n_features=n_features,
        n_classes=config.data.classes,
        n_hidden=n_hidden,
        feature_norm=config.training.feature_norm,
    )


def _clustering(config: ClusteredFLConfig, clients: Clients) -> ClusteringParams:
    """Clustering parameters of the job."""
    options, n_clusters = config.clustering, config.max_clusters
    search = isinstance(config.n_clusters, SearchedClusters)
    if n_clusters > len(clients.names):
        raise ConfigError(
            f"n_clusters must be at most the number of clients, {len(clients.names)}, got {n_clusters}; ask for fewer "
            "clusters."
        )
    believed = SEARCHED_SEPARATION if search else GIVEN_SEPARATION
    return ClusteringParams(
        n_clusters=n_clusters,
        search=search,
        selection_rounds=selection_rounds(config.training.rounds, options.selection_share),
        min_separation=believed if options.min_separation is None else options.min_separation,
        when_scarce=options.when_scarce,
        switch_round=options.switch_round,
        select_by=options.select_by,
    )


def _silos(clients: Clients, plans: tuple[SiloPlan, ...]) -> tuple[Silo, ...]:
    return tuple(
        Silo(
            client_id=name,
            n_rows=n_rows,
            noise_multiplier=plan.noise_multiplier,
            first_round_multiplier=plan.first_round_multiplier,
            select_epsilon=plan.select_epsilon,
            choice_stddev=plan.choice_multiplier,
        )
        for name, n_rows, plan in zip(clients.names, clients.n_rows, plans, strict=True)
    )
