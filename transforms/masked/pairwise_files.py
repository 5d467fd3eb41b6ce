"""The exchange folder of a round with pairwise masks: two legs before its messages.

    00_outer_product/keys/*           written by clients: public keys
    00_outer_product/keys.parquet     written by the aggregator: all keys, final
    00_outer_product/letters/*        written by clients: shares, sealed for their neighbors
    00_outer_product/letters.parquet  written by the aggregator: all letters; the senders who have shared are final

Messages and sum follow as with a shared secret. The shares that clients hand out last are never here: they go to the
folder of releases, out of the aggregator's reach. No code here needs a secret.
"""

import hashlib
from collections.abc import Sequence

from dapple_dp.schemas.errors import NotYetError, ProtocolError
from dapple_dp.schemas.masked.config import AGGREGATOR, PairwiseParams
from dapple_dp.schemas.masked.pairwise_messages import (
    LETTER_BYTES,
    Leg,
    Letter,
    SenderKeys,
    Sent,
    sent_from_table,
    sent_to_table,
)
from dapple_dp.schemas.privacy.noise_shares import ShareLaw
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import table_bytes
from dapple_dp.transforms.files.stores import STORE
from dapple_dp.transforms.masked.exchange_files import Exchange, table_refusal
from dapple_dp.transforms.masked.table_forms import sent_form
from dapple_dp.transforms.numerics.masked import neighbors
from dapple_dp.transforms.numerics.masked.public_keys import is_sound

FEWEST_CLIENTS = 3


