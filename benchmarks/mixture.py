"""The Gaussian mixture on which FedDP-KMeans was published, and lakes made of it.

Source: Scott, Lampert, Saulpic (2025), Appendix G.1: means uniform on [0, 1]^d, covariance I / 2, equal weights;
server data: 20 points of each component and 100 uniform ones.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray


class Mixture(NamedTuple):
    """One draw: `rows` (n, d), `server` (q, d), `means` (k, d)."""

    rows: NDArray[np.floating]
    server: NDArray[np.float64]
    means: NDArray[np.float64]


def draw(seed: int, n_rows: int, n_features: int = 100, n_clusters: int = 10) -> Mixture:
    """One draw of the mixture and its server data."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.0, 1.0, (n_clusters, n_features))
    rows = sample(rng, means, n_rows)
    near = np.repeat(means, 20, axis=0)
    near = near + rng.normal(0.0, np.sqrt(0.5), near.shape)
    return Mixture(rows, np.vstack([near, rng.uniform(0.0, 1.0, (100, n_features))]), means)


def sample(rng: np.random.Generator, means: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
    """Rows of the mixture, shape (n_rows, d)."""
    return means[rng.integers(0, len(means), n_rows)] + rng.normal(0.0, np.sqrt(0.5), (n_rows, means.shape[1]))


def table(rows: NDArray[np.floating], client_ids: NDArray[np.int64] | None = None) -> pa.Table:
    """Column `x` of fixed-size lists, and `client_id` if given."""
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])}
    return pa.table(columns if client_ids is None else columns | {"client_id": client_ids})


def write_lake(folder: Path, mixture: Mixture, n_files: int, group_rows: int, client_rows: int | None = None) -> None:
    """Writes `clients/part-*.parquet` (clients whole in a row group) and `server.parquet`."""
    (folder / "clients").mkdir(parents=True, exist_ok=True)
    owners = None if client_rows is None else np.arange(len(mixture.rows)) // client_rows
    for index, part in enumerate(np.array_split(np.arange(len(mixture.rows)), n_files)):
        ids = None if owners is None else owners[part]
        path = folder / "clients" / f"part-{index:04d}.parquet"
        pq.write_table(table(mixture.rows[part], ids), path, row_group_size=group_rows)
    pq.write_table(table(mixture.server), folder / "server.parquet")


def write_large_lake(folder: Path, n_rows: int, n_features: int, group_rows: int, seed: int = 0) -> None:
    """A record-level lake of float32 rows, written one row group at a time so that it may exceed the memory."""
    mixture = draw(seed, 0, n_features)
    rng = np.random.default_rng([seed, 1])
    (folder / "clients").mkdir(parents=True, exist_ok=True)
    for index, start in enumerate(range(0, n_rows, group_rows)):
        rows = sample(rng, mixture.means, min(group_rows, n_rows - start)).astype(np.float32)
        pq.write_table(table(rows), folder / "clients" / f"part-{index:04d}.parquet")
    pq.write_table(table(mixture.server), folder / "server.parquet")


def config(folder: Path, unit: str, epsilon: float, **sections: object) -> dict[str, object]:
    """Settings of a fit of such a lake; `sections` replace or add top-level sections."""
    client = unit == "client"
    return {
        "experimental": True,
        "algorithm": "feddp_kmeans",
        "data": {"path": str(folder / "clients"), "features": "x", "client_id": "client_id" if client else None},
        "server_data": {"path": str(folder / "server.parquet")},
        "n_clusters": 10,
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": 1e-6},
        "clipping": {"norm": "server_radius", "center": "server_mean", "client_rows": 50 if client else None},
    } | sections
