"""Public keys as they arrive from parties that nobody controls."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

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
