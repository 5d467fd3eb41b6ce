"""What a fit of 11 rounds takes: before and after, with one core and all, rows kept or read anew, and against NumPy.

Whole commands: each turn is a process of its own, from its start to its end, with all that it starts; the arms take
turns. `--before` names a checkout to compare with. The rounds alone: `execute` after imports and planning, with one
thread and with all, beside the same arithmetic in NumPy: one process for all rows, and as many as cores, each with its
own part of the files. What the processes gain is the yardstick, since cores of a virtual machine may be halves.

    python -m benchmarks.engine --before CHECKOUT --rows 10000 1000000 10000000 --out benchmarks/results/engine.md
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib

from benchmarks import measurement, scale
from benchmarks.measurement import Figures

LLOYD = {"steps": 8, "share": 0.5}
"""With the three rounds of the start these are 11 rounds."""
ROOT = Path(__file__).resolve().parents[1]
ARMS: dict[str, tuple[str, ...]] = {
    "after: all cores, rows kept": (),
    "after: one core, rows kept": ("--cores", "1"),
    "after: one core, rows read anew": ("--cores", "1", "--cache_megabytes", "0"),
}


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--clients", type=int, nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder for the generated lakes; default: a temporary one")
    parser.add_argument("--measure", choices=["rounds", "numpy"], help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        lines = compare(arguments, arguments.data or Path(temporary))
    measurement.show(lines, arguments.out)


def compare(arguments: argparse.Namespace, data: Path) -> list[str]:
    """All tables."""
    from benchmarks.machine import heading

    lines = heading("The engine: a fit of 11 rounds")
    lakes = {f"{n:,} rows x {scale.ROW_FEATURES}": scale.record_lake(data, n) for n in arguments.rows}
    lakes |= {f"{n:,} clients x 20 rows x 32": scale.client_lake(data, n) for n in arguments.clients}
    for lake in lakes.values():
        job = json.loads((lake / "job.yaml").read_text())
        (lake / "engine.yaml").write_text(json.dumps(job | {"lloyd": LLOYD}))
    for name, lake in lakes.items():
        lines += [*commands(name, lake, arguments.before, arguments.repeats), ""]
    for name, lake in list(lakes.items())[: len(arguments.rows)]:
        lines += [*rounds_alone(name, lake, arguments.repeats), ""]
    return lines


def commands(name: str, lake: Path, before: Path | None, repeats: int) -> list[str]:
    """Whole commands, arm by arm in turns."""
    arms: dict[str, tuple[Path, tuple[str, ...]]] = {} if before is None else {"before": (before, ())}
    arms |= {arm: (ROOT, flags) for arm, flags in ARMS.items()}
    turns = [{arm: turn(lake, *where) for arm, where in arms.items()} for _ in range(repeats)]
    lines = [
        f"## {name}: the whole command",
        "",
        f"Medians of {repeats} turns, smallest and largest in brackets; the last column is CPU over that of the first "
        "line, the median over turns.",
        "",
        "| arm | wall s | CPU s | peak RSS MB | CPU ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    first = next(iter(arms))
    for arm in arms:
        cells = [_spread([each[arm][key] for each in turns]) for key in ("wall", "cpu")]
        rss = max(each[arm]["rss"] for each in turns)
        ratio = statistics.median(each[arm]["cpu"] / each[first]["cpu"] for each in turns)
        lines.append(f"| {arm} | {cells[0]} | {cells[1]} | {rss:.0f} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    return lines


def turn(lake: Path, checkout: Path, flags: tuple[str, ...]) -> Figures:
    """One command, from the start of its process to its end."""
    with tempfile.TemporaryDirectory(dir=lake) as work:
        words = [sys.executable, "-m", "pipelines", "fit", "--config", str(lake / "engine.yaml")]
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        start = time.perf_counter()
        child = subprocess.Popen(
            [*words, "--output", f"{work}/out", *flags],
            env=environment,
            cwd=checkout,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
    if status:
        raise SystemExit(f"the job must end with code 0, got {os.waitstatus_to_exitcode(status)} in {checkout}.")
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "rss": used.ru_maxrss / 1024}


def rounds_alone(name: str, lake: Path, repeats: int) -> list[str]:
    """The rounds with one thread and with all, and NumPy with one process and with as many."""
    n = joblib.cpu_count()

    def numpy(n_processes: int) -> Figures:
        parts = [_start(lake, "numpy", "--part", str(part), str(n_processes)) for part in range(n_processes)]
        found = [json.loads(each.communicate()[0].splitlines()[-1]) for each in parts]
        return {"wall": max(each["wall"] for each in found), "cpu": sum(each["cpu"] for each in found)}

    def rounds(cores: int) -> Figures:
        return json.loads(_start(lake, "rounds", "--cores", str(cores)).communicate()[0].splitlines()[-1])

    arms: dict[str, Callable[[], Figures]] = {
        "rounds, one core": lambda: rounds(1),
        f"rounds, {n} cores": lambda: rounds(n),
        "NumPy, one process": lambda: numpy(1),
        f"NumPy, {n} processes": lambda: numpy(n),
    }
    turns = [{arm: work() for arm, work in arms.items()} for _ in range(repeats)]
    one, many, single, processes = arms
    gain = statistics.median(each[one]["wall"] / each[many]["wall"] for each in turns)
    yardstick = statistics.median(each[single]["wall"] / each[processes]["wall"] for each in turns)
    lines = [f"## {name}: the rounds alone", "", "| arm | wall s | CPU s |", "| --- | --- | --- |"]
    for arm in arms:
        cells = [_spread([each[arm][key] for each in turns]) for key in ("wall", "cpu")]
        lines.append(f"| {arm} | {cells[0]} | {cells[1]} |")
        print(lines[-1], flush=True)
    wall, cpu = (statistics.median(each[many][key] / each[processes][key] for each in turns) for key in ("wall", "cpu"))
    return [
        *lines,
        "",
        f"Threads gain {gain:.2f}, processes {yardstick:.2f}: {gain / yardstick:.2f} of the yardstick. Against NumPy "
        f"with as many processes: wall {wall:.2f}, CPU {cpu:.2f}.",
    ]


def _start(lake: Path, kind: str, *words: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "benchmarks.engine", "--measure", kind, "--lake", str(lake), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def measure(arguments: argparse.Namespace) -> Figures:
    """One measurement in this process, after imports and planning."""
    from pipelines.kmeans.fit import execute
    from pipelines.kmeans.plan.planned_fit import plan_fit
    from pipelines.run.options import beam_options
    from schemas.kmeans.fit_config import validated

    planned = plan_fit(validated(json.loads((arguments.lake / "engine.yaml").read_text())))
    if arguments.measure == "numpy":
        return measurement.measured(lambda: in_numpy(planned, arguments.lake, *arguments.part))
    with tempfile.TemporaryDirectory() as folder:
        options = beam_options(["--cores", str(arguments.cores)])
        return measurement.measured(lambda: execute(planned, options, folder))


def in_numpy(planned: Any, lake: Path, part: int, n_parts: int) -> None:
    """The same statistics, noise and server steps without Beam, on a part of the files, which are read once."""
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    from schemas.tables.client_block import ClientBlock
    from transforms.numerics.privacy import noise

    with threadpool_limits(limits=1):
        blocks = []
        for path in sorted((lake / "clients").glob("*.parquet"))[part::n_parts]:
            column = pq.read_table(path, columns=["x"], use_threads=False).column("x").combine_chunks()
            blocks.append(ClientBlock(column.flatten().to_numpy().reshape(-1, scale.ROW_FEATURES)))
        key, state = secrets.token_bytes(32), planned.initial
        for each in planned.rounds:
            total = np.sum([each.statistic(block, state) for block in blocks], axis=0)
            state = each.step(state, noise.draw_release(key, each.plan, total))


if __name__ == "__main__":
    main()
