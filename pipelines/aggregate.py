"""The `aggregate` job, aggregator's role: adds up the masked messages of a round, adds noise, and says who is in it.

It reads the plan and messages and nothing else. It must not import what forms or removes masks; a test sees to it.
"""

import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems

from pipelines.graph import run_graph
from pipelines.options import parse_role, read_text
from pipelines.spending import spending
from schemas import yaml_text
from schemas.choices import Trust
from schemas.errors import ProtocolError
from schemas.flow import Promise, PromisedPlan, Zone
from schemas.ledger_charge import Charge
from schemas.masked_config import AggregateConfig, validated_aggregate
from schemas.masked_message import MaskedMessages, MaskedReleases
from schemas.pairwise_messages import Leg
from schemas.plan import PrivacyPlan, PrivacyUnit, RoundPlan
from schemas.statement import PrivacyStatement
from transforms import accounting
from transforms.discretization import lattice_noise
from transforms.exchange_files import Exchange
from transforms.graph_spending import check_chunk
from transforms.keys import create_key
from transforms.masked_sum import AggregateMasked
from transforms.pairwise_files import PairwiseExchange

_DELTA = 1e-9
_LOGGER = logging.getLogger(__name__)


def _read(path: str, folder: str, index: int) -> Iterator[MaskedMessages]:
    """Messages of one file; of no file, a batch without messages."""
    exchange = Exchange(folder)
    if path:
        yield exchange.read_messages(index, path)
    else:
        size = exchange.plan().rounds[index].size
        yield MaskedMessages((), (), np.zeros((0, size), dtype=np.int64))


def _close(masked: MaskedReleases, folder: str, index: int, pairwise: bool) -> None:
    if pairwise:
        PairwiseExchange(folder).check_present(index, masked.senders)
    Exchange(folder).close_round(index, masked)


def build(root: beam.Pipeline, config: AggregateConfig, exchange: Exchange, index: int) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      config: the aggregator's job.
      exchange: where messages are and the sum goes.
      index: of the round.
    """
    plan = exchange.plan()
    threshold = config.threshold
    if plan.pairwise is not None:
        threshold = PairwiseExchange(exchange.folder).fewest(index, threshold)
    aggregate = AggregateMasked(plan=plan.rounds[index], key_uri=config.key_uri, threshold=threshold)
    _ = (
        root
        | "Files" >> beam.Create(["", *exchange.message_files(index)])
        | "Read" >> beam.FlatMap(_read, exchange.folder, index)
        | "Aggregate" >> aggregate
        | "Close" >> beam.Map(_close, exchange.folder, index, plan.pairwise is not None)
    )


def _charge(config: AggregateConfig, plan: RoundPlan) -> Charge:
    """What one round costs, stated at `_DELTA`, which the ledger needs only where it does not compose events."""
    unit = PrivacyUnit(str(config.unit))
    whole = PrivacyPlan(
        unit=unit,
        epsilon=accounting.stated_epsilon((plan,), _DELTA),
        delta=_DELTA,
        discretization_slack=0.0,
        rounds=(plan,),
    )
    statement = PrivacyStatement.from_plan(whole, accounting.describe(whole), trust=Trust.MASKED)
    return Charge.of(statement, dataset=str(config.name), job="aggregate", noise=lattice_noise((plan,)))


def _close_list(folder: str, index: int, threshold: int) -> Leg | None:
    """Closes the leg that the round waits for; None if that is the one of messages."""
    exchange = PairwiseExchange(folder)
    leg = exchange.leg(index)
    if leg is Leg.KEYS:
        exchange.close_keys(index, threshold)
    elif leg is Leg.LETTERS:
        exchange.close_letters(index, threshold)
    else:
        return None
    return leg


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: closes the open round; with pairwise masks first its list of keys, then that of letters.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    options = parse_role("aggregate", argv)
    config = validated_aggregate(yaml_text.parse(read_text(options.config)))  # type: ignore[arg-type]
    exchange = Exchange(options.exchange)
    index = exchange.last_round()
    if exchange.is_closed(index):
        raise ProtocolError(f"round {index} must be open to be added up, got a closed one; its sum is final.")
    leg = _close_list(exchange.folder, index, config.threshold) if exchange.plan().pairwise is not None else None
    if leg is not None:
        _LOGGER.info("listed: round %d, %s", index, leg)
        return {"run_id": exchange.plan().run, "round": index, "leg": leg}
    if not FileSystems.exists(config.key_uri):
        create_key(config.key_uri)
    plan = exchange.plan()
    promise = Promise(zone=Zone.PUBLIC, plans=(PromisedPlan(rounds=plan.rounds),), stages=(plan.rounds[index],))
    charge = None if config.ledger is None else _charge(config, plan.rounds[index])
    add = functools.partial(build, config=config, exchange=exchange, index=index)
    with spending(config.ledger, charge, f"{plan.run}/{plan.rounds[index].path}", again=True):
        check_chunk(run_graph(add, options.beam, promise).rounds, plan.rounds, index)
    _LOGGER.info("closed: round %d", index)
    return {"run_id": exchange.plan().run, "round": index}
