"""The run key: where it lies, how it is read, when it is deleted.

The key is 32 random bytes in a file. Only noise and mask stages read it, in `setup()`, on the worker; it is
never a field of a transform, never in the job graph and never logged. Everywhere here `uri` is a place on any Beam
filesystem, and `setting` what error messages call it.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterator

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError

KEY_BYTES = 32


def create_key(uri: str, setting: str = "key_uri") -> None:
    """Writes a new random key to `uri`; on a local disk with mode 0600. An existing object is an error.

    Raises:
      ConfigError: if something lies at `uri` already or it cannot be written.
    """
    key = secrets.token_bytes(KEY_BYTES)
    try:
        if _is_local(uri):
            descriptor = os.open(uri, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(key)
            return
        if FileSystems.exists(uri):
            raise FileExistsError(uri)
        with FileSystems.create(uri, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(key)
    except (OSError, BeamIOError) as error:
        raise ConfigError(f"{setting} must be a new writable file, got {uri}; choose another place.") from error


def read_key(uri: str, setting: str = "key_uri") -> bytes:
    """The key at `uri`.

    Raises:
      ConfigError: if it is missing, is not 32 bytes, or is a local file that others may read.
    """
    try:
        if _is_local(uri) and stat.S_IMODE(os.stat(uri).st_mode) & 0o077:
            raise ConfigError(f"{setting} must be a file of mode 0600, got one that others may read; chmod 600 {uri}.")
        with FileSystems.open(uri, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            key = bytes(file.read())
    except (OSError, BeamIOError) as error:
        raise ConfigError(f"{setting} must be a readable file, got {uri}; give the workers access to it.") from error
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{setting} must hold exactly {KEY_BYTES} bytes, got {len(key)}; write a new random key.")
    return key


def delete_key(uri: str, setting: str = "key_uri") -> None:
    """Deletes the key; a key that is gone already is no error."""
    try:
        FileSystems.delete([uri])
    except BeamIOError as error:
        if FileSystems.exists(uri):
            raise ConfigError(f"{setting} must be deletable after the run, got {uri}; delete it by hand.") from error


@contextlib.contextmanager
def lasting_key(uri: str, setting: str = "key_uri") -> Iterator[str]:
    """`uri` with a key: one that exists is used and kept, otherwise one is made and deleted at the end."""
    if made := not FileSystems.exists(uri):
        create_key(uri, setting)
    try:
        yield uri
    finally:
        if made:
            delete_key(uri, setting)


@contextlib.contextmanager
def kept_key(uri: str, setting: str = "key_uri") -> Iterator[str]:
    """`uri` with a key that stays for whoever takes up the run: one that exists is used, otherwise one is made."""
    if FileSystems.exists(uri) and _is_local(uri) and os.path.getsize(uri) == 0:
        os.unlink(uri)  # Whoever made it was killed before it held anything.
    if not FileSystems.exists(uri):
        create_key(uri, setting)
    yield uri


def key_digest(uri: str, setting: str = "key_uri") -> str:
    """64 hex digits that tell whether a key is the same, and nothing else of it."""
    return hmac.new(read_key(uri, setting), b"dapple: which key this is", hashlib.sha256).hexdigest()


def _is_local(uri: str) -> bool:
    """Whether `uri` is a path on this machine's disk."""
    return FileSystems.get_scheme(uri) in (None, "file")
