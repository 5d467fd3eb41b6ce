"""Files for one reader: how a party seals them, without its secret being in a graph."""

import dataclasses

from transforms.numerics.masked.sealed import seal
from transforms.privacy.keys import read_key

SEALED = ".sealed"
"""How names of sealed files end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """To whom a party seals, and where workers find what it seals with.

    Attributes:
      receiver: a public key.
      secret_uri: of 32 octets of the party alone.
    """

    receiver: bytes
    secret_uri: str

    def seal(self, content: bytes, label: bytes) -> bytes:
        """The content for the receiver; `label` says what it is."""
        return seal(content, self.receiver, read_key(self.secret_uri, "the key beside masked.secret_uri"), label)
