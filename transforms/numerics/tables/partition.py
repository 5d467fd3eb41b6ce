"""Assigns clients to shards, and cuts shards into row groups.

Digests of client ids are 64 bits, the same on every machine, and not secret. Two clients with equal digests only share
a shard; the ids themselves decide which rows belong to one client.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_SHARDS = 1 << 20
"""Most shards of one data set."""
_WORD = 8
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_HALF = np.uint64(32)
# Entry n keeps the first n bytes of a little-endian word.
_MASKS = np.array([(1 << 8 * raw) - 1 for raw in range(_WORD + 1)], dtype=np.uint64)


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scrambles 64-bit words, one to one.

    Args:
      words: uint64, any shape but a scalar.

    Returns:
      New array, same shape.

    Source: Steele, Lea, Flood (2014), "Fast splittable pseudorandom number generators", SplitMix64.

    Example:
      >>> mix(np.zeros(1, dtype=np.uint64)).tolist()
      [16294208416658607535]
    """
    mixed = words + _INCREMENT
    for shift, factor in _STEPS:
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> _LAST_SHIFT
    return mixed


def digests_of_strings(offsets: NDArray[np.integer], raw: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Computes digests of concatenated byte strings.

    Args:
      offsets: shape (n + 1,): string i is bytes[offsets[i]:offsets[i + 1]].
      raw: uint8, shape (n_bytes,).

    Returns:
      uint64, shape (n,); equal strings have equal digests. The work is one pass over the bytes; the loop runs
      over the words of the longest string.
    """
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    padded = np.concatenate([raw, np.zeros(_WORD, dtype=np.uint8)])
    # The word that starts at each byte, without a copy.
    words = np.ndarray(len(raw) + 1, dtype="<u8", buffer=padded, strides=(1,))
    digests = mix(lengths.astype(np.uint64))
    active, position = np.flatnonzero(lengths), 0
    while len(active):
        left = np.minimum(lengths[active] - position, _WORD)
        digests[active] = mix(digests[active] ^ (words[starts[active] + position] & _MASKS[left]))
        position += _WORD
        active = active[lengths[active] > position]
    return digests


def shard_of(digests: NDArray[np.uint64], n_shards: int) -> NDArray[np.int64]:
    """Returns the shard of each client, in [0, n_shards), by the upper half of its digest.

    Args:
      digests: uint64, shape (n,).
      n_shards: from 1 to MAX_SHARDS.

    Raises:
      ValueError: if `n_shards` is out of range.
    """
    if not 1 <= n_shards <= MAX_SHARDS:
        raise ValueError(f"n_shards must be from 1 to {MAX_SHARDS}, got {n_shards}; choose another number.")
    return (((digests >> _HALF) * np.uint64(n_shards)) >> _HALF).astype(np.int64)


class RowGroups(NamedTuple):
    """Cuts of a shard.

    Attributes:
      cuts: int64, shape (n_row_groups + 1,): row group i holds the rows cuts[i]:cuts[i + 1].
      runs: int64, shape (n_runs,): numbers of successive row groups that belong together, since a client is in
        them; 1 for whole clients.
    """

    cuts: NDArray[np.int64]
    runs: NDArray[np.int64]


def row_groups(offsets: NDArray[np.int64], max_rows: int) -> RowGroups:
    """Returns row groups of whole clients; a client of more than `max_rows` rows gets a separate run.

    Args:
      offsets: int64, shape (n_clients + 1,), increasing from 0: rows offsets[i]:offsets[i + 1] are client i's.
      max_rows: most rows of a row group, >= 1.

    Returns:
      As few row groups as a greedy pass finds; none if there are no clients.

    Example:
      >>> row_groups(np.array([0, 2, 3, 8, 9]), 4)
      RowGroups(cuts=array([0, 3, 7, 8, 9]), runs=array([1, 2, 1]))
    """
    cuts, runs, client = [0], [], 0
    while client < len(offsets) - 1:
        start = int(offsets[client])
        fitting = int(np.searchsorted(offsets, start + max_rows, side="right")) - 1
        client = max(fitting, client + 1)
        stop = int(offsets[client])
        inner = list(range(start + max_rows, stop, max_rows))
        cuts += [*inner, stop]
        runs.append(len(inner) + 1)
    return RowGroups(np.array(cuts, dtype=np.int64), np.array(runs, dtype=np.int64))
