"""Makes `state.tar.xz` again: `PYTHON make.py`, with the Python of an environment that has dapple-dp 0.2.0.

Jobs run at a fixed place, since ledgers and checkpoints hold absolute paths, and die where the names below say.
"""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PLACE = pathlib.Path("/tmp/dapple-state-of-0.2.0")
TARGET = pathlib.Path(__file__).resolve().parent / "state.tar.xz"
DIE = """
import os, sys, json
from unittest import mock
module, path, call, after, words = json.loads(sys.argv[1])
import importlib
holder = importlib.import_module(module)
*parents, name = path.split(".")
for parent in parents:
    holder = getattr(holder, parent)
original, calls = getattr(holder, name), 0
def dying(*args, **more):
    global calls
    calls += 1
    if calls == call and not after:
        os._exit(9)
    found = original(*args, **more)
    if calls == call:
        os._exit(9)
    return found
setattr(holder, name, dying)
from pipelines.command import main
sys.exit(main.main(words))
"""
BETWEEN_ROUNDS = ("transforms.files.checkpoint", "CheckpointFolder.save", 2, True)
"""After the record of the first round: the first call records the state before it."""
DRAWN = ("transforms.numerics.privacy.noise", "draw_release", 1, True)
"""A window has one round: its noise is drawn, and nobody has it."""
RESERVED = ("pipelines.kmeans.account", "RunAccount.start", 1, False)
"""Charged, and nothing is drawn."""
JOB = {
    "algorithm": "dp_lloyd",
    "n_clusters": 2,
    "privacy": {"unit": "record", "epsilon": 2.0, "delta": 1e-6},
    "clipping": {"norm": "domain", "center": "none"},
    "dp_lloyd": {"domain": [0.0, 10.0], "variant": "fast", "init": "sphere_packing", "steps": 2},
    "data": {"path": str(PLACE / "rows"), "features": ["a", "b"]},
    "chunks": {"rounds": 1},
}
STREAM = {"name": "january", "column": "dt", "first": "2026-01-01", "windows": 6, "once": "made for a test"}
CLIENTS = ("north", "south")


def write_rows(name, seed):
    rows = np.random.default_rng(seed).normal([[2.0, 2.0], [8.0, 7.0]] * 30, 0.4)
    path = PLACE / name / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1]}), path)


def write_json(name, content):
    (PLACE / name).write_text(json.dumps(content, indent=1))


def run(*words, code=0):
    done = subprocess.run([sys.executable, "-P", "-m", "dapple_dp", *words], cwd=PLACE, capture_output=True, text=True)
    assert done.returncode == code, (words, done.stderr)
    return done.stdout


def die(point, *words):
    argument = json.dumps([*point, words])
    done = subprocess.run([sys.executable, "-P", "-c", DIE, argument], cwd=PLACE, capture_output=True, text=True)
    assert done.returncode == 9, (words, done.stderr)


def fits():
    """A model, a run without a ledger between two rounds, and a ledger with runs that ended, did not, never drew."""
    write_rows("rows", 1)
    write_json("free.yaml", JOB)
    die(BETWEEN_ROUNDS, "fit", "--config", "free.yaml", "--output", "free", "--run_id", "free")
    charged = JOB | {"data": JOB["data"] | {"name": "census"}, "ledger": str(PLACE / "ledger.sqlite")}
    write_json("charged.yaml", charged)
    run("ledger", "limit", "--ledger", "ledger.sqlite", "--dataset", "census", "--epsilon", "7", "--delta", "1e-5")

    def words(name):
        return "fit", "--config", "charged.yaml", "--output", name, "--run_id", name

    run(*words("whole"))
    die(BETWEEN_ROUNDS, *words("half"))
    die(RESERVED, *words("reserved"))


def streams():
    """An epoch between two windows, and a copy of it in the middle of the third."""
    for day in range(1, 4):
        write_rows(f"lake/dt=2026-01-0{day}", day)
    lake = {"path": str(PLACE / "lake"), "name": "visits", "features": ["a", "b"]}
    for name in ("between", "middle"):
        ledger = str(PLACE / name / "ledger.sqlite")
        (PLACE / name).mkdir()
        run("ledger", "limit", "--ledger", ledger, "--dataset", "visits", "--epsilon", "50", "--delta", "1e-4")
        stream = STREAM | {"start": str(PLACE / "whole"), "until": "2026-01-02"}
        job = JOB | {"data": lake, "ledger": ledger, "stream": stream}
        write_json(f"{name}/stream.yaml", job)
        output = str(PLACE / name / "january")
        words = ("stream", "--config", f"{name}/stream.yaml", "--output", output, "--once")
        run(*words)
        if name == "middle":
            write_json(f"{name}/stream.yaml", job | {"stream": stream | {"until": "2026-01-03"}})
            die(DRAWN, *words)


