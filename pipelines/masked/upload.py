"""The `upload` job of a client: sends its masked statistics for the open round.

With pairwise masks it takes the next leg of the round: keys, letters, messages or shares. If clients split the noise,
it also countersigns the sum of a closed round.
"""

import dataclasses
import functools
import logging
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from dapple_dp.pipelines.jobs.job import Run
from dapple_dp.pipelines.jobs.place import Summary
from dapple_dp.pipelines.kmeans.plan.planned_fit import PlannedFit, message_contract
from dapple_dp.pipelines.masked import pairwise_upload
from dapple_dp.pipelines.masked.clients_role import ClientsRole, OpenRound, clients_job, party_state, planned_role
from dapple_dp.pipelines.masked.clients_settings import check_settings
from dapple_dp.pipelines.run.graph import run_graph
from dapple_dp.schemas.choices import MaskScheme
from dapple_dp.schemas.errors import NotYetError
from dapple_dp.schemas.kmeans.fit_config import FitConfig
from dapple_dp.schemas.masked.exchange import MaskedMessages
from dapple_dp.schemas.masked.pairwise_messages import Leg
from dapple_dp.transforms.files.file_bytes import make_folder
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.masked.clients import UploadMessages
from dapple_dp.transforms.masked.exchange_files import COUNTERSIGNED, Exchange
from dapple_dp.transforms.masked.pairwise_files import PairwiseExchange
from dapple_dp.transforms.masked.party_state import RunState
from dapple_dp.transforms.masked.sealing import Sealing
from dapple_dp.transforms.masked.signing import Parties, signing_parties
from dapple_dp.transforms.tables.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


def _send(
    batches: list[MaskedMessages],
    folder: str,
    index: int,
    client: str,
    sealing: Sealing,
    parties: Parties | None,
    kept: RunState,
) -> None:
    """Sends all messages of the client at once, or its earlier answer again."""
    Exchange(folder, parties, kept).send(index, client, MaskedMessages.joined(batches), sealing)


def build(root: beam.Pipeline, planned: PlannedFit, opened: OpenRound) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      planned: the job; with privacy unit `client`, each client of its data is in one shard.
      opened: the round.
    """
    contract = message_contract(planned)
    masking = dataclasses.replace(opened.masking, root=planned.source.path)
    shards = root | "List" >> ListShards(source=planned.source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    upload = UploadMessages(
        round=planned.rounds[opened.index], state=opened.broadcast(root), contract=contract, masking=masking
    )
    place = (opened.exchange, opened.index, masking.client)
    send = beam.Map(_send, *place, opened.sealed_for(), opened.parties, opened.kept)
    _ = shards | "Upload" >> upload | "All" >> beam.combiners.ToList() | "Send" >> send


def _send_messages(role: ClientsRole, client: str, options: PipelineOptions, index: int, state: Any) -> None:
    """Sends the masked statistics of the open round."""
    if role.exchange.is_closed(index):
        raise NotYetError(f"round {index} is already closed; run `dapple masked unmask`.")
    opened = role.open_round(index, state, client)
    with role.staged(options, client, opened.key_uri) as job:
        run_graph(functools.partial(build, planned=job, opened=opened), options, role.step_promise)
    _LOGGER.info("sent: round %d, %s", index, role.plan().rounds[index].path)


def _planned(run: Run[FitConfig]) -> ClientsRole | Summary:
    """Returns the role of the client, or a summary if it only had to send an earlier answer again.

    Doesn't touch the rows unless they are needed, since they may have changed or been deleted.
    """
    config, options = run.settings, run.options
    check_settings(config, options.exchange, options.released, options.client)
    parties = signing_parties(config.masked.parties, config.masked.identity_uri, options.client)
    plan = Exchange(options.exchange, parties).plan()
    kept = party_state(config, options.client).of_run(plan.nonce)
    exchange = PairwiseExchange(options.exchange, parties, kept)
    index = exchange.last_round()
    pairwise = config.masked.scheme is MaskScheme.PAIRWISE
    leg = exchange.leg(index)
    if leg is not Leg.SHARES and exchange.send_again(index, leg, options.client):
        if leg is Leg.MESSAGES:
            kept.unpin(plan.rounds[index].path)
        _LOGGER.info("sent again: round %d, %s", index, leg)
        return {"run_id": plan.run, "client": options.client, "round": index} | ({"leg": leg} if pairwise else {})
    if leg is Leg.SHARES or kept.is_pinned(plan.rounds[index].path):
        run = dataclasses.replace(run, settings=_of_columns(config, kept))
    return planned_role(run)


def _of_columns(config: FitConfig, kept: RunState) -> FitConfig:
    """Replaces the rows of a job with a stored file of their columns, if there is one."""
    if not STORE.exists(kept.columns_uri):
        return config
    data = config.data.model_copy(update={"path": kept.columns_uri, "table": None, "partitions": {}, "csv": None})
    return config.model_copy(update={"data": data})


def _work(run: Run[FitConfig], role: ClientsRole | Summary) -> Summary:
    """Sends what the open round needs from this client."""
    if not isinstance(role, ClientsRole):
        return role
    plan, index, state = role.plan(), role.exchange.last_round(), role.state()
    client, beam_flags = run.options.client, run.options.beam
    role.end_what_is_over(index, client)
    role.check_step(index, state, client)
    role.keep_columns(client)
    make_folder(role.released)
    sent: Summary = {"run_id": plan.run, "client": client, "round": index}
    if plan.pairwise is not None:
        return sent | {"leg": pairwise_upload.take_leg(role, client, beam_flags, index, state)}
    if plan.shares is not None and role.exchange.is_closed(index):
        role.countersign(index, client)
        return sent | {"leg": COUNTERSIGNED}
    _send_messages(role, client, beam_flags, index, state)
    return sent


JOB = clients_job("upload", _planned, _work, "--client")
