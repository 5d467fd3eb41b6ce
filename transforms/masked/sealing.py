"""Files sealed for one reader, without the secret of the sealing party in a graph."""

import dataclasses
from typing import Self

from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_key, seal, unseal
from dapple_dp.transforms.privacy.key_files import read_key

SEALED = ".sealed"
"""Ending of the names of sealed files."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """Receiver of a party's sealed files, and the place of the party's secret for workers.

    Attributes:
      receiver: a public key.
      secret_uri: place of 32 secret bytes of the party alone.
    """

    receiver: bytes
    secret_uri: str

    @classmethod
    def to_itself(cls, secret_uri: str, purpose: str) -> Self:
        """Creates the sealing for files that a party reads again itself; see `open_own`."""
        return cls(receiver=public_key(_own_key(secret_uri, purpose)), secret_uri=secret_uri)

    def seal(self, content: bytes, label: bytes) -> bytes:
        """Seals content for the receiver; `label` identifies it."""
        return seal(content, self.receiver, read_key(self.secret_uri, "the key beside masked.secret_uri"), label)


def open_own(sealed: bytes, secret_uri: str, purpose: str, label: bytes) -> bytes | None:
    """Opens a file that a party sealed to itself; None if it was changed, has another label, or is another party's."""
    return unseal(sealed, _own_key(secret_uri, purpose), label)


def _own_key(secret_uri: str, purpose: str) -> bytes:
    """Returns the key that opens files of a party for a purpose."""
    return private_key(read_key(secret_uri, "the key of a party"), b"", purpose)
