"""Common parts of the clients' masked aggregation jobs: the plan, the releases so far, and the resulting state."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.forewarnings import plural
from dapple_dp.pipelines.jobs.job import Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind, Summary, Writes
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit, plan_files
from dapple_dp.pipelines.kmeans.plan.replay import replay
from dapple_dp.pipelines.masked.clients_settings import (
    check_settings,
    differing,
    shared_bytes,
    shared_content,
    shared_digest,
)
from dapple_dp.pipelines.run.run_keys import RunNonce
from dapple_dp.pipelines.tables.client_staging import clear_copy, staged_by_client
from dapple_dp.pipelines.tables.features import with_features
from dapple_dp.pipelines.tables.private_source import check_public
from dapple_dp.schemas.core.plan import Promise, RoundPlan, Zone
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import JobDiffersError, ProtocolError
from dapple_dp.schemas.kmeans.fit_config import FitConfig, load_config
from dapple_dp.schemas.masked.config import OFFICES, SECRET_SETTING, PairwiseParams
from dapple_dp.schemas.masked.exchange import ExchangePlan
from dapple_dp.schemas.masked.pairwise_messages import Leg
from dapple_dp.schemas.privacy.charge import alike
from dapple_dp.schemas.privacy.release_table import releases_to_table
from dapple_dp.schemas.settings.json_schema import parse_as
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import files_in, table_bytes, write_once
from dapple_dp.transforms.files.stores import STORE, join
from dapple_dp.transforms.masked.clients import Masking, broadcast_digest, check_present
from dapple_dp.transforms.masked.exchange_files import Exchange, read_releases, table_refusal
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.pairwise_lists import read_lists
from dapple_dp.transforms.masked.party_state import PartyState, RunState
from dapple_dp.transforms.masked.sealing import Sealing
from dapple_dp.transforms.masked.signing import Parties, signing_parties
from dapple_dp.transforms.numerics.masked.public_keys import is_sound, private_key, public_key
from dapple_dp.transforms.privacy.key_files import read_key
from dapple_dp.transforms.tables import hive
from dapple_dp.transforms.tables.on_launcher import first_schema

_Planned = TypeVar("_Planned")
SETTINGS = "settings.json"
"""Settings that all clients share, stored with the releases; `plan.json` has their SHA-256."""
_MOST_SETTINGS_BYTES = 1 << 24
_LAST_BITS = 2.0**-48
"""Relative difference of noise between processors: it changes delta by at most .4 of it over z, and 1e-14 is set aside.
"""
SHARES = "shares"
"""Purpose of the unmasking party's key."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenRound:
    """An open round from the view of one client.

    Attributes:
      index: index of the round.
      plan: plan of the round.
      state: broadcast state of the round.
      masking: masking of the client; for the unmasking party it belongs to nobody.
      exchange: folder of the exchange.
      key_uri: place of the clients' key for this run, which draws further noise and selects rows.
      sealing: seals messages to the aggregator, or shares to the unmasking party; None for a party that sends nothing.
      parties: parties that sign the run's files; None for unsigned files.
      kept: stored state of this party for the run.
    """

    index: int
    plan: RoundPlan
    state: Any
    masking: Masking
    exchange: str
    key_uri: str
    kept: RunState
    sealing: Sealing | None = None
    parties: Parties | None = None

    def sealed_for(self) -> Sealing:
        """Returns the sealing of a client that sends; raises ValueError for a party that sends nothing."""
        if self.sealing is None:
            raise ValueError("a round must be opened for a client to send in it; name the client.")
        return self.sealing

    def broadcast(self, root: beam.Pipeline) -> beam.PCollection:
        """Adds the state to a graph as one element."""
        return root | "Public" >> beam.Create([self.state], reshuffle=False)

    def listed(self, root: beam.Pipeline) -> beam.PCollection:
        """Adds the aggregator's lists for pairwise masks to a graph, as one element that workers read."""
        client = root | "Client" >> beam.Create([self.masking.client], reshuffle=False)
        return client | "Listed" >> beam.Map(read_lists, self.exchange, self.index, self.masking.pairwise, self.parties)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientsRole:
    """A client's view of a run.

    Attributes:
      planned: the job, with the rows of this client.
      exchange: exchange of messages and sums.
      released: folder of the releases so far, which the aggregator can't reach.
    """

    planned: PlannedFit
    exchange: Exchange
    released: str

    @classmethod
    def from_config(cls, config: FitConfig, exchange: str, released: str, client: str = "") -> "ClientsRole":
        """Validates and plans the job.

        Args:
          config: the job.
          exchange: folder of the run.
          released: folder of the releases so far.
          client: name of the client that sends; empty for the party that unmasks.

        Raises:
          ConfigError: if the job isn't masked aggregation with a stored secret, or the key belongs to another party.
        """
        check_settings(config, exchange, released, client)
        parties = signing_parties(config.masked.parties, config.masked.identity_uri, client)
        return cls(planned=plan_files(config), exchange=Exchange(exchange, parties), released=released.rstrip("/"))

    @property
    def settings_digest(self) -> str:
        """SHA-256 of the settings that all clients share, and of the server data."""
        return shared_digest(self.planned)

    def plan(self) -> ExchangePlan:
        """Reads the plan of the run; all of it but the nonce must follow from this client's settings.

        Raises:
          ProtocolError: if the plan is missing, belongs to another job, or has other noise.
        """
        plan = self.exchange.plan()
        if plan.settings != self.settings_digest:
            raise self._differs(plan)
        sealed = self.pairwise is None or is_sound(plan.collector or b"")
        shares = self.planned.config.masked.shares
        own = dataclasses.replace(plan, rounds=self.rounds, pairwise=self.pairwise, shares=shares)
        if not (alike(plan.content, own.content, _LAST_BITS) and sealed):
            raise JobDiffersError(
                "plan.json must have the rounds, noise, sensitivities and shapes that this job's settings give, got "
                "others; open a new run, with one version of dapple everywhere."
            )
        return plan

    def _differs(self, plan: ExchangePlan) -> JobDiffersError:
        """The error for a job that differs from the run's; names the differing keys if they can be found."""
        path = join(self.released, SETTINGS)
        keys: tuple[str, ...] = ()
        if STORE.exists(path):
            raw = untrusted.read_bytes(path, table_refusal(path), _MOST_SETTINGS_BYTES)
            if hashlib.sha256(raw).hexdigest() == plan.settings:
                keys = tuple(
                    differing(shared_content(self.planned), parse_as(raw, dict[str, Any], table_refusal(path)))
                )
        which = f" in {', '.join(keys)}" if keys else ""
        error = JobDiffersError(
            f"This job differs from the job that opened the run{which or ', in settings that are not known here'}. "
            "Clients may differ only in places; compare all job files with `dapple masked party check`."
        )
        error.keys = keys
        return error

    @property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Plans of the rounds, computed from this client's own settings without trusting others."""
        return tuple(each.plan for each in self.planned.rounds)

    @property
    def pairwise(self) -> PairwiseParams | None:
        """Parameters of pairwise masks; None for masks from a shared secret."""
        return self.planned.config.masked.pairwise

    def masking(self, plan: ExchangePlan, client: str = "") -> Masking:
        """Returns the masking of this client."""
        masked = self.planned.config.masked
        return Masking.of_section(
            masked,
            secret_uri=str(masked.secret_uri),
            run=plan.run,
            nonce=plan.nonce,
            client=client,
            whole_clients=self.planned.contract.by_client,
        )

    def open_round(self, index: int, state: Any, client: str = "") -> OpenRound:
        """Opens a round whose broadcast is known."""
        plan = self.plan()
        masking = self.masking(plan, client)
        # All clients draw the same further noise, so the nonce is derived from the plan, which they share.
        nonce = RunNonce(run=plan.run, raw=hashlib.sha256(plan.to_json().encode()).digest())
        if client and masking.shares is not None:
            masking = dataclasses.replace(masking, noise_key=nonce.place(self._noise_key(client)))
        return OpenRound(
            index=index,
            plan=self.rounds[index],
            state=state,
            masking=masking,
            exchange=self.exchange.folder,
            key_uri=nonce.place(masking.secret_uri),
            kept=self.kept(client),
            sealing=self._sealing(self.exchange.aggregator_key(), "aggregator's key", client) if client else None,
            parties=self.exchange.parties,
        )

    def _noise_key(self, client: str) -> str:
        """Place of the kept key for a client's noise shares, which no other party has."""
        if self.pairwise is not None:
            return str(self.planned.config.masked.secret_uri)
        return self._party(client).noise_uri

    def countersign(self, index: int, client: str) -> None:
        """Signs the sum of a closed round for all clients, after checking who is in it.

        Raises:
          ProtocolError: if too few are in it, or this client has committed to another sum.
        """
        masked, digest = self.exchange.read_sum(index, self.rounds[index])
        masking = self.masking(self.plan(), client)
        if self.pairwise is None:
            check_present(masked, masking.threshold)
        else:
            listed = read_lists(client, self.exchange.folder, index, self.pairwise, self.exchange.parties)
            listed.present(masked, masking)
        self.commit(index, digest, client=client)
        self.exchange.countersign(index, client, self._shown(index, digest))

    def check_countersigned(self, index: int, digest: str) -> None:
        """If clients split the noise, refuses to answer a sum that too few of them have countersigned.

        Raises:
          ProtocolError: if there are too few signatures, or someone was shown another sum.
        """
        shares, parties = self.planned.config.masked.shares, self.exchange.parties
        if shares is not None and parties is not None:
            n_clients = len(parties.keys) - len(OFFICES)
            self.exchange.check_countersigned(index, self._shown(index, digest), shares.quorum(n_clients))

    def _shown(self, index: int, digest: str) -> str:
        """Digest of everything that the aggregator has shown of a closed round, including lists of pairwise masks."""
        lists = []
        if self.pairwise is not None:
            exchange = PairwiseExchange(self.exchange.folder, self.exchange.parties)
            lists = [exchange.digest(index, leg) for leg in (Leg.KEYS, Leg.LETTERS)]
        return hashlib.sha256(":".join([*lists, digest]).encode()).hexdigest()

    def sealing_shares(self, client: str) -> Sealing:
        """Returns the sealing of shares to the party that opened the run."""
        return self._sealing(self.plan().collector or b"", "collector's key", client)

    def _sealing(self, receiver: bytes, whose: str, client: str) -> Sealing:
        """Returns the sealing to a key, which must stay the same throughout a run."""
        self._note("", whose, receiver, client)
        return Sealing(receiver=receiver, secret_uri=self._party(client).seal_uri)

    def collector_key(self, nonce: bytes) -> bytes | None:
        """The public key for sealing shares if this client unmasks; None for masks from a shared secret."""
        if self.pairwise is None:
            return None
        secret = str(self.planned.config.masked.secret_uri)
        return public_key(private_key(read_key(secret, SECRET_SETTING), nonce, SHARES))

    def check_collector(self) -> None:
        """Refuses to unmask if the shares aren't sealed to this client.

        Raises:
          ProtocolError: if another client has opened the run.
        """
        plan = self.plan()
        if plan.collector != self.collector_key(plan.nonce):
            raise ProtocolError(
                "`dapple masked unmask` must be run under the secret of the client that opened the run, got another "
                "one; let that client run it for all."
            )

    @property
    def step_promise(self) -> Promise:
        """Promise of a clients' graph: the plan of the run, without noise stages."""
        return dataclasses.replace(self.planned.promise, stages=())

    def keep_settings(self) -> None:
        """Stores the settings of the run where clients can read them but the aggregator can't."""
        write_once(join(self.released, SETTINGS), shared_bytes(self.planned))

    def n_released(self) -> int:
        """Returns the number of rounds with known releases."""
        known = (STORE.exists(self._path(index)) for index in range(len(self.planned.rounds)))
        return next((index for index, there in enumerate(known) if not there), len(self.planned.rounds))

    def state(self) -> Any:
        """Computes the state after the rounds so far from their releases."""
        n_released = self.n_released()
        files = [read_releases(self._path(index), self.rounds[index]) for index in range(n_released)]
        releases = [release for file in files for release in file]
        return replay(self.planned.initial, self.planned.rounds[:n_released], releases).state

    def keep(self, index: int, releases: tuple[Release, ...]) -> None:
        """Stores the releases of a round."""
        write_once(self._path(index), table_bytes(releases_to_table(list(releases))))

    def commit(self, index: int, digest: str, what: str = "sum", client: str = "") -> None:
        """Commits to one sum (or list) of a round before it is used, for all clients and for this one's secret.

        Raises:
          ProtocolError: if another one was committed before.
        """
        write_once(join(self.released, f"{index:02d}.{what}"), digest.encode())
        self._note(self.rounds[index].path, what, digest.encode(), client)

    def _note(self, path: str, what: str, content: bytes, client: str) -> None:
        """Records an answer under the nonce of the run."""
        self.kept(client).note(path, what, content)

    def kept(self, client: str = "") -> RunState:
        """Returns the stored state of this party for the run.

        Raises:
          ConfigError: if the party isn't enrolled.
        """
        return self._party(client).of_run(self.exchange.plan().nonce)

    def end_what_is_over(self, index: int, client: str) -> None:
        """Deletes the stored answers of finished runs, including this one once its last round is closed."""
        kept = self.kept(client)
        self._party(client).end_others(kept)
        if index == len(self.rounds) - 1:
            kept.note_last()
            if self.exchange.is_closed(index):
                kept.end()

    def keep_columns(self, client: str) -> None:
        """Stores the columns of the rows, from which later legs are planned without reading rows."""
        kept = self.kept(client)
        if not STORE.exists(kept.columns_uri):
            path, schema = first_schema(self.planned.source, self.planned.contract.types)
            schema = hive.with_field(schema, path, self.planned.config.data.client_id)
            kept.keep_columns(table_bytes(schema.remove_metadata().empty_table()))

    def _party(self, client: str) -> PartyState:
        return party_state(self.planned.config, client)

    @contextlib.contextmanager
    def staged(self, options: PipelineOptions, client: str, key_uri: str) -> Iterator[PlannedFit]:
        """Yields the job with readable rows; a grouped copy is in the party's state, not in a shared folder."""
        clear_copy(place := join(self._party(client).folder, "rows"))
        with staged_by_client(self.planned.rows, options, key_uri, place) as rows:
            yield dataclasses.replace(self.planned, source=rows.source, contract=rows.contract)

    def shares_folder(self, index: int) -> str:
        """Folder of the shares for pairwise masks, which the aggregator can't reach, like the releases."""
        return join(self.released, f"{index:02d}_shares")

    def check_step(self, index: int, state: Any, client: str = "") -> None:
        """Refuses releases that don't belong to the round, or a second broadcast in it.

        Raises:
          ProtocolError: if the releases differ or some are missing.
        """
        if index != self.n_released() or self.exchange.broadcast(index) != broadcast_digest(state):
            raise ProtocolError(
                f"--released must hold the releases of the {plural(index, 'round')} before this one, got others; run "
                "`dapple masked unmask` first, and if there was an upgrade, use the versions that the run began with."
            )
        self._note(self.rounds[index].path, "broadcast", broadcast_digest(state), client)

    def _path(self, index: int) -> str:
        return join(self.released, f"{index:02d}.parquet")


