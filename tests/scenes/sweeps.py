"""Small sweeps for tests: settings, the command, and what it left behind."""

import copy
import json
import pathlib
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.scenes import lake

METHODS = {
    "rows": {"algorithm": "feddp_kmeans"},
    "clients": {"algorithm": "feddp_kmeans", "privacy": {"unit": "client"}},
    "full": {"algorithm": "feddp_kmeans", "feddp_kmeans": {"space": "full"}, "lloyd": {"steps": 2}},
    "optimum": {"algorithm": "optimal"},
}


def settings(data: str, server: str, methods: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """A sweep as plain data; options replace those of its section."""
    return {
        "experimental": True,
        "data": {"path": data, "features": "x", "client_id": "client_id"},
        "server_data": {"path": server},
        "n_clusters": 3,
        "privacy": {"unit": "record", "delta": 1e-6},
        "clipping": {"norm": "server_radius", "client_rows": 10},
        "feddp_kmeans": {"restarts": 20},
        "sweep": {"methods": copy.deepcopy(METHODS if methods is None else methods), "epsilons": [4.0], "seeds": 1}
        | options,
    }


def run(job: dict[str, Any], folder: pathlib.Path, *flags: str, output: str = "out") -> lake.Outcome:
    """`dapple sweep` from `folder`/sweep.yaml to `folder`/out."""
    (folder / "sweep.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    words = ("--config", str(folder / "sweep.yaml"), "--output", str(folder / output), *flags)
    return lake.run_command("sweep", *words)


def rows(folder: pathlib.Path, name: str = "results.parquet") -> list[dict[str, Any]]:
    """Rows of a result file."""
    return pq.read_table(folder / "out" / name, partitioning=None).to_pylist()


def state(folder: pathlib.Path) -> dict[str, Any]:
    """`sweep.json`."""
    found: dict[str, Any] = json.loads((folder / "out" / "sweep.json").read_text())
    return found
