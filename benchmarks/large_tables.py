"""Commands on tables that are large in one way: a huge row group, many features; before and after, by peak memory.

The arms take turns; each is a process of its own. Decoding of usual files is the least of all turns.

    python -m benchmarks.large_tables --before CHECKOUT --data FOLDER --out benchmarks/results/large_tables.md
"""

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
from benchmarks.engine_turns import ROOT, _environment
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


def run(word: str, settings: Path, checkout: Path) -> Figures:
    """One command of a checkout, from the start of its process to its end."""
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, "-m", "pipelines", word, "--config", str(settings), "--output", f"{place}/out"]
        start = time.perf_counter()
        with open(f"{place}/log", "w") as log:
            child = subprocess.Popen(words, env=_environment(checkout), cwd=checkout, stdout=log, stderr=log)
            _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{word} of {settings} must end with code 0, got {status}: {Path(log.name).read_text()}")
    return {
        "wall": time.perf_counter() - start,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": used.ru_maxrss / 1024,
    }


def decoded(checkout: Path) -> Figures:
    """CPU seconds of ten million rows, by layout, as the code of a checkout reads them."""
    words = [sys.executable, "-m", "benchmarks.decode_layouts", "--rows", "250000", "--repeats", "1"]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, cwd=checkout, env=_environment(checkout), check=True
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    return {cells[0]: float(cells[2]) for cells in rows[2:]}


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout to compare with")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    arms, lines = {"before": arguments.before, "after": ROOT}, heading("Tables with huge row groups or many features")
    cases, load = jobs(arguments.data), []
    commands: dict[str, dict[str, list[Figures]]] = {title: {arm: [] for arm in arms} for title in cases}
    decodes: dict[str, list[Figures]] = {arm: [] for arm in arms}
    for _ in range(arguments.repeats):
        for title, job in cases.items():
            for arm, checkout in arms.items():
                commands[title][arm].append(run(*job, checkout))
                print(title, arm, commands[title][arm][-1], flush=True)
        for arm, checkout in arms.items():
            decodes[arm].append(decoded(checkout))
        load.append(os.getloadavg()[1])
    lines += [
        f"Medians of {arguments.repeats} turns (smallest to largest); before is {_commit(arguments.before)}; load "
        f"averages {min(load):.1f} to {max(load):.1f}.",
        "",
        "| command | arm | wall s | CPU s | peak RSS MB |",
        "| --- " * 5 + "|",
    ]
    for title, by_arm in commands.items():
        for arm, turns in by_arm.items():
            cells = (_spread([turn[key] for turn in turns]) for key in ("wall", "cpu", "rss"))
            lines.append(f"| {title} | {arm} | {' | '.join(cells)} |")
    lines += ["", "| decoding, 10,000,000 rows x 50 | before, CPU s | after |", "| --- " * 3 + "|"]
    for layout in decodes["after"][0]:
        least = (f"{min(turn[layout] for turn in decodes[arm]):.2f}" for arm in arms)
        lines.append(f"| {layout} | {' | '.join(least)} |")
    measurement.show(lines, arguments.out)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
