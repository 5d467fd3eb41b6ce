"""Signatures of files of masked aggregation: the party that wrote a file, and the place that it is bound to.

A signed file is its content and 64 bytes. They are bound to the party, the kind of the file, the nonce and the plan of
the run, the round and its broadcast, and the content. So a file counts in one place of one run only.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import NamedTuple, Self

from dapple_dp.schemas.errors import ConfigError, ProtocolError
from dapple_dp.schemas.masked.config import OFFICES
from dapple_dp.transforms.core.keystream import encode_label
from dapple_dp.transforms.numerics.masked.public_keys import (
    SIGNATURE_BYTES,
    is_signed,
    only_owner_signs,
    public_part,
    sign,
)
from dapple_dp.transforms.privacy.key_files import read_key

IDENTITY_SETTING = "identity_uri"


class Signed(NamedTuple):
    """Identity of a signed file.

    Attributes:
      party: the writer.
      kind: of the file: plan, broadcast, a leg, a list of a leg.
      nonce: of the run; empty for the plan, which holds it.
      plan: SHA-256 of the plan; empty for the plan.
      round: path of the round; empty for a file of the whole run.
      broadcast: digest of the round's broadcast; empty for a file that precedes it, and for the broadcast itself.
    """

    party: str
    kind: str
    nonce: bytes = b""
    plan: bytes = b""
    round: str = ""
    broadcast: bytes = b""

    def statement(self, content: bytes) -> bytes:
        """Returns the signed bytes."""
        return encode_label("dapple: a file of a party", *self, hashlib.sha256(content).digest())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parties:
    """The parties that may write files of a run, as one of them sees it.

    Attributes:
      keys: public keys by party, 64 hex digits each.
      own: the party that signs.
      identity_uri: the place of its private key; workers read it.
    """

    keys: Mapping[str, str]
    own: str
    identity_uri: str

    @classmethod
    def of(cls, keys: Mapping[str, str], identity_uri: str, own: str = "") -> Self:
        """Returns the parties as the owner of a private key sees them.

        Args:
          keys: public keys by party.
          identity_uri: the place of the private key.
          own: the party that must own it; empty for any party with its public part.

        Raises:
          ConfigError: if the key belongs to another party or to none, or if anybody could sign for a party.
        """
        for party, key in keys.items():
            if not only_owner_signs(bytes.fromhex(key)):
                raise ConfigError(
                    f"parties must give a key with which only {party} can sign, got a point of low order; make one "
                    "with `dapple masked party new`."
                )
        public = public_part(read_key(identity_uri, IDENTITY_SETTING)).hex()
        found = next((party for party, key in keys.items() if key == public), "")
        if not found or found != (own or found):
            raise ConfigError(
                f"{IDENTITY_SETTING} must hold the key that parties give for {own or 'one of them'}, got that of "
                f"{found or 'nobody'}; name the place of the right key, or list its public part."
            )
        return cls(keys=dict(keys), own=found, identity_uri=identity_uri)

    def check_client(self, name: str, path: str) -> None:
        """Refuses a client's file that belongs to another party.

        Raises:
          ProtocolError: naming the party.
        """
        if name not in self.keys or name in OFFICES:
            raise ProtocolError(f"{path} is from {name}, which is no client in parties; remove it.")

    def sign(self, content: bytes, what: Signed, path: str) -> bytes:
        """Returns the content and its signature.

        Raises:
          ProtocolError: if the file is another party's to write.
        """
        if what.party != self.own:
            raise ProtocolError(
                f"{path} must be written by {what.party}, and this job has the key of {self.own}; let {what.party} run "
                "it."
            )
        return content + sign(read_key(self.identity_uri, IDENTITY_SETTING), what.statement(content))

    def verified(self, raw: bytes, what: Signed, path: str) -> bytes:
        """Returns the content of a signed file.

        Raises:
          ProtocolError: naming the party, if it hasn't signed this content as this file.
        """
        content, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
        if not is_signed(bytes.fromhex(self.keys[what.party]), what.statement(content), signature):
            raise ProtocolError(
                f"{path} must be signed by {what.party} as {what.kind} of this run and round, and it isn't; remove it "
                f"and ask {what.party} for its own."
            )
        return content


def signing_parties(keys: Mapping[str, str] | None, identity_uri: str | None, own: str = "") -> Parties | None:
    """Returns the parties of a job, see `Parties.of`; None if it lists none."""
    return None if keys is None or identity_uri is None else Parties.of(keys, identity_uri, own)
