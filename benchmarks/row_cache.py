"""What keeping rows between rounds saves: CPU seconds of the first 3, 7 and 11 rounds of a fit, without Beam.

Rows are read again in every round or kept, by one thread, in turns. Columns are one of lists or one per feature, of
float32 or float64. Kept rows are in memory, or in the file without a name.

    python -m benchmarks.row_cache --out benchmarks/results/row_cache.md
"""

import secrets
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, mixture

N_FEATURES, GROUP_ROWS = 50, 50_000
ROUNDS = (3, 7, 11)
IN_MEMORY, IN_FILE = 1 << 30, 1
"""Bytes in memory."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    lines = [
        *machine.heading("What keeping rows between rounds saves"),
        f"{arguments.rows:,} rows x {N_FEATURES}, medians of {arguments.repeats} turns: microseconds of CPU per row, "
        "read again / kept in memory / kept in the file.",
        "",
        "| columns | 3 rounds | 7 rounds | 11 rounds |",
        "| --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(limits=1):
        for name in ("lists of float32", "lists of float64", "plain float32", "plain float64"):
            planned = write(Path(folder) / name.replace(" ", "-"), name, arguments.rows)
            lines.append(line(name, planned, arguments.rows, arguments.repeats))
            print(lines[-1], flush=True)
    measurement.show(lines, arguments.out)


def write(folder: Path, name: str, n_rows: int) -> Any:
    """Writes the lake; the planned fit of it."""
    from pipelines.kmeans.plan.planned_fit import plan_fit
    from schemas.kmeans.fit_config import validated

    drawn = mixture.draw(0, n_rows, N_FEATURES)
    rows = drawn.rows.astype(np.float32 if name.endswith("32") else np.float64)
    names = tuple(f"x{index}" for index in range(N_FEATURES))
    (folder / "clients").mkdir(parents=True)
    for values, place in ((rows, folder / "clients" / "part.parquet"), (drawn.server, folder / "server.parquet")):
        table = mixture.table(values)
        if name.startswith("plain"):
            table = pa.table({each: values[:, index] for index, each in enumerate(names)})
        pq.write_table(table, place, row_group_size=GROUP_ROWS)
    config = mixture.config(folder, "record", 1.0, lloyd={"steps": 8, "share": 0.5})
    config["data"] = {"path": str(folder / "clients"), "features": "x" if name.startswith("lists") else names}
    return plan_fit(validated(config))


def line(name: str, planned: Any, n_rows: int, repeats: int) -> str:
    """Cells of a layout."""
    turns = [[seconds(planned, memory) for memory in (None, IN_MEMORY, IN_FILE)] for _ in range(repeats)]
    cells = []
    for n_rounds in ROUNDS:
        columns = zip(*([sum(arm[:n_rounds]) / n_rows * 1e6 for arm in turn] for turn in turns), strict=True)
        cells.append(" / ".join(f"{statistics.median(column):.2f}" for column in columns))
    return f"| {name} | {' | '.join(cells)} |"


def seconds(planned: Any, memory: int | None) -> list[float]:
    """CPU seconds of every round; `memory` is that of the cache, None without one."""
    from transforms.numerics.privacy import noise
    from transforms.rounds import row_cache
    from transforms.rounds.row_cache import CACHES, WorkerLimits
    from transforms.rounds.shard_sums import ShardReader, contract_digest, sum_shards
    from transforms.tables.read import _list_row_groups

    shards = [shard for file in planned.source.listed.files for shard in _list_row_groups(file, planned.contract)]
    limits = WorkerLimits(run=secrets.token_hex(8), cores=1, cache_bytes=0 if memory is None else 1 << 33)
    row_cache._MOST_MEMORY = memory or 0
    identity, key, state, found = contract_digest(planned.contract), secrets.token_bytes(32), planned.initial, []
    with CACHES.held(limits.run):
        for bound in planned.rounds:
            start = time.process_time()
            reader = ShardReader(contract=planned.contract, identity=identity, round=bound, state=state, limits=limits)
            total = sum_shards(reader, shards)
            found.append(time.process_time() - start)
            state = bound.step(state, noise.draw_release(key, bound.plan, total))
    return found


if __name__ == "__main__":
    main()
