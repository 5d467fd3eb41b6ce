"""What the clients' jobs of masked aggregation share: the plan, the releases so far, and the state they add up to."""

import dataclasses
import hashlib
import json
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from pipelines.kmeans.prepared.prepared_fit import PreparedFit, prepare
from pipelines.kmeans.prepared.replay import replay
from pipelines.run.jobs.job import Run
from pipelines.tables.private_source import check_public
from schemas.choices import MaskScheme, Trust
from schemas.errors import ConfigError, ProtocolError
from schemas.kmeans.fit_config import FitConfig
from schemas.masked.exchange import ExchangePlan
from schemas.masked.pairwise_messages import PairwiseParams
from schemas.privacy.flow import Promise
from schemas.privacy.release import Release, releases_from_table, releases_to_table
from transforms.files.octets import read_bytes, table_bytes, table_from_bytes
from transforms.masked.clients import SECRET_SETTING, Masking, broadcast_digest
from transforms.masked.exchange_files import Exchange, write_once
from transforms.masked.pairwise_lists import read_lists
from transforms.privacy.keys import create_key

_LOCAL = (
    "data.path",
    "data.table",
    "data.partitions",
    "server_data.path",
    "recurring.previous",
    "masked.secret_uri",
    "key_uri",
    "prepare",
    "keep_staging",
)
"""Settings in which clients of one run may differ."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenRound:
    """A round as one client sees it.

    Attributes:
      index: of the round.
      state: what is broadcast in it.
      masking: of the client; of nobody for whoever unmasks.
      exchange: the folder.
    """

    index: int
    state: Any
    masking: Masking
    exchange: str

    def broadcast(self, root: beam.Pipeline) -> beam.PCollection:
        """The state, one element of a graph."""
        return root | "Public" >> beam.Create([self.state], reshuffle=False)

    def listed(self, root: beam.Pipeline) -> beam.PCollection:
        """With pairwise masks: the aggregator's lists, one element of a graph; workers read them."""
        client = root | "Client" >> beam.Create([self.masking.client], reshuffle=False)
        return client | "Listed" >> beam.Map(read_lists, self.exchange, self.index)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientsRole:
    """One client's view of a run.

    Attributes:
      prepared: the job; its rows are this client's.
      exchange: where messages go and sums come from.
      released: folder of the releases so far, out of the aggregator's reach.
    """

    prepared: PreparedFit
    exchange: Exchange
    released: str

    @classmethod
    def from_config(cls, config: FitConfig, exchange: str, released: str) -> "ClientsRole":
        """Prepares the job.

        Raises:
          ConfigError: if it is not one of masked aggregation under a secret that lasts.
        """
        if config.trust is not Trust.MASKED:
            raise ConfigError(f"trust must be masked for this job, got {config.trust}; run the job fit.")
        secret = config.masked.secret_uri
        if secret is None:
            raise ConfigError(
                "masked.secret_uri must be given for this job, got nothing; give the place of the secret that all "
                "clients share, or with scheme pairwise of this client's own."
            )
        if config.ledger is not None:
            raise ConfigError(
                f"ledger must be left out for this job, got {config.ledger}; aggregate has the noise and charges."
            )
        if secret.startswith(exchange.rstrip("/") + "/"):
            raise ConfigError(
                f"masked.secret_uri must be outside of --exchange, which all roles can read, got {secret}; move it."
            )
        return cls(prepared=prepare(config), exchange=Exchange(exchange), released=released.rstrip("/"))

    @property
    def settings_digest(self) -> str:
        """SHA-256 of the settings that all clients share."""
        shared = self.prepared.config.model_dump(mode="json")
        for name in _LOCAL:
            section, _, key = name.rpartition(".")
            part = shared.get(section) if section else shared
            if isinstance(part, dict):
                part.pop(key, None)
        return hashlib.sha256(json.dumps(shared, sort_keys=True, allow_nan=False).encode()).hexdigest()

    def plan(self) -> ExchangePlan:
        """The plan of the run.

        Raises:
          ProtocolError: if there is none, or it is that of another job.
        """
        plan = self.exchange.plan()
        if plan.settings != self.settings_digest or [r.path for r in plan.rounds] != [
            each.plan.path for each in self.prepared.rounds
        ]:
            raise ProtocolError(
                "the job must have the settings of the run's plan.json, got others; use one job file, "
                "in which clients differ only in places."
            )
        return plan

    @property
    def pairwise(self) -> PairwiseParams | None:
        """What decides on neighbors; None for masks from a shared secret."""
        masked = self.prepared.config.masked
        return PairwiseParams(masked.corrupt, masked.dropout) if masked.scheme is MaskScheme.PAIRWISE else None

    def masking(self, plan: ExchangePlan, client: str = "") -> Masking:
        """How this client masks and unmasks."""
        masked = self.prepared.config.masked
        return Masking(
            secret_uri=str(masked.secret_uri),
            run=plan.run,
            client=client,
            threshold=masked.threshold,
            noise_by=masked.noise_by,
            pairwise=self.pairwise,
        )

    def open_round(self, index: int, state: Any, client: str = "") -> OpenRound:
        """A round whose broadcast is known."""
        masking = self.masking(self.plan(), client)
        return OpenRound(index=index, state=state, masking=masking, exchange=self.exchange.folder)

    @property
    def step_promise(self) -> Promise:
        """What a graph of the clients keeps: the plan of the run, of which it holds no noise stage."""
        return dataclasses.replace(self.prepared.promise, stages=())

    def make_secret(self) -> None:
        """With pairwise masks a client's secret is its own: it is made where there is none."""
        uri = str(self.prepared.config.masked.secret_uri)
        if self.pairwise is not None and not FileSystems.exists(uri):
            create_key(uri, SECRET_SETTING)

    def n_released(self) -> int:
        """Number of rounds whose releases are known."""
        known = (FileSystems.exists(self._path(index)) for index in range(len(self.prepared.rounds)))
        return next((index for index, there in enumerate(known) if not there), len(self.prepared.rounds))

    def state(self) -> Any:
        """The state after the rounds so far: computed again from their releases, of which it is a pure function."""
        paths = [self._path(index) for index in range(self.n_released())]
        tables = [table_from_bytes(read_bytes(path)) for path in paths]
        releases = [release for table in tables for release in releases_from_table(table)]
        return replay(self.prepared.initial, self.prepared.rounds[: len(paths)], releases).state

    def keep(self, index: int, releases: tuple[Release, ...]) -> None:
        """Writes the releases of a round."""
        write_once(self._path(index), table_bytes(releases_to_table(list(releases))))

    def commit(self, index: int, digest: str, what: str = "sum") -> None:
        """Decides for one sum (or list) of a round before it is used; raises ProtocolError if another one was."""
        write_once(FileSystems.join(self.released, f"{index:02d}.{what}"), digest.encode())

    def shares_folder(self, index: int) -> str:
        """Where clients with pairwise masks hand out their shares: like releases, out of the aggregator's reach."""
        return FileSystems.join(self.released, f"{index:02d}_shares")

    def check_step(self, index: int, state: Any) -> None:
        """Stops a client whose releases are not those of the round.

        Raises:
          ProtocolError: if they are others, or fewer.
        """
        if index != self.n_released() or self.exchange.broadcast(index) != broadcast_digest(state):
            raise ProtocolError(
                f"--released must hold the releases of the {index} rounds before this one, got others; run "
                "`dapple unmask` first."
            )

    def _path(self, index: int) -> str:
        return FileSystems.join(self.released, f"{index:02d}.parquet")


def planned_role(run: Run[FitConfig]) -> ClientsRole:
    """The role of a job of the clients, prepared."""
    role = ClientsRole.from_config(run.settings, run.options.exchange, run.options.released)
    check_public(role.prepared.source)
    return role
