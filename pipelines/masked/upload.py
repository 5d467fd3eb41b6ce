"""The `upload` job, clients' role: the masked statistics of one client for the round that is open.

With pairwise masks it takes whatever leg of the round comes next: keys, letters, messages, shares. Where clients split
the noise it countersigns the sum of a closed round.
"""

import dataclasses
import functools
import logging
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.kmeans.plan.planned_fit import PlannedFit, message_contract
from pipelines.masked import pairwise_upload
from pipelines.masked.clients_role import COUNTERSIGNED, ClientsRole, OpenRound, clients_job
from pipelines.run.graph import run_graph
from pipelines.run.jobs.job import Run
from pipelines.run.jobs.place import Summary
from schemas.errors import ProtocolError
from schemas.kmeans.fit_config import FitConfig
from schemas.masked.message import MaskedMessages
from transforms.files.octets import make_folder
from transforms.masked.clients import UploadMessages
from transforms.masked.exchange_files import Exchange
from transforms.masked.sealing import Sealing
from transforms.masked.signing import Parties
from transforms.tables.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


def _send(
    batches: list[MaskedMessages], folder: str, index: int, client: str, sealing: Sealing, parties: Parties | None
) -> None:
    """Sends all messages of the client at once, so that it can be told whether it sent others before."""
    if any(batch.senders for batch in batches):
        Exchange(folder, parties).send(index, client, MaskedMessages.joined(batches), sealing)


def build(root: beam.Pipeline, planned: PlannedFit, opened: OpenRound) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      planned: the job; with privacy unit `client`, no client of its data lies in several shards.
      opened: the round.
    """
    contract = message_contract(planned)
    masking = dataclasses.replace(opened.masking, root=planned.source.path)
    shards = root | "List" >> ListShards(source=planned.source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    upload = UploadMessages(
        round=planned.rounds[opened.index], state=opened.broadcast(root), contract=contract, masking=masking
    )
    send = beam.Map(_send, opened.exchange, opened.index, masking.client, opened.sealed_for(), opened.parties)
    _ = shards | "Upload" >> upload | "All" >> beam.combiners.ToList() | "Send" >> send


def _send_messages(role: ClientsRole, client: str, options: PipelineOptions, index: int, state: Any) -> None:
    """Sends the masked statistics of the open round; sending them again sends the same octets."""
    if role.exchange.is_closed(index):
        raise ProtocolError(f"round {index} must be open to send to it, got a closed one; run `dapple unmask`.")
    opened = role.open_round(index, state, client)
    with role.staged(options, client, opened.key_uri) as job:
        run_graph(functools.partial(build, planned=job, opened=opened), options, role.step_promise)
    _LOGGER.info("sent: round %d, %s", index, role.plan().rounds[index].path)


def _work(run: Run[FitConfig], role: ClientsRole) -> Summary:
    """Sends what the open round waits for of this client."""
    plan, index, state = role.plan(), role.exchange.last_round(), role.state()
    client, beam_flags = run.options.client, run.options.beam
    role.check_step(index, state, client)
    make_folder(role.released)
    sent: Summary = {"run_id": plan.run, "client": client, "round": index}
    if plan.pairwise is not None:
        return sent | {"leg": pairwise_upload.take_leg(role, client, beam_flags, index, state)}
    if plan.shares is not None and role.exchange.is_closed(index):
        role.countersign(index, client)
        return sent | {"leg": COUNTERSIGNED}
    _send_messages(role, client, beam_flags, index, state)
    return sent


JOB = clients_job("upload", _work, "--client")
