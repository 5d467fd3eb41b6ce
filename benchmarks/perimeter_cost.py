"""CPU seconds of whole `fit` jobs, of two checkouts in turns: what listings, seals, gates and checks cost.

Every turn is a process of its own with one BLAS thread, from its start to its end; the checkouts take turns. A ratio is
that of the medians.

    python -m benchmarks.perimeter_cost --before CHECKOUT --after CHECKOUT --out benchmarks/results/perimeter_cost.md
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import machine, measurement


class Lake(NamedTuple):
    """Rows in files.

    Attributes:
      n_rows: of all files.
      n_files: of equal size.
      unit: privacy unit; a client has 50 rows, which lie in one file.
    """

    n_rows: int
    n_files: int
    unit: str


LAKES = {
    "10,000 rows, 1 file, record": Lake(10_000, 1, "record"),
    "1,000,000 rows, 20 files, record": Lake(1_000_000, 20, "record"),
    "400,000 rows, 20 files, client": Lake(400_000, 20, "client"),
    "50,000 rows, 500 files, record": Lake(50_000, 500, "record"),
}
N_FEATURES = 20


def write(folder: Path, lake: Lake) -> dict[str, Any]:
    """Writes the files; the job that reads them, as plain data, so that it is one of both checkouts."""
    rng = np.random.default_rng(0)
    (folder / "lake").mkdir()
    per_file = lake.n_rows // lake.n_files
    for number in range(lake.n_files):
        rows = rng.normal(size=(per_file, N_FEATURES)).astype(np.float32) + 4 * rng.integers(0, 5, size=(per_file, 1))
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), N_FEATURES)
        clients = pa.array(number * per_file + np.arange(per_file) // 50)
        pq.write_table(pa.table({"x": vectors, "client": clients}), folder / "lake" / f"part-{number:04d}.parquet")
    return {
        "algorithm": "central_tree",
        "data": {"path": str(folder / "lake"), "features": "x", "client_id": "client"},
        "n_clusters": 5,
        "privacy": {"unit": lake.unit, "epsilon": 1.0, "delta": 1e-6},
        "tree": {"radius": 100.0},
        "clipping": {"client_rows": 50} if lake.unit == "client" else None,
    }


def turn(checkout: Path, job: dict[str, Any]) -> float:
    """CPU seconds of the command and all that it starts."""
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "job.yaml").write_text(json.dumps({name: value for name, value in job.items() if value}))
        words = [sys.executable, "-m", "pipelines", "fit", "--config", f"{work}/job.yaml", "--output", f"{work}/out"]
        environment = os.environ | {"PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"}
        child = subprocess.Popen(words, env=environment, cwd=checkout, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the job must end with code 0, got {os.waitstatus_to_exitcode(status)} in {checkout}.")
    return used.ru_utime + used.ru_stime


def compared(name: str, before: Path, after: Path, repeats: int) -> str:
    """A line of the table; a first turn of each warms up and does not count."""
    with tempfile.TemporaryDirectory() as folder:
        job = write(Path(folder), LAKES[name])
        turns = [[turn(each, job) for each in (before, after)] for _ in range(repeats + 1)][1:]
    columns = list(zip(*turns, strict=True))
    cells = [f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in columns]
    return f"| {name} | {cells[0]} | {cells[1]} | {statistics.median(columns[1]) / statistics.median(columns[0]):.3f} |"


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout")
    parser.add_argument("--after", type=Path, required=True, help="another one")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    lines = [
        *machine.heading("What the perimeter costs a fit"),
        f"CPU seconds of a whole `fit`, medians of {arguments.repeats} turns, smallest and largest in brackets.",
        "",
        "| lake | before | after | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for name in LAKES:
        lines.append(compared(name, arguments.before.resolve(), arguments.after.resolve(), arguments.repeats))
        print(lines[-1], flush=True)
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
