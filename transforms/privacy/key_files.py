"""Keys in files: creates, reads and deletes them.

In this module `uri` is a place on any Beam filesystem, and `setting` its name in error messages. On a local disk
only the owner may read a key.
"""

import contextlib
import dataclasses
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.schemas.settings.refusal import Refusal
from dapple_dp.transforms.core.keys import KEY_BYTES, KeySource
from dapple_dp.transforms.files import new_file, untrusted
from dapple_dp.transforms.files.stores import STORE, is_local

KEY_LABEL = b"dapple: which key this is"
"""Message whose MAC under a key is the key's digest."""
_MOST_READ = 1 << 12


@dataclasses.dataclass(frozen=True, slots=True)
class KeyFile(KeySource):
    """A key that is stored in a file; the only source that the graph checker knows."""

    def kept(self, uri: str) -> bytes:
        """Returns the content of the file; raises ConfigError if it is missing, or a local one that others may read."""
        rule, remedy = f"{self.setting} must be", "write 32 random bytes there, and give the workers access to it"
        refusal = Refusal(kind=ConfigError, rule=f"{rule} a readable file", remedy=remedy)
        try:
            if is_local(uri) and stat.S_IMODE(os.stat(uri).st_mode) & 0o077:
                raise ConfigError(f"{rule} a file of mode 0600, but others can read it; run chmod 600 {uri}.")
        except OSError as error:
            raise refusal.because(uri) from error
        return untrusted.read_bytes(uri, refusal, _MOST_READ)


def create_key(uri: str, setting: str = "key_uri") -> None:
    """Writes a new random key to `uri`; on a local disk with mode 0600. An existing object is an error.

    Raises:
      ConfigError: if `uri` exists already, can't be written, or its place can't tell which writer was first.
    """
    try:
        STORE.put_new(uri, secrets.token_bytes(KEY_BYTES))
    except OSError as error:
        raise ConfigError(f"{setting} must be a new writable file, got {uri}; choose another place.") from error


def read_key(place: str, setting: str = "key_uri") -> bytes:
    """Reads the key at a place; see `KeySource.read_key`."""
    return KeyFile(place, setting).read_key()


def delete_key(uri: str, setting: str = "key_uri") -> None:
    """Deletes the key, on a local disk for good; a missing key is no error."""
    try:
        STORE.delete(uri)
        if is_local(uri):
            with contextlib.suppress(FileNotFoundError):
                new_file.flush(os.path.dirname(uri))
    except OSError as error:
        if STORE.exists(uri):
            raise ConfigError(f"{setting} could not be deleted after the run: {uri}; delete it by hand.") from error


@contextlib.contextmanager
def kept_key(uri: str, setting: str = "key_uri") -> Iterator[str]:
    """Yields `uri` with a key that stays for a process that resumes the run; creates it if it is missing."""
    make_key(uri, setting)
    yield uri


def make_key(uri: str, setting: str = "key_uri") -> None:
    """Ensures that a durable key exists; creates one if it is missing.

    Raises:
      ConfigError: if it can't be created.
    """
    if is_local(uri) and os.path.isfile(uri):
        if is_made(uri):
            _flush(os.path.realpath(uri))
        else:
            os.unlink(uri)  # The process that created it was stopped before writing it.
    if not STORE.exists(uri):
        create_key(uri, setting)


def is_made(uri: str) -> bool:
    """Returns whether there is a key that isn't empty."""
    return STORE.exists(uri) and not (is_local(uri) and os.path.isfile(uri) and os.path.getsize(uri) == 0)


def _flush(path: str) -> None:
    """Ensures that a newly written key lasts as long as the charge for its noise."""
    new_file.flush(path)
    new_file.flush(os.path.dirname(path))


def key_digest(place: str, setting: str = "key_uri") -> str:
    """Returns 64 hex digits that show whether a key is the same, and reveal nothing else."""
    return hmac.new(read_key(place, setting), KEY_LABEL, hashlib.sha256).hexdigest()