def party_state(config: FitConfig, client: str) -> PartyState:
    """Stored state of a party, see `PartyState.of`; `client` is empty for the unmasking party."""
    return PartyState.of(str(config.masked.state_uri), str(config.masked.secret_uri), client)


def check_start(run: Run[FitConfig]) -> None:
    """Refuses a job that this party can't run, before anything is asked of others; reads no row.

    Raises:
      ConfigError: like `check_settings`, or if the party isn't enrolled.
    """
    check_settings(run.settings, run.options.exchange, run.options.released, run.options.client)
    party_state(run.settings, run.options.client)


def check_plan(run: Run[FitConfig]) -> None:
    """Compares a client's job with the plan of the run, or plans it if no run is open.

    Skips a client that has answered in the run, since a refusal could reveal that its rows have changed.

    Raises:
      ConfigError: if the job can't be planned.
      JobDiffersError: if the job differs from the run's.
    """
    options, masked = run.options, run.settings.masked
    exchange = Exchange(options.exchange, signing_parties(masked.parties, masked.identity_uri, options.client))
    if not exchange.is_open():
        planned_role(run)
    elif not files_in(party_state(run.settings, options.client).of_run(exchange.plan().nonce).folder):
        planned_role(run).plan()


def planned_role(run: Run[FitConfig]) -> ClientsRole:
    """Plans a clients' job and returns its role."""
    options = run.options
    check_start(run)
    role = ClientsRole.from_config(with_features(run.settings), options.exchange, options.released, options.client)
    check_public(role.planned.source)
    return role


def clients_job(
    name: str,
    plan: Callable[[Run[FitConfig]], _Planned],
    work: Callable[[Run[FitConfig], _Planned], Summary],
    flag: str,
) -> Job[FitConfig, _Planned, Summary]:
    """Builds a clients' job that ends with a summary; `flag` is its flag besides the two folders."""
    return Job(
        name,
        load_config,
        plan,
        work,
        lambda _run, _role, summary: Outcome(summary),
        Zone.PUBLIC,
        flags=("--exchange", "--released", flag),
        place=OutputKind(writes=Writes.EXCHANGE).place,
    )
