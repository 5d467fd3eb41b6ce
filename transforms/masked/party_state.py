"""What a party keeps of its answers, in a folder of its own: asked twice, it gives its first answer.

    STATE/PARTY/format.json                 the number of the format of all that follows
    STATE/PARTY/seal.key, noise.key         made when the party is enrolled, and never again
    STATE/PARTY/run-RUN/NOTE                digest of what is answered for: a broadcast, a list, a sum
    STATE/PARTY/run-RUN/ANSWER.sent         bytes that were sent, empty if there was nothing to send
    STATE/PARTY/run-RUN/ROUND.pinned, .key  what the messages of a round are formed of, until they are sent: sealed
    STATE/PARTY/run-RUN/columns.parquet     names and types of the columns of its rows
    STATE/PARTY/run-RUN/over                nothing of rows is answered in this run any more

Masks, keys and names of senders follow from a secret, the nonce of a run and the rows. So a party that has a nonce
answered again, and compares, would learn whether rows have changed. Parties and runs are named by digests: of a key and
a client's name, of a nonce. However the place of a key is spelled, its party has one state.
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
from dapple_dp.transforms.files import gate
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
    """What a party keeps of one run.

    Attributes:
      folder: of the run, in the state of the party.
    """

    folder: str

    def note(self, round_path: str, what: str, content: bytes) -> None:
        """Notes what is answered for, before it is.

        Args:
          round_path: of the round; empty for the run.
          what: is answered for: a broadcast, a list, a sum.
          content: of it.

        Raises:
          ProtocolError: if something else was answered for in this round of this run.
          ConfigError: if nothing can be noted.
        """
        try:
            self._write(self._path(round_path, what), hashlib.sha256(content).hexdigest().encode())
        except ProtocolError as error:
            raise ProtocolError(
                f"a round must have one {what} under one nonce, got a second one; nothing is answered for it, open a "
                "new run."
            ) from error

    def sent(self, round_path: str, leg: str) -> bytes | None:
        """What was sent in a leg of a round; None if nothing was decided yet.

        Raises:
          ProtocolError: if the run is over.
        """
        self._check_goes_on()
        path = self._path(round_path, leg) + SENT
        return gate.read_bytes(path, _REFUSAL) if STORE.exists(path) else None

    def first(self, round_path: str, leg: str, content: bytes) -> bytes:
        """The content to send in a leg of a round: this content, or what was decided for before; durable on return.

        Raises:
          ProtocolError: if the run is over.
          ConfigError: if it cannot be kept.
        """
        self._check_goes_on()
        return self._first(self._path(round_path, leg) + SENT, content)

    def is_pinned(self, round_path: str) -> bool:
        """Whether it is known what the messages of a round are formed of."""
        self._check_goes_on()
        return STORE.exists(self._pin(round_path) + _PINNED)

    def pin(self, round_path: str, content: bytes) -> None:
        """Decides what the messages of a round are formed of, unless that was decided before; earlier rounds are over.

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
        """What was pinned.

        Raises:
          ProtocolError: if it is gone.
        """
        path = self._pin(round_path)
        if not STORE.exists(path + _PIN_KEY):
            raise _REFUSAL.because("none")
        sealed = gate.read_bytes(path + _PINNED, _REFUSAL)
        content = open_own(sealed, path + _PIN_KEY, _PURPOSE, _label(round_path))
        if content is None:
            raise _REFUSAL.because("another file")
        return content

    def unpin(self, round_path: str) -> None:
        """Destroys what was pinned: first its key, without which the rest says nothing."""
        _remove(self._pin(round_path) + _PIN_KEY)
        _remove(self._pin(round_path) + _PINNED)

    def note_last(self) -> None:
        """Notes that the run has come to its last round."""
        self.note("", _LAST, b"")

    def is_last(self) -> bool:
        """Whether it has, and is not over."""
        there = (STORE.exists(path) for path in (self._path("", _LAST), join(self.folder, _OVER)))
        return tuple(there) == (True, False)

    def end(self) -> None:
        """Destroys what was sent and pinned; notes stay, and nothing of rows is answered in this run again."""
        self._write(join(self.folder, _OVER), b"")
        self._remove_all(_PIN_KEY, _PINNED, SENT)

    @property
    def columns_uri(self) -> str:
        """The place of a file of the columns that the party's rows had first, without a row."""
        return join(self.folder, _COLUMNS)

    def keep_columns(self, content: bytes) -> None:
        """Keeps this file, unless one is there."""
        self._first(self.columns_uri, content)

    def _remove_all(self, *endings: str, but: str = "") -> None:
        """Removes files by the ends of their names, in this order, but those that begin like `but`."""
        for ending in endings:
            for file in files_in(self.folder, ending):
                if not but or os.path.basename(file.path) != os.path.basename(but) + ending:
                    _remove(file.path)

    def _check_goes_on(self) -> None:
        """Refuses by the nonce alone."""
        if STORE.exists(join(self.folder, _OVER)):
            raise ProtocolError(
                "a run must not be over to be answered, got one that this party has ended or forgotten; open a new run."
            )

    def _first(self, path: str, content: bytes) -> bytes:
        """Content of a file that is written once, by the one that comes first."""
        try:
            self._write(path, content)
        except ProtocolError:
            return gate.read_bytes(path, _REFUSAL)
        return content

    def _write(self, path: str, content: bytes) -> None:
        try:
            make_folder(self.folder)
            write_once(path, content, private=True)
        except OSError as error:
            raise ConfigError(
                f"{_SETTING} must be a folder where this party can write, got {self.folder} that cannot be written; "
                "mount a volume there that can."
            ) from error

    def _pin(self, round_path: str) -> str:
        return self._path(round_path, _PURPOSE)

    def _path(self, round_path: str, what: str) -> str:
        return join(self.folder, hashlib.sha256(_label(round_path, what)).hexdigest())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartyState:
    """The state of one party: of a key and a client.

    Attributes:
      folder: of the party.
    """

    folder: str

    @classmethod
    def of(cls, state_uri: str, secret_uri: str, client: str) -> Self:
        """The state of an enrolled party.

        Args:
          state_uri: the folder of states.
          secret_uri: the place of the party's key of masks.
          client: name of the client; empty for the party that unmasks.

        Raises:
          ConfigError: if others can read the folder, or the party is not enrolled in it.
        """
        found = cls(folder=_folder(state_uri, secret_uri, client))
        _check_private(state_uri)
        if not all(map(STORE.exists, (found.seal_uri, found.noise_uri))):
            raise ConfigError(
                f"{_SETTING} must be a folder in which {client or 'who unmasks'} is enrolled with this secret, got "
                f"{state_uri} where nobody is; run `dapple masked party enroll` once, and if the folder was lost, then "
                "with a new secret."
            )
        rule, remedy = f"{_SETTING} must be one that this version can go on with", "enroll the party with a new secret"
        refusal = Refusal(kind=ConfigError, rule=rule, remedy=remedy)
        content = b"{}"
        if STORE.exists(path := join(found.folder, _FORMAT)):
            content = gate.read_bytes(path, refusal)
        parse_as(content, NumberedFile, refusal)
        return found

    @classmethod
    def enroll(cls, state_uri: str, secret_uri: str, client: str) -> Self:
        """Makes the state of a party; arguments are those of `of`.

        Raises:
          ConfigError: if the party is enrolled already, or the folder is not for its owner only.
        """
        found = cls(folder=_folder(state_uri, secret_uri, client))
        try:
            make_folder(state_uri)
            _check_private(state_uri)
            make_folder(found.folder)
        except OSError as error:
            raise ConfigError(
                f"{_SETTING} must be a folder that can be made, got {state_uri}; choose another."
            ) from error
        if is_made(found.seal_uri):
            raise ConfigError(
                f"a party must be enrolled once, got {client or 'who unmasks'} that is enrolled in {state_uri}; "
                "use it as it is."
            )
        write_once(join(found.folder, _FORMAT), json.dumps(with_number({})).encode(), private=True)
        _make_key(found.noise_uri)
        make_key(found.seal_uri, f"the key in {_SETTING}")
        return found

    @property
    def seal_uri(self) -> str:
        """The place of a key of this client alone, with which it seals files."""
        return join(self.folder, _SEAL_KEY)

    @property
    def noise_uri(self) -> str:
        """The place of another one, from which follow its shares of noise, though clients share the secret of masks."""
        return join(self.folder, _NOISE_KEY)

    def of_run(self, nonce: bytes) -> RunState:
        """The kept state of a run."""
        return RunState(folder=join(self.folder, _RUN + hashlib.sha256(nonce).hexdigest()))

    def end_others(self, begun: RunState) -> None:
        """Ends all runs that have come to their last round, where another one begins."""
        if not files_in(begun.folder):
            for each in self.runs():
                if each.is_last():
                    each.end()

    def runs(self) -> list[RunState]:
        """All runs of which something is kept."""
        folders = {file.path.rpartition("/")[0] for file in STORE.list(join(self.folder, _RUN))}
        return [RunState(folder=each) for each in sorted(folders)]


_REFUSAL = Refusal(
    kind=ProtocolError,
    rule=f"what this party has pinned or sent must be in {_SETTING} as it was written",
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
            f"{_SETTING} must be a folder of mode 0700, got one that others may read; chmod 700 {state_uri}."
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
    """Removes a file; one that is gone already is no error."""
    try:
        STORE.delete(path)
    except OSError:
        if STORE.exists(path):
            raise ConfigError(
                f"{_SETTING} must be a folder where files can be removed, got {path}; delete it."
            ) from None
