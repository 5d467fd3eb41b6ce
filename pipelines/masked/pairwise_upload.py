"""The `upload` job with pairwise masks: takes the next leg of a round for one client."""

import dataclasses
import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit, message_contract
from dapple_dp.pipelines.masked.clients_role import ClientsRole, OpenRound
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.schemas.core.plan import Zone
from dapple_dp.schemas.errors import NotYetError
from dapple_dp.schemas.masked.config import PairwiseParams
from dapple_dp.schemas.masked.exchange import MaskedMessages, MaskedReleases
from dapple_dp.schemas.masked.pairwise_messages import HandedOut, Leg, sent_to_table
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.private_sink import PrivateSink
from dapple_dp.transforms.files.stores import join
from dapple_dp.transforms.masked.clients import SenderStatistics
from dapple_dp.transforms.masked.exchange_files import COUNTERSIGNED
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.pairwise_legs import (
    AdvertiseKeys,
    HandOutShares,
    MaskPairwise,
    PinnedStatistics,
    SealLetters,
    pin,
)
from dapple_dp.transforms.masked.pairwise_lists import Correspondence
from dapple_dp.transforms.masked.party_state import RunState
from dapple_dp.transforms.masked.sealing import SEALED, Sealing
from dapple_dp.transforms.masked.signing import Parties
from dapple_dp.transforms.tables.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


def _send(
    sent: Any,
    folder: str,
    index: int,
    client: str,
    leg: Leg,
    sealing: Sealing,
    parties: Parties | None,
    kept: RunState,
) -> None:
    """Sends all messages of a client, or all rows of another leg; sends the earlier answer if there is one."""
    exchange = PairwiseExchange(folder, parties, kept)
    if leg is not Leg.MESSAGES:
        exchange.send_rows(index, leg, client, sent)
        return
    exchange.send(index, client, MaskedMessages.joined([sent]), sealing)
    kept.unpin(exchange.plan().rounds[index].path)


def _hand_out(rows: list, file: str, folder: str, index: int, sealing: Sealing, parties: Parties | None) -> None:
    """Writes the shares of a client for the unmasking party."""
    exchange = PairwiseExchange(folder, parties)
    path = exchange.plan().rounds[index].path
    label = encode_label(path, os.path.basename(file))
    exchange.hand_out(index, file, sealing.seal(table_bytes(sent_to_table(rows, HandedOut, path)), label))


