"""Shards and samples of rows are drawn evenly."""

import numpy as np
import pyarrow as pa

from dapple_dp.transforms.numerics.tables import partition, row_sampling
from dapple_dp.transforms.tables import client_ids

KEY = bytes(range(32))


def test_shards_are_even_for_successive_ids():
    counts = np.bincount(partition.shard_of(client_ids.digests(pa.array(range(100_000))), 64), minlength=64)
    # Each count is binomial with mean 1562 and stddev 39; six stddevs fail with probability 1e-7.
    assert abs(counts - counts.mean()).max() < 240


def sampled(points: np.ndarray, clients: np.ndarray, max_rows: int, key: bytes = KEY) -> np.ndarray:
    digests = client_ids.digests(pa.array(range(int(clients.max(initial=0)) + 1)))
    return row_sampling.sample_rows(points, clients, digests, max_rows, key)


def test_a_sample_is_uniform():
    points, clients = np.arange(20.0)[:, None], np.zeros(20, dtype=np.int64)
    counts = np.zeros(20)
    for seed in range(2000):
        counts[sampled(points, clients, 5, seed.to_bytes(32, "big"))] += 1
    # Binomial with mean 500 and stddev 19.4; six stddevs fail with probability 4e-8.
    assert abs(counts - 500).max() < 117
