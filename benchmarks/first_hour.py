"""The commands that a newcomer types first, timed: help, a first job, a plan, a fit, and what comes after it.

Each command is a process of its own, as in a shell. The lake is that of the census example.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from benchmarks import machine, measurement
from examples.census import make_lake

ROOT = Path(__file__).resolve().parents[1]


class Step(NamedTuple):
    """A command: what it is called, its words, the exit code that is right, and what is removed before it."""

    name: str
    words: str
    code: int = 0
    makes: str = ""


STEPS = (
    Step("the version", "--version"),
    Step("the help page", "--help"),
    Step("the page of a job", "fit --help"),
    Step("the schema of a job", "schema fit"),
    Step("a first job", "init --data lake/clients --output first.yaml --domain 0,1", makes="first.yaml"),
    Step("a mistyped setting", "fit --config mistyped.yaml --output result", code=2),
    Step("a plan", "plan --config job.yaml --rows 20000"),
    Step("a limit", "ledger limit --ledger ledger.sqlite --dataset census --epsilon 100 --delta 0.001"),
    Step("the fit of the example", "fit --config job.yaml --output result", makes="result"),
    Step("is it whole?", "verify result --ledger ledger.sqlite"),
    Step("rows to clusters", "assign --config use.yaml --output assigned", makes="assigned"),
    Step("what is left", "ledger show --ledger ledger.sqlite"),
)


def prepare(folder: Path) -> None:
    """Writes the lake and the jobs."""
    lake = make_lake.make_lake(folder / "lake")
    job = yaml.safe_load((ROOT / "examples" / "census" / "job.yaml").read_text())
    job["data"]["feature_names"] = list(lake.feature_names)
    job["ledger"] = "ledger.sqlite"
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    (folder / "mistyped.yaml").write_text(yaml.safe_dump(job | {"n_cluster": 10}))
    (folder / "use.yaml").write_text(yaml.safe_dump({"model": "result", "data": job["data"]}))


def timed(step: Step, folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a command, those of its own processes included.

    Raises:
      SystemExit: if it ends with another exit code than is right.
    """
    made = folder / step.makes
    if step.makes and made.exists():
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    start = time.perf_counter()
    running = subprocess.Popen(
        [sys.executable, "-m", "dapple_dp", *step.words.split()],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None
    told = running.stderr.read().decode()
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode != step.code:
        raise SystemExit(f"dapple {step.words} ended with {running.returncode}: {told}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime


def shown(seconds: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def main() -> None:
    """Measures, and writes a table."""
    parser = measurement.script(__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each command; default: 3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dapple-") as place:
        folder = Path(place)
        prepare(folder)
        before = os.getloadavg()[0]
        found = [(step, [timed(step, folder) for _ in range(options.runs)]) for step in STEPS]
        after = os.getloadavg()[0]
    lines = [
        *machine.heading("The first commands of a newcomer"),
        f"Seconds, the median of {options.runs} runs (least to most). The load of the machine was {before:.1f} before "
        f"and {after:.1f} after, on {os.cpu_count()} cores: CPU seconds say more than the wall.",
        "",
        "| what | command | wall | CPU |",
        "| --- | --- | --- | --- |",
    ]
    for step, pairs in found:
        wall, cpu = (list(each) for each in zip(*pairs, strict=True))
        lines.append(f"| {step.name} | `dapple {step.words}` | {shown(wall)} | {shown(cpu)} |")
    measurement.show(lines, options.out)


if __name__ == "__main__":
    main()
