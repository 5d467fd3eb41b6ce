"""The script around a benchmark, and what work takes: wall and CPU seconds, and megabytes."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine

Figures = dict[str, float]


def script(description: str | None, out: str = "Markdown file for the results") -> argparse.ArgumentParser:
    """A parser of options, among them `--out`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help=out)
    return parser


def show(lines: Sequence[str], out: Path | None) -> None:
    """Prints the results, and writes them if there is a place for them."""
    print("\n".join(lines))
    if out:
        machine.write(lines, out)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


def in_a_process(module: str, *words: str) -> Any:
    """Returns the JSON that a benchmark of one thing prints last, in a process of its own."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured(work: Callable[[], object]) -> Figures:
    """Seconds of some work, and the peak of this process so far."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "rss": peak_rss()}


def command(*words: str) -> Figures:
    """A `dapple` command in this process, which does nothing else: its CPU seconds are all since the process began."""
    from dapple_dp.pipelines.command.main import main as dapple

    start = time.perf_counter()
    if code := dapple(words):
        raise SystemExit(code)
    return {"wall": time.perf_counter() - start, "cpu": time.process_time(), "rss": peak_rss()}


def peak_rss() -> float:
    """Megabytes of this program alone: what `getrusage` says starts with the size of the process that started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
