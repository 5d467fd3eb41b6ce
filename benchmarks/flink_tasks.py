r"""What tasks a fit has on Flink and what they cost; and how many rounds a job there should have.

Two clusters of four slots run at once, and jobs take turns on them: one translates pipelines as the job server of
`--before` does, the other as that of this checkout. Then the latter runs a fit in jobs of this many rounds. All runs
have one key, so that their releases must be the same bytes as those in memory. CPU time is that of the command and of
the processes that serve it; the first job of a cluster counts for none.

    python -m benchmarks.flink_tasks --before CHECKOUT --rows 100000 --repeats 5 --out benchmarks/results/flink_tasks.md
"""

import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import large_lakes, measurement, runners
from benchmarks.machine import heading
from benchmarks.runners import Runner
from deploy.local import flink_cluster
from deploy.local.flink_cluster import FlinkCluster, Ports

ROUNDS = 20
IN_MEMORY = Runner(("--runner=FnApiRunner",))
RELEASED = ("centers.parquet", "releases.parquet")


class Turn(NamedTuple):
    """Seconds of a run, by process; what it released; and its jobs' tasks: steps, tasks, steps with a task per slot."""

    wall: float
    cpu: dict[str, float]
    released: bytes
    jobs: int = 0
    steps: int = 0
    tasks: int = 0
    wide: int = 0


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chunks", type=int, nargs="*", default=[1, 2, 5, 10, 20], help="rounds of a job")
    arguments = parser.parse_args()
    lines = heading(f"Flink: tasks of a fit of {arguments.rows:,} rows x {large_lakes.ROW_FEATURES}")
    with tempfile.TemporaryDirectory() as data, contextlib.ExitStack() as stack:
        lake = large_lakes.record_lake(Path(data), arguments.rows)
        places = {"after": flink_cluster.JOB_SERVER}
        if arguments.before:
            places = {"before": arguments.before.resolve() / "deploy/local" / flink_cluster.JOB_SERVER.name} | places
        clusters = {name: stack.enter_context(cluster(place)) for name, place in places.items()}
        lines += tasks_table(lake, clusters, arguments.repeats)
        lines += chunks_table(lake, clusters["after"], arguments.chunks, arguments.repeats)
    measurement.show(lines, arguments.out)


@contextlib.contextmanager
def cluster(job_server: Path) -> Any:
    """A cluster whose job server is compiled from this source."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = FlinkCluster(Path(folder), Ports.free())
        own, flink_cluster.JOB_SERVER = flink_cluster.JOB_SERVER, job_server
        try:
            found.up()
            yield found
        finally:
            flink_cluster.JOB_SERVER = own
            found.down()


def run(lake: Path, settings: dict[str, Any], on: FlinkCluster | None = None) -> Turn:
    """One command under the key that all have, in memory or on a cluster."""
    served = IN_MEMORY if on is None else Runner(on.flags, tuple(on.processes.values()), tuple(on.processes))
    known = set() if on is None else {job["jid"] for job in on.jobs()}
    with tempfile.TemporaryDirectory(dir=lake) as work:
        config, out = Path(work) / "job.yaml", Path(work) / "out"
        config.write_text(json.dumps(json.loads((lake / "job.yaml").read_text()) | settings))
        words = ["fit", "--config", str(config), "--output", str(out), "--run_id", "measured", *served.flags]
        start, before, own = time.perf_counter(), runners.cpu_by_server(served), runners.cpu_of(IN_MEMORY)
        runners.command_of("tests.scenes.repeatable_command", *words)
        wall, own = time.perf_counter() - start, runners.cpu_of(IN_MEMORY) - own
        used = [after - each for after, each in zip(runners.cpu_by_server(served), before, strict=True)]
        released = b"".join((out / name).read_bytes() for name in RELEASED)
    cpu = {"driver": own} | dict(zip(served.names, used, strict=True))
    print(
        settings, on is not None, round(wall, 1), {name: round(each, 1) for name, each in cpu.items()}, file=sys.stderr
    )
    if on is None:
        return Turn(wall, cpu, released)
    details = [on.overview(f"jobs/{job['jid']}") or {} for job in on.jobs() if job["jid"] not in known]
    widths = [step["parallelism"] for job in details for step in job["vertices"]]
    return Turn(wall, cpu, released, len(details), len(widths), sum(widths), sum(width > 1 for width in widths))


def tasks_table(lake: Path, clusters: dict[str, FlinkCluster], repeats: int) -> list[str]:
    """A row for each translation, and what each process took."""
    settings = {"lloyd": {"steps": 8, "share": 0.5}}
    reference = run(lake, settings)
    for each in clusters.values():
        run(lake, settings, each)
    turns: dict[str, list[Turn]] = {name: [] for name in clusters}
    for _ in range(repeats):
        for name, each in clusters.items():
            turns[name].append(run(lake, settings, each))
    lines = [
        "## One task where one task has work",
        "",
        f"A fit of 11 rounds, p = 4, later jobs of a cluster, medians of {repeats} turns. In memory: "
        f"{reference.wall:.1f} s, {sum(reference.cpu.values()):.1f} CPU s.",
        "",
        "| | jobs | steps | tasks | tasks at p = 1,000 | wall s | CPU s | CPU s of Java | same bytes as in memory |",
        "| --- " * 9 + "|",
    ]
    for name, found in turns.items():
        last = found[-1]
        many = last.steps - last.wide + 1000 * last.wide
        java = [sum(used for who, used in each.cpu.items() if who not in ("driver", "worker-pool")) for each in found]
        lines.append(
            f"| {name} | {last.jobs} | {last.steps} | {last.tasks} | {many:,} | {_cells(found)} | "
            f"{statistics.median(java):.1f} | {_same(found, reference)} |"
        )
    return [*lines, ""]


def chunks_table(lake: Path, on: FlinkCluster, chunks: list[int], repeats: int) -> list[str]:
    """A row for each number of rounds of a job."""
    base = dp_lloyd(ROUNDS)
    reference = run(lake, base)
    turns: dict[int, list[Turn]] = {chunk: [] for chunk in chunks}
    for _ in range(repeats):
        for chunk in chunks:
            turns[chunk].append(run(lake, base | {"chunks": {"rounds": chunk}}, on))
    lines = [
        "## Rounds of a job",
        "",
        f"`dp_lloyd` of {ROUNDS} rounds, p = 4, medians of {repeats} turns.",
        "",
        "| `chunks.rounds` | jobs | tasks | wall s | CPU s | same bytes as in memory |",
        "| --- " * 6 + "|",
    ]
    for chunk, found in turns.items():
        cells = f"{found[-1].jobs} | {found[-1].tasks} | {_cells(found)}"
        lines.append(f"| {chunk} | {cells} | {_same(found, reference)} |")
    return lines


def dp_lloyd(steps: int) -> dict[str, Any]:
    """Settings of a fit of this many rounds."""
    return {
        "algorithm": "dp_lloyd",
        "dp_lloyd": {"domain": [-30, 30], "init": "sphere_packing", "steps": steps},
        "clipping": {"norm": "domain", "center": "none"},
        "server_data": None,
    }


def _cells(turns: list[Turn]) -> str:
    walls, cpus = [each.wall for each in turns], [sum(each.cpu.values()) for each in turns]
    return f"{statistics.median(walls):.1f} ({min(walls):.1f} to {max(walls):.1f}) | {statistics.median(cpus):.1f}"


def _same(turns: list[Turn], reference: Turn) -> str:
    return "yes" if {each.released for each in turns} == {reference.released} else "NO"


if __name__ == "__main__":
    main()
