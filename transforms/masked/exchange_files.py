"""The exchange folder of masked aggregation: who writes which file, once, and how it is read.

    plan.json                        written by the clients' role when the run is opened
    aggregator.json                  written by the aggregator: the public key that messages are sealed to
    00_outer_product/broadcast.json  written by the clients' role: the round is open
    00_outer_product/messages/*      written by clients, sealed for the aggregator; a retry writes the same octets
    00_outer_product/sum.parquet     written by the aggregator: the round is closed, who is in it is final

Nothing here needs a secret, and nothing that is written here is private to whoever holds none.
"""

import hashlib
import json
import os

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ProtocolError
from schemas.masked.exchange import (
    AggregatorContent,
    BroadcastContent,
    ExchangePlan,
    messages_from_table,
    messages_to_table,
    sum_from_table,
    sum_to_table,
)
from schemas.masked.message import MaskedMessages
from schemas.privacy.masked_sum import MaskedReleases
from schemas.privacy.plan import RoundPlan
from schemas.settings.refusal import Refusal
from transforms.files import gate
from transforms.files.octets import table_bytes
from transforms.files.write_once import write_once
from transforms.masked.sealing import SEALED, Sealing
from transforms.numerics.masked.public_keys import is_sound
from transforms.numerics.masked.sealed import unseal
from transforms.numerics.privacy.keystream import encode_label

_MOST_BROADCAST_BYTES = 1 << 16
_PLAN, _BROADCAST, _MESSAGES, _SUM = "plan.json", "broadcast.json", "messages", "sum.parquet"
_AGGREGATOR = "aggregator.json"
MESSAGES = "messages"
"""What the aggregator's key is for."""


