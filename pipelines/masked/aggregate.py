"""The `aggregate` job of the aggregator: adds up a round's masked messages, adds noise, and publishes the senders.

It reads only the plan and messages. It must not import code that makes or removes masks; a test checks that.
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np

from dapple_dp.pipelines.jobs.job import Job, Outcome, Run
from dapple_dp.pipelines.jobs.place import OutputKind, Writes
from dapple_dp.pipelines.ledger.spending import Reservation
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.pipelines.run.run_keys import RunNonce, made_key
from dapple_dp.schemas.choices import Trust
from dapple_dp.schemas.core.plan import PrivacyPlan, PrivacyUnit, Promise, PromisedPlan, RoundPlan, Zone
from dapple_dp.schemas.errors import ConfigError, JobDiffersError, NotYetError, PrivacyFlowError
from dapple_dp.schemas.masked.config import AGGREGATOR, AggregateConfig, LimitConfig, validated_aggregate
from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import Leg
from dapple_dp.schemas.privacy.charge import Charge
from dapple_dp.schemas.privacy.noise_shares import ZEROED_OUT, ShareLaw
from dapple_dp.schemas.privacy.statement import NEIGHBORING_RELATION, PrivacyStatement, describe
from dapple_dp.schemas.settings import yaml_text
from dapple_dp.transforms.core import accounting
from dapple_dp.transforms.core.audit import paths
from dapple_dp.transforms.core.discretization import lattice_noise
from dapple_dp.transforms.masked.aggregator import AggregateMasked
from dapple_dp.transforms.masked.exchange_files import MESSAGES, Exchange
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.signing import Parties, signing_parties
from dapple_dp.transforms.numerics.masked.noise_shares import with_shares
from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_key
from dapple_dp.transforms.privacy.key_files import read_key

_DELTA = 1e-9
_OPENED = "opened"
_ROUNDING = 1.0 + 1e-9
"""Tolerance for two computations of the same epsilon."""
_LOGGER = logging.getLogger(__name__)


def _read(path: str, folder: str, index: int, key_uri: str, parties: Parties | None) -> Iterator[MaskedMessages]:
    """Yields the messages of a file sealed to the aggregator's key; an empty batch if there is no file."""
    exchange = Exchange(folder, parties)
    if path:
        yield exchange.read_messages(index, path, _private_key(exchange, key_uri))
    else:
        size = exchange.plan().rounds[index].size
        yield MaskedMessages((), (), np.zeros((0, size), dtype=np.int64))


def _close(masked: MaskedReleases, folder: str, index: int, pairwise: bool, parties: Parties | None) -> None:
    exchange = PairwiseExchange(folder, parties)
    if pairwise:
        exchange.check_present(index, masked.senders)
    exchange.close_round(index, masked)


def _private_key(exchange: Exchange, key_uri: str) -> bytes:
    """The private key that opens the run's messages."""
    return private_key(read_key(key_uri), exchange.plan().nonce, MESSAGES)


def build(
    root: beam.Pipeline, config: AggregateConfig, kept_key: str, exchange: Exchange, index: int, files: list[str]
) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      config: the aggregator's job.
      kept_key: place of the key that opens messages, the same in all rounds.
      exchange: folder of the messages and of the sum.
      index: index of the round.
      files: message files.
    """
    plan = exchange.plan()
    threshold = max(config.threshold, 0 if plan.shares is None else plan.shares.threshold)
    n_listed: beam.PCollection | None = None
    if plan.pairwise is not None:
        pairwise = PairwiseExchange(exchange.folder, exchange.parties)
        threshold = pairwise.fewest(index, config.threshold)
        n_listed = root | "Number" >> beam.Create([pairwise.n_listed(index)], reshuffle=False)
    aggregate = AggregateMasked(
        plan=plan.rounds[index], key_uri=config.key_uri, threshold=threshold, shares=plan.shares, n_listed=n_listed
    )
    _ = (
        root
        | "Files" >> beam.Create(["", *files])
        | "Read" >> beam.FlatMap(_read, exchange.folder, index, kept_key, exchange.parties)
        | "Aggregate" >> aggregate
        | "Close" >> beam.Map(_close, exchange.folder, index, plan.pairwise is not None, exchange.parties)
    )


def _charge(config: AggregateConfig, plan: RoundPlan, shares: ShareLaw | None) -> Charge:
    """Charge of one round, stated at `_DELTA`, which matters only if the ledger doesn't compose events."""
    unit = PrivacyUnit(str(config.unit))
    epsilon = accounting.stated_epsilon((plan,), _DELTA)
    whole = PrivacyPlan(
        unit=unit,
        epsilon=epsilon if shares is None else with_shares(epsilon, (plan,)),
        delta=_DELTA,
        discretization_slack=0.0,
        rounds=(plan,),
    )
    relation = NEIGHBORING_RELATION if shares is None else ZEROED_OUT
    statement = PrivacyStatement.from_plan(whole, describe(whole), trust=Trust.MASKED, neighboring_relation=relation)
    return Charge.of(statement, dataset=str(config.name), job="aggregate", noise=lattice_noise((plan,)))


