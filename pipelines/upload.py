"""The `upload` job, clients' role: the masked statistics of one client for the round that is open.

With pairwise masks it takes whatever leg of the round comes next: keys, letters, messages, shares.
"""

import dataclasses
import functools
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

from pipelines import pairwise_upload
from pipelines.client_staging import staged_by_client
from pipelines.clients_role import ClientsRole
from pipelines.graph import run_graph
from pipelines.options import parse_role, read_text
from pipelines.prepared_fit import PreparedFit, message_contract
from schemas.config import load_config
from schemas.errors import ProtocolError
from schemas.masked_message import MaskedMessages
from transforms.client_messages import Masking, UploadMessages
from transforms.exchange_files import Exchange
from transforms.publish import make_folder
from transforms.read import CheckRows, ListShards

_LOGGER = logging.getLogger(__name__)


def _send(messages: MaskedMessages, folder: str, index: int, client: str) -> None:
    Exchange(folder).send(index, client, messages)


def build(root: beam.Pipeline, prepared: PreparedFit, masking: Masking, index: int, state: Any, folder: str) -> None:
    """Adds the job to a pipeline.

    Args:
      root: an empty pipeline.
      prepared: the job; with privacy unit `client`, no client of its data lies in several shards.
      masking: of this client.
      index: of the round.
      state: what is broadcast in it.
      folder: the exchange.
    """
    contract = message_contract(prepared)
    shards = root | "List" >> ListShards(source=prepared.source, contract=contract)
    _ = shards | "CheckRows" >> CheckRows()
    broadcast = root | "Public" >> beam.Create([state], reshuffle=False)
    upload = UploadMessages(round=prepared.rounds[index], state=broadcast, contract=contract, masking=masking)
    _ = shards | "Upload" >> upload | "Send" >> beam.Map(_send, folder, index, masking.client)


def run(argv: Sequence[str]) -> dict[str, Any]:
    """The command: sends what the open round waits for of this client; running it again sends the same octets.

    Raises:
      DappleError: what stopped it, in one sentence.
    """
    options = parse_role("upload", argv, ("--released", "--client"))
    role = ClientsRole.from_config(load_config(read_text(options.config)), options.exchange, options.released)
    plan, index, state = role.plan(), role.exchange.last_round(), role.state()
    role.check_step(index, state)
    make_folder(role.released)
    sent = {"run_id": plan.run, "client": options.client, "round": index}
    if plan.pairwise is not None:
        return sent | {"leg": pairwise_upload.take_leg(role, options.client, options.beam, index, state)}
    if role.exchange.is_closed(index):
        raise ProtocolError(f"round {index} must be open to send to it, got a closed one; run `dapple unmask`.")
    masking = role.masking(plan, options.client)
    staging = f"{role.released}/{options.client}"
    with staged_by_client(role.prepared.rows, options.beam, masking.secret_uri, staging) as rows:
        job = dataclasses.replace(role.prepared, source=rows.source, contract=rows.contract)
        add = functools.partial(
            build, prepared=job, masking=masking, index=index, state=state, folder=role.exchange.folder
        )
        run_graph(add, options.beam)
    _LOGGER.info("sent: round %d, %s", index, plan.rounds[index].path)
    return sent
