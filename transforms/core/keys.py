"""Keys that draw noise: their names, derivation and validation.

A key is 32 random bytes. Only noise and mask stages read it, in `setup()`, on the worker. It is never a field of a
transform, never in the job graph and never logged. A graph holds a `KeySource` instead;
`transforms/privacy/key_files.py` has the one for files.

A stored key never draws: a second run under it would repeat the noise, and equal releases would reveal that the rows
are equal. The key that draws is derived from the stored key, the run's id and a random nonce. A *place* names it: the
URI of the stored key and a digest of id and nonce, which is public. A worker derives the key when it reads the stored
one, so nothing secret is written for a run. The windows of a stream have keys that are derived from that of its run.
"""

import abc
import dataclasses
import hashlib
import hmac
import re

from dapple_dp.schemas.errors import ConfigError
from dapple_dp.transforms.core.keystream import encode_label

KEY_BYTES = 32
NONCE_BYTES = 32
_FEWEST_VALUES = 9
"""Distinct bytes of a key: 32 random ones have fewer with probability 1e-20, a pattern of eight that repeats has 8."""
_PLACE = re.compile(r"(?P<uri>.*)#run=(?P<salt>[0-9a-f]{64})", re.DOTALL)


def run_place(uri: str, run: str, nonce: bytes) -> str:
    """Returns the place of the key that draws in one run; only `pipelines/run/run_keys.py` calls this.

    Args:
      uri: place of the stored key.
      run: the run's id.
      nonce: at least 16 random bytes, used in no other run; ValueError if shorter.
    """
    if len(nonce) < 16:
        raise ValueError(f"nonce must be at least 16 bytes, got {len(nonce)}; create one with secrets.token_bytes.")
    return f"{uri}#run={_salt(run, nonce).hex()}"


def is_run_place(place: str) -> bool:
    """Returns whether a place names the key of a run rather than a stored one."""
    return _PLACE.fullmatch(place) is not None


def _salt(run: str, nonce: bytes) -> bytes:
    return hashlib.sha256(encode_label("dapple: a run and its nonce", run, nonce)).digest()


def window_key(key: bytes, start: int, end: int) -> bytes:
    """Returns the key that draws in one window of a run.

    Equal sums of two windows would get equal noise under one key, and equal releases would reveal them.

    Args:
      key: of the run.
      start: of the window, whole microseconds; no other window of the run has the same interval.
      end: likewise.
    """
    return _derived(key, "dapple: key of a window", start, end)


def _derived(key: bytes, *label: str | bytes | int) -> bytes:
    """Expands a random key by HKDF with HMAC-SHA256 to one block (RFC 5869); it reveals neither that key nor others."""
    return hmac.new(key, encode_label(*label) + b"\x01", hashlib.sha256).digest()


@dataclasses.dataclass(frozen=True, slots=True)
class KeySource(abc.ABC):
    """A reference to a key that a graph can hold.

    Attributes:
      place: of a stored key, or of that of one run.
      setting: its name in error messages.
    """

    place: str
    setting: str = "key_uri"

    @abc.abstractmethod
    def kept(self, uri: str) -> bytes:
        """Reads a stored key without validating it; raises ConfigError if it can't be read."""

    def read_key(self) -> bytes:
        """Returns the key at the place: a stored one, or one derived from it for a run.

        Raises:
          ConfigError: if the stored key can't be read, is not 32 bytes, or is not random.
        """
        named = _PLACE.fullmatch(self.place)
        key = self.kept(self.place if named is None else named["uri"])
        if len(key) != KEY_BYTES:
            raise ConfigError(
                f"{self.setting} must hold exactly {KEY_BYTES} bytes, got {len(key)}; write a new random key."
            )
        if len(set(key)) < _FEWEST_VALUES:
            raise ConfigError(
                f"{self.setting} must hold {KEY_BYTES} random bytes, but its bytes repeat; write a new key with `head "
                f"-c {KEY_BYTES} /dev/urandom`."
            )
        return key if named is None else _derived(key, "dapple: key of a run", bytes.fromhex(named["salt"]))
