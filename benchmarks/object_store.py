"""Requests and time of a fit of many small objects, with a store that is far, and one that is away meanwhile.

The store is moto's server in this process, so seconds hold its work, too; CPU seconds are those of the job alone. Each
job is a process of its own: `dapple fit` by `dp_lloyd` of one round of sums. `--python` takes the interpreter of
another checkout, to compare.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import machine, measurement
from tests.scenes import object_store

_N_ROWS = 20
_JOB: dict[str, Any] = {
    "n_clusters": 3,
    "algorithm": "dp_lloyd",
    "dp_lloyd": {"domain": [-8.0, 8.0]},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "record"},
}


class Took(NamedTuple):
    """Time and requests of a job, and its outcome."""

    code: int
    wall: float
    cpu: float
    peak: float
    open_files: int


def _write(folder: pathlib.Path, n_files: int) -> str:
    folder.mkdir()
    stream = np.random.default_rng(0)
    for index in range(n_files):
        rows = stream.normal(size=(_N_ROWS, 2)).clip(-7.9, 7.9)
        pq.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1]}), folder / f"{index:05}.parquet")
    return str(folder)


def _fit(python: str, path: str, folder: pathlib.Path) -> Took:
    """A fit of the rows at a path; memory and open files are looked at ten times a second."""
    job = folder / "job.json"
    job.write_text(json.dumps(_JOB | {"data": {"path": path, "features": ["a", "b"]}}))
    output = tempfile.mkdtemp(dir=folder)
    words = (python, "-m", "dapple_dp", "fit", "--config", str(job), "--output", f"{output}/out")
    start = time.perf_counter()
    # The folder of the interpreter's own checkout: this one must not stand in for it.
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak, most = 0.0, 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = max([peak, *(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))])
        most = max(most, len(os.listdir(f"/proc/{process.pid}/fd")))
        time.sleep(0.1)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    return Took(process.returncode, wall, usage.ru_utime + usage.ru_stime, peak, most)


def _objects(python: str, place: pathlib.Path, counts: Sequence[int], waits: Sequence[float]) -> list[str]:
    rows = []
    with object_store.object_store() as store:
        for count in counts:
            path = object_store.upload(_write(place / f"objects{count}", count), f"rows{count}")
            for wait in waits:
                store.before = (lambda seconds=wait: time.sleep(seconds)) if wait else None
                store.asked.clear()
                took = _fit(python, path, place)
                asked = collections.Counter(each.method for each in store.asked)
                shown = ", ".join(f"{n} {method}" for method, n in asked.most_common())
                seconds = (f"{took.wall:.1f}", f"{took.cpu:.1f}", f"{took.peak:.0f}")
                each = f"{sum(asked.values()) / count:.1f}"
                rows.append((f"{count:,}", f"{wait * 1000:.0f}", str(took.code), *seconds, each, shown))
    columns = ("objects", "ms a request", "exit code", "wall s", "CPU s", "peak MB", "requests an object", "requests")
    return measurement.table(columns, rows)


def _outage(python: str, place: pathlib.Path, seconds: float, count: int) -> str:
    """A store that refuses all requests for a while, from the middle of a job on."""
    with object_store.object_store() as store:
        path = object_store.upload(_write(place / "away", count), "rows")
        began: list[float] = []

        def before() -> None:
            if len(store.asked) == 3 * count:
                began.append(time.monotonic())
            store.every = int(bool(began) and time.monotonic() - began[0] < seconds)

        store.asked.clear()
        store.before = before
        took = _fit(python, path, place)
        return (
            f"A store that refuses every request for {seconds:.0f} s in the middle of a fit of {count} objects: exit "
            f"code {took.code} after {took.wall:.0f} s, {store.refused} requests refused."
        )


def main() -> None:
    """Measures jobs, and prints tables."""
    parser = measurement.script(__doc__)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the checkout that is measured")
    parser.add_argument("--objects", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--waits", type=float, nargs="+", default=[0.0, 0.03], help="seconds before each answer")
    parser.add_argument("--files", type=int, default=20_000, help="files of the lake on the disk; 0 for none")
    parser.add_argument("--away", type=float, default=120.0, help="seconds of the outage; 0 for none")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        lines = [*machine.heading("Many small objects"), f"Each object has {_N_ROWS} rows of two features.", ""]
        lines += _objects(given.python, place, given.objects, given.waits)
        if given.away:
            lines += ["", _outage(given.python, place, given.away, given.objects[0])]
        if given.files:
            took = _fit(given.python, _write(place / "lake", given.files), place)
            lines += ["", f"A lake of {given.files:,} files of {_N_ROWS} rows on the disk: exit code {took.code}, "]
            lines[-1] += (
                f"{took.wall:.0f} s, {took.cpu:.0f} s of CPU, {took.peak:.0f} MB, {took.open_files} files open."
            )
    measurement.show(lines, given.out)


if __name__ == "__main__":
    main()
