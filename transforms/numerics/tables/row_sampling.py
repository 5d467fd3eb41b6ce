"""Samples at most so many rows per client by a keyed hash of a row's content, not of its place; orders rows."""

import numpy as np
from numpy.typing import NDArray

from dapple_dp.transforms.core.keystream import KeyStream, encode_label
from dapple_dp.transforms.numerics.tables.partition import mix


def sample_rows(
    points: NDArray[np.floating],
    clients: NDArray[np.int64],
    client_digests: NDArray[np.uint64],
    max_rows: int,
    key: bytes,
) -> NDArray[np.int64]:
    """Returns the rows that stay if no client may have more than `max_rows`.

    One row added or removed changes the sample by at most 2 rows: one leaves, another takes its place.

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
    repeats = _position_in_run(clients[order], digests[order])
    ranks = np.empty_like(digests)
    ranks[order] = mix(mix(digests[order] + repeats.astype(np.uint64)) ^ secret[1])
    return bounded_rows(clients, ranks, max_rows)


def bounded_rows(clients: NDArray[np.int64], ranks: NDArray[np.uint64], max_rows: int) -> NDArray[np.int64]:
    """Returns the rows of lowest rank of each client, at most `max_rows` of them.

    The lowest of all are among the lowest of each part, so parts may be bounded first.

    Args:
      clients: int64, shape (n_rows,): index of each row's client.
      ranks: uint64, shape (n_rows,): independent uniform numbers.
      max_rows: >= 1.

    Returns:
      int64, sorted: indices of the rows that count.

    Example:
      >>> bounded_rows(np.array([0, 1, 0, 0]), np.array([9, 9, 2, 5], dtype=np.uint64), 2).tolist()
      [1, 2, 3]
    """
    order = np.lexsort((ranks, clients))
    return np.sort(order[_position_in_run(clients[order]) < max_rows])


def _row_digests(points: NDArray[np.floating], seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns digests of rows, shape (n_rows,), starting from the seeds; the loop runs over features."""
    digests = seeds
    for column in points.T:
        # Adding zero makes the two zeros one.
        digests = mix(digests ^ (column.astype(np.float64) + 0.0).view(np.uint64))
    return digests


def _position_in_run(*keys: NDArray) -> NDArray[np.int64]:
    """Returns the position of each element in its run of equal keys."""
    n_rows = len(keys[0])
    index = np.arange(n_rows)
    starts = np.ones(n_rows, dtype=np.bool_)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return index - np.maximum.accumulate(np.where(starts, index, 0)) if n_rows else index


def order_of_rows(points: NDArray[np.floating]) -> NDArray[np.int64]:
    """Returns an order that depends on rows' contents only, so that sums of floats don't depend on the rows' source.

    Args:
      points: shape (n_rows, n_features), finite, n_features >= 1.

    Returns:
      Indices, shape (n_rows,), by the last feature first; equal rows keep their order.

    Example:
      >>> order_of_rows(np.array([[2.0], [1.0]])).tolist()
      [1, 0]
    """
    return np.lexsort(tuple(points.T))
