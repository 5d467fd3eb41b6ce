"""Shamir's secret sharing of 32-byte secrets, exact and vectorized: limbs of 30 bits over the prime 2**31 - 1.

Any `threshold` shares reconstruct the secret; fewer reveal nothing of it, for any limbs, because each limb has
its own coefficients. Source: Shamir (1979), "How to share a secret".
"""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.keystream import KeyStream

PRIME = (1 << 31) - 1
SECRET_BYTES = 32
N_LIMBS = 9
"""Limbs of a secret: 9 of 30 bits hold 256."""
SHARE_BYTES = 4 * N_LIMBS
_LIMB_BITS = 30


def split(
    secrets: NDArray[np.uint8], points: NDArray[np.int64], threshold: int, stream: KeyStream
) -> NDArray[np.int64]:
    """Splits secrets into shares at points.

    Args:
      secrets: shape (n, SECRET_BYTES).
      points: shape (n, n_shares), in [1, PRIME), distinct in each row: points of the shares of a secret.
      threshold: >= 1 and at most n_shares: number of shares that reconstruct a secret.
      stream: random coefficients, read from its current position. All secrets are only as secret as it is.

    Returns:
      Shape (n, n_shares, N_LIMBS), values in [0, PRIME).

    Raises:
      ValueError: if the threshold or a point is out of range.
    """
    n, n_shares = points.shape
    if not 1 <= threshold <= n_shares:
        raise ValueError(f"threshold must be from 1 to {n_shares}, the number of shares, got {threshold}; lower it.")
    _check_points(points)
    coefficients = stream.residues(PRIME, n * N_LIMBS * (threshold - 1)).reshape(threshold - 1, n, 1, N_LIMBS)
    shares = np.zeros((n, n_shares, N_LIMBS), dtype=np.int64)
    for coefficient in coefficients:
        shares = (shares + coefficient) * points[:, :, None] % PRIME
    return (shares + _limbs(secrets)[:, None, :]) % PRIME


def combine(points: NDArray[np.int64], shares: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Reconstructs secrets from shares, by interpolation at zero.

    Args:
      points: shape (n, threshold), distinct in each row.
      shares: shape (n, threshold, N_LIMBS), at these points.

    Returns:
      Shape (n, SECRET_BYTES).

    Raises:
      ValueError: if a point is out of range, or the shares aren't those of a secret.
    """
    _check_points(points)
    weights = _weights_at_zero(points)
    limbs = np.zeros((len(points), N_LIMBS), dtype=np.int64)
    for place in range(points.shape[1]):
        limbs = (limbs + weights[:, place, None] * shares[:, place]) % PRIME
    return _raw(limbs)


def _check_points(points: NDArray[np.int64]) -> None:
    ordered = np.sort(points, axis=1)
    if points.size and (ordered[:, 0].min() < 1 or ordered.max() >= PRIME or (np.diff(ordered, axis=1) == 0).any()):
        raise ValueError("points must be distinct and from 1 to 2**31 - 2, got others; number the holders from 1.")


def _weights_at_zero(points: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the Lagrange weights: products of x_j / (x_j - x_i) over the other points, shape of `points`."""
    above, below = np.ones_like(points), np.ones_like(points)
    for place in range(points.shape[1]):
        other = points[:, place : place + 1]
        same = np.arange(points.shape[1]) == place
        above = np.where(same, above, above * other % PRIME)
        below = np.where(same, below, below * ((other - points) % PRIME) % PRIME)
    return above * _inverse(below) % PRIME


def _inverse(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns values**(PRIME - 2), Fermat's inverse."""
    result, power, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power = power * power % PRIME
        exponent >>= 1
    return result


def _limbs(secrets: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Splits secrets into limbs, lowest bits first, shape (n, N_LIMBS)."""
    bits = np.unpackbits(secrets, axis=1, bitorder="little")
    padded = np.zeros((len(secrets), N_LIMBS * _LIMB_BITS), dtype=np.int64)
    padded[:, : bits.shape[1]] = bits
    return padded.reshape(len(secrets), N_LIMBS, _LIMB_BITS) @ (1 << np.arange(_LIMB_BITS, dtype=np.int64))


def _raw(limbs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Inverts `_limbs`; refuses limbs that no secret has."""
    bits = (limbs[:, :, None] >> np.arange(_LIMB_BITS + 1)) & 1
    flat = bits[:, :, :_LIMB_BITS].reshape(len(limbs), N_LIMBS * _LIMB_BITS)
    if bits[:, :, _LIMB_BITS].any() or flat[:, 8 * SECRET_BYTES :].any():
        raise ValueError("some shares are not of the same secret as the others; ask for new ones.")
    return np.packbits(flat[:, : 8 * SECRET_BYTES].astype(np.uint8), axis=1, bitorder="little")
