"""A party's answers, stored in a separate folder: asked twice, it repeats its first answer.

    STATE/PARTY/format.json                 the number of the format of all other files
    STATE/PARTY/seal.key, noise.key         made when the party is enrolled, and never again
    STATE/PARTY/run-RUN/NOTE                digest of what was answered: a broadcast, a list, a sum
    STATE/PARTY/run-RUN/ANSWER.sent         bytes that were sent, empty if there was nothing to send
    STATE/PARTY/run-RUN/ROUND.pinned, .key  content of a round's messages until they are sent, sealed
    STATE/PARTY/run-RUN/columns.parquet     names and types of the columns of its rows
    STATE/PARTY/run-RUN/over                mark of a run that answers nothing about rows any more

Masks, keys and names of senders follow from a secret, the nonce of a run and the rows. So a party that gets a nonce
answered twice could compare, and learn whether rows have changed. Parties and runs are named by digests: of a key and
a client's name, and of a nonce. A party has one state for all spellings of its key's place.
"""

import dataclasses
import hashlib
import json
import os
import stat
from typing import Self

from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.settings.format_number import with_number
from dapple_dp.schemas.settings.json_schema import NumberedFile, parse_as
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.files import untrusted
from dapple_dp.transforms.files.file_bytes import files_in, make_folder, write_once
from dapple_dp.transforms.files.stores import STORE, is_local, join
from dapple_dp.transforms.masked.sealing import Sealing, open_own
from dapple_dp.transforms.privacy.key_files import is_made, key_digest, make_key

