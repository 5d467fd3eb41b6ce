"""Labeled images of 21 silos in four clusters of 3, 6, 6 and 6: digits rotated, or called by other names."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CLUSTER_SIZES = (3, 6, 6, 6)


def images(data: Path, *, pooled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Training images of `data`/mnist.npz as float32 in [0, 1], shape (n, side, side), and their labels."""
    with np.load(data / "mnist.npz") as found:
        pixels, labels = found["x_train"], found["y_train"]
    scaled = pixels.reshape(-1, 28, 28).astype(np.float32) / 255.0
    if pooled:
        scaled = scaled.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return scaled, labels.astype(np.int64)


def write_lake(folder: Path, data: Path, n_rows: int, *, pooled: bool, seed: int = 0) -> list[int]:
    """A file per silo, its images rotated by 90 degrees times its cluster; returns the cluster of each silo.

    Silos of one cluster have no image in common.
    """
    pixels, labels = images(data, pooled=pooled)
    folder.mkdir(parents=True)
    clusters = [cluster for cluster, size in enumerate(CLUSTER_SIZES) for _ in range(size)]
    order = np.random.default_rng(seed).permutation(len(labels))
    place = 0
    for silo, cluster in enumerate(clusters):
        if silo and clusters[silo - 1] != cluster:
            order, place = np.random.default_rng([seed, cluster]).permutation(len(labels)), 0
        own, place = order[place : place + n_rows], place + n_rows
        points = np.rot90(pixels[own], cluster, axes=(1, 2)).reshape(n_rows, -1)
        write_silo(folder / f"silo-{silo:02d}.parquet", f"silo-{silo:02d}", points, labels[own])
    return clusters


def write_silo(path: Path, name: str, points: np.ndarray, labels: np.ndarray) -> None:
    """One file with columns client_id, x and y."""
    flat = pa.array(np.ascontiguousarray(points).ravel())
    columns = {
        "client_id": pa.array([name] * len(labels)).dictionary_encode(),
        "x": pa.FixedSizeListArray.from_arrays(flat, points.shape[1]),
        "y": pa.array(labels),
    }
    pq.write_table(pa.table(columns), path, compression="none")
