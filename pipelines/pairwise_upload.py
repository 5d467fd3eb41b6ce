"""What the `upload` job does with pairwise masks: the leg of the round that comes next, for one client."""

import dataclasses
import functools
import logging
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.client_staging import staged_by_client
from pipelines.clients_role import ClientsRole
from pipelines.graph import run_graph
from pipelines.prepared_fit import PreparedFit, message_contract
from schemas.errors import ProtocolError
from schemas.masked_message import MaskedMessages, MaskedReleases
from schemas.pairwise_messages import HandedOut, Leg, sent_to_table
from schemas.plan import RoundPlan
from transforms.client_messages import Masking
from transforms.exchange_files import write_once
from transforms.pairwise_files import PairwiseExchange
from transforms.pairwise_legs import AdvertiseKeys, Correspondence, HandOutShares, MaskPairwise, SealLetters
from transforms.publish import table_bytes
from transforms.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


def _send_rows(rows: list, folder: str, index: int, leg: Leg, client: str) -> None:
    PairwiseExchange(folder).send_rows(index, leg, client, rows)


def _send(messages: MaskedMessages, folder: str, index: int, client: str) -> None:
    PairwiseExchange(folder).send(index, client, messages)


def _hand_out(rows: list, file: str, path: str) -> None:
    write_once(file, table_bytes(sent_to_table(rows, HandedOut, path)))


def build(
    root: beam.Pipeline, prepared: PreparedFit, masking: Masking, index: int, state: Any, folder: str, leg: Leg
) -> None:
    """Adds a leg that reads rows to a pipeline.

    Args:
      root: an empty pipeline.
      prepared: the job; with privacy unit `client`, no client of its data lies in several shards.
      masking: of this client.
      index: of the round.
      state: what is broadcast in it.
      folder: the exchange.
      leg: keys, letters or messages.
    """
    contract, each = message_contract(prepared), prepared.rounds[index]
    shards = root | "List" >> ListShards(source=prepared.source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    broadcast = root | "Public" >> beam.Create([state], reshuffle=False)
    known: dict[str, Any] = {"state": broadcast, "contract": contract, "masking": masking}
    if leg is Leg.KEYS:
        rows = shards | "Advertise" >> AdvertiseKeys(plan=each.plan, **known)
    else:
        known |= {"round": each, "listed": _listed(root, masking.client, folder, index)}
        if leg is Leg.MESSAGES:
            _ = shards | "Mask" >> MaskPairwise(**known) | "Send" >> beam.Map(_send, folder, index, masking.client)
            return
        rows = shards | "Seal" >> SealLetters(**known)
    _ = rows | "Send" >> beam.Map(_send_rows, folder, index, leg, masking.client)


def build_shares(
    root: beam.Pipeline,
    own: list[bytes],
    masked: MaskedReleases,
    state: Any,
    plan: RoundPlan,
    masking: Masking,
    index: int,
    folder: str,
    file: str,
) -> None:
    """Adds the last leg, which reads no rows, to a pipeline.

    Args:
      root: an empty pipeline.
      own: pseudonyms of this client's senders.
      masked: the noised sum.
      state: what was broadcast in the round.
      plan: of the round.
      masking: of this client.
      index: of the round.
      folder: the exchange.
      file: where the shares go.
    """
    hand_out = HandOutShares(
        plan=plan,
        state=root | "Public" >> beam.Create([state], reshuffle=False),
        listed=_listed(root, masking.client, folder, index),
        masked=root | "Sum" >> beam.Create([masked], reshuffle=False),
        masking=masking,
    )
    shares = root | "Own" >> beam.Create([own], reshuffle=False) | "HandOut" >> hand_out
    _ = shares | "Write" >> beam.Map(_hand_out, file, plan.path)


def _listed(root: beam.Pipeline, client: str, folder: str, index: int) -> beam.PCollection:
    """The aggregator's lists, one element."""
    return root | "Client" >> beam.Create([client]) | "Listed" >> beam.Map(Correspondence.read, folder, index)


def take_leg(role: ClientsRole, client: str, options: PipelineOptions, index: int, state: Any) -> Leg:
    """Takes the leg that the round waits for; taking it again sends the same octets.

    Args:
      role: of the clients; its rows are this client's.
      client: its name.
      options: for Beam.
      index: of the open round.
      state: what is broadcast in it.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    exchange = PairwiseExchange(role.exchange.folder)
    leg, masking = exchange.leg(index), role.masking(role.plan(), client)
    if leg is Leg.KEYS:
        role.make_secret()
    else:
        _check_takes_part(exchange, index, client, leg)
    _commit_lists(role, exchange, index, leg)
    known: dict[str, Any] = {"masking": masking, "index": index, "state": state, "folder": exchange.folder}
    if leg is Leg.SHARES:
        own = [each.sender for each in exchange.own_keys(index, client)]
        _take_last(role, own, options, known)
    else:
        with staged_by_client(role.prepared.rows, options, masking.secret_uri, f"{role.released}/{client}") as rows:
            job = dataclasses.replace(role.prepared, source=rows.source, contract=rows.contract)
            run_graph(functools.partial(build, prepared=job, leg=leg, **known), options)
    _LOGGER.info("sent: round %d, %s", index, leg)
    return leg


def _check_takes_part(exchange: PairwiseExchange, index: int, client: str, leg: Leg) -> None:
    """Stops a client that has missed an earlier leg of the round."""
    listed = Correspondence.read(client, exchange.folder, index)
    missed = None if listed.own else Leg.KEYS
    if missed is None and leg is not Leg.LETTERS and not listed.own & listed.shared:
        missed = Leg.LETTERS
    if missed is not None:
        raise ProtocolError(
            f"--client must have sent {missed} before they were listed, got {client} without; "
            "it may join the next round."
        )


def _commit_lists(role: ClientsRole, exchange: PairwiseExchange, index: int, leg: Leg) -> None:
    """Decides for one list of keys and one of letters: all clients mask with the same neighbors."""
    order = list(Leg)
    for each in (Leg.KEYS, Leg.LETTERS):
        if order.index(each) < order.index(leg):
            role.commit(index, exchange.digest(index, each), each)


def _take_last(role: ClientsRole, own: list[bytes], options: PipelineOptions, known: dict[str, Any]) -> None:
    """Hands out shares for the one sum that the clients have decided for."""
    index, masking = known["index"], known["masking"]
    masked, digest = role.exchange.read_sum(index)
    role.commit(index, digest)
    file = FileSystems.join(role.shares_folder(index), f"{masking.client}.parquet")
    plan = role.prepared.rounds[index].plan
    run_graph(functools.partial(build_shares, own=own, masked=masked, plan=plan, file=file, **known), options)
