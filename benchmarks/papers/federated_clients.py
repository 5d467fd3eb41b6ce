"""Clients whose rows differ by cluster: rotated images (covariate shift) or shifted labels (concept shift)."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dapple_dp.schemas.clustered_fl.records import ClientRows
from dapple_dp.transforms.numerics.clustered_fl.bounded_rows import bounded_rows

CLUSTER_SIZES = (3, 6, 6, 6)
"""Clients per cluster; the first is the minority."""
TRUTH = np.repeat(np.arange(len(CLUSTER_SIZES)), CLUSTER_SIZES)
SHIFTS = ("rotation", "label flip")
TEST_ROWS = 2000


class Images(NamedTuple):
    """Images (n, side, side), or (n, 3, side, side), and labels (n,), for training and for tests."""

    train: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test: NDArray[np.float32]
    test_labels: NDArray[np.int64]


class Clients(NamedTuple):
    """Rows per client, and test rows per cluster."""

    rows: tuple[ClientRows, ...]
    tests: tuple[ClientRows, ...]


def load(path: Path, side: int) -> Images:
    """Images with values in [0, 1]; side 14 takes means of 2 x 2 pixels of 28 x 28."""
    with np.load(path) as file:
        parts = [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    train, test = (_shrunk(part, side) for part in (parts[0], parts[2]))
    return Images(train, parts[1].astype(np.int64), test, parts[3].astype(np.int64))


def clients(images: Images, shift: str, n_rows: int, seed: int) -> Clients:
    """`n_rows` for every client, disjoint within a cluster; clusters draw from the same images."""
    random = np.random.default_rng([seed, n_rows])
    rows = []
    for cluster, size in enumerate(CLUSTER_SIZES):
        drawn = random.permutation(len(images.train))[: size * n_rows].reshape(size, n_rows)
        rows += [shifted(images.train[each], images.train_labels[each], shift, cluster) for each in drawn]
    chosen = random.permutation(len(images.test))[:TEST_ROWS]
    test, labels = images.test[chosen], images.test_labels[chosen]
    tests = tuple(shifted(test, labels, shift, cluster) for cluster in range(len(CLUSTER_SIZES)))
    return Clients(tuple(rows), tests)


def shifted(images: NDArray[np.float32], labels: NDArray[np.int64], shift: str, cluster: int) -> ClientRows:
    """Images turned by `cluster` quarters, or labels plus `cluster` modulo ten."""
    if shift == "rotation":
        images = np.rot90(images, cluster, axes=(-2, -1))
    else:
        labels = (labels + cluster) % 10
    return bounded_rows(images.reshape(len(images), -1), labels)


def _shrunk(images: NDArray[np.uint8], side: int) -> NDArray[np.float32]:
    step = images.shape[-1] // side
    blocks = images.reshape(*images.shape[:-2], side, step, side, step)
    return (blocks.mean(axis=(-3, -1)) / 255.0).astype(np.float32)
