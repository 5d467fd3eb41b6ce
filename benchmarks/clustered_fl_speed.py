"""Rounds of R-DPCFL through Beam against the same rounds in a loop without it: same mathematics, same digest.

21 silos of MNIST in clusters {3, 6, 6, 6}, images rotated by 90 degrees times the cluster; softmax regression, batches
of 50, epsilon 4, delta 1e-4. `small`: 1,000 rows per silo, 14 x 14 pixels. `large`: 6,600 rows, 28 x 28. Beam and loop
take turns in one process; a ratio is the median over the turns. Both start when clients are known and noise is
calibrated and end with the last model: Beam reads Parquet, builds graphs and writes checkpoints; the loop has the rows
in memory already.

    python -m benchmarks.clustered_fl_speed --data FOLDER --out benchmarks/results/clustered_fl_speed.md

FOLDER holds mnist.npz.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers import federated_clients
from pipelines.clustered_fl.job import train
from pipelines.clustered_fl.planned import PlannedFederation, plan_federation
from pipelines.run.options import beam_options
from pipelines.run.run_keys import own_key
from schemas.clustered_fl.config import ClusteredFLConfig
from schemas.clustered_fl.records import ClientRows, FederatedState
from schemas.settings import rejection
from tests.scenes.federation import run_rounds
from transforms.clustered_fl.labeled_clients import read_clients
from transforms.clustered_fl.rounds import run_stream
from transforms.privacy.keys import read_key

SETTINGS = {"small": (1_000, 14, 40), "large": (6_600, 28, 20)}
"""Rows per silo, pixels of a side, and rounds."""


def job(lake: Path, rounds: int, chunk: int) -> ClusteredFLConfig:
    settings = {
        "experimental": True,
        "algorithm": "r_dpcfl",
        "data": {"path": str(lake), "client_id": "client_id", "features": "x", "label": "y"},
        "n_clusters": 4,
        "privacy": {"epsilon": 4.0, "delta": 1e-4, "adjacency": "add_remove"},
        "training": {
            "model": "softmax",
            "rounds": rounds,
            "batch_size": 50,
            "learning_rate": 0.4,
            "clipping_norm": 1.0,
        },
        "chunks": {"rounds": chunk},
    }
    return rejection.check_config(ClusteredFLConfig, settings)


def write_lake(folder: Path, data: Path, n_rows: int, side: int) -> None:
    """A file per silo with columns client_id, x and y."""
    folder.mkdir()
    images = federated_clients.load(data / "mnist.npz", side)
    for number, rows in enumerate(federated_clients.clients(images, "rotation", n_rows, seed=0).rows):
        flat = pa.array(np.ascontiguousarray(rows.features).ravel())
        columns = {
            "client_id": pa.array([f"silo-{number:02d}"] * n_rows).dictionary_encode(),
            "x": pa.FixedSizeListArray.from_arrays(flat, rows.features.shape[1]),
            "y": pa.array(rows.labels),
        }
        pq.write_table(pa.table(columns), folder / f"silo-{number:02d}.parquet", compression="none")


def timed(action: Callable[[], FederatedState]) -> tuple[FederatedState, float, float]:
    """The result, wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    state = action()
    return state, time.perf_counter() - wall, time.process_time() - cpu


def in_loop(planned: PlannedFederation, rows: list[ClientRows], key: bytes) -> FederatedState:
    with threadpool_limits(limits=1):
        return run_rounds(planned.federation, rows, run_stream(key, planned.federation))


def in_beam(planned: PlannedFederation, key_uri: str) -> FederatedState:
    with tempfile.TemporaryDirectory() as folder:
        return train(planned, beam_options([]), folder, key_uri)


def measure(name: str, data: Path, folder: Path, repeats: int, chunks: list[int]) -> list[str]:
    n_rows, side, rounds = SETTINGS[name]
    write_lake(folder / name, data, n_rows, side)
    options, lines = beam_options([]), []
    for chunk in chunks:
        work = folder / f"{name}-{chunk}"
        work.mkdir()
        planned = plan_federation(job(folder / name, rounds, chunk), options, str(work))
        found = [read_clients(place, planned.contract) for place in planned.clients.places]
        rows = [own for _, own in sorted({k: v for place in found for k, v in place.items()}.items())]
        turns = []
        with own_key(str(work)) as key_uri:
            for _ in range(repeats):
                loop, loop_wall, loop_cpu = timed(lambda: in_loop(planned, rows, read_key(key_uri)))  # noqa: B023
                beam, beam_wall, beam_cpu = timed(lambda: in_beam(planned, key_uri))  # noqa: B023
                if loop.digest() != beam.digest():
                    raise SystemExit("Beam and the loop must give one digest, got two.")
                turns.append((loop_wall, beam_wall, beam_wall / loop_wall, loop_cpu, beam_cpu, beam_cpu / loop_cpu))
                print(name, chunk, turns[-1], flush=True)
        cells = " | ".join(f"{statistics.median(column):.2f}" for column in zip(*turns, strict=True))
        lines.append(f"| {name}: {n_rows:,} rows, {rounds} rounds, {chunk} per pipeline | {cells} |")
    return lines


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of mnist.npz")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--chunks", nargs="+", type=int, default=[10], help="rounds per pipeline")
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    lines = heading("Clustered federated learning: Beam against a loop")
    lines += [
        f"Medians of {words.repeats} turns; digests of the final states were equal in every turn.",
        "Where other work runs on the machine, compare CPU seconds.",
        "",
        "| setting | loop wall s | Beam wall s | ratio | loop CPU s | Beam CPU s | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in words.settings:
            chunks = words.chunks if name == "small" else words.chunks[:1]
            lines += measure(name, words.data, Path(folder), words.repeats, chunks)
    measurement.show(lines, words.out)


if __name__ == "__main__":
    main()
