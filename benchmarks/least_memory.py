"""The least memory that a fit gets through with: the command in a control group, by limit and flags.

A fit is ended by the system, or says its sentence, where the limit is too low. Needs a control group of memory (of the
first or second version) in which this process may make another one, as root in a container has it.

    python -m benchmarks.least_memory --data FOLDER --limits 300 450 --out benchmarks/results/least_memory.md
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from transforms.rounds import machine

N_FEATURES = 20
WAYS = {"as it is": [], "`--cores=1 --cache_megabytes=0`": ["--cores=1", "--cache_megabytes=0"]}
_LIMITS = {"cgroup2": "memory.max", "cgroup": "memory.limit_in_bytes"}


@contextmanager
def group(megabytes: int) -> Iterator[Path]:
    """A control group below that of this process, with so much memory."""
    kind, above = next(machine._groups("memory", machine._SELF))
    folder = above / f"dapple-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / _LIMITS[kind]).write_text(str(megabytes << 20))
        yield folder
    finally:
        folder.rmdir()


def run(words: list[str], megabytes: int) -> str:
    """How the command ends within so much memory: seconds, its sentence, or that the system has ended it."""
    with group(megabytes) as folder:
        enter = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
        start = time.perf_counter()
        ended = subprocess.run([*enter, sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        peak = [each for name in ("memory.peak", "memory.max_usage_in_bytes") if (each := folder / name).exists()]
        used = f", at most {int(peak[0].read_text()) >> 20} MiB with files" if peak else ""
    if ended.returncode == 0:
        return f"{time.perf_counter() - start:.1f} s{used}"
    said = ended.stderr.strip().splitlines()[-1:]
    return "ended by the system" if ended.returncode < 0 or ended.returncode == 137 else " ".join(said)


def job(data: Path, n_rows: int) -> Path:
    """Rows that are written once, and the job over them."""
    lake = data / f"least-{n_rows}"
    if not (lake / "job.yaml").exists():
        mixture.write_large_lake(lake, n_rows, N_FEATURES, 250_000)
        (lake / "job.yaml").write_text(yaml.safe_dump(mixture.config(lake, "record", 1.0)))
    return lake / "job.yaml"


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--limits", type=int, nargs="+", default=[250, 300, 350, 450, 700], help="MiB")
    parser.add_argument("--package", type=Path, default=Path.cwd(), help="a checkout whose command is run")
    words = parser.parse_args()
    config = job(words.data, words.rows)
    lines = [
        *heading("The least memory of a fit"),
        f"Fits of {words.rows} rows of {N_FEATURES} features in row groups of 250,000, each in a control group.",
        "",
        f"| limit, MiB | {' | '.join(WAYS)} |",
        f"| --- |{' --- |' * len(WAYS)}",
    ]
    os.chdir(words.package)
    for limit in words.limits:
        found = []
        for flags in WAYS.values():
            with tempfile.TemporaryDirectory() as place:
                found.append(
                    run(["pipelines", "fit", "--config", str(config), "--output", f"{place}/out", *flags], limit)
                )
        lines.append(f"| {limit} | {' | '.join(found)} |")
    measurement.show(lines, words.out)


if __name__ == "__main__":
    main()
