"""Ed25519 signatures of runs: over the octets of `run.json`, which holds the digest of every other file."""

import hashlib
import json
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from schemas.errors import ConfigError, ProtocolError
from schemas.settings import json_schema
from schemas.settings.json_schema import FileContent
from schemas.settings.refusal import Refusal
from transforms.files import gate

SIGNATURE_FILE = "signature.json"
_LABEL = b"dapple run signature 1\n"
_RUN = "run.json"
_MOST_BYTES = 1 << 14


class _Signature(FileContent):
    """All of the file."""

    algorithm: Annotated[str, Field(pattern="^Ed25519$")]
    public_key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


def signed(manifest: bytes, key_path: str) -> bytes:
    """Content of `signature.json` for a manifest; raises ConfigError if the key is none."""
    key = _private_key(key_path)
    found = {
        "algorithm": "Ed25519",
        "public_key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(_LABEL + hashlib.sha256(manifest).digest()).hex(),
    }
    return json.dumps(found, indent=2, sort_keys=True).encode()


def check(manifest: bytes, signature: bytes, public_path: str | None) -> str:
    """Checks a signature of a manifest.

    Args:
      manifest: octets of `run.json`.
      signature: octets of `signature.json`.
      public_path: of the public key (PEM) that must have signed; None takes the one that the signature names, which
        tells changes by accident only.

    Returns:
      The public key, 64 hex digits.

    Raises:
      ProtocolError: if the signature is none, or of another key or manifest.
      ConfigError: if the file of the public key holds none.
    """
    rule = f"{SIGNATURE_FILE} must be a signature of {_RUN}"
    refusal = Refusal(kind=ProtocolError, rule=rule, remedy="ask whoever signed the run for another copy")
    content = json_schema.parsed(signature, _Signature, refusal, _MOST_BYTES)
    if public_path is not None and _public_key(public_path).public_bytes_raw().hex() != content.public_key:
        raise refusal.because("one by another key")
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(content.public_key))
    try:
        key.verify(bytes.fromhex(content.signature), _LABEL + hashlib.sha256(manifest).digest())
    except InvalidSignature as error:
        raise refusal.because("one of another file") from error
    return content.public_key


def _private_key(path: str) -> Ed25519PrivateKey:
    refusal = Refusal(
        kind=ConfigError,
        rule="--sign must be an Ed25519 private key in PEM without a password",
        remedy="make one with `openssl genpkey -algorithm ed25519`",
    )
    with refusal.covers():
        key = serialization.load_pem_private_key(gate.read_octets(path, refusal, _MOST_BYTES), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise refusal.because("a key of another kind")
    return key


def _public_key(path: str) -> Ed25519PublicKey:
    refusal = Refusal(
        kind=ConfigError,
        rule="--key must be an Ed25519 public key in PEM",
        remedy="get it with `openssl pkey -in PRIVATE -pubout`",
    )
    with refusal.covers():
        key = serialization.load_pem_public_key(gate.read_octets(path, refusal, _MOST_BYTES))
    if not isinstance(key, Ed25519PublicKey):
        raise refusal.because("a key of another kind")
    return key
