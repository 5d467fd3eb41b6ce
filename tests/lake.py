"""Small lakes for tests that run whole jobs: data, files, configs, keys, and what a run released."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from transforms.publish import RELEASED_FILES

N_FEATURES = 4
N_CLUSTERS = 3
KEY = bytes(range(101, 133))


def means_of(n_features: int = N_FEATURES, n_clusters: int = N_CLUSTERS) -> NDArray[np.float64]:
    """Well separated cluster means, shape (n_clusters, n_features)."""
    return 4.0 * np.random.default_rng(7).choice([-1.0, 1.0], (n_clusters, n_features)).cumsum(axis=0)


def mixture(n_rows: int, seed: int, means: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Rows around the means in turn, stddev 0.5, shape (n_rows, n_features)."""
    means = means_of() if means is None else means
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, means.shape[1]))
    return means[np.arange(n_rows) % len(means)] + noise


def table_of(points: NDArray[np.floating], clients: Sequence[int] | None = None) -> pa.Table:
    """Columns `x`, a list per row, and `client_id` if there are clients."""
    flat = pa.array(np.ascontiguousarray(points).ravel())
    columns = {"x": pa.FixedSizeListArray.from_arrays(flat, points.shape[1])}
    return pa.table(columns if clients is None else columns | {"client_id": pa.array(clients)})


def write_files(folder: pathlib.Path, tables: Sequence[pa.Table], row_group_size: int | None = None) -> str:
    """One Parquet file per table; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{index:02d}.parquet", row_group_size=row_group_size)
    return str(folder)


def write_server(path: pathlib.Path, points: NDArray[np.floating] | None = None) -> str:
    """Public rows as one file, by default a mixture like the private data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(mixture(60, seed=99) if points is None else points), path)
    return str(path)


def write_key(path: pathlib.Path, key: bytes = KEY, mode: int = 0o600) -> str:
    """A run key that the test knows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(key)
    os.chmod(path, mode)
    return str(path)


def job(data: str, server: str | None, unit: str = "record", **settings: Any) -> dict[str, Any]:
    """A job as plain data; `settings` replace whole values, "section.key" one value of a section."""
    found: dict[str, Any] = {
        "algorithm": "feddp_kmeans",
        "data": {"path": data, "features": "x"},
        "server_data": {"path": server} if server else "none",
        "n_clusters": N_CLUSTERS,
        "privacy": {"unit": unit, "epsilon": 2.0, "delta": 1e-6},
        "clipping": {"norm": "server_radius"} if server else {"norm": 20.0, "center": "none"},
        "feddp_kmeans": {"restarts": 20},
    }
    if unit == "client":
        found["data"]["client_id"] = "client_id"
        found["clipping"]["client_rows"] = 10
    for name, value in settings.items():
        section, _, key = name.rpartition("__")
        (found.setdefault(section, {}) if section else found)[key] = value
    return found


def released(folder: str | pathlib.Path) -> dict[str, bytes]:
    """The released files of a run, byte for byte."""
    return {name: (pathlib.Path(folder) / name).read_bytes() for name in RELEASED_FILES}