SENT = ".sent"
_COLUMNS = "columns.parquet"
_RUN = "run-"
_OVER, _LAST = "over", "last round"
_SETTING = "masked.state_uri"
_SEAL_KEY, _NOISE_KEY = "seal.key", "noise.key"
_FORMAT = "format.json"
_PINNED, _PIN_KEY = ".pinned", ".key"
_PURPOSE = "pinned"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state that a party keeps of one run.

    Attributes:
      folder: of the run, in the state of the party.
    """

    folder: str

    def note(self, round_path: str, what: str, content: bytes) -> None:
        """Records the content that is about to be answered.

        Args:
          round_path: of the round; empty for the run.
          what: kind of the content: a broadcast, a list, a sum.
          content: to answer.

        Raises:
          ProtocolError: if other content was answered in this round of this run.
          ConfigError: if the record can't be written.
        """
        try:
            self._write(self._path(round_path, what), hashlib.sha256(content).hexdigest().encode())
        except ProtocolError as error:
            raise ProtocolError(
                f"a second {what} has arrived for a round that has one, under the same nonce; it gets no answer, so "
                "open a new run."
            ) from error

    def sent(self, round_path: str, leg: str) -> bytes | None:
        """Returns the content sent in a leg of a round; None if nothing was decided yet.

        Raises:
          ProtocolError: if the run is over.
        """
        self._check_goes_on()
        path = self._path(round_path, leg) + SENT
        return untrusted.read_bytes(path, _REFUSAL) if STORE.exists(path) else None

    def first(self, round_path: str, leg: str, content: bytes) -> bytes:
        """Returns the content to send in a leg of a round: this one, or an earlier decision; durable on return.

        Raises:
          ProtocolError: if the run is over.
          ConfigError: if it cannot be kept.
        """
        self._check_goes_on()
        return self._first(self._path(round_path, leg) + SENT, content)

    def is_pinned(self, round_path: str) -> bool:
        """Returns whether the content of a round's messages has been decided."""
        self._check_goes_on()
        return STORE.exists(self._pin(round_path) + _PINNED)

    def pin(self, round_path: str, content: bytes) -> None:
        """Decides the content of a round's messages, unless that was done before; ends earlier rounds.

        Raises:
          ProtocolError: if the run is over.
          ConfigError: if it cannot be kept.
        """
        self._check_goes_on()
        path = self._pin(round_path)
        self._remove_all(_PIN_KEY, _PINNED, but=path)
        make_folder(self.folder)
        _make_key(path + _PIN_KEY)
        self._first(path + _PINNED, Sealing.to_itself(path + _PIN_KEY, _PURPOSE).seal(content, _label(round_path)))

    def pinned(self, round_path: str) -> bytes:
        """Returns the pinned content.

        Raises:
          ProtocolError: if it is gone.
        """
        path = self._pin(round_path)
        if not STORE.exists(path + _PIN_KEY):
            raise _REFUSAL.because("none")
        sealed = untrusted.read_bytes(path + _PINNED, _REFUSAL)
        content = open_own(sealed, path + _PIN_KEY, _PURPOSE, _label(round_path))
        if content is None:
            raise _REFUSAL.because("another file")
        return content

    def unpin(self, round_path: str) -> None:
        """Destroys the pinned content: first its key, without which the rest is useless."""
        _remove(self._pin(round_path) + _PIN_KEY)
        _remove(self._pin(round_path) + _PINNED)

    def note_last(self) -> None:
        """Records that the run has come to its last round."""
        self.note("", _LAST, b"")

    def is_last(self) -> bool:
        """Returns whether the run has come to its last round and is not over."""
        there = (STORE.exists(path) for path in (self._path("", _LAST), join(self.folder, _OVER)))
        return tuple(there) == (True, False)

    def end(self) -> None:
        """Destroys all sent and pinned content; notes stay, and this run never answers anything about rows again."""
        self._write(join(self.folder, _OVER), b"")
        self._remove_all(_PIN_KEY, _PINNED, SENT)

    @property
    def columns_uri(self) -> str:
        """Place of a file with the columns that the party's rows had first, without a row."""
        return join(self.folder, _COLUMNS)

    def keep_columns(self, content: bytes) -> None:
        """Stores the file of columns, unless one is there."""
        self._first(self.columns_uri, content)

    def _remove_all(self, *endings: str, but: str = "") -> None:
        """Removes files by the ends of their names, in this order, except those that begin with `but`."""
        for ending in endings:
            for file in files_in(self.folder, ending):
                if not but or os.path.basename(file.path) != os.path.basename(but) + ending:
                    _remove(file.path)

    def _check_goes_on(self) -> None:
        """Refuses a run that is over, by its nonce alone."""
        if STORE.exists(join(self.folder, _OVER)):
            raise ProtocolError(
                "this party has ended or forgotten the run, so it answers nothing more; open a new run."
            )

    def _first(self, path: str, content: bytes) -> bytes:
        """Writes a file unless it exists, and returns its content."""
        try:
            self._write(path, content)
        except ProtocolError:
            return untrusted.read_bytes(path, _REFUSAL)
        return content

    def _write(self, path: str, content: bytes) -> None:
        try:
            make_folder(self.folder)
            write_once(path, content, private=True)
        except OSError as error:
            raise ConfigError(
                f"this party could not write to {self.folder} ({_SETTING}); mount a volume there that is writable."
            ) from error

    def _pin(self, round_path: str) -> str:
        return self._path(round_path, _PURPOSE)

    def _path(self, round_path: str, what: str) -> str:
        return join(self.folder, hashlib.sha256(_label(round_path, what)).hexdigest())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartyState:
    """The state of one party, identified by a key and a client.

    Attributes:
      folder: of the party.
    """

    folder: str

    @classmethod
    def of(cls, state_uri: str, secret_uri: str, client: str) -> Self:
        """Opens the state of an enrolled party.

        Args:
          state_uri: the folder of states.
          secret_uri: place of the party's key of masks.
          client: name of the client; empty for the party that unmasks.

        Raises:
          ConfigError: if others can read the folder, or the party isn't enrolled in it.
        """
        result = cls(folder=_folder(state_uri, secret_uri, client))
        _check_private(state_uri)
        if not all(map(STORE.exists, (result.seal_uri, result.noise_uri))):
            raise ConfigError(
                f"no state of {client or 'the collector'} with this secret in {state_uri} ({_SETTING}); run `dapple "
                "masked party enroll` once, and if the folder was lost, with a new secret."
            )
        rule, remedy = f"{_SETTING} must be of a format that this version reads", "enroll the party with a new secret"
        refusal = Refusal(kind=ConfigError, rule=rule, remedy=remedy)
        content = b"{}"
        if STORE.exists(path := join(result.folder, _FORMAT)):
            content = untrusted.read_bytes(path, refusal)
        parse_as(content, NumberedFile, refusal)
        return result

    @classmethod
    def enroll(cls, state_uri: str, secret_uri: str, client: str) -> Self:
        """Creates the state of a party; arguments as in `of`.

        Raises:
          ConfigError: if the party is enrolled already, or the folder is not for its owner only.
        """
        result = cls(folder=_folder(state_uri, secret_uri, client))
        try:
            make_folder(state_uri)
            _check_private(state_uri)
            make_folder(result.folder)
        except OSError as error:
            raise ConfigError(f"the folder {state_uri} ({_SETTING}) could not be created; choose another.") from error
        if is_made(result.seal_uri):
            raise ConfigError(f"{client or 'the collector'} is already enrolled in {state_uri}; use that state.")
        write_once(join(result.folder, _FORMAT), json.dumps(with_number({})).encode(), private=True)
        _make_key(result.noise_uri)
        make_key(result.seal_uri, f"the key in {_SETTING}")
        return result

    @property
    def seal_uri(self) -> str:
        """Place of a key of this client alone, with which it seals files."""
        return join(self.folder, _SEAL_KEY)

    @property
    def noise_uri(self) -> str:
        """Place of the key for its shares of noise, which is its own even if clients share the secret of masks."""
        return join(self.folder, _NOISE_KEY)

    def of_run(self, nonce: bytes) -> RunState:
        """Returns the stored state of a run."""
        return RunState(folder=join(self.folder, _RUN + hashlib.sha256(nonce).hexdigest()))

    def end_others(self, begun: RunState) -> None:
        """Ends all runs that have come to their last round when another one begins."""
        if not files_in(begun.folder):
            for run in self.runs():
                if run.is_last():
                    run.end()

    def runs(self) -> list[RunState]:
        """Returns all runs with stored state."""
        folders = {file.path.rpartition("/")[0] for file in STORE.list(join(self.folder, _RUN))}
        return [RunState(folder=folder) for folder in sorted(folders)]


