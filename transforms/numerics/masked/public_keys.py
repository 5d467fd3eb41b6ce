"""Public keys as they arrive from parties that nobody controls, and signatures under them.

A party signs by Ed25519 (RFC 8032) that octets are its own; the signature is the same for the same octets.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

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
"""Points whose order divides 8, without the bit of the sign: anybody can sign for them."""
KEY_BYTES = 32
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))
"""Any private key: every one is a multiple of the curve's cofactor, so it takes each point of low order to zero."""


def is_sound(key: bytes) -> bool:
    """Whether a key can be agreed with: 32 octets, and no point of low order, with which all secrets are zero.

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
    """The public key, 32 octets, of a private one: 32 random octets."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, text: bytes) -> bytes:
    """The signature of a text, 64 octets.

    Args:
      private: 32 octets of the party alone.
      text: of any length.
    """
    return Ed25519PrivateKey.from_private_bytes(private).sign(text)


def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key has signed a text."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def only_owner_signs(public: bytes) -> bool:
    """Whether a public key has 32 octets and is no point of low order, for which anybody can sign.

    Source: RFC 8032, Section 8.
    """
    return len(public) == KEY_BYTES and public[:-1] + bytes([public[-1] & _SIGN_BIT]) not in _LOW_ORDER
