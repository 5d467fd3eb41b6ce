"""FedDP-KMeans under masks by parties of their own: three hospitals, an aggregator, and a party that unmasks.

Each party is one command, `dapple masked party`, and a process with no more than its role may know: the hospitals their
own rows and the secret, the aggregator a key for noise and the exchange folder, the unmasking party the secret and the
releases. Under identities of a system of their own the folders' permissions keep them apart (each hospital then has a
copy of the secret). Nobody types a line per round. Run this file with the package installed; everything is written to
`out/masked`.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dapple_dp.transforms.privacy.key_files import create_key

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "out" / "masked"
HOSPITALS = ("north", "east", "south")
PARTIES = (*HOSPITALS, "aggregator", "collector")
COMMAND = ("masked", "party")
MEANS = 5.0 * np.eye(3, 4)
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def rows(n_rows: int, seed: int) -> pa.Table:
    """Rows around three means."""
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, 4))
    return pa.table(dict(zip("abcd", (MEANS[np.arange(n_rows) % 3] + noise).T, strict=True)))


def write_inputs() -> None:
    """Each party's own folder: rows, job and keys; clients have one secret, and everybody knows all public keys."""
    for name in PARTIES:
        (OUTPUT / name).mkdir(parents=True, mode=0o700)
    secret = OUTPUT / "collector" / "secret"
    create_key(str(secret))
    keys = {name: said(*COMMAND, "new", "--output", str(OUTPUT / name / "identity")).strip() for name in PARTIES}
    for seed, name in enumerate(("collector", *HOSPITALS)):
        if name in HOSPITALS:
            shutil.copy(secret, OUTPUT / name / "secret")
        pq.write_table(rows(3000, seed), OUTPUT / name / "rows.parquet")
        pq.write_table(rows(90, seed=99), OUTPUT / name / "server.parquet")
        (OUTPUT / name / "job.yaml").write_text(yaml.safe_dump(job(name, keys), sort_keys=False))
        said(*COMMAND, "enroll", "--config", config_of(name), *([] if name == "collector" else ["--client", name]))
    own = {"key_uri": str(OUTPUT / "aggregator" / "noise.key"), "threshold": 2}
    own |= {"parties": keys, "identity_uri": str(OUTPUT / "aggregator" / "identity")}
    (OUTPUT / "aggregator" / "job.yaml").write_text(yaml.safe_dump(own))


def job(name: str, keys: dict[str, str]) -> dict[str, Any]:
    """The job of a party of the clients' role; such jobs differ in places only."""
    found: dict[str, Any] = {
        "algorithm": "feddp_kmeans",
        "data": {"path": str(OUTPUT / name / "rows.parquet"), "features": list("abcd")},
        "server_data": {"path": str(OUTPUT / name / "server.parquet")},
        "n_clusters": 3,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1.0e-6},
        "clipping": {"norm": "server_radius"},
        "trust": "masked",
        "masked": {
            "threshold": 2,
            "secret_uri": str(OUTPUT / name / "secret"),
            "state_uri": str(OUTPUT / name / "state"),
        },
    }
    found["masked"] |= {"parties": keys, "identity_uri": str(OUTPUT / name / "identity")}
    return found


def config_of(owner: str) -> str:
    """The job of a party."""
    return str(OUTPUT / owner / "job.yaml")


def said(*words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "dapple_dp", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=ENVIRONMENT).stdout


def party(name: str) -> subprocess.Popen[str]:
    """The one command of a party."""
    words = ["--exchange", str(OUTPUT / "exchange"), "--poll_seconds", "0.5", "--wait_minutes", "30"]
    role = {"aggregator": "aggregator", "collector": "clients"}.get(name, "client")
    if role != "aggregator":
        words += ["--released", str(OUTPUT / "released")]
    if role == "client":
        words += ["--client", name]
    command = [sys.executable, "-m", "dapple_dp", *COMMAND, "--role", role, "--config", config_of(name), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def main() -> None:
    """All parties, started together; each ends on its own."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    write_inputs()
    processes = {name: party(name) for name in PARTIES}
    ends = {name: json.loads(process.communicate()[0]) for name, process in processes.items()}
    result = ends["collector"]
    print(f"epsilon {result['epsilon']:.4g} spent, left out: {ends['aggregator']['left_out'] or 'nobody'}; centers:")
    print(np.stack(pq.read_table(f"{result['output']}/centers.parquet")["center"].to_numpy()).round(2))


if __name__ == "__main__":
    main()
