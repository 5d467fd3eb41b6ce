"""Large lakes of the mixture that are written once: of rows, and of clients whose rows are all over the files."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import mixture

ROW_FEATURES, CLIENT_FEATURES, CLIENT_ROWS = 50, 32, 20
GROUP_ROWS = 62_500


def record_lake(data: Path, n_rows: int) -> Path:
    """A lake of rows, written once."""
    lake = data / f"scale-rows-{n_rows}"
    if not (lake / "job.yaml").exists():
        mixture.write_large_lake(lake, n_rows, ROW_FEATURES, GROUP_ROWS)
        (lake / "job.yaml").write_text(json.dumps(mixture.config(lake, "record", 1.0)))
    return lake


def client_lake(data: Path, n_clients: int) -> Path:
    """A lake of clients whose rows are all over it, written once."""
    lake = data / f"scale-clients-{n_clients}"
    if (lake / "job.yaml").exists():
        return lake
    drawn = mixture.draw(0, 0, CLIENT_FEATURES)
    rng = np.random.default_rng(1)
    (lake / "clients").mkdir(parents=True, exist_ok=True)
    owners = rng.permutation(np.repeat(np.arange(n_clients), CLIENT_ROWS))
    for index, start in enumerate(range(0, len(owners), GROUP_ROWS)):
        ids = owners[start : start + GROUP_ROWS]
        rows = mixture.sample(rng, drawn.means, len(ids)).astype(np.float32)
        pq.write_table(mixture.table(rows, ids), lake / "clients" / f"part-{index:04d}.parquet")
    pq.write_table(mixture.table(drawn.server), lake / "server.parquet")
    config = mixture.config(lake, "client", 1.0)
    config["clipping"]["client_rows"] = CLIENT_ROWS  # type: ignore[index]
    (lake / "job.yaml").write_text(json.dumps(config))
    return lake
