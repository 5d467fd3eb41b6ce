"""CPU seconds of a round of `clustered_fl`, of two checkouts in turns.

21 silos of 1,000 rows of 14 x 14 pixels, batches of 32, epsilon 4; softmax regression, and a hidden layer of 64 units.
`loop` trains without Beam, rows in memory; `job` is the whole command: it reads, trains and writes. Every turn is a
process of its own with one BLAS thread, and measures its own CPU time, so that other work on the machine matters less;
the checkouts take turns. A ratio is that of the medians.

    python -m benchmarks.training_cost --before CHECKOUT --after CHECKOUT --out benchmarks/results/training_cost.md
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

DIGITS = Path("tests/data/mnist_14.npz")
ROUNDS = 3
N_ROWS, BATCH = 1000, 32


def job(folder: Path, model: str) -> dict[str, Any]:
    """As plain data, so that it is a job of both checkouts."""
    return {
        "algorithm": "global",
        "data": {"path": str(folder / "lake"), "client_id": "client_id", "features": "x", "label": "y"},
        "privacy": {"epsilon": 4.0, "delta": 1e-4, "adjacency": "add_remove"},
        "training": {
            "model": model,
            "rounds": ROUNDS,
            "batch_size": BATCH,
            "learning_rate": 0.4,
            "clipping_norm": 1.0,
        },
    }


def write_lake(folder: Path, data: Path) -> None:
    """A file per silo; silos of a cluster hold other images."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with np.load(data) as file:
        images, labels = file["x_train"].reshape(-1, 196).astype(np.float32) / 255.0, file["y_train"]
    folder.mkdir()
    for number in range(21):
        chosen = np.random.default_rng(number).permutation(len(images))[:N_ROWS]
        columns = {
            "client_id": pa.array([f"silo-{number:02d}"] * N_ROWS),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(images[chosen].ravel()), 196),
            "y": pa.array(labels[chosen].astype(np.int64)),
        }
        pq.write_table(pa.table(columns), folder / f"silo-{number:02d}.parquet")


def turn(kind: str, model: str, folder: Path) -> float:
    """CPU seconds per round, by the code that this process imports."""
    from threadpoolctl import threadpool_limits

    from pipelines.clustered_fl.planned import plan_federation
    from pipelines.command import main as command
    from pipelines.run.options import beam_options
    from schemas.clustered_fl.config import ClusteredFLConfig
    from schemas.settings import rejection
    from transforms.clustered_fl.labeled_clients import read_clients
    from transforms.numerics.clustered_fl.loop import run_rounds
    from transforms.numerics.privacy.keystream import KeyStream

    with tempfile.TemporaryDirectory() as work, threadpool_limits(limits=1):
        if kind == "job":
            (Path(work) / "job.yaml").write_text(json.dumps(job(folder, model)))
            words = ["clustered_fl", "--config", f"{work}/job.yaml", "--output", f"{work}/out"]
            start = time.process_time()
            if command.main(words) != 0:
                raise SystemExit("the job must end with code 0, got another.")
            return (time.process_time() - start) / ROUNDS
        planned = plan_federation(rejection.checked(ClusteredFLConfig, job(folder, model)), beam_options([]), work)
        found = [read_clients(place, planned.contract) for place in planned.clients.places]
        rows = [own for _, own in sorted({k: v for place in found for k, v in place.items()}.items())]
        start = time.process_time()
        run_rounds(planned.federation, rows, KeyStream(bytes(32), b"training_cost"))
        return (time.process_time() - start) / ROUNDS


def measured(checkout: Path, kind: str, model: str, folder: Path) -> float:
    """`turn` in a process that imports the code of a checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--turn", kind, model, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def compared(before: Path, after: Path, kind: str, model: str, folder: Path, repeats: int) -> str:
    """A line of the table."""
    turns = [[measured(each, kind, model, folder) for each in (before, after)] for _ in range(repeats)]
    print(kind, model, turns, flush=True)
    columns = list(zip(*turns, strict=True))
    cells = [f"{statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})" for each in columns]
    ratio = statistics.median(columns[1]) / statistics.median(columns[0])
    return f"| {model}, {kind} | {cells[0]} | {cells[1]} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout")
    parser.add_argument("--after", type=Path, help="another one")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="Markdown file for the results")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.turn:
        kind, model, folder = words.turn
        print(turn(kind, model, Path(folder)))
        return
    from benchmarks.machine import heading

    lines = heading("What a round of clustered federated learning costs")
    lines += [
        f"CPU seconds per round of 21 silos (jobs: of the whole job over its {ROUNDS} rounds), medians of "
        f"{words.repeats} turns of each checkout with the smallest and the largest.",
        "",
        "| setting | before | after | ratio |",
        "| --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        write_lake(Path(folder) / "lake", DIGITS)
        for kind in ("loop", "job"):
            for model in ("softmax", "mlp"):
                lines.append(compared(words.before, words.after, kind, model, Path(folder), words.repeats))
                if words.out:
                    words.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
