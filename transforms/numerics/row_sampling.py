"""At most so many rows per client, chosen by a keyed hash of what a row holds and not of where it lies."""

import numpy as np
from numpy.typing import NDArray

from transforms.numerics.keystream import KeyStream, encode_label
from transforms.numerics.partition import mix

STABILITY = 2
"""Rows by which the sample changes, at most, when one row is added or removed: one leaves, another takes its place."""


def sample_rows(
    points: NDArray[np.floating],
    clients: NDArray[np.int64],
    client_digests: NDArray[np.uint64],
    max_rows: int,
    key: bytes,
) -> NDArray[np.int64]:
    """Rows that stay when no client may have more than `max_rows`.

    A row's rank among those of its client depends on the key, the client, the row's values and, among equal rows,
    their number: not on the order of rows, on other clients, or on whether values are stored in single precision.

    Args:
      points: shape (n_rows, n_features), finite.
      clients: int64, shape (n_rows,): index of each row's client.
      client_digests: uint64, shape (n_clients,): digests of the clients' ids.
      max_rows: >= 1.
      key: 32 secret bytes.

    Returns:
      int64, sorted: indices of the rows that stay.
    """
    secret = KeyStream(key, encode_label("rows of a client")).uint64(2)
    digests = _row_digests(points, mix(client_digests ^ secret[0])[clients])
    order = np.lexsort((digests, clients))
    repeats = position_in_run(clients[order], digests[order])
    ranks = np.empty_like(digests)
    ranks[order] = mix(mix(digests[order] + repeats.astype(np.uint64)) ^ secret[1])
    order = np.lexsort((ranks, clients))
    return np.sort(order[position_in_run(clients[order]) < max_rows])


def _row_digests(points: NDArray[np.floating], seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Digests of rows, shape (n_rows,), starting from the seeds; the loop runs over features."""
    digests = seeds
    for column in points.T:
        # Adding zero makes the two zeros one.
        digests = mix(digests ^ (column.astype(np.float64) + 0.0).view(np.uint64))
    return digests


def position_in_run(*keys: NDArray) -> NDArray[np.int64]:
    """Position of each element in its run of equal keys."""
    n_rows = len(keys[0])
    index = np.arange(n_rows)
    starts = np.ones(n_rows, dtype=np.bool_)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return index - np.maximum.accumulate(np.where(starts, index, 0)) if n_rows else index
