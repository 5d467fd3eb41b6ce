"""Well separated clusters in the unit ball, on which clustering in one round was published, and lakes made of them.

Source: Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private k-means in one round", Section 5: k centers of norm
about 1 - 1 / r, Gaussian noise of expected norm 1 / r around them, equal weights.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

RADIUS = 1.0
"""Public bound on the norm of a row."""


class SeparatedMixture(NamedTuple):
    """One draw: `rows` (n, d) in the unit ball, `means` (k, d), `labels` (n,) the component of each row."""

    rows: NDArray[np.float64]
    means: NDArray[np.float64]
    labels: NDArray[np.int64]


def draw(
    seed: int, n_rows: int, n_features: int = 100, n_clusters: int = 8, separation: float = 100.0
) -> SeparatedMixture:
    """One draw; `separation` is r, about the ratio of the distance of two centers to the radius of a cluster."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n_clusters, n_features))
    means *= (1.0 - 1.0 / separation) / np.linalg.norm(means, axis=1, keepdims=True)
    labels = rng.integers(0, n_clusters, n_rows)
    rows = rng.normal(size=(n_rows, n_features))
    rows *= 1.0 / (separation * np.sqrt(n_features))
    rows += means[labels]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows *= np.minimum(1.0, RADIUS / np.maximum(norms, 1e-300))
    return SeparatedMixture(rows, means, labels)


def write_lake(folder: Path, rows: NDArray[np.floating], group_rows: int, client_rows: int | None = None) -> None:
    """Writes one file per row group: column `x` of lists, and `client_id` if clients have `client_rows` rows each."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, start in enumerate(range(0, len(rows), group_rows)):
        part = rows[start : start + group_rows]
        columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), part.shape[1])}
        if client_rows is not None:
            columns["client_id"] = pa.array(np.arange(start, start + len(part)) // client_rows)
        pq.write_table(pa.table(columns), folder / f"part-{index:04d}.parquet")


def mean_cost(rows: NDArray[np.floating], centers: NDArray[np.float64]) -> float:
    """Mean squared distance to the nearest center: the normalized cost, for radius 1."""
    scores = (centers**2).sum(axis=1) - 2.0 * rows @ centers.T
    return float(((rows**2).sum(axis=1) + scores.min(axis=1)).mean())
