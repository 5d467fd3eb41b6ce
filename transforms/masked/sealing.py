"""Files for one reader: how a party seals them, without its secret being in a graph."""

import dataclasses
from typing import Self

from dapple_dp.transforms.numerics.masked.public_keys import private_key, public_key, seal, unseal
from dapple_dp.transforms.privacy.key_files import read_key

SEALED = ".sealed"
"""How names of sealed files end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """To whom a party seals, and where workers find what it seals with.

    Attributes:
      receiver: a public key.
      secret_uri: of 32 bytes of the party alone.
    """

    receiver: bytes
    secret_uri: str

    @classmethod
    def to_itself(cls, secret_uri: str, purpose: str) -> Self:
        """How a party seals what it reads again itself, see `open_own`."""
        return cls(receiver=public_key(_own_key(secret_uri, purpose)), secret_uri=secret_uri)

    def seal(self, content: bytes, label: bytes) -> bytes:
        """The content for the receiver; `label` says what it is."""
        return seal(content, self.receiver, read_key(self.secret_uri, "the key beside masked.secret_uri"), label)


def open_own(sealed: bytes, secret_uri: str, purpose: str, label: bytes) -> bytes | None:
    """What a party has sealed to itself for a purpose; None if it was changed, is another one, or another party's."""
    return unseal(sealed, _own_key(secret_uri, purpose), label)


def _own_key(secret_uri: str, purpose: str) -> bytes:
    """What opens files of a party for a purpose."""
    return private_key(read_key(secret_uri, "the key of a party"), b"", purpose)
