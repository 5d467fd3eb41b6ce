"""Reports of three clusters, and how far centers are from their means."""

import numpy as np

from dapple_dp.transforms.numerics.reports import codebook
from dapple_dp.transforms.numerics.reports import encoder as report_encoder
from dapple_dp.transforms.numerics.reports.coins import KeyedCoins

MEANS = 8.0 * np.eye(3, 4)


def encoded(public, points, first=0):
    ids = range(first, first + len(points))
    nonces = codebook.roots(bytes(16), np.array(ids, dtype=np.uint64))
    coins = KeyedCoins([index.to_bytes(8, "little") for index in ids])
    return report_encoder.encode(points, public, nonces, coins)


def clusters(n_reports: int) -> np.ndarray:
    return MEANS[np.arange(n_reports) % 3] + np.random.default_rng(0).normal(0.0, 0.1, (n_reports, 4))


def farthest(centers: np.ndarray) -> float:
    """Largest distance of a mean to its nearest center, in radii."""
    return float(np.linalg.norm(MEANS / 10.0 - centers[:, None], axis=2).min(axis=0).max())
