"""FedDP-KMeans under masks by jobs of their own: three hospitals, an aggregator, and whoever unmasks for the clients.

Every step is a process that gets no more than its role may know: the hospitals their own rows and the secret, the
aggregator a key for noise and the exchange folder, the unmasking job the secret and the releases. Under three
identities of a system the folders' permissions keep them apart (each hospital then has a copy of the secret). One
hospital misses the second round. Run this file with the package installed; everything is written to `out/masked`.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from transforms.privacy.keys import create_key

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "out" / "masked"
HOSPITALS = ("north", "east", "south")
MISSED = {(1, "east")}
MEANS = 5.0 * np.eye(3, 4)


def rows(n_rows: int, seed: int) -> pa.Table:
    """Rows around three means."""
    noise = np.random.default_rng(seed).normal(0.0, 0.5, (n_rows, 4))
    return pa.table(dict(zip("abcd", (MEANS[np.arange(n_rows) % 3] + noise).T, strict=True)))


def write_inputs() -> None:
    """Each role's own folder: rows and job of a hospital, key and job of the aggregator; clients share the secret."""
    for name in (*HOSPITALS, "aggregator", "clients"):
        (OUTPUT / name).mkdir(parents=True, mode=0o700)
    create_key(str(OUTPUT / "clients" / "secret"))
    pq.write_table(rows(90, seed=99), OUTPUT / "clients" / "server.parquet")
    for seed, name in enumerate(HOSPITALS):
        pq.write_table(rows(3000, seed), OUTPUT / name / "rows.parquet")
        job = {
            "algorithm": "feddp_kmeans",
            "data": {"path": str(OUTPUT / name / "rows.parquet"), "features": list("abcd")},
            "server_data": {"path": str(OUTPUT / "clients" / "server.parquet")},
            "n_clusters": 3,
            "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1.0e-6},
            "clipping": {"norm": "server_radius"},
            "trust": "masked",
            "masked": {
                "secret_uri": str(OUTPUT / "clients" / "secret"),
                "state_uri": str(OUTPUT / name / "state"),
            },
        }
        (OUTPUT / name / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    aggregate = {"key_uri": str(OUTPUT / "aggregator" / "noise.key"), "threshold": 2}
    (OUTPUT / "aggregator" / "job.yaml").write_text(yaml.safe_dump(aggregate))


def dapple(job: str, owner: str, *flags: str) -> dict[str, object]:
    """A job as a process of its own; returns its summary."""
    return json.loads(said(job, "--config", config_of(owner), "--exchange", str(OUTPUT / "exchange"), *flags))


def enroll(owner: str, *flags: str) -> None:
    """Makes the folder in which a party keeps what it has answered: once, before it takes part in any run."""
    said("party", "enroll", "--config", config_of(owner), *flags)


def config_of(owner: str) -> str:
    """The job of a role."""
    return str(OUTPUT / owner / "job.yaml")


def said(*words: str) -> str:
    """What a command prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pipelines", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout


def main() -> None:
    """All rounds."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    write_inputs()
    for name in HOSPITALS:
        enroll(name, "--client", name)
    enroll(HOSPITALS[0])
    released = ("--released", str(OUTPUT / "clients" / "released"))
    state = dapple("unmask", HOSPITALS[0], *released)
    dapple("aggregate", "aggregator")
    while "output" not in state:
        index = state["round"]
        for name in HOSPITALS:
            if (index, name) not in MISSED:
                dapple("upload", name, *released, "--client", name)
        dapple("aggregate", "aggregator")
        state = dapple("unmask", HOSPITALS[0], *released)
    print(f"epsilon {state['epsilon']:.4g} spent; centers:")
    print(np.stack(pq.read_table(f"{state['output']}/centers.parquet")["center"].to_numpy()).round(2))


if __name__ == "__main__":
    main()
