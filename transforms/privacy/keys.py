"""The run key: where it is, how it is read, when it is deleted.

The key is 32 random bytes in a file. Only noise and mask stages read it, in `setup()`, on the worker; it is
never a field of a transform, never in the job graph and never logged. Everywhere here `uri` is a place on any Beam
filesystem, and `setting` what error messages call it.

A key that is kept never draws: a second run under it would repeat the noise, and equal releases would reveal that the
rows are equal. What draws is derived from the kept key, the id of the run and a random nonce. A *place* names such a
key: the file of the kept one, and a digest of id and nonce, which is public. It is derived where it is read, so the
kept key stays where it is and nothing secret is written for a run.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterator

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from schemas.errors import ConfigError
from schemas.settings.refusal import Refusal
from transforms.files import gate, new_file
from transforms.numerics.privacy.keystream import encode_label

KEY_BYTES = 32
NONCE_BYTES = 32
_MOST_READ = 1 << 12
_FEWEST_VALUES = 9
"""Different bytes of a key: 32 random ones have fewer with probability 1e-20, eight that are repeated have fewer."""
_PLACE = re.compile(r"(?P<uri>.*)#run=(?P<salt>[0-9a-f]{64})", re.DOTALL)


def run_place(uri: str, run: str, nonce: bytes) -> str:
    """The place of the key that draws in one run; see `pipelines/run/run_keys.py`, which alone makes places.

    Args:
      uri: of the kept key.
      run: its id.
      nonce: random, at least 16 bytes, of this run only.

    Raises:
      ValueError: if the nonce is shorter.
    """
    if len(nonce) < 16:
        raise ValueError(f"nonce must be at least 16 bytes, got {len(nonce)}; draw it by secrets.token_bytes.")
    return f"{uri}#run={_salt(run, nonce).hex()}"


def is_run_place(place: str) -> bool:
    """Whether a place names the key of a run, and not a kept one."""
    return _PLACE.fullmatch(place) is not None


def derived_key(kept: bytes, run: str, nonce: bytes) -> bytes:
    """The key that draws in a run: 32 bytes that say nothing of the kept key, nor of that of another run or nonce.

    HKDF's expansion by HMAC-SHA256 to one block (RFC 5869), the kept key being random.
    """
    return _derived(kept, _salt(run, nonce))


def _salt(run: str, nonce: bytes) -> bytes:
    """What distinguishes one run from another; public."""
    return hashlib.sha256(encode_label("dapple: a run and its nonce", run, nonce)).digest()


def _derived(kept: bytes, salt: bytes) -> bytes:
    return hmac.new(kept, encode_label("dapple: key of a run", salt) + b"\x01", hashlib.sha256).digest()


def create_key(uri: str, setting: str = "key_uri") -> None:
    """Writes a new random key to `uri`; on a local disk with mode 0600. An existing object is an error.

    Raises:
      ConfigError: if `uri` exists already, it cannot be written, or the place cannot tell who was first.
    """
    try:
        new_file.create(uri, secrets.token_bytes(KEY_BYTES))
    except (OSError, BeamIOError) as error:
        raise ConfigError(f"{setting} must be a new writable file, got {uri}; choose another place.") from error


def read_key(place: str, setting: str = "key_uri") -> bytes:
    """The key that a place names: the kept one, or the one derived from it for a run.

    Raises:
      ConfigError: if the kept key is missing, is not 32 bytes, is no random one, or is a local file that others may
        read.
    """
    named = _PLACE.fullmatch(place)
    if named is None:
        return _kept(place, setting)
    return _derived(_kept(named["uri"], setting), bytes.fromhex(named["salt"]))


def _kept(uri: str, setting: str) -> bytes:
    """The key in a file."""
    rule, remedy = (
        f"{setting} must be a readable file",
        "write 32 random bytes there, and give the workers access to it",
    )
    refusal = Refusal(kind=ConfigError, rule=rule, remedy=remedy)
    try:
        if _is_local(uri) and stat.S_IMODE(os.stat(uri).st_mode) & 0o077:
            raise ConfigError(f"{setting} must be a file of mode 0600, got one that others may read; chmod 600 {uri}.")
    except OSError as error:
        raise refusal.because(uri) from error
    key = gate.read_bytes(uri, refusal, _MOST_READ)
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{setting} must hold exactly {KEY_BYTES} bytes, got {len(key)}; write a new random key.")
    if len(set(key)) < _FEWEST_VALUES:
        raise ConfigError(
            f"{setting} must hold {KEY_BYTES} random bytes, got ones that repeat; write a new key by "
            f"`head -c {KEY_BYTES} /dev/urandom`."
        )
    return key


def delete_key(uri: str, setting: str = "key_uri") -> None:
    """Deletes the key, on a local disk for good; a key that is gone already is no error."""
    try:
        FileSystems.delete([uri])
        if _is_local(uri):
            new_file.flush(os.path.dirname(uri))
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
    """`uri` with a key that stays for a process that takes up the run: an existing one is used, or one is made."""
    make_key(uri, setting)
    yield uri


def make_key(uri: str, setting: str = "key_uri") -> None:
    """Ensures that there is a key that lasts: one that exists is used, otherwise one is made.

    Raises:
      ConfigError: if it cannot be made.
    """
    if _is_local(uri) and os.path.isfile(uri):
        if is_made(uri):
            _flush(os.path.realpath(uri))
        else:
            os.unlink(uri)  # The process that made it was stopped before it held anything.
    if not FileSystems.exists(uri):
        create_key(uri, setting)


def is_made(uri: str) -> bool:
    """Whether there is a key that holds something."""
    return FileSystems.exists(uri) and not (_is_local(uri) and os.path.isfile(uri) and os.path.getsize(uri) == 0)


def _flush(path: str) -> None:
    """Ensures that a key that someone has just written lasts as long as what is charged for its noise."""
    new_file.flush(path)
    new_file.flush(os.path.dirname(path))


def key_digest(place: str, setting: str = "key_uri") -> str:
    """64 hex digits that show whether a key is the same, and nothing else of it."""
    return hmac.new(read_key(place, setting), b"dapple: which key this is", hashlib.sha256).hexdigest()


def _is_local(uri: str) -> bool:
    """Whether `uri` is a path on this machine's disk."""
    return FileSystems.get_scheme(uri) in (None, "file")
