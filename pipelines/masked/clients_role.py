"""What the clients' jobs of masked aggregation share: the plan, the releases so far, and the state they add up to."""

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
from dapple_dp.transforms.files import gate
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
"""Settings that all clients share, among the releases; `plan.json` has its SHA-256."""
_MOST_SETTINGS_BYTES = 1 << 24
_LAST_BITS = 2.0**-48
"""Relative difference of noise between processors: delta changes by at most .4 of it over z, and 1e-14 is set aside."""
SHARES = "shares"
"""What the key of the unmasking party is for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenRound:
    """A round as one client sees it.

    Attributes:
      index: of the round.
      plan: of the round.
      state: what is broadcast in it.
      masking: of the client; of nobody for the party that unmasks.
      exchange: the folder.
      key_uri: the place of the clients' key of this run, which draws further noise and chooses rows.
      sealing: to the aggregator, or of shares to the party that unmasks; None for a party that sends nothing.
      parties: who signs files of the run; None for files without signatures.
      kept: what this party keeps of the run.
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
        """How a client that sends seals; raises ValueError for a party that sends nothing."""
        if self.sealing is None:
            raise ValueError("a round must be opened for a client to send in it; name the client.")
        return self.sealing

    def broadcast(self, root: beam.Pipeline) -> beam.PCollection:
        """The state, one element of a graph."""
        return root | "Public" >> beam.Create([self.state], reshuffle=False)

    def listed(self, root: beam.Pipeline) -> beam.PCollection:
        """With pairwise masks: the aggregator's lists, one element of a graph; workers read them."""
        client = root | "Client" >> beam.Create([self.masking.client], reshuffle=False)
        return client | "Listed" >> beam.Map(read_lists, self.exchange, self.index, self.masking.pairwise, self.parties)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientsRole:
    """One client's view of a run.

    Attributes:
      planned: the job; its rows are this client's.
      exchange: where messages go and sums come from.
      released: folder of the releases so far, out of the aggregator's reach.
    """

    planned: PlannedFit
    exchange: Exchange
    released: str

    @classmethod
    def from_config(cls, config: FitConfig, exchange: str, released: str, client: str = "") -> "ClientsRole":
        """Prepares the job.

        Args:
          config: the job.
          exchange: folder of the run.
          released: folder of the releases so far.
          client: name of the client that sends; empty for the party that unmasks.

        Raises:
          ConfigError: if it is not one of masked aggregation under a secret that lasts, or the key is of another party.
        """
        check_settings(config, exchange, released, client)
        parties = signing_parties(config.masked.parties, config.masked.identity_uri, client)
        return cls(planned=plan_files(config), exchange=Exchange(exchange, parties), released=released.rstrip("/"))

    @property
    def settings_digest(self) -> str:
        """SHA-256 of the settings that all clients share, and of the content of the server data."""
        return shared_digest(self.planned)

    def plan(self) -> ExchangePlan:
        """The plan of the run: the nonce is news, all else is what this client's own settings give.

        Raises:
          ProtocolError: if there is none, it is that of another job, or its laws of noise are others.
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
        """The error about a job that is not that of the run; it names keys where the collector's settings are there."""
        path = join(self.released, SETTINGS)
        keys: tuple[str, ...] = ()
        if STORE.exists(path):
            raw = gate.read_bytes(path, table_refusal(path), _MOST_SETTINGS_BYTES)
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
        """What this client's own settings give: it believes nobody else's."""
        return tuple(each.plan for each in self.planned.rounds)

    @property
    def pairwise(self) -> PairwiseParams | None:
        """What decides on neighbors; None for masks from a shared secret."""
        return self.planned.config.masked.pairwise

    def masking(self, plan: ExchangePlan, client: str = "") -> Masking:
        """How this client masks and unmasks."""
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
        """A round whose broadcast is known."""
        plan = self.plan()
        masking = self.masking(plan, client)
        # All clients draw the same further noise, so their nonce is what they share of the run: the whole plan.
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
        """The place of the kept key of a client's noise shares, which no other party has."""
        if self.pairwise is not None:
            return str(self.planned.config.masked.secret_uri)
        return self._party(client).noise_uri

    def countersign(self, index: int, client: str) -> None:
        """Signs the sum of a closed round for all clients to see, once this one has checked who is in it.

        Raises:
          ProtocolError: if they are too few, or this client has decided for another sum.
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
        """Where clients split the noise, stops a party that would answer a sum that too few of them have countersigned.

        Raises:
          ProtocolError: if they are too few, or someone was shown another one.
        """
        shares, parties = self.planned.config.masked.shares, self.exchange.parties
        if shares is not None and parties is not None:
            n_clients = len(parties.keys) - len(OFFICES)
            self.exchange.check_countersigned(index, self._shown(index, digest), shares.quorum(n_clients))

    def _shown(self, index: int, digest: str) -> str:
        """Digest of all that the aggregator has shown of a closed round: with pairwise masks also its lists."""
        lists = []
        if self.pairwise is not None:
            exchange = PairwiseExchange(self.exchange.folder, self.exchange.parties)
            lists = [exchange.digest(index, leg) for leg in (Leg.KEYS, Leg.LETTERS)]
        return hashlib.sha256(":".join([*lists, digest]).encode()).hexdigest()

    def sealing_shares(self, client: str) -> Sealing:
        """How a client seals the shares that it hands out, to the party that has opened the run."""
        return self._sealing(self.plan().collector or b"", "collector's key", client)

    def _sealing(self, receiver: bytes, whose: str, client: str) -> Sealing:
        """Sealing to one key, always the same in a run."""
        self._note("", whose, receiver, client)
        return Sealing(receiver=receiver, secret_uri=self._party(client).seal_uri)

    def collector_key(self, nonce: bytes) -> bytes | None:
        """What shares are sealed to where this client unmasks; None for masks from a shared secret."""
        if self.pairwise is None:
            return None
        secret = str(self.planned.config.masked.secret_uri)
        return public_key(private_key(read_key(secret, SECRET_SETTING), nonce, SHARES))

    def check_collector(self) -> None:
        """Stops a client that shares are not sealed to.

        Raises:
          ProtocolError: if another one has opened the run.
        """
        plan = self.plan()
        if plan.collector != self.collector_key(plan.nonce):
            raise ProtocolError(
                "`dapple masked unmask` must be run under the secret of the client that opened the run, got another "
                "one; let that client run it for all."
            )

    @property
    def step_promise(self) -> Promise:
        """What a graph of the clients keeps: the plan of the run, of which it holds no noise stage."""
        return dataclasses.replace(self.planned.promise, stages=())

    def keep_settings(self) -> None:
        """Keeps the settings of the run where the clients can read them, and the aggregator cannot."""
        write_once(join(self.released, SETTINGS), shared_bytes(self.planned))

    def n_released(self) -> int:
        """Number of rounds whose releases are known."""
        known = (STORE.exists(self._path(index)) for index in range(len(self.planned.rounds)))
        return next((index for index, there in enumerate(known) if not there), len(self.planned.rounds))

    def state(self) -> Any:
        """The state after the rounds so far: computed again from their releases, of which it is a pure function."""
        n_released = self.n_released()
        files = [read_releases(self._path(index), self.rounds[index]) for index in range(n_released)]
        releases = [release for file in files for release in file]
        return replay(self.planned.initial, self.planned.rounds[:n_released], releases).state

    def keep(self, index: int, releases: tuple[Release, ...]) -> None:
        """Writes the releases of a round."""
        write_once(self._path(index), table_bytes(releases_to_table(list(releases))))

    def commit(self, index: int, digest: str, what: str = "sum", client: str = "") -> None:
        """Decides for one sum (or list) of a round before it is used, among clients and for this one's secret.

        Raises:
          ProtocolError: if another one was decided for.
        """
        write_once(join(self.released, f"{index:02d}.{what}"), digest.encode())
        self._note(self.rounds[index].path, what, digest.encode(), client)

    def _note(self, path: str, what: str, content: bytes, client: str) -> None:
        """Notes what is answered under the nonce of the run."""
        self.kept(client).note(path, what, content)

    def kept(self, client: str = "") -> RunState:
        """What this party keeps of the run.

        Raises:
          ConfigError: if it is not enrolled.
        """
        return self._party(client).of_run(self.exchange.plan().nonce)

    def end_what_is_over(self, index: int, client: str) -> None:
        """Destroys what was sent in runs that are over: this one once its last round is closed."""
        kept = self.kept(client)
        self._party(client).end_others(kept)
        if index == len(self.rounds) - 1:
            kept.note_last()
            if self.exchange.is_closed(index):
                kept.end()

    def keep_columns(self, client: str) -> None:
        """Keeps the columns of the rows, of which all later legs are planned that need no row."""
        kept = self.kept(client)
        if not STORE.exists(kept.columns_uri):
            path, schema = first_schema(self.planned.source, self.planned.contract.types)
            schema = hive.with_field(schema, path, self.planned.config.data.client_id)
            kept.keep_columns(table_bytes(schema.remove_metadata().empty_table()))

    def _party(self, client: str) -> PartyState:
        return party_state(self.planned.config, client)

    @contextlib.contextmanager
    def staged(self, options: PipelineOptions, client: str, key_uri: str) -> Iterator[PlannedFit]:
        """The job with its rows as it can read them; a grouped copy is in the party's state, in no shared folder."""
        clear_copy(place := join(self._party(client).folder, "rows"))
        with staged_by_client(self.planned.rows, options, key_uri, place) as rows:
            yield dataclasses.replace(self.planned, source=rows.source, contract=rows.contract)

    def shares_folder(self, index: int) -> str:
        """Where clients with pairwise masks hand out their shares: like releases, out of the aggregator's reach."""
        return join(self.released, f"{index:02d}_shares")

    def check_step(self, index: int, state: Any, client: str = "") -> None:
        """Stops a client whose releases are not those of the round, or that has answered to others in it.

        Raises:
          ProtocolError: if they are others, or fewer.
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
    """What a party keeps of its answers, see `PartyState.of`; `client` is empty for the party that unmasks."""
    return PartyState.of(str(config.masked.state_uri), str(config.masked.secret_uri), client)


def check_start(run: Run[FitConfig]) -> None:
    """Refuses, before anything is asked of others, a job that this party cannot run; reads no row.

    Raises:
      ConfigError: as `check_settings`, or if the party is not enrolled.
    """
    check_settings(run.settings, run.options.exchange, run.options.released, run.options.client)
    party_state(run.settings, run.options.client)


def check_plan(run: Run[FitConfig]) -> None:
    """Compares a client's job with the plan of the run, or plans it where none is open.

    A client that has answered in the run is asked nothing of its rows: a refusal would reveal that they have changed.

    Raises:
      ConfigError: if the job cannot be planned.
      JobDiffersError: if it is not that of the run.
    """
    options, masked = run.options, run.settings.masked
    exchange = Exchange(options.exchange, signing_parties(masked.parties, masked.identity_uri, options.client))
    if not exchange.is_open():
        planned_role(run)
    elif not files_in(party_state(run.settings, options.client).of_run(exchange.plan().nonce).folder):
        planned_role(run).plan()


def planned_role(run: Run[FitConfig]) -> ClientsRole:
    """The role of a job of the clients, planned."""
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
    """A job of the clients, which ends with a summary; `flag` is the one that it has beside both folders."""
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