_REFUSAL = Refusal(
    kind=ProtocolError,
    rule=f"what this party has stored or sent must be unchanged in {_SETTING}",
    remedy="open a new run",
)


def _folder(state_uri: str, secret_uri: str, client: str) -> str:
    label = encode_label("dapple: a party", key_digest(secret_uri, "masked.secret_uri"), client)
    return join(state_uri.rstrip("/"), hashlib.sha256(label).hexdigest())


def _check_private(state_uri: str) -> None:
    """Refuses a local folder that others can read."""
    if not is_local(state_uri) or not os.path.isdir(state_uri):
        return
    if stat.S_IMODE(os.stat(state_uri).st_mode) & 0o077:
        raise ConfigError(
            f"{_SETTING} must be a folder of mode 0700, but others can read it; run chmod 700 {state_uri}."
        )


def _make_key(uri: str) -> None:
    try:
        make_key(uri, f"the key in {_SETTING}")
    except ConfigError:
        if not STORE.exists(uri):
            raise


def _label(round_path: str, what: str = _PURPOSE) -> bytes:
    return encode_label(round_path, what)


def _remove(path: str) -> None:
    """Removes a file; a missing one is no error."""
    try:
        STORE.delete(path)
    except OSError:
        if STORE.exists(path):
            raise ConfigError(f"{path} ({_SETTING}) could not be removed; delete it.") from None
