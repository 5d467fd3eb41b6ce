"""What the clients' jobs of masked aggregation share: the plan, the releases so far, and the state they add up to."""

import dataclasses
import hashlib
import json
from typing import Any

from apache_beam.io.filesystems import FileSystems

from pipelines.prepared_fit import PreparedFit, prepare
from pipelines.replay import replay
from schemas.choices import MaskScheme, Trust
from schemas.config import FitConfig
from schemas.errors import ConfigError, ProtocolError
from schemas.exchange import ExchangePlan
from schemas.release import Release, releases_from_table, releases_to_table
from transforms.client_messages import Masking, broadcast_digest
from transforms.exchange_files import Exchange, write_once
from transforms.publish import read_bytes, table_bytes, table_from_bytes

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
        if config.trust is not Trust.MASKED or config.masked.scheme is not MaskScheme.SHARED_SECRET:
            raise ConfigError(
                f"trust must be masked and masked.scheme shared_secret for this job, got {config.trust} and "
                f"{config.masked.scheme}; run the job fit."
            )
        if config.masked.secret_uri is None:
            raise ConfigError(
                "masked.secret_uri must be given for this job, got nothing; all clients share one secret."
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

    def masking(self, plan: ExchangePlan, client: str = "") -> Masking:
        """How this client masks and unmasks."""
        masked = self.prepared.config.masked
        return Masking(
            secret_uri=str(masked.secret_uri),
            run=plan.run,
            client=client,
            threshold=masked.threshold,
            noise_by=masked.noise_by,
        )

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

    def commit(self, index: int, digest: str) -> None:
        """Decides for one sum of a round, before it is unmasked; raises ProtocolError if another one was unmasked."""
        write_once(FileSystems.join(self.released, f"{index:02d}.sum"), digest.encode())

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
