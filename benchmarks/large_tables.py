"""What commands take on tables that are large in one way: a huge row group, many features.

The commands take turns; each is a process of its own.

    python -m benchmarks.large_tables --out benchmarks/results/large_tables.md
"""

import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from benchmarks.measurement import Figures

FITS = {
    "fit, 3,000,000 rows x 20 in one row group": (3_000_000, 20, 3_000_000),
    "fit, the same in row groups of 250,000": (3_000_000, 20, 250_000),
    "fit, 10,000 rows x 2,000": (10_000, 2_000, 10_000),
}
PREPARE = "prepare, 1,000,000 rows x 20 of 50,000 clients in one row group"


def jobs(data: Path) -> dict[str, tuple[str, Path]]:
    """Word of the command and settings of every case; rows are written once."""
    found = {}
    for title, (n_rows, n_features, group_rows) in FITS.items():
        lake = data / f"large-{n_rows}-{n_features}-{group_rows}"
        if not (lake / "job.yaml").exists():
            mixture.write_large_lake(lake, n_rows, n_features, group_rows)
            (lake / "job.yaml").write_text(json.dumps(mixture.config(lake, "record", 1.0)))
        found[title] = "fit", lake / "job.yaml"
    lake = data / "large-prepare"
    if not (lake / "job.yaml").exists():
        (lake / "clients").mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        rows = mixture.table(rng.standard_normal((1_000_000, 20), np.float32), rng.integers(0, 50_000, 1_000_000))
        pq.write_table(rows, lake / "clients" / "part.parquet", row_group_size=rows.num_rows)
        section = {"path": str(lake / "clients"), "features": "x", "client_id": "client_id"}
        (lake / "job.yaml").write_text(json.dumps({"data": section}))
    return found | {PREPARE: ("prepare", lake / "job.yaml")}


def run(word: str, settings: Path) -> Figures:
    """One command, from the start of its process to its end."""
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "pipelines", word, "--config", str(settings), "--output", f"{place}/out"]
        start = time.perf_counter()
        with open(f"{place}/log", "w") as log:
            child = subprocess.Popen(words, stdout=log, stderr=log)
            _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{word} of {settings} must end with code 0, got {status}: {Path(log.name).read_text()}")
    return {
        "wall": time.perf_counter() - start,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": used.ru_maxrss / 1024,
    }


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        # In another process: the peak of a command starts with the memory of the process that starts it.
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            cases = pool.submit(jobs, Path(data)).result()
        load: list[float] = []
        turns: dict[str, list[Figures]] = {title: [] for title in cases}
        for _ in range(arguments.repeats):
            for title, job in cases.items():
                turns[title].append(run(*job))
                print(title, turns[title][-1], flush=True)
            load.append(os.getloadavg()[1])
    lines = [
        *heading("Tables with huge row groups or many features"),
        f"Medians of {arguments.repeats} turns (smallest to largest); load averages {min(load):.1f} to "
        f"{max(load):.1f}.",
        "",
        "| command | wall s | CPU s | peak RSS MB |",
        "| --- " * 4 + "|",
    ]
    for title, found in turns.items():
        cells = (_spread([turn[key] for turn in found]) for key in ("wall", "cpu", "rss"))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    measurement.show(lines, arguments.out)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
