"""What odd lakes cost: a hot client, one-row clients, empty places, thousands of tiny files.

Every case is one `dapple fit` in a process of its own, beside a plain lake of the same rows, both with the same run
key. Where the rows are the same and only lie differently, the released bytes must be the same too.

    python -m benchmarks.edges --out benchmarks/results/edges.md
"""

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import measurement, mixture

N_FEATURES, CLIENT_ROWS = 32, 20
RELEASED = ("centers.parquet", "releases.parquet")


class Case(NamedTuple):
    """A lake and the unit of the fit: `owners` (n_rows,), the rows of each file, and files without rows."""

    name: str
    unit: str
    owners: NDArray[np.int64]
    files: list[NDArray[np.int64]]
    twin: str
    empty: bool = False


class Figures(NamedTuple):
    """One command: wall and CPU seconds, peak MB, digest of the released files."""

    wall: float
    cpu: float
    rss: float
    digest: str


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {each.name: measure(each, Path(folder)) for each in cases(arguments.rows)}
    lines = report(cases(arguments.rows), found)
    measurement.show(lines, arguments.out)


def cases(n_rows: int) -> list[Case]:
    """Plain lakes first, then each odd one, named after its plain twin where there is one."""
    rng = np.random.default_rng(7)
    usual = rng.permutation(np.repeat(np.arange(n_rows // CLIENT_ROWS), CLIENT_ROWS))
    hot = np.where(rng.random(n_rows) < 0.3, -1, usual)
    few = min(n_rows, 100_000)
    eight, tiny = (np.array_split(np.arange(n_rows), parts) for parts in (8, 5000))
    some = np.array_split(np.arange(few), 2)
    return [
        Case("plain, record", "record", usual, eight, ""),
        Case("5,000 tiny files, record", "record", usual, tiny, "plain, record"),
        Case("empty partition, file without row groups, record", "record", usual, eight, "plain, record", True),
        Case("plain, clients of 20 rows", "client", usual, eight, ""),
        Case("5,000 tiny files, clients of 20 rows", "client", usual, tiny, "plain, clients of 20 rows"),
        Case(
            "empty partition, file without row groups, clients",
            "client",
            usual,
            eight,
            "plain, clients of 20 rows",
            True,
        ),
        Case("hot client with 30% of the rows", "client", hot, eight, ""),
        Case(
            "hot client, sorted by client",
            "client",
            hot,
            [np.argsort(hot, kind="stable")],
            "hot client with 30% of the rows",
        ),
        Case("100,000 rows of 5,000 clients", "client", usual[:few] % (few // CLIENT_ROWS), some, ""),
        Case("100,000 one-row clients", "client", rng.permutation(few), some, ""),
    ]


def measure(case: Case, folder: Path) -> Figures:
    """Writes the lake of a case and runs the command on it.

    The lake is written by a process of its own: memory of this one would count as the command's.
    """
    lake = folder / hashlib.sha256(case.name.encode()).hexdigest()[:12]
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(case, lake))
    writer.start()
    writer.join()
    command = [sys.executable, "-m", "pipelines", "fit", "--config", f"{lake}/job.yaml", "--output", f"{lake}/out"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise SystemExit(f"{case.name}: the command failed.")
    content = b"".join((lake / "out" / name).read_bytes() for name in RELEASED)
    figures = Figures(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, hashlib.sha256(content).hexdigest())
    print(case.name, figures, flush=True)
    return figures


def write(case: Case, lake: Path) -> None:
    """The rows of a case, drawn with one seed, where the case wants them; the job, and the key all cases share."""
    drawn = mixture.draw(0, len(case.owners), N_FEATURES)
    rows = drawn.rows.astype(np.float32)
    clients = lake / "clients" / "day=1"
    clients.mkdir(parents=True)
    for index, part in enumerate(case.files):
        pq.write_table(mixture.table(rows[part], case.owners[part]), clients / f"part-{index:04d}.parquet")
    if case.empty:
        schema = mixture.table(rows[:1], case.owners[:1]).schema
        (lake / "clients" / "day=2").mkdir()
        pq.ParquetWriter(clients / "part-none.parquet", schema).close()
    pq.write_table(mixture.table(drawn.server), lake / "server.parquet")
    config = mixture.config(lake, case.unit, 1.0, key_uri=str(lake / "key"))
    config["clipping"]["client_rows"] = CLIENT_ROWS if case.unit == "client" else None  # type: ignore[index]
    (lake / "job.yaml").write_text(json.dumps(config))
    (lake / "key").touch(mode=0o600)
    (lake / "key").write_bytes(bytes(range(32)))


def report(all_cases: list[Case], found: dict[str, Figures]) -> list[str]:
    """Markdown lines: every case beside its twin."""
    from benchmarks.machine import heading

    lines = heading("Odd lakes: one fit, the whole command, local runner")
    lines += [f"Rows have {N_FEATURES} features; grouping by client is part of the fit where clients are split.", ""]
    lines += ["| case | rows | files | wall s | CPU s | peak RSS MB | same bytes as |", "| --- " * 7 + "|"]
    for case in all_cases:
        each = found[case.name]
        same = "not compared: other clients"
        if case.twin:
            same = case.twin if each.digest == found[case.twin].digest else f"NOT {case.twin}"
        figures = f"{each.wall:.1f} | {each.cpu:.1f} | {each.rss:.0f}"
        lines.append(
            f"| {case.name} | {len(case.owners):,} | {len(case.files):,} | {figures} | {same if case.twin else '-'} |"
        )
    return lines


if __name__ == "__main__":
    main()
