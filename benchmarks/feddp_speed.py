"""Speed and memory of FedDP-KMeans against the same arithmetic in plain NumPy that reads the files once.

Each measurement is a process of its own. Pipeline time is counted after imports and planning; the yardstick reads
all row groups into memory and calls the same statistics, noise and server steps without Beam, with as many BLAS
threads. `--rows` also takes several sizes. `client` rows measure the whole command at 2,000 x 50 x 100.

    python -m benchmarks.feddp_speed --rows 1000000 10000000 --repeats 3 --out benchmarks/results/feddp_speed.md
"""

import argparse
import json
import secrets
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import measurement, mixture
from benchmarks.measurement import Figures

N_FEATURES = 50
GROUP_ROWS = 62_500


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, help="folder for the generated lakes; default: a temporary one")
    parser.add_argument("--measure", choices=list(MEASURES), help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(MEASURES[arguments.measure](arguments.lake)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        compare(arguments.data or Path(temporary), arguments.rows, arguments.repeats, arguments.out)


def compare(data: Path, sizes: list[int], repeats: int, out: Path | None) -> None:
    from benchmarks.machine import heading

    lines = heading("FedDP-KMeans: speed and memory")
    lines += [
        f"Record level, {N_FEATURES} features, row groups of {GROUP_ROWS:,} rows, epsilon 1, one BLAS thread; medians "
        f"of {repeats} runs, pipeline and yardstick taking turns.",
        "",
        "| rows | wall s | NumPy wall s | ratio | CPU s | NumPy CPU s | ratio | peak RSS MB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n_rows in sizes:
        lake = data / f"speed-{n_rows}"
        if not (lake / "server.parquet").exists():
            mixture.write_large_lake(lake, n_rows, N_FEATURES, GROUP_ROWS)
        runs = [(_spawn("pipeline", lake), _spawn("numpy", lake)) for _ in range(repeats)]
        ours, theirs = (
            {key: statistics.median(run[side][key] for run in runs) for key in runs[0][0]} for side in (0, 1)
        )
        ratio = statistics.median(a["wall"] / b["wall"] for a, b in runs)
        cpu_ratio = statistics.median(a["cpu"] / b["cpu"] for a, b in runs)
        lines.append(
            f"| {n_rows:,} | {ours['wall']:.2f} | {theirs['wall']:.2f} | {ratio:.2f} | {ours['cpu']:.2f} "
            f"| {theirs['cpu']:.2f} | {cpu_ratio:.2f} | {ours['rss']:.0f} |"
        )
        print(lines[-1], flush=True)
    lines += ["", *client_level(data, repeats)]
    measurement.show(lines, out)


def _spawn(kind: str, lake: Path) -> Figures:
    return measurement.in_a_process("benchmarks.feddp_speed", "--measure", kind, "--lake", str(lake))


def _prepared(lake: Path):
    from pipelines.kmeans.plan.planned_fit import plan_fit
    from schemas.kmeans.fit_config import validated

    return plan_fit(validated(mixture.config(lake, "record", 1.0)))


def measure_pipeline(lake: Path) -> Figures:
    from pipelines.kmeans.fit import execute
    from pipelines.run.options import beam_options

    planned = _prepared(lake)
    with tempfile.TemporaryDirectory() as folder:
        return measurement.measured(lambda: execute(planned, beam_options([]), folder))


def measure_numpy(lake: Path) -> Figures:
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    from schemas.tables.client_block import ClientBlock
    from transforms.numerics.privacy import noise

    planned = _prepared(lake)

    def load() -> list[ClientBlock]:
        blocks = []
        for path in sorted((lake / "clients").glob("*.parquet")):
            column = pq.read_table(path, columns=["x"], use_threads=False).column("x").combine_chunks()
            blocks.append(ClientBlock(column.flatten().to_numpy().reshape(-1, N_FEATURES)))
        return blocks

    def work() -> None:
        blocks, key, state = load(), secrets.token_bytes(32), planned.initial
        for each in planned.rounds:
            total = np.sum([each.statistic(block, state) for block in blocks], axis=0)
            state = each.step(state, noise.draw_release(key, each.plan, total))

    with threadpool_limits(limits=1):
        return measurement.measured(work)


def measure_command(lake: Path) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return measurement.command("fit", "--config", str(lake / "job.yaml"), "--output", f"{folder}/out")


MEASURES = {"pipeline": measure_pipeline, "numpy": measure_numpy, "command": measure_command}


def client_level(data: Path, repeats: int) -> list[str]:
    """CPU seconds and peak RSS of the whole command, imports included."""
    lake = data / "speed-client"
    if not (lake / "server.parquet").exists():
        mixture.write_lake(lake, mixture.draw(0, 100_000), n_files=4, group_rows=12_500, client_rows=50)
    (lake / "job.yaml").write_text(json.dumps(mixture.config(lake, "client", 1.0)))
    rows = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = _spawn("command", lake)
        rows.append((time.perf_counter() - start, found["cpu"], found["rss"]))
    wall, cpu, rss = (statistics.median(column) for column in zip(*rows, strict=True))
    return [
        f"Client level, 2,000 clients x 50 rows x 100 features, whole command: {wall:.1f} s wall, {cpu:.1f} CPU s, "
        f"{rss:.0f} MB peak RSS (medians of {repeats} runs)."
    ]


if __name__ == "__main__":
    main()
