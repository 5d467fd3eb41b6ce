"""Cost of a runner: one fit of many rows on each, against the in-memory runner, and whether the bytes are the same.

Every run is the whole command in a process of its own, under one key and nonce. Runners take turns, after one run that
counts for none. CPU time is that of the command and of the processes that serve it; on a machine with other work it
says more than the time on the wall. The small lake shows what a runner costs that has nothing to do with rows: start,
workers, and what it takes from one round to the next. Flink and Prism are fetched where the machine has what they need;
one that cannot be had is named with the reason.

    python -m benchmarks.runners --rows 10000000 --repeats 3 --out benchmarks/results/runners.md
"""

import contextlib
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from deploy.local import downloads, processes
from deploy.local.flink_cluster import FlinkCluster, Ports
from deploy.local.worker_environment import start_pool

FEATURES, GROUP_ROWS, SMALL_ROWS = 8, 62_500, 10_000
IN_MEMORY = "in memory"
PRISM, FLINK = "Prism, worker in the driver", "Flink, two TaskManagers, pool"
Flags = tuple[str, ...]


class Runner(NamedTuple):
    """Flags of jobs, and the processes that serve them."""

    flags: Flags
    servers: tuple[processes.Process, ...] = ()
    names: tuple[str, ...] = ()
    """What the servers are called, where they have names."""


class Run(NamedTuple):
    """Seconds, and a digest of what was released."""

    wall: float
    cpu: float
    digest: str


Runs = dict[int, dict[str, list[Run]]]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--data", type=Path, help="folder for the generated lakes; default: a temporary one")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        data = arguments.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lakes = {n: lake(data, n) for n in (SMALL_ROWS, arguments.rows)}
        runners, missing = available(stack)
        lines = heading("Runners: one fit, the whole command")
        lines += table(measure(lakes, runners, arguments.repeats), arguments.repeats)
    lines += [f"Not run: {name}: {why}" for name, why in missing.items()]
    measurement.show(lines, arguments.out)


def lake(data: Path, n_rows: int) -> Path:
    """A lake of rows, its key and its job, written once."""
    folder = data / f"runners-{n_rows}"
    if not (folder / "job.yaml").exists():
        mixture.write_large_lake(folder, n_rows, FEATURES, GROUP_ROWS)
        key = folder / "key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        (folder / "job.yaml").write_text(json.dumps(mixture.config(folder, "record", 1.0, key_uri=str(key))))
    return folder


