"""The exchange folder of masked aggregation: its files, each written once by one party, and their readers.

    plan.json                        written by the clients' role when the run is opened
    aggregator.json                  written by the aggregator: the public key that messages are sealed to
    00_outer_product/broadcast.json  written by the clients' role: the round is open
    00_outer_product/messages/*      written by clients, sealed for the aggregator; a retry writes the same bytes
    00_outer_product/sum.parquet     written by the aggregator: the round is closed, its senders are final
    00_outer_product/countersigned/* written by clients that split the noise: the lists and sum they were shown
    refused/*                        written by parties whose job is not that of the run: names of settings, no values

No code here needs a secret, and no file is private to anyone without one. With `Parties` each file
ends with the signature of its writer; the clients' role signs as the collector when it opens runs and rounds.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

from dapple_dp.schemas.core.plan import RoundPlan
from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import NotYetError, ProtocolError
from dapple_dp.schemas.masked.config import AGGREGATOR, COLLECTOR, OFFICES
from dapple_dp.schemas.masked.exchange import (
    AggregatorContent,
    BroadcastContent,
    CountersignedContent,
    ExchangePlan,
    MaskedMessages,
    MaskedReleases,
    RefusedContent,
    messages_from_table,
    messages_to_table,
    sum_from_table,
    sum_to_table,
)
from dapple_dp.schemas.privacy.release_table import releases_from_table
from dapple_dp.schemas.settings import json_schema, json_text
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import files_in, table_bytes, write_once
from dapple_dp.transforms.files.stores import STORE, StoredFile, is_away, join
from dapple_dp.transforms.masked.party_state import RunState
from dapple_dp.transforms.masked.sealing import SEALED, Sealing
from dapple_dp.transforms.masked.signing import Parties, Signed
from dapple_dp.transforms.masked.table_forms import messages_form, releases_form, sum_form
from dapple_dp.transforms.numerics.masked.public_keys import is_sound, unseal

_LOGGER = logging.getLogger(__name__)
_MOST_BROADCAST_BYTES = 1 << 16
_PLAN, _BROADCAST, _SUM = "plan.json", "broadcast.json", "sum.parquet"
_AGGREGATOR = "aggregator.json"
COUNTERSIGNED = "countersigned"
"""Folder of the files in which clients sign the list and sum that they were shown for a closed round."""
REFUSED = "refused"
MESSAGES = "messages"
"""Folder of the messages, and the purpose of the aggregator's key."""
_Content = TypeVar("_Content")


