"""A fit of more and more rows on one machine: whether memory stays as it is, and CPU time grows with the rows.

The rows are float32, written once in files of 250,000, so that they may exceed the memory; a smaller lake is links to
the first files of the largest. Each command is a process of its own, and sizes follow each other in every turn. What a
row takes is what a command takes beyond that of the smallest lake.

    python -m benchmarks.scale --data FOLDER --rows 10000000 30000000 100000000 --out benchmarks/results/scale.md
"""

import json
import os
import statistics
import time
from pathlib import Path

from benchmarks import measurement, mixture
from benchmarks.engine import LLOYD
from benchmarks.engine_turns import ROOT, command
from benchmarks.machine import heading
from benchmarks.measurement import Figures

N_FEATURES, FILE_ROWS = 20, 250_000
WAYS = {"kept between rounds": (), "read anew in every round": ("--cache_megabytes", "0")}


def lakes(data: Path, sizes: list[int]) -> dict[int, Path]:
    """A lake for each number of rows, written once, with a job of 11 rounds."""
    largest = data / f"scale-{max(sizes)}"
    if not (largest / "engine.yaml").exists():
        mixture.write_large_lake(largest, max(sizes), N_FEATURES, FILE_ROWS)
    files = sorted((largest / "clients").iterdir())
    found = {size: data / f"scale-{size}" for size in sizes}
    for size, lake in found.items():
        (lake / "clients").mkdir(parents=True, exist_ok=True)
        for file in [*(f"clients/{each.name}" for each in files[: size // FILE_ROWS]), "server.parquet"]:
            if not (lake / file).exists():
                os.link(largest / file, lake / file)
        (lake / "engine.yaml").write_text(json.dumps(mixture.config(lake, "record", 1.0, lloyd=LLOYD)))
    return found


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 30_000_000, 100_000_000])
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    sizes = [FILE_ROWS, *sorted(arguments.rows)]
    where, turns, load = lakes(arguments.data, sizes), {way: {size: [] for size in sizes} for way in WAYS}, []
    lines = heading(f"A fit of 11 rounds on one machine: {N_FEATURES} float32 features")
    for _ in range(arguments.repeats):
        for way, flags in WAYS.items():
            for size, lake in where.items():
                turns[way][size].append(command(lake, ROOT, flags))
                load.append(os.getloadavg()[1])
                print(time.strftime("%H:%M"), way, size, turns[way][size][-1], flush=True)
    lines += [f"Medians of {arguments.repeats} turns; the load of the machine was {min(load):.1f} to {max(load):.1f}."]
    for way, by_size in turns.items():
        lines += ["", f"## Rows {way}", "", *table(by_size)]
    measurement.show(lines, arguments.out)


def table(turns: dict[int, list[Figures]]) -> list[str]:
    """A line for each number of rows; the first one is the floor of the others."""
    heads = ["rows", "wall s", "CPU s", "us of CPU a row", "over that of the line before", "peak RSS MB"]
    lines, before = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"], 0.0
    median = {
        size: {key: statistics.median(turn[key] for turn in each) for key in each[0]} for size, each in turns.items()
    }
    smallest = min(median)
    for size, each in median.items():
        cells = [f"{size:,}", f"{each['wall']:.1f}", f"{each['cpu']:.1f}"]
        row = 1e6 * (each["cpu"] - median[smallest]["cpu"]) / max(size - smallest, 1)
        cells += [f"{row:.3f}" if row else "-", f"{row / before:.3f}" if before else "-", f"{each['rss']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
        before = row
    return lines


if __name__ == "__main__":
    main()
