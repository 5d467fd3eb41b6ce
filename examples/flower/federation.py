"""Folders of a made-up federation: three hospitals, of which the first is also the collector, and an aggregator.

Each party signs its files with a key of its own. On real machines each folder lies on its party's machine.
"""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.masked.party import command as party
from transforms.privacy.keys import create_key

HOSPITALS = ("east", "north", "south")
MEANS = 5.0 * np.eye(3, 4)
_OFFICES = ("collector", "aggregator")


def rows(n_rows: int, seed: int) -> pa.Table:
    """Rows around three means."""
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, 4))
    return pa.table(dict(zip("abcd", (MEANS[np.arange(n_rows) % 3] + noise).T, strict=True)))


def write(folder: pathlib.Path) -> None:
    """Writes all folders: rows, public rows, jobs, the hospitals' secret, keys, and what parties keep."""
    homes = {name: folder / "clients" / name for name in HOSPITALS}
    homes |= {"collector": homes[HOSPITALS[0]], "aggregator": folder / "aggregator"}
    for home in set(homes.values()):
        home.mkdir(parents=True, mode=0o700)
    keys = {name: party(["new", "--output", str(homes[name] / f"{name}.identity")]).strip() for name in homes}
    create_key(str(homes[HOSPITALS[0]] / "secret"))
    secret = (homes[HOSPITALS[0]] / "secret").read_bytes()
    for seed, name in enumerate(HOSPITALS):
        _write_hospital(homes[name], name, seed, secret, keys)
    job = yaml.safe_load((homes[HOSPITALS[0]] / "client.yaml").read_text())
    job["masked"]["identity_uri"] = str(homes["collector"] / "collector.identity")
    (homes["collector"] / "collector.yaml").write_text(yaml.safe_dump(job))
    own = {"key_uri": str(homes["aggregator"] / "noise.key"), "threshold": 2, "parties": keys}
    own["identity_uri"] = str(homes["aggregator"] / "aggregator.identity")
    (homes["aggregator"] / "aggregate.yaml").write_text(yaml.safe_dump(own))


def _write_hospital(home: pathlib.Path, name: str, seed: int, secret: bytes, keys: dict[str, str]) -> None:
    pq.write_table(rows(3000, seed), home / "rows.parquet")
    pq.write_table(rows(90, 99), home / "server.parquet")
    if not (home / "secret").exists():
        (home / "secret").touch(mode=0o600)
        (home / "secret").write_bytes(secret)
    job = {
        "algorithm": "server_kmeanspp",
        "data": {"path": str(home / "rows.parquet"), "features": list("abcd")},
        "server_data": {"path": str(home / "server.parquet")},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1.0e-6},
        "clipping": {"norm": "server_radius"},
        "lloyd": {"steps": 2},
        "trust": "masked",
        "masked": {
            "secret_uri": str(home / "secret"),
            "state_uri": str(home / "state"),
            "threshold": 2,
            "parties": keys,
            "identity_uri": str(home / f"{name}.identity"),
        },
    }
    (home / "client.yaml").write_text(yaml.safe_dump(job))
    for words in (["--client", name], []):
        party(["enroll", "--config", str(home / "client.yaml"), *words])