class Exchange:
    """A folder on any Beam filesystem that all roles can reach.

    Args:
      folder: need not exist yet.
      parties: signers of the files; None for files without signatures.
      kept: state of the client's messages; None for a party that sends nothing.

    `left_out` names the invalid files that were read and left out.
    """

    def __init__(self, folder: str, parties: Parties | None = None, kept: RunState | None = None):
        self.folder = folder.rstrip("/")
        self.parties = parties
        self.kept = kept
        self.left_out: list[str] = []
        self._plan: ExchangePlan | None = None
        self._plan_digest = b""

    def is_open(self) -> bool:
        """Returns whether there is a plan."""
        return STORE.exists(self._path(_PLAN))

    def open(self, plan: ExchangePlan) -> None:
        """Writes the plan; raises ProtocolError if there is another one."""
        self._write(self._path(_PLAN), plan.to_json().encode(), COLLECTOR, "plan")

    def plan(self) -> ExchangePlan:
        """Returns the plan, which is read once; raises ProtocolError if there is none."""
        if self._plan is not None:
            return self._plan
        if not self.is_open():
            raise NotYetError(f"no plan.json in {self.folder} (--exchange) yet; run `dapple masked unmask` first.")
        path = self._path(_PLAN)
        content = self._raw(path, _refusal(path), COLLECTOR, "plan")
        self._plan, self._plan_digest = ExchangePlan.from_json(content), hashlib.sha256(content).digest()
        return self._plan

    def has_key(self) -> bool:
        """Returns whether the aggregator has published the key that messages are sealed to."""
        return STORE.exists(self._path(_AGGREGATOR))

    def publish_key(self, public: bytes) -> bool:
        """Publishes the key that messages are sealed to; returns False if it is there, ProtocolError if another is."""
        said = self.has_key()
        self._write(self._path(_AGGREGATOR), json.dumps(with_number({"key": public.hex()})).encode(), AGGREGATOR, "key")
        return not said

    def aggregator_key(self) -> bytes:
        """Reads the public key that messages are sealed to.

        Raises:
          ProtocolError: if the aggregator hasn't published it, or it isn't a valid key.
        """
        path = self._path(_AGGREGATOR)
        if not self.has_key():
            raise NotYetError(
                f"the aggregator's key is not in {self.folder} (--exchange) yet; run `dapple masked aggregate` first."
            )
        rule = "aggregator.json must hold a public key"
        refusal = Refusal(kind=ProtocolError, rule=rule, remedy="open a new run")
        key = bytes.fromhex(self._json(path, AggregatorContent, refusal, AGGREGATOR, "key").key)
        if not is_sound(key):
            raise refusal.because("something else")
        return key

    def open_round(self, index: int, digest: bytes) -> None:
        """Opens a round: messages under this broadcast may be sent."""
        content = with_number({"broadcast": digest.hex(), "round": self.plan().rounds[index].path})
        path = self._path(self._round(index), _BROADCAST)
        self._write(path, json.dumps(content).encode(), COLLECTOR, "broadcast", index)

    def last_round(self) -> int:
        """Returns the index of the last open round; raises ProtocolError if there is none."""
        opened = [i for i in range(len(self.plan().rounds)) if STORE.exists(self._path(self._round(i), _BROADCAST))]
        if not opened:
            raise NotYetError("no round is open yet; run `dapple masked unmask` first.")
        return opened[-1]

    def broadcast(self, index: int) -> bytes:
        """Returns the digest of a round's broadcast."""
        path = self._path(self._round(index), _BROADCAST)
        kind = (COLLECTOR, "broadcast", index)
        found = self._json(path, BroadcastContent, _refusal(path), *kind, most_bytes=_MOST_BROADCAST_BYTES)
        if found.round != self.plan().rounds[index].path:
            raise _refusal(path).because("that of another round")
        return bytes.fromhex(found.broadcast)

    def is_closed(self, index: int) -> bool:
        """Returns whether the aggregator has closed the round."""
        return STORE.exists(self._path(self._round(index), _SUM))

    def send(self, index: int, client: str, messages: MaskedMessages, sealing: Sealing) -> None:
        """Writes all messages of a client for the aggregator into one sealed file; does nothing without messages.

        Raises:
          ProtocolError: if another file is there.
        """
        path = self._sent_path(index, MESSAGES, client)
        content = b""
        if messages.senders:
            table = messages_to_table(messages, self.plan().rounds[index])
            content = sealing.seal(table_bytes(table), self._label(index, os.path.basename(path)))
        self._leave(path, content, client, MESSAGES, index)

    def send_again(self, index: int, leg: str, client: str) -> bool:
        """Writes again what a client has sent in a leg; returns False if nothing was decided yet.

        Raises:
          ProtocolError: if another file is there, or the run is over.
        """
        raw = None if self.kept is None else self.kept.sent(self.plan().rounds[index].path, leg)
        if raw:
            write_once(self._sent_path(index, leg, client), raw)
        return raw is not None

    def _leave(self, path: str, content: bytes, client: str, leg: str, index: int) -> None:
        """Writes what a client sends in a leg: what it decided to send first, even if its rows have changed."""
        raw = content and self._final(path, content, client, leg, index)
        if self.kept is not None:
            raw = self.kept.first(self.plan().rounds[index].path, leg, raw)
        if raw:
            write_once(path, raw)

    def _sent_path(self, index: int, leg: str, client: str) -> str:
        return self._path(self._round(index), leg, client + _ending(leg))

    def message_files(self, index: int) -> list[str]:
        """Returns the paths of the messages that have arrived, sorted."""
        return list(self._left(index, MESSAGES))

    def arrived(self, index: int, what: str) -> dict[str, StoredFile]:
        """Returns size and time of the files that clients have left in a leg or countersigned, unchecked, by client."""
        return {os.path.basename(path).rpartition(".")[0]: mark for path, mark in self._left(index, what).items()}

    def _left(self, index: int, what: str) -> dict[str, StoredFile]:
        """Returns the same as `arrived`, by path."""
        ending = ".json" if what == COUNTERSIGNED else _ending(what)
        return marks(self._path(self._round(index), what), ending)

    def read_messages(self, index: int, path: str, private: bytes) -> MaskedMessages:
        """Reads the messages of a file; raises ProtocolError if it doesn't hold messages sealed for this reader."""
        sealed = self._raw(path, table_refusal(path), self._client(path), MESSAGES, index)
        content = unseal(sealed, private, self._label(index, os.path.basename(path)))
        if content is None:
            raise ProtocolError(
                f"{path} must be sealed for this aggregator, this round and the client that it is named after; remove "
                "it or have it sent again."
            )
        plan = self.plan().rounds[index]
        return messages_from_table(untrusted.table_of(content, table_refusal(path), messages_form(plan)), plan)

    def sound_messages(self, index: int, private: bytes) -> list[str]:
        """Returns the paths of messages that can be added up; leaves out invalid files, so they block no others."""
        result = []
        for path in self.message_files(index):
            with self.leaving_out(path):
                self._check_senders(index, path, self.read_messages(index, path, private).senders)
                result.append(path)
        return result

    def _check_senders(self, index: int, path: str, senders: tuple[bytes, ...]) -> None:
        if len(set(senders)) < len(senders):
            raise ProtocolError(f"{path} holds two messages of one sender; remove it.")

    @contextlib.contextmanager
    def leaving_out(self, path: str) -> Iterator[None]:
        """Continues without a file that is refused inside the context, and records it."""
        try:
            yield
        except ProtocolError as error:
            if is_away(error):
                raise
            name = path.removeprefix(self.folder).lstrip("/")
            if name not in self.left_out:
                self.left_out.append(name)
                _LOGGER.warning("left out: %s", error)

    def _label(self, index: int, name: str) -> bytes:
        """Returns the label of a sealed file."""
        return encode_label(self.plan().nonce, self.plan().rounds[index].path, name)

    def close_round(self, index: int, masked: MaskedReleases) -> None:
        """Writes the noised masked sum and its senders; raises ProtocolError if another sum closed the round."""
        content = table_bytes(sum_to_table(masked, self.plan().rounds[index]))
        self._write(self._path(self._round(index), _SUM), content, AGGREGATOR, "sum", index)

    def read_sum(self, index: int, plan: RoundPlan | None = None) -> tuple[MaskedReleases, str]:
        """Reads the sum of a closed round, and the digest of its file.

        Args:
          index: of the round.
          plan: of the round, from the reader's job; None to use that of `plan.json`.

        Raises:
          ProtocolError: if the round isn't closed, or the file isn't its sum.
        """
        if not self.is_closed(index):
            raise NotYetError(f"round {index} has no sum yet; run `dapple masked aggregate` first.")
        path = self._path(self._round(index), _SUM)
        content = self._raw(path, table_refusal(path), AGGREGATOR, "sum", index)
        plan = plan or self.plan().rounds[index]
        found = sum_from_table(untrusted.table_of(content, table_refusal(path), sum_form(plan)), plan)
        return found, hashlib.sha256(content).hexdigest()

    def countersign(self, index: int, client: str, shown: str) -> None:
        """Signs what a client was shown of a closed round; raises ProtocolError if it has signed something else."""
        content = json.dumps(with_number({"shown": shown})).encode()
        self._write(self._countersigned(index, client), content, client, COUNTERSIGNED, index)

    def has_countersigned(self, index: int, client: str) -> bool:
        """Returns whether a client has signed what it was shown."""
        return STORE.exists(self._countersigned(index, client))

    def check_countersigned(self, index: int, shown: str, fewest: int) -> None:
        """Refuses to answer a sum that too few clients have seen, or that others saw differently.

        Args:
          index: of a closed round.
          shown: digest of what this party was shown.
          fewest: clients that must have signed the same.

        Raises:
          ProtocolError: naming a client that was shown something else.
        """
        signers = {}
        for path in self._left(index, COUNTERSIGNED):
            with self.leaving_out(path):
                client = self._client(path)
                rule = f"{path} must be a countersignature"
                refusal = Refusal(kind=ProtocolError, rule=rule, remedy=f"remove it and ask {client} for its own")
                signers[client] = self._json(path, CountersignedContent, refusal, client, COUNTERSIGNED, index).shown
        for client, found in signers.items():
            if found != shown:
                raise ProtocolError(
                    f"{AGGREGATOR} must show all clients the same sum and the same list of who is present, but "
                    f"{client} has countersigned another one; neither is answered, so open a new run."
                )
        if len(signers) < fewest:
            raise NotYetError(
                f"at least {fewest} clients must have countersigned the sum of round {index}, got {len(signers)}; wait "
                "until others have run `dapple masked upload`."
            )

    def refuse(self, party: str, keys: Sequence[str]) -> None:
        """Records that a party doesn't take part, since its job differs in these settings."""
        content = json.dumps(with_number({"keys": list(keys)})).encode()
        path = self._refused(party)
        STORE.delete(path)
        self._write(path, content, party, REFUSED)

    def take_part(self, party: str) -> None:
        """Withdraws a party's refusal."""
        if STORE.exists(self._refused(party)):
            STORE.delete(self._refused(party))

    def refusals(self) -> dict[str, tuple[str, ...]]:
        """Returns the settings in which jobs differ, by refusing party; leaves out files without a valid signature."""
        result = {}
        for path in marks(self._path(REFUSED), ".json"):
            with self.leaving_out(path):
                party = os.path.basename(path).rpartition(".")[0]
                if self.parties is not None and party not in OFFICES:
                    self.parties.check_client(party, path)
                refusal = Refusal(kind=ProtocolError, rule=f"{path} must be a refusal", remedy="remove it")
                result[party] = self._json(path, RefusedContent, refusal, party, REFUSED).keys
        return result

    def _refused(self, party: str) -> str:
        return self._path(REFUSED, f"{party}.json")

    def _countersigned(self, index: int, client: str) -> str:
        return self._path(self._round(index), COUNTERSIGNED, f"{client}.json")

    def _round(self, index: int) -> str:
        return f"{index:02d}_{self.plan().rounds[index].path.rpartition('/')[2]}"

    def _client(self, path: str) -> str:
        """Returns the client that a file is named after; with parties it must be one of them."""
        name = os.path.basename(path).rpartition(".")[0]
        if self.parties is not None:
            self.parties.check_client(name, path)
        return name

    def _signed(self, party: str, kind: str, index: int | None) -> Signed:
        """Returns the identity of a file that its signature covers."""
        if kind == "plan":
            return Signed(party=party, kind=kind)
        run = Signed(party=party, kind=kind, nonce=self.plan().nonce, plan=self._plan_digest)
        if index is None:
            return run
        broadcast = b"" if kind == "broadcast" else self.broadcast(index)
        return run._replace(round=self.plan().rounds[index].path, broadcast=broadcast)

    def _write(self, path: str, content: bytes, party: str, kind: str, index: int | None = None) -> None:
        """Writes a file once; with parties, signed.

        Raises:
          ProtocolError: if another file is there, or the file is another party's to write.
        """
        if self.parties is not None and party != self.parties.own and STORE.exists(path):
            what = self._signed(party, kind, index)
            there = self.parties.verified(untrusted.read_bytes(path, _refusal(path)), what, path)
            if there == content:
                return
        write_once(path, self._final(path, content, party, kind, index))

    def _final(self, path: str, content: bytes, party: str, kind: str, index: int | None) -> bytes:
        """Returns the bytes of a file; with parties, signed."""
        return content if self.parties is None else self.parties.sign(content, self._signed(party, kind, index), path)

    def _raw(
        self,
        path: str,
        refusal: Refusal,
        party: str,
        kind: str,
        index: int | None = None,
        most_bytes: int = untrusted.MOST_BYTES,
    ) -> bytes:
        """Reads the content of a file; with parties, verifies the party's signature."""
        raw = untrusted.read_bytes(path, refusal, most_bytes)
        return raw if self.parties is None else self.parties.verified(raw, self._signed(party, kind, index), path)

    def _json(
        self,
        path: str,
        model: type[_Content],
        refusal: Refusal,
        party: str,
        kind: str,
        index: int | None = None,
        most_bytes: int = json_text.MOST_BYTES,
    ) -> _Content:
        return json_schema.parse_as(
            self._raw(path, refusal, party, kind, index, most_bytes), model, refusal, most_bytes
        )

    def _path(self, *parts: str) -> str:
        return join(self.folder, *parts)


def _ending(leg: str) -> str:
    return SEALED if leg == MESSAGES else ".parquet"


def marks(folder: str, ending: str) -> dict[str, StoredFile]:
    """Returns size and time of files, by path, sorted; they distinguish a file from another in its place."""
    return {file.path: StoredFile(file.size, file.changed) for file in files_in(folder, ending)}


def read_releases(path: str, plan: RoundPlan) -> tuple[Release, ...]:
    """Reads the releases of a round; raises ProtocolError if they can't be read."""
    refusal = table_refusal(path)
    with refusal.covers():
        return releases_from_table(untrusted.read_table(path, refusal, releases_form(plan)))


def table_refusal(path: str) -> Refusal:
    """Creates the refusal of a file that isn't a table."""
    rule = f"{path} must be a readable Parquet file"
    return Refusal(kind=ProtocolError, rule=rule, remedy="remove it or have it sent again")


def _refusal(path: str) -> Refusal:
    """Creates the refusal of a file that `dapple masked unmask` did not write."""
    return Refusal(
        kind=ProtocolError, rule=f"{path} must be what `dapple masked unmask` wrote", remedy="open a new run"
    )