def training():
    """Federated training between two rounds."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 160)
    points = rng.normal(2.0 * labels[:, None], 0.5, (160, 2)).astype(np.float32)
    path = PLACE / "silos" / "part-0.parquet"
    path.parent.mkdir()
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 2), "y": pa.array(labels)}
    pq.write_table(pa.table(columns | {"client_id": [f"silo-{number // 40}" for number in range(160)]}), path)
    data = {"path": str(path.parent), "client_id": "client_id", "features": "x", "label": "y", "classes": 2}
    rounds = {"model": "softmax", "rounds": 3, "batch_size": 20, "learning_rate": 0.5, "clipping_norm": 1.0}
    job = {"experimental": True, "algorithm": "r_dpcfl", "data": data, "n_clusters": 2, "training": rounds}
    job |= {"privacy": {"epsilon": 8.0, "delta": 1e-3, "adjacency": "add_remove"}, "chunks": {"rounds": 1}}
    write_json("training.yaml", job)
    die(BETWEEN_ROUNDS, "clustered_fl", "--config", "training.yaml", "--output", "trained", "--run_id", "trained")


def federation():
    """Two parties with masks after the first round, and before the second."""
    secret = PLACE / "secret"
    secret.write_bytes(bytes(range(51, 83)))
    (PLACE / "aggregator.key").write_bytes(bytes(range(101, 133)))
    for path in (secret, PLACE / "aggregator.key"):
        path.chmod(0o600)
    write_json("aggregate.yaml", {"key_uri": str(PLACE / "aggregator.key"), "threshold": 2})
    for seed, name in enumerate(CLIENTS):
        write_rows(f"rows-{name}", 10 + seed)
        masked = {"secret_uri": str(secret), "state_uri": str(PLACE / f"state-{name}"), "threshold": 2}
        job = {"experimental": True, "trust": "masked", "masked": masked, "server_data": "none"}
        job |= {name: value for name, value in JOB.items() if name not in ("data", "chunks")}
        write_json(f"{name}.yaml", job | {"data": JOB["data"] | {"path": str(PLACE / f"rows-{name}")}})
        run("party", "enroll", "--config", f"{name}.yaml", "--client", name)
    run("party", "enroll", "--config", "north.yaml")
    places = ("--exchange", str(PLACE / "exchange"), "--released", str(PLACE / "released"))
    unmask = ("unmask", "--config", "north.yaml", *places, "--run_id", "run")
    aggregate = ("aggregate", "--config", "aggregate.yaml", *places[:2])
    run(*unmask)
    run(*aggregate)
    for name in CLIENTS:
        run("upload", "--config", f"{name}.yaml", *places, "--client", name)
    run(*aggregate)
    run(*unmask)


def estimator():
    """A fitted estimator, pickled."""
    import dapple_dp

    rows = pq.read_table(PLACE / "rows").to_pandas().to_numpy()
    model = dapple_dp.DPKMeans(2, epsilon=4.0, delta=1e-6, domain=(0.0, 10.0), random_state=None).fit(rows)
    (PLACE / "estimator.pickle").write_bytes(pickle.dumps(model))
    (PLACE / "estimator.json").write_text(json.dumps(model.cluster_centers_.tolist()))


if __name__ == "__main__":
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    assert run("--version").strip() == "dapple 0.2.0"
    for part in (fits, streams, training, federation, estimator):
        part()
        sys.stderr.write(f"{part.__name__}: {sum(path.is_file() for path in PLACE.rglob('*'))} files\n")
    with tarfile.open(TARGET, "w:xz", format=tarfile.GNU_FORMAT, preset=9) as archive:
        archive.add(PLACE, arcname=".")
    sys.stderr.write(f"{os.path.getsize(TARGET)} bytes\n")