class Exchange:
    """A folder on any Beam filesystem that all roles can reach.

    Args:
      folder: may not exist yet.
    """

    def __init__(self, folder: str):
        self.folder = folder.rstrip("/")
        self._plan: ExchangePlan | None = None

    def is_open(self) -> bool:
        """Whether there is a plan."""
        return FileSystems.exists(self._path(_PLAN))

    def open(self, plan: ExchangePlan) -> None:
        """Writes the plan; raises ProtocolError if there is another one."""
        write_once(self._path(_PLAN), plan.to_json().encode())

    def plan(self) -> ExchangePlan:
        """The plan, which is read once; raises ProtocolError if there is none."""
        if self._plan is not None:
            return self._plan
        if not self.is_open():
            raise ProtocolError(
                f"--exchange must hold a plan.json, got none in {self.folder}; run `dapple unmask` first."
            )
        path = self._path(_PLAN)
        self._plan = ExchangePlan.from_json(gate.read_octets(path, _refusal(path)))
        return self._plan

    def publish_key(self, public: bytes) -> bool:
        """Says what messages are sealed to; False if it was said before, ProtocolError if there is another key."""
        said = FileSystems.exists(self._path(_AGGREGATOR))
        write_once(self._path(_AGGREGATOR), json.dumps({"key": public.hex()}).encode())
        return not said

    def aggregator_key(self) -> bytes:
        """What messages are sealed to.

        Raises:
          ProtocolError: if the aggregator has not said it, or the key is none.
        """
        path = self._path(_AGGREGATOR)
        if not FileSystems.exists(path):
            raise ProtocolError(
                f"--exchange must hold the aggregator's key, got none in {self.folder}; run `dapple aggregate` first."
            )
        rule = "aggregator.json must hold a public key"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy="open a new run")
        key = bytes.fromhex(gate.read_json(path, AggregatorContent, refusal).key)
        if not is_sound(key):
            raise refusal.because("something else")
        return key

    def open_round(self, index: int, digest: bytes) -> None:
        """Says that messages under this broadcast may be sent."""
        content = {"broadcast": digest.hex(), "round": self.plan().rounds[index].path}
        write_once(self._path(self._round(index), _BROADCAST), json.dumps(content).encode())

    def last_round(self) -> int:
        """Index of the last round that was opened; raises ProtocolError if none was."""
        opened = [
            i for i in range(len(self.plan().rounds)) if FileSystems.exists(self._path(self._round(i), _BROADCAST))
        ]
        if not opened:
            raise ProtocolError("a round must be open, got a plan in which none is; run `dapple unmask` first.")
        return opened[-1]

    def broadcast(self, index: int) -> bytes:
        """Digest of what is broadcast in a round."""
        path = self._path(self._round(index), _BROADCAST)
        found = gate.read_json(path, BroadcastContent, _refusal(path), _MOST_BROADCAST_BYTES)
        if found.round != self.plan().rounds[index].path:
            raise _refusal(path).because("that of another round")
        return bytes.fromhex(found.broadcast)

    def is_closed(self, index: int) -> bool:
        """Whether the aggregator has said who is in the round."""
        return FileSystems.exists(self._path(self._round(index), _SUM))

    def send(self, index: int, client: str, messages: MaskedMessages, sealing: Sealing) -> None:
        """Leaves all messages of a client for the aggregator, in one file, sealed.

        Raises:
          ProtocolError: if the client sent others before in this round.
        """
        content = table_bytes(messages_to_table(messages, self.plan().rounds[index]))
        name = f"{client}{SEALED}"
        sealed = sealing.seal(content, self._label(index, name))
        write_once(self._path(self._round(index), _MESSAGES, name), sealed)

    def message_files(self, index: int) -> list[str]:
        """Paths of the messages that have arrived, sorted."""
        pattern = self._path(self._round(index), _MESSAGES, f"*{SEALED}")
        return sorted(entry.path for entry in FileSystems.match([pattern])[0].metadata_list)

    def read_messages(self, index: int, path: str, private: bytes) -> MaskedMessages:
        """Messages of one file; raises ProtocolError if it is no file of messages that was sealed for this reader."""
        sealed = gate.read_octets(path, table_refusal(path))
        content = unseal(sealed, private, self._label(index, os.path.basename(path)))
        if content is None:
            raise ProtocolError(
                f"{path} must be sealed for this aggregator, this round and the client it is called after, got another "
                "file; take it away or have it sent again."
            )
        return messages_from_table(gate.table_of(content, table_refusal(path)), self.plan().rounds[index])

    def _label(self, index: int, name: str) -> bytes:
        """What a sealed file is."""
        return encode_label(self.plan().nonce, self.plan().rounds[index].path, name)

    def close_round(self, index: int, masked: MaskedReleases) -> None:
        """Writes the noised masked sum and who is in it; raises ProtocolError if the round was closed otherwise."""
        content = table_bytes(sum_to_table(masked, self.plan().rounds[index]))
        write_once(self._path(self._round(index), _SUM), content)

    def read_sum(self, index: int, plan: RoundPlan | None = None) -> tuple[MaskedReleases, str]:
        """The sum of a closed round, and the digest of its file.

        Args:
          index: of the round.
          plan: of the round, as the reader knows it; None to believe `plan.json`.

        Raises:
          ProtocolError: if the round is not closed, or the file is none of it.
        """
        if not self.is_closed(index):
            raise ProtocolError(f"round {index} must be closed, got no sum yet; run `dapple aggregate` first.")
        path = self._path(self._round(index), _SUM)
        content = gate.read_octets(path, table_refusal(path))
        found = sum_from_table(gate.table_of(content, table_refusal(path)), plan or self.plan().rounds[index])
        return found, hashlib.sha256(content).hexdigest()

    def _round(self, index: int) -> str:
        """Name of a round's folder."""
        return f"{index:02d}_{self.plan().rounds[index].path.rpartition('/')[2]}"

    def _path(self, *parts: str) -> str:
        return FileSystems.join(self.folder, *parts)


def read_table(path: str) -> pa.Table:
    """A whole Parquet file; raises ProtocolError if it is none."""
    return gate.read_table(path, table_refusal(path))


def table_refusal(path: str) -> Refusal:
    """What the user is told of a file that is no table."""
    rule = f"{path} must be a readable Parquet file"
    return Refusal(kind=ProtocolError, rule=rule, remedy="take it away or have it sent again")


def _refusal(path: str) -> Refusal:
    """What the user is told of a file that `dapple unmask` did not write."""
    return Refusal(kind=ProtocolError, rule=f"{path} must be what `dapple unmask` wrote", remedy="open a new run")