def _close_list(exchange: PairwiseExchange, index: int, threshold: int) -> Leg | None:
    """Closes the leg that the round waits for; returns None if that leg is the messages."""
    leg = exchange.leg(index)
    if leg is Leg.KEYS:
        exchange.close_keys(index, threshold)
    elif leg is Leg.LETTERS:
        exchange.close_letters(index, threshold)
    else:
        return None
    return leg


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """The round, or the leg of it, that the aggregator closes next.

    Attributes:
      exchange: folder of the messages and of the sum.
      index: index of the round.
      leg: leg that was closed instead of the round (with pairwise masks), or "opened" if the aggregator has only
        published its key; None if the round is to be closed.
    """

    exchange: Exchange
    index: int
    leg: Leg | str | None

    @property
    def plan(self) -> RoundPlan:
        """Plan of the round."""
        return self.exchange.plan().rounds[self.index]


def check_start(run: Run[AggregateConfig]) -> None:
    """Refuses an invalid key before anything is asked of others; creates a missing one."""
    read_key(made_key(run.settings.key_uri))


def _check_limit(limit: LimitConfig | None, rounds: tuple[RoundPlan, ...]) -> None:
    """Refuses a plan whose rounds together spend more than the aggregator's limit."""
    if limit is None:
        return
    spent = accounting.stated_epsilon(rounds, limit.delta)
    if not spent <= limit.epsilon * _ROUNDING:
        error = JobDiffersError(
            f"plan.json must spend at most epsilon {limit.epsilon:g} at delta {limit.delta:g} (limit), got more; ask "
            "the party that opened the run."
        )
        error.keys = ("limit",)
        raise error


def _plan(run: Run[AggregateConfig]) -> OpenRound:
    """Finds the open round; with pairwise masks, first closes the list of keys, then that of letters."""
    parties = signing_parties(run.settings.parties, run.settings.identity_uri, AGGREGATOR)
    exchange = PairwiseExchange(run.options.exchange, parties)
    _check_limit(run.settings.limit, exchange.plan().rounds)
    if exchange.plan().shares is not None and parties is None:
        raise ConfigError("parties must be given for a run whose clients split the noise; list the public keys of all.")
    index = exchange.last_round()
    _check_open(exchange, index)
    key_uri = made_key(run.settings.key_uri)
    if exchange.publish_key(public_key(_private_key(exchange, key_uri))):
        return OpenRound(exchange=exchange, index=index, leg=_OPENED)
    return OpenRound(exchange=exchange, index=index, leg=_close_list(exchange, index, run.settings.threshold))


def _check_open(exchange: Exchange, index: int) -> None:
    if exchange.is_closed(index):
        raise NotYetError(f"round {index} is already closed; its sum is final.")


def _reserve(run: Run[AggregateConfig], opened: OpenRound) -> Reservation | None:
    config, plan = run.settings, opened.plan
    if config.ledger is None or opened.leg is not None:
        return None
    name = f"{opened.exchange.plan().run}/{plan.path}"
    charge = _charge(config, plan, opened.exchange.plan().shares)
    still = functools.partial(_check_open, opened.exchange, opened.index)
    return Reservation(ledger=config.ledger, charge=charge, run=name, again=True, still=still)


def _work(run: Run[AggregateConfig], opened: OpenRound) -> None:
    """Adds up the messages and adds noise, unless a list was closed."""
    if opened.leg is not None:
        _LOGGER.info("done: round %d, %s", opened.index, opened.leg)
        return
    # Each attempt has a fresh nonce; the sum is written once, by the attempt that draws its noise.
    place = RunNonce.new(opened.exchange.plan().run).place(made_key(run.settings.key_uri))
    run.place.draws_with(place)
    config = run.settings.model_copy(update={"key_uri": place})
    plan = opened.exchange.plan()
    promised = PromisedPlan(rounds=plan.rounds, shares=plan.shares)
    promise = Promise(zone=Zone.PUBLIC, plans=(promised,), stages=(opened.plan,))
    kept_key, exchange = run.settings.key_uri, opened.exchange
    files = exchange.sound_messages(opened.index, _private_key(exchange, kept_key))
    add = functools.partial(build, config=config, kept_key=kept_key, exchange=exchange, index=opened.index, files=files)
    check_chunk(run_graph(add, run.options.beam, promise).rounds, plan.rounds, opened.index)
    _LOGGER.info("closed: round %d", opened.index)


def check_chunk(drawn: Iterable[RoundPlan], persisted: tuple[RoundPlan, ...], first: int) -> int:
    """Checks that the rounds of a chunk are the next ones of the plan, which was stored before the first chunk.

    Args:
      drawn: rounds of the chunk's graph, as `check_graph` returns them.
      persisted: all rounds of the run, in order.
      first: number of rounds that earlier chunks have released.

    Returns:
      `first` of the next chunk.

    Raises:
      PrivacyFlowError: if the rounds differ.
    """
    rounds = tuple(drawn)
    if rounds != persisted[first : first + len(rounds)]:
        raise PrivacyFlowError(
            f"the rounds of a chunk must be those of the run's plan from number {first} on, got "
            f"{paths(rounds) or 'none'}; run the next chunk of the same job."
        )
    return first + len(rounds)


def _write(run: Run[AggregateConfig], opened: OpenRound, _: None) -> Outcome:
    more = {"leg": opened.leg, "left_out": opened.exchange.left_out}
    summary = {"run_id": opened.exchange.plan().run, "round": opened.index}
    return Outcome(summary | {name: value for name, value in more.items() if value})


JOB = Job(
    name="aggregate",
    load=lambda text: validated_aggregate(yaml_text.parse(text)),  # type: ignore[arg-type]
    plan=_plan,
    reserve=_reserve,
    work=_work,
    write=_write,
    zone=Zone.PUBLIC,
    flags=("--exchange",),
    place=OutputKind(writes=Writes.ALONE).place,
)
