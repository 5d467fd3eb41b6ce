"""A fit of more and more rows on one machine: whether memory stays as it is, and CPU time grows with the rows.

The rows are float32, written once in files of 250,000, so that they may exceed the memory. Each command is a process of
its own. What a row takes is what a command takes beyond that of the smallest lake. Results are written after each
command, so a stopped call has those of the sizes before.

    python -m benchmarks.scale --data FOLDER --rows 10000000 30000000 100000000 --out benchmarks/results/scale.md
"""

import json
import os
import statistics
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from benchmarks.measurement import Figures
from benchmarks.speed import LLOYD, ROOT, command

N_FEATURES, N_CLUSTERS, FILE_ROWS, SPREAD = 20, 10, 250_000, 3.0
WAYS = {"kept between rounds": (), "read again in every round": ("--cache_megabytes", "0")}


def lake_of(data: Path, n_rows: int, n_features: int = N_FEATURES, file_rows: int = FILE_ROWS) -> Path:
    """A lake with a job of 11 rounds; files that a smaller one has are linked, and each is written once."""
    lake, means = data / f"scale-{n_rows}", np.random.default_rng(0).uniform(0.0, 1.0, (N_CLUSTERS, n_features))
    (lake / "clients").mkdir(parents=True, exist_ok=True)
    (data / "files").mkdir(exist_ok=True)
    for index in range(n_rows // file_rows):
        file = data / "files" / f"part-{index:04d}.parquet"
        if not file.exists():
            rng = np.random.default_rng([1, index])
            rows = rng.standard_normal((file_rows, n_features), np.float32)
            rows += means.astype(np.float32)[rng.integers(0, N_CLUSTERS, file_rows)] * np.float32(SPREAD)
            pq.write_table(mixture.table(rows), file, compression="none", use_dictionary=False)
        if not (lake / "clients" / file.name).exists():
            os.link(file, lake / "clients" / file.name)
    rng = np.random.default_rng(2)
    server = SPREAD * np.repeat(means, 20, axis=0) + rng.normal(size=(20 * N_CLUSTERS, n_features))
    pq.write_table(mixture.table(server), lake / "server.parquet")
    (lake / "engine.yaml").write_text(json.dumps(mixture.config(lake, "record", 1.0, lloyd=LLOYD)))
    return lake


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 30_000_000, 100_000_000])
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    turns: dict[str, dict[int, list[Figures]]] = {way: {} for way in WAYS}
    load: list[float] = []
    head = heading(f"A fit of 11 rounds on one machine: {N_FEATURES} float32 features")
    for size in [FILE_ROWS, *sorted(arguments.rows)]:
        lake = lake_of(arguments.data, size)
        for _ in range(arguments.repeats):
            for way, flags in WAYS.items():
                turns[way].setdefault(size, []).append(command(lake / "engine.yaml", ROOT, flags, pinned=False))
                load.append(os.getloadavg()[1])
                lines = [
                    *head,
                    f"Medians of {arguments.repeats} turns, load averages {min(load):.1f} to {max(load):.1f}.",
                ]
                for each, by_size in turns.items():
                    lines += ["", f"## Rows {each}", "", *(table(by_size) if by_size else [])]
                measurement.show(lines, arguments.out)


def table(turns: dict[int, list[Figures]]) -> list[str]:
    """A line for each number of rows; the first one is the floor of the others."""
    heads = ["rows", "wall s", "CPU s", "of it the system's", "us of CPU a row", "over the line before", "peak RSS MB"]
    lines, before = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"], 0.0
    median = {
        size: {key: statistics.median(turn[key] for turn in each) for key in each[0]} for size, each in turns.items()
    }
    smallest = min(median)
    for size, each in median.items():
        cells = [f"{size:,}", f"{each['wall']:.1f}", f"{each['cpu']:.1f}", f"{each['system']:.1f}"]
        row = 1e6 * (each["cpu"] - median[smallest]["cpu"]) / max(size - smallest, 1)
        cells += [f"{row:.3f}" if row else "-", f"{row / before:.3f}" if before else "-", f"{each['rss']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
        before = row
    return lines


if __name__ == "__main__":
    main()