def available(stack: contextlib.ExitStack) -> tuple[dict[str, Runner], dict[str, str]]:
    """Runners by name, started where they must be; and why others cannot be had."""
    processes_flags = ("--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
    found = {
        IN_MEMORY: Runner(("--runner=FnApiRunner",)),
        "two processes": Runner(processes_flags),
        "portable in Python, pool": stack.enter_context(pool("--runner=PortableRunner", "--job_endpoint=embed")),
    }
    missing: dict[str, str] = {}
    starts: dict[str, Callable[[], Runner]] = {PRISM: prism, FLINK: lambda: stack.enter_context(flink())}
    for name, start in starts.items():
        try:
            found[name] = start()
        except downloads.UnavailableError as error:
            missing[name] = str(error)
    if PRISM in found:
        found["Prism, pool"] = stack.enter_context(pool(*found[PRISM].flags))
    return found, missing


def prism() -> Runner:
    return Runner(("--runner=PrismRunner", f"--prism_location={downloads.prism_binary()}"))


@contextlib.contextmanager
def pool(*flags: str) -> Iterator[Runner]:
    """A runner whose workers are processes of a pool."""
    (port,) = processes.free_ports(1)
    with tempfile.TemporaryDirectory() as logs:
        process = start_pool(sys.executable, port, Path(logs) / "pool.log")
        environment = ("--environment_type=EXTERNAL", f"--environment_config=127.0.0.1:{port}")
        try:
            yield Runner((*flags, *environment), (process,))
        finally:
            process.stop()


@contextlib.contextmanager
def flink() -> Iterator[Runner]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = FlinkCluster(Path(folder), Ports.free())
        try:
            cluster.up()
            yield Runner(cluster.flags, tuple(cluster.processes.values()), tuple(cluster.processes))
        finally:
            cluster.down()


def measure(lakes: dict[int, Path], runners: dict[str, Runner], repeats: int) -> Runs:
    """Every run, by rows and runner."""
    found: Runs = {n: {name: [] for name in runners} for n in lakes}
    fit(lakes[SMALL_ROWS], runners[IN_MEMORY])
    for _ in range(repeats):
        for n, folder in lakes.items():
            for name, runner in runners.items():
                found[n][name].append(fit(folder, runner))
                print(n, name, *found[n][name][-1], file=sys.stderr, flush=True)
    return found


def fit(folder: Path, runner: Runner) -> Run:
    """Runs the command."""
    with tempfile.TemporaryDirectory(dir=folder) as output:
        out = Path(output) / "out"
        words = ["fit", "--config", str(folder / "job.yaml"), "--output", str(out), "--run_id", "measured"]
        start, before = time.perf_counter(), cpu_of(runner)
        command_of("tests.scenes.repeatable_command", *words, *runner.flags)
        wall, cpu = time.perf_counter() - start, cpu_of(runner) - before
        content = b"".join((out / name).read_bytes() for name in ("centers.parquet", "releases.parquet"))
    return Run(wall, cpu, hashlib.sha256(content).hexdigest()[:16])


def command_of(module: str, *words: str) -> None:
    """Runs a module to its end, which must be a good one; what it says goes nowhere."""
    command = [sys.executable, "-m", module, *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cpu_of(runner: Runner) -> float:
    """CPU seconds so far of commands that have ended, and of the servers and all they have started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + sum(cpu_by_server(runner))


def cpu_by_server(runner: Runner) -> list[float]:
    """CPU seconds so far of each server and all it has started, in the order of `servers`."""
    totals = {server.pid: 0.0 for server in runner.servers}
    for stat in _served_by(runner):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            totals[int(fields[2])] += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return list(totals.values())


def rss_of(runner: Runner) -> float:
    """Megabytes that the servers and all they have started had at most so far, each at its own time."""
    total = 0.0
    for stat in _served_by(runner):
        with contextlib.suppress(OSError):
            lines = stat.with_name("status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return total


def _served_by(runner: Runner) -> Iterator[Path]:
    """Returns the system's information on each process of the servers."""
    groups = {server.pid for server in runner.servers}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[2]) in groups:
                yield stat


def table(found: Runs, repeats: int) -> list[str]:
    """Markdown lines: a table per lake, a row per runner."""
    lines = [
        f"Record level, {FEATURES} features, 10 clusters, epsilon 1, row groups of {GROUP_ROWS:,} rows. Medians of "
        f"{repeats} runs (least to most of the time on the wall); ratios are to the runner in memory. Other work "
        f"on the machine meanwhile: load average {os.getloadavg()[1]:.1f} over five minutes.",
        "",
    ]
    for n, runs in found.items():
        lines += [f"| {n:,} rows | wall s | ratio | CPU s | ratio | same bytes |", "| --- " * 6 + "|"]
        lines += [f"| {name} | {_cells(each, runs[IN_MEMORY])} |" for name, each in runs.items()]
        lines.append("")
    return lines


def _cells(runs: list[Run], reference: list[Run]) -> str:
    walls = [each.wall for each in runs]
    wall, cpu = statistics.median(walls), statistics.median(each.cpu for each in runs)
    by_wall = wall / statistics.median(each.wall for each in reference)
    by_cpu = cpu / statistics.median(each.cpu for each in reference)
    same = "yes" if {each.digest for each in runs} == {reference[0].digest} else "NO"
    return f"{wall:.1f} ({min(walls):.1f}-{max(walls):.1f}) | {by_wall:.2f} | {cpu:.1f} | {by_cpu:.2f} | {same}"


if __name__ == "__main__":
    main()
