"""Neighbors that agree on masks: a circle in random order, in which each client is paired with its nearest.

With all pairs the work of n clients is O(n^2); with k neighbors each it is O(n k), and k grows with log n. The
guarantee is then statistical: it holds except for probabilities that `parameters` keeps below 2**-SECURITY_BITS and
2**-CORRECTNESS_BITS, if at most the stated shares of clients collude with the aggregator or drop out, and which ones
does is independent of the order. The order follows from all public keys, so the party that sends keys last can try many
and
keep those whose order suits: of SECURITY_BITS, 40 pay for 2**40 tries, and 40 are left.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova (2020), "Secure single-server aggregation with
(poly)logarithmic overhead", Section 3.
"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.errors import NotYetError
from dapple_dp.schemas.privacy import noise_shares

SECURITY_BITS = 80
CORRECTNESS_BITS = 30


class GraphParams(NamedTuple):
    """Attributes: n_neighbors of each client, and `threshold`, the shares that reconstruct a neighbor's secret."""

    n_neighbors: int
    threshold: int


@functools.cache
def parameters(n_clients: int, corrupt: float, dropout: float) -> GraphParams:
    """Returns the fewest neighbors that satisfy the guarantees.

    Args:
      n_clients: n, >= 3.
      corrupt: largest share of clients that collude with the aggregator, in [0, 1).
      dropout: largest share of clients that drop out in a round, in [0, 1).

    Returns:
      Neighbors k (even, or all n - 1) and threshold t such that, by union bounds over the clients,
        t > k / 2, so that answers to two lists of present clients can't both be complete,
        no client has t or more corrupt neighbors (its secrets stay secret),
        no run of k / 2 clients on the circle is all corrupt or gone (honest survivors stay connected, so nothing
          but the sum of all of them is learned), each but with probability 2**-SECURITY_BITS in all;
        every client keeps t surviving neighbors, but with probability 2**-CORRECTNESS_BITS in all.

    Raises:
      NotYetError: if no number of neighbors does.
    """
    n_corrupt, n_gone = noise_shares.n_corrupt(corrupt, n_clients), noise_shares.n_gone(dropout, n_clients)
    for k in range(2, n_clients - 1, 2):
        threshold = _threshold(n_clients, n_corrupt, k)
        split = n_clients * min(1.0, (n_corrupt + n_gone) / n_clients) ** (k // 2)
        if split <= 2.0**-SECURITY_BITS and _survivors_suffice(n_clients, n_gone, k, threshold):
            return GraphParams(k, threshold)
    everyone = n_clients - 1
    threshold = max(n_corrupt + 1, _majority(everyone))
    if threshold <= everyone - n_gone:
        return GraphParams(everyone, threshold)
    raise NotYetError(
        f"corrupt and dropout must leave room for a threshold, got {corrupt} and {dropout} of {n_clients} clients; "
        "lower them, or wait for more clients."
    )


def _threshold(n_clients: int, n_corrupt: int, k: int) -> int:
    """Returns the least majority that corrupt neighbors of any client do not reach."""
    from scipy import stats

    tail = stats.hypergeom(n_clients - 1, n_corrupt, k).sf(np.arange(k + 1) - 1) * n_clients
    return max(int(np.argmax(np.append(tail, 0.0) <= 2.0**-SECURITY_BITS)), _majority(k))


def _majority(n_neighbors: int) -> int:
    """Returns more than half, so that two answers about a client can't both be complete; at least 2."""
    return max(n_neighbors // 2 + 1, 2)


def _survivors_suffice(n_clients: int, n_gone: int, k: int, threshold: int) -> bool:
    """Returns whether every client keeps `threshold` neighbors."""
    from scipy import stats

    short = stats.hypergeom(n_clients - 1, n_gone, k).sf(k - threshold) * n_clients
    return threshold <= k and bool(short <= 2.0**-CORRECTNESS_BITS)


def circle(n_clients: int, n_neighbors: int, seed: bytes) -> NDArray[np.int64]:
    """Returns the neighbors of every client, shape (n_clients, n_neighbors), symmetric: i has j if and only if j has i.

    Args:
      n_clients: n.
      n_neighbors: even and below n, or n - 1 for everyone.
      seed: at least 16 public bytes, a digest of all public keys: nobody can choose it except by trying keys.

    Raises:
      ValueError: if n_neighbors is out of range.
    """
    everyone = n_neighbors == n_clients - 1
    if not everyone and not (2 <= n_neighbors < n_clients and n_neighbors % 2 == 0):
        raise ValueError(f"n_neighbors must be even and below {n_clients}, or {n_clients - 1}, got {n_neighbors}.")
    order = np.random.default_rng(np.frombuffer(seed, dtype=np.uint8).astype(np.uint64)).permutation(n_clients)
    steps = np.arange(1, n_clients) if everyone else np.arange(1, n_neighbors // 2 + 1)
    if not everyone:
        steps = np.concatenate([steps, -steps])
    result = np.empty((n_clients, n_neighbors), dtype=np.int64)
    result[order] = order[(np.arange(n_clients)[:, None] + steps) % n_clients]
    return result