def build_pin(root: beam.Pipeline, planned: PlannedFit, opened: OpenRound) -> None:
    """Adds the only step of a round that reads rows: it pins the statistics used by all legs.

    Args:
      root: an empty pipeline.
      planned: the job; with privacy unit `client`, each client of its data is in one shard.
      opened: the round.
    """
    contract, round_ = message_contract(planned), planned.rounds[opened.index]
    masking = dataclasses.replace(opened.masking, root=planned.source.path)
    shards = root | "List" >> ListShards(source=planned.source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    form = SenderStatistics(round=round_, state=opened.broadcast(root), contract=contract, masking=masking)
    only_sender = encode_label(masking.client) if masking.one_message else b""
    named = shards | "Statistic" >> form | "All" >> beam.combiners.ToList()
    _ = named | "Pin" >> PrivateSink(write=pin, places=(round_.plan.path, opened.kept, only_sender))


def build(root: beam.Pipeline, planned: PlannedFit, opened: OpenRound, leg: Leg) -> None:
    """Adds a leg on the pinned statistics to a pipeline.

    Args:
      root: an empty pipeline.
      planned: the job.
      opened: the round.
      leg: keys, letters or messages.
    """
    state, masking = opened.broadcast(root), opened.masking
    common = {"round": planned.rounds[opened.index], "state": state, "contract": message_contract(planned)}
    named = root | "Pinned" >> PinnedStatistics(masking=masking, kept=opened.kept, **common)
    if leg is Leg.KEYS:
        sent = named | "Advertise" >> AdvertiseKeys(masking=masking, **common)
    else:
        step = SealLetters if leg is Leg.LETTERS else MaskPairwise
        sent = named | leg.title() >> step(masking=masking, listed=opened.listed(root), **common)
    place = (opened.exchange, opened.index, masking.client, leg)
    send = beam.Map(_send, *place, opened.sealed_for(), opened.parties, opened.kept)
    _ = sent | "Send" >> send


def build_shares(root: beam.Pipeline, opened: OpenRound, masked: MaskedReleases, own: list[bytes], file: str) -> None:
    """Adds the last leg, which reads no rows, to a pipeline.

    Args:
      root: an empty pipeline.
      opened: the round, now closed.
      masked: noised sum of the round.
      own: pseudonyms of this client's senders.
      file: output file of the shares.
    """
    hand_out = HandOutShares(
        plan=opened.plan,
        state=opened.broadcast(root),
        listed=opened.listed(root),
        masked=root | "Sum" >> beam.Create([masked], reshuffle=False),
        masking=opened.masking,
    )
    shares = root | "Own" >> beam.Create([own], reshuffle=False) | "HandOut" >> hand_out
    write = beam.Map(_hand_out, file, opened.exchange, opened.index, opened.sealed_for(), opened.parties)
    _ = shares | "Write" >> write


def take_leg(role: ClientsRole, client: str, options: PipelineOptions, index: int, state: Any) -> Leg | str:
    """Takes the leg that the round waits for.

    Args:
      role: role of the client, with its rows.
      client: name of the client.
      options: Beam options.
      index: index of the open round.
      state: broadcast state of the round.

    Returns:
      The leg, or "countersigned" if the client has signed the sum instead.

    Raises:
      DappleError: if the leg fails.
    """
    exchange = PairwiseExchange(role.exchange.folder, role.exchange.parties)
    opened = role.open_round(index, state, client)
    leg = exchange.leg(index)
    if leg is not Leg.KEYS:
        _check_takes_part(opened, leg)
    _commit_lists(role, exchange, index, leg, client)
    if leg is Leg.SHARES and role.plan().shares is not None and not exchange.has_countersigned(index, client):
        role.countersign(index, client)
        return COUNTERSIGNED
    if leg is Leg.SHARES:
        run_graph(_last_leg(role, opened, exchange), options, role.step_promise)
    else:
        if leg is Leg.KEYS and not opened.kept.is_pinned(opened.plan.path):
            _pin(role, opened, options)
        add = functools.partial(build, planned=role.planned, opened=opened, leg=leg)
        run_graph(add, options, role.step_promise)
    _LOGGER.info("sent: round %d, %s", index, leg)
    return leg


def _pin(role: ClientsRole, opened: OpenRound, options: PipelineOptions) -> None:
    """Pins the statistics, which reads the rows once per round."""
    promise = dataclasses.replace(role.step_promise, zone=Zone.TRUSTED)
    with role.staged(options, opened.masking.client, opened.key_uri) as job:
        run_graph(functools.partial(build_pin, planned=job, opened=opened), options, promise)


def _check_takes_part(opened: OpenRound, leg: Leg) -> None:
    """Refuses a client that has missed an earlier leg of the round."""
    client, params = opened.masking.client, opened.masking.pairwise or PairwiseParams(0.0, 0.0)
    listed = Correspondence.read(client, opened.exchange, opened.index, params, opened.parties)
    missed = None if listed.own else Leg.KEYS
    if missed is None and leg is not Leg.LETTERS and not listed.own & listed.shared:
        missed = Leg.LETTERS
    if missed is not None:
        raise NotYetError(
            f"--client must have sent {missed} before they were listed, got {client}, which had not; "
            "it may join the next round."
        )


def _commit_lists(role: ClientsRole, exchange: PairwiseExchange, index: int, leg: Leg, client: str) -> None:
    """Commits to one list of keys and one of letters, so that all clients mask with the same neighbors."""
    order = list(Leg)
    for each in (Leg.KEYS, Leg.LETTERS):
        if order.index(each) < order.index(leg):
            role.commit(index, exchange.digest(index, each), each, client)


def _last_leg(role: ClientsRole, opened: OpenRound, exchange: PairwiseExchange) -> Callable[[beam.Pipeline], None]:
    """Builds the graph that hands out shares for the one sum that the clients have committed to."""
    index, client = opened.index, opened.masking.client
    own = [keys.sender for keys in exchange.own_keys(index, client)]
    masked, digest = exchange.read_sum(index, role.rounds[index])
    role.check_countersigned(index, digest)
    role.commit(index, digest, client=client)
    file = join(role.shares_folder(index), f"{client}{SEALED}")
    opened = dataclasses.replace(opened, sealing=role.sealing_shares(client))
    return functools.partial(build_shares, opened=opened, masked=masked, own=own, file=file)