class PairwiseExchange(Exchange):
    """An `Exchange` with the files of the first two legs."""

    _shared: dict[bytes, bytes] | None = None
    """Numbers, as in messages, of those who have shared, by pseudonym; set while messages are checked."""

    def leg(self, index: int) -> Leg:
        """Returns the leg that the round waits for."""
        if self.is_closed(index):
            return Leg.SHARES
        if self.plan().pairwise is None:
            return Leg.MESSAGES
        done = {leg: STORE.exists(self._list_path(index, leg)) for leg in (Leg.KEYS, Leg.LETTERS)}
        return next((leg for leg, there in done.items() if not there), Leg.MESSAGES)

    def digest(self, index: int, leg: Leg) -> str:
        """Returns the SHA-256 of the list that closed a leg."""
        path = self._list_path(index, leg)
        return hashlib.sha256(self._raw(path, table_refusal(path), AGGREGATOR, _list(leg), index)).hexdigest()

    def send_rows(self, index: int, leg: Leg, client: str, rows: Sequence[Sent]) -> None:
        """Writes all keys or letters of a client into one file; raises ProtocolError if another one is there."""
        content = table_bytes(sent_to_table(sorted(rows), type(rows[0]), self._name(index))) if rows else b""
        self._leave(self._sent_path(index, leg, client), content, client, leg, index)

    def hand_out(self, index: int, file: str, sealed: bytes) -> None:
        """Writes the shares of the client that the file is named after; raises ProtocolError if it wrote others."""
        self._write(file, sealed, self._client(file), Leg.SHARES, index)

    def handed_out(self, index: int, file: str) -> bytes:
        """Reads the sealed shares that a client has handed out; raises ProtocolError if the client is unknown."""
        return self._raw(file, table_refusal(file), self._client(file), Leg.SHARES, index)

    def own_keys(self, index: int, client: str) -> list[SenderKeys]:
        """Reads the keys that a client has sent; raises ProtocolError if its file is another one."""
        path = self._sent_path(index, Leg.KEYS, client)
        return self._sent_in(path, SenderKeys, client, Leg.KEYS, index) if STORE.exists(path) else []

    def keys(self, index: int) -> list[SenderKeys]:
        """Reads all keys, ordered by pseudonym; a sender's index is its number."""
        return self._listed(index, Leg.KEYS, SenderKeys)

    def letters(self, index: int) -> list[Letter]:
        """Reads the letters on the list of a round, in its order."""
        return self._listed(index, Leg.LETTERS, Letter)

    def sound_messages(self, index: int, private: bytes) -> list[str]:
        """Returns the paths of messages that can be added up; with pairwise masks, only of senders who have shared."""
        if self.plan().pairwise is not None:
            shared = {letter.sender for letter in self.letters(index)}
            names = enumerate(each.sender for each in self.keys(index))
            self._shared = {name: number.to_bytes(8, "big") for number, name in names if number in shared}
        return super().sound_messages(index, private)

    def close_keys(self, index: int, threshold: int) -> None:
        """Lists the keys that have arrived; leaves out senders whose keys don't allow an agreement.

        Raises:
          ProtocolError: if there are too few for the threshold or for neighbors, or one sender's came twice.
        """
        arrived = self._gathered(index, Leg.KEYS, SenderKeys)
        found = sorted(each for each in arrived if each.sender and is_sound(each.mask) and is_sound(each.letters))
        _check_enough(len(found), max(threshold, FEWEST_CLIENTS))
        if len({each.sender for each in found}) < len(found):
            raise ProtocolError("two sets of keys of one sender have arrived in this round; remove one.")
        neighbors.parameters(len(found), *self._params())
        self._close(index, Leg.KEYS, found, SenderKeys)

    def close_letters(self, index: int, threshold: int) -> None:
        """Lists the letters that have arrived; leaves out those with unknown senders or receivers, or another length.

        Raises:
          ProtocolError: if there are too few senders, or a letter came twice.
        """
        numbers = range(len(self.keys(index)))
        found = sorted(each for each in self._gathered(index, Leg.LETTERS, Letter) if _is_letter(each, numbers))
        _check_enough(len({each.sender for each in found}), self.fewest(index, threshold))
        if len({each[:2] for each in found}) < len(found):
            raise ProtocolError("two letters of one sender to the same neighbor have arrived; remove one.")
        self._close(index, Leg.LETTERS, found, Letter)

    def n_listed(self, index: int) -> int:
        """Returns how many senders have sent keys, once they are listed."""
        return len(self.keys(index))

    def fewest(self, index: int, threshold: int) -> int:
        """Returns the fewest senders that may remain; with fewer, shares could be lost for good or noise too small."""
        law = self.plan().shares or ShareLaw(threshold=threshold, dropout=self._params().dropout)
        return max(threshold, law.fewest(self.n_listed(index)))

    def check_present(self, index: int, senders: Sequence[bytes]) -> None:
        """Raises ProtocolError if a message is from a sender who hasn't shared, since its mask couldn't be removed."""
        shared = {letter.sender.to_bytes(8, "big") for letter in self.letters(index)}
        if not shared.issuperset(senders):
            raise ProtocolError("a message comes from a sender whose letters are not listed; remove it.")

    def _check_senders(self, index: int, path: str, senders: tuple[bytes, ...]) -> None:
        """Refuses a file with senders who haven't shared or who belong to another client."""
        super()._check_senders(index, path, senders)
        if self._shared is not None:
            own = {self._shared.get(key.sender) for key in self.own_keys(index, self._client(path))}
            if not own.issuperset(senders):
                raise ProtocolError(
                    f"{path} must only hold messages of its client's own senders whose letters are listed; remove it."
                )

    def _params(self) -> PairwiseParams:
        pairwise = self.plan().pairwise
        if pairwise is None:
            raise ProtocolError("masks are not pairwise in plan.json but shared_secret; open a new run.")
        return pairwise

    def _gathered(self, index: int, leg: Leg, kind: type[Sent]) -> list[Sent]:
        """Reads the rows of all files of a leg; leaves out files that are invalid or from unknown clients."""
        found: list[Sent] = []
        for path in self._left(index, leg):
            with self.leaving_out(path):
                found += self._sent_in(path, kind, self._client(path), leg, index)
        return found

    def _sent_in(self, path: str, kind: type[Sent], party: str, what: str, index: int) -> list[Sent]:
        content, round_path = self._raw(path, table_refusal(path), party, what, index), self._name(index)
        table = untrusted.table_of(content, table_refusal(path), sent_form(kind, round_path))
        return sent_from_table(table, kind, round_path)

    def _close(self, index: int, leg: Leg, rows: Sequence[Sent], kind: type[Sent]) -> None:
        content = table_bytes(sent_to_table(rows, kind, self._name(index)))
        self._write(self._list_path(index, leg), content, AGGREGATOR, _list(leg), index)

    def _listed(self, index: int, leg: Leg, kind: type[Sent]) -> list[Sent]:
        """Reads the list that closed a leg; with parties, raises ProtocolError for a row that no client has signed."""
        path = self._list_path(index, leg)
        result = self._sent_in(path, kind, AGGREGATOR, _list(leg), index)
        if self.parties is not None and not set(result) <= set(self._gathered(index, leg, kind)):
            raise ProtocolError(
                f"{path} from {AGGREGATOR} must list what clients have signed, and lists something else; restore the "
                "clients' files, or open a new run."
            )
        return result

    def _list_path(self, index: int, leg: Leg) -> str:
        return self._path(self._round(index), f"{leg}.parquet")

    def _name(self, index: int) -> str:
        return self.plan().rounds[index].path


def _list(leg: Leg) -> str:
    """Returns the kind of the file that closes a leg."""
    return f"list of {leg}"


def _is_letter(letter: Letter, numbers: range) -> bool:
    """Returns whether a letter is from one sender to another, and as long as letters are."""
    apart = letter.sender in numbers and letter.receiver in numbers and letter.sender != letter.receiver
    return apart and len(letter.sealed) == LETTER_BYTES


def _check_enough(n_senders: int, fewest: int) -> None:
    if n_senders < fewest:
        raise NotYetError(f"fewer than {fewest} clients have sent theirs; wait for more of them.")
