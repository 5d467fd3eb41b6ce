"""Octets that only one party can read: sealed to its public key, so that modes of files and stores do not matter.

X25519 with a key of the one message, HKDF-SHA256, ChaCha20-Poly1305. The key of a message follows from a secret of its
sender and from the message, so the same message is sealed by the same octets again, and another one by another key.
"""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from transforms.numerics.masked.public_keys import KEY_BYTES
from transforms.numerics.privacy.keystream import encode_label

_NONCE = bytes(12)


def private_key(secret: bytes, nonce: bytes, purpose: str) -> bytes:
    """A party's private key in a run.

    Args:
      secret: 32 bytes of the party alone.
      nonce: of the run.
      purpose: what is sealed to it.
    """
    return hmac.new(secret, encode_label("dapple: opens what is sealed", purpose, nonce), hashlib.sha256).digest()


def public_key(private: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def seal(text: bytes, receiver: bytes, secret: bytes, label: bytes) -> bytes:
    """A text for one receiver.

    Args:
      text: of any length.
      receiver: its public key, a sound one.
      secret: 32 bytes of the sender alone.
      label: what the text is, known to both.
    """
    own = hmac.new(secret, encode_label("dapple: seals", receiver, label, text), hashlib.sha256).digest()
    public = public_key(own)
    return public + ChaCha20Poly1305(_agreed(own, receiver, public, receiver)).encrypt(_NONCE, text, label)


def unseal(sealed: bytes, private: bytes, label: bytes) -> bytes | None:
    """The text; None if it was changed, is for somebody else, or is none."""
    public, rest = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    try:
        key = _agreed(private, public, public, public_key(private))
        return ChaCha20Poly1305(key).decrypt(_NONCE, rest, label)
    except (ValueError, InvalidTag):
        return None


def _agreed(own: bytes, other: bytes, sender: bytes, receiver: bytes) -> bytes:
    """The key of one message; raises ValueError for a point of low order."""
    shared = X25519PrivateKey.from_private_bytes(own).exchange(X25519PublicKey.from_public_bytes(other))
    info = encode_label("dapple: sealed", sender, receiver)
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(shared)
