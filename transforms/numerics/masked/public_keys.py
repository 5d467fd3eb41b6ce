"""Public keys of parties: signatures that they verify, and texts that are sealed to them.

A party signs bytes by Ed25519 (RFC 8032); the signature is the same for the same bytes. A text that is
sealed to a public key can be read by its owner only, so modes of files and stores don't matter: X25519 with a key of
the single message, HKDF-SHA256, ChaCha20-Poly1305. The key of a message follows from a secret of its sender and the
message, so the same message is sealed by the same bytes again, and another one by another key.
"""

import hashlib
import hmac

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dapple_dp.transforms.core.keystream import encode_label

_NONCE = bytes(12)
SIGNATURE_BYTES = 64
_SIGN_BIT = 0x7F
_LOW_ORDER = frozenset(
    bytes.fromhex(each)
    for each in (
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)
"""Points whose order divides 8, without the sign bit; anybody can sign for them."""
KEY_BYTES = 32
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))
"""A private key; each one is a multiple of the curve's cofactor, so it takes each point of low order to zero."""


def is_sound(key: bytes) -> bool:
    """Returns whether a key allows an agreement: 32 bytes, and not of low order, for which all secrets are zero.

    Source: RFC 7748, Section 6.1.
    """
    if len(key) != KEY_BYTES:
        return False
    try:
        _PROBE.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        return False
    return True


def public_part(private: bytes) -> bytes:
    """Returns the public key, 32 bytes, of a private one of 32 random bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, text: bytes) -> bytes:
    """Returns the signature of a text, 64 bytes.

    Args:
      private: 32 bytes of the party alone.
      text: of any length.
    """
    return Ed25519PrivateKey.from_private_bytes(private).sign(text)


def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Returns whether the owner of a public key has signed a text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def only_owner_signs(public: bytes) -> bool:
    """Returns whether a public key has 32 bytes and isn't a point of low order, for which anybody can sign.

    Source: RFC 8032, Section 8.
    """
    return len(public) == KEY_BYTES and public[:-1] + bytes([public[-1] & _SIGN_BIT]) not in _LOW_ORDER


def private_key(secret: bytes, nonce: bytes, purpose: str) -> bytes:
    """Derives a party's private key in a run.

    Args:
      secret: 32 bytes of the party alone.
      nonce: of the run.
      purpose: kind of texts that are sealed to it.
    """
    return hmac.new(secret, encode_label("dapple: opens what is sealed", purpose, nonce), hashlib.sha256).digest()


def public_key(private: bytes) -> bytes:
    """Returns the public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def seal(text: bytes, receiver: bytes, secret: bytes, label: bytes) -> bytes:
    """Seals a text for one receiver.

    Args:
      text: of any length.
      receiver: its public key, a sound one.
      secret: 32 bytes of the sender alone.
      label: identifies the text, known to both.
    """
    own = hmac.new(secret, encode_label("dapple: seals", receiver, label, text), hashlib.sha256).digest()
    public = public_key(own)
    return public + ChaCha20Poly1305(_agreed(own, receiver, public, receiver)).encrypt(_NONCE, text, label)


def unseal(sealed: bytes, private: bytes, label: bytes) -> bytes | None:
    """Opens a sealed text; None if it was changed, is for another party, or isn't sealed."""
    public, rest = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    try:
        key = _agreed(private, public, public, public_key(private))
        return ChaCha20Poly1305(key).decrypt(_NONCE, rest, label)
    except (ValueError, InvalidTag):
        return None


def _agreed(own: bytes, other: bytes, sender: bytes, receiver: bytes) -> bytes:
    """Returns the key of one message; raises ValueError for a point of low order."""
    shared = X25519PrivateKey.from_private_bytes(own).exchange(X25519PublicKey.from_public_bytes(other))
    info = encode_label("dapple: sealed", sender, receiver)
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(shared)
