"""Public randomness of reports: encoder and decoder derive it from the public key and a report's nonce.

None of it depends on data, so it affects accuracy and never privacy. Everything is integers, so that an encoder in
another language can be compared byte for byte; transforms/numerics/reports/FORMAT.md describes the same in prose.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.numerics.tables.partition import mix

LEAST_WIDTH = 64
"""Fewest signs in a codeword: fewer would make scores of few features less than Gaussian."""
_WORD_BITS = 64
_DENSE_WIDTH = 256
_STEP = np.uint64(0x9E3779B97F4A7C15)
_EMPTY_SHARE = 3
"""The empty subset is drawn this many times as often as each level."""


def code_width(n_dims: int) -> int:
    """Returns the signs in a codeword of vectors with `n_dims` coordinates: the next power of two, or `LEAST_WIDTH`."""
    return max(LEAST_WIDTH, 1 << (n_dims - 1).bit_length())


def roots(key: bytes, nonces: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the start of the stream of each nonce, shape (n,).

    Args:
      key: 16 public bytes.
      nonces: shape (n,).
    """
    low, high = np.frombuffer(key, dtype="<u8").astype(np.uint64)
    return mix(mix(nonces ^ low) ^ high)


def words(starts: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns words of streams at positions; the arguments broadcast.

    Source: Steele, Lea, Flood (2014), "Fast splittable pseudorandom number generators", SplitMix64.
    """
    return mix(starts + positions * _STEP)


def draw_subsets(starts: NDArray[np.uint64], depth: int, even: bool = False) -> NDArray[np.int64]:
    """Returns the subset of levels of each report as a bit mask, shape (n,).

    If `even`, all of them are equally likely. Otherwise, with probability 3 / (3 + depth) the mask is 0, else it is
    uniform among those whose highest bit is that of a level, and the level is uniform. (To within 2**-32, by the
    multiplication of 32 bits.)
    """
    word = words(starts, np.zeros(1, dtype=np.uint64))
    if even:
        return (word & np.uint64((1 << depth) - 1)).astype(np.int64)
    slots = ((word >> np.uint64(32)) * np.uint64(depth + _EMPTY_SHARE)) >> np.uint64(32)
    levels = np.maximum(slots.astype(np.int64) - (_EMPTY_SHARE - 1), 0)
    highest = np.where(levels > 0, np.int64(1) << np.maximum(levels - 1, 0), 0)
    return highest | (word & np.maximum(highest - 1, 0).astype(np.uint64)).astype(np.int64)


def subset_shares(depth: int, even: bool = False) -> NDArray[np.float64]:
    """Returns the probability of each mask, shape (2**depth,)."""
    if even:
        return np.full(1 << depth, 1.0 / (1 << depth))
    masks = np.arange(1 << depth)
    highest = np.array([1 << max(int(mask).bit_length() - 1, 0) for mask in masks])
    return np.asarray(np.where(masks == 0, float(_EMPTY_SHARE), 1.0 / highest) / (depth + _EMPTY_SHARE))


def rotation_signs(starts: NDArray[np.uint64], width: int) -> NDArray[np.float64]:
    """Returns the signs for coordinates before or after the Hadamard matrix, shape (n, width), -1 or 1."""
    n_words = width // _WORD_BITS
    positions: NDArray[np.uint64] = np.arange(1, n_words + 1, dtype=np.uint64)
    return np.asarray(1.0 - 2.0 * _bits(words(starts[:, None], positions)), dtype=np.float64)


def codeword_bits(starts: NDArray[np.uint64], indices: NDArray[np.integer], width: int) -> NDArray[np.uint8]:
    """Returns codewords before rotation, shape (n, m, width), bits; bit 1 stands for the sign -1.

    Args:
      starts: shape (n,).
      indices: shape (n, m) or (1, m): indices of each report's codewords.
      width: of `code_width`.
    """
    n_words = width // _WORD_BITS
    offsets: NDArray[np.uint64] = np.arange(1 + n_words, 1 + 2 * n_words, dtype=np.uint64)
    positions = np.asarray(indices.astype(np.uint64)[:, :, None] * np.uint64(n_words) + offsets, dtype=np.uint64)
    return _bits(words(starts[:, None, None], positions))


def rotated(bits: NDArray[np.uint8], signs: NDArray[np.float64], n_dims: int) -> NDArray[np.float64]:
    """Returns codewords as vectors, shape (n, n_dims): integers of mean 0 and variance `width`.

    Args:
      bits: shape (n, width).
      signs: shape (n, width), of `rotation_signs`.
      n_dims: coordinates to keep.
    """
    return walsh_hadamard(1.0 - 2.0 * bits.astype(np.float64))[:, :n_dims] * signs[:, :n_dims]


def rotate(vectors: NDArray[np.float64], signs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns vectors in the frame of the unrotated codewords, shape (n, width); exact.

    Args:
      vectors: shape (n, n_dims), integers of norm at most 2**21.
      signs: shape (n, width).
    """
    padded = np.zeros(signs.shape, dtype=np.float64)
    padded[:, : vectors.shape[1]] = vectors
    return walsh_hadamard(padded * signs)


def walsh_hadamard(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiplies rows by Sylvester's matrix: entry (i, j) is -1 to the number of bits that i and j share.

    Args:
      rows: shape (n, width), width a power of two; integers whose absolute values add up to less than 2**53 stay
        exact.

    Returns:
      New array, same shape.

    Example:
      >>> walsh_hadamard(np.array([[1.0, 0.0, 0.0, 2.0]])).tolist()
      [[3.0, -1.0, -1.0, 3.0]]
    """
    n_rows, width = rows.shape
    if width <= _DENSE_WIDTH:
        return rows @ _sylvester(width)
    halves = rows.reshape(n_rows, 2, width // 2)
    return np.hstack([walsh_hadamard(halves[:, 0] + halves[:, 1]), walsh_hadamard(halves[:, 0] - halves[:, 1])])


@functools.cache
def _sylvester(width: int) -> NDArray[np.float64]:
    index = np.arange(width)
    return 1.0 - 2.0 * (np.bitwise_count(index[:, None] & index) & 1)


def planes(key: bytes, depth: int, n_features: int) -> NDArray[np.int64]:
    """Returns normals of a tree's hyperplanes, shape (depth, n_features): sums of eight signed bytes, about Gaussian.

    Source: Charikar (2002), SimHash.
    """
    low, high = np.frombuffer(key, dtype="<u8").astype(np.uint64)
    starts = mix(mix(np.arange(depth, dtype=np.uint64) ^ high) ^ low)
    drawn = words(starts[:, None], np.arange(n_features, dtype=np.uint64))
    raw = np.ascontiguousarray(drawn, dtype="<u8").view(np.int8).reshape(depth, n_features, 8)
    return 2 * raw.astype(np.int64).sum(axis=2) + 8


def sides(lattice: NDArray[np.float64], normals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns sides of hyperplanes as bit masks, shape (n,): bit i is 1 where the product with normal i is >= 0.

    Args:
      lattice: points, shape (n, n_features), integers.
      normals: shape (depth, n_features), of `planes`.
    """
    return np.asarray((lattice @ normals.T.astype(np.float64) >= 0.0) @ (np.int64(1) << np.arange(len(normals))))


def _bits(drawn: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Returns the bits of words, lowest first; the last axis of words becomes one of bits."""
    raw = np.ascontiguousarray(drawn, dtype="<u8").view(np.uint8)
    return np.unpackbits(raw, axis=-1, bitorder="little")
