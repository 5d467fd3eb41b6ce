"""Runs that are disturbed half-way: each ends, by the right bytes or in a sentence, and is charged once.

Every trial is a fit of eleven rounds with a ledger of its own, in a process of its own. Something is killed, stopped or
swapped when half of its tasks are over, or, on runners of this machine, some seconds after it may draw. A run that
fails is taken up in memory under its --run_id. All runs draw under one key, so that released files can be compared with
those of a run that nobody disturbed.

    python -m benchmarks.engine_faults --out benchmarks/results/engine_faults.md
    python -m benchmarks.engine_faults --only ^two --out benchmarks/results/engine_faults.md    # other lines stay
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow.parquet as pq

from benchmarks import measurement
from benchmarks.machine import heading
from dapple_dp.pipelines.ledger.store import Ledger
from dapple_dp.pipelines.run import on_flink
from dapple_dp.schemas.privacy.charge import Limit
from deploy.local import downloads
from deploy.local.flink_cluster import FlinkCluster, Ports
from tests.scenes import faults, lake

MEMORY: tuple[str, ...] = ("--runner=FnApiRunner",)
PROCESSES = (*MEMORY, "--direct_num_workers=2", "--direct_running_mode=multi_processing")
SECONDS = 900.0
"""A run that is not over by then hangs."""
RUN = "trial"


class _Run(faults.Run):
    """A run whose output is beside other things."""

    def __init__(self, job: pathlib.Path, output: pathlib.Path, flags: Sequence[str]):
        self.output = output
        self._log = pathlib.Path(tempfile.mkstemp(suffix=".err")[1])
        words = [sys.executable, "-c", faults._COMMAND, "fit", "--config", str(job), "--output", str(output), *flags]
        with self._log.open("w") as log:
            self._child = subprocess.Popen(
                words, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True, cwd=pathlib.Path.cwd()
            )

    def send(self, number: int) -> None:
        """Sends a signal to the command alone."""
        self._child.send_signal(number)

    def workers(self) -> list[int]:
        """Its worker processes."""
        done = subprocess.run(["pgrep", "-g", str(self._child.pid), "-f", "sdk_worker_main"], capture_output=True)
        return [int(pid) for pid in done.stdout.split() if b"/bin/sh" not in _words(int(pid))]


def _words(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"/bin/sh"


@dataclasses.dataclass
class Trial:
    """A run, what belongs to it, and what became of it."""

    folder: pathlib.Path
    flags: Sequence[str]
    run: _Run = dataclasses.field(init=False)
    notes: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = self.start("run", RUN, self.flags)

    def start(self, place: str, run_id: str, flags: Sequence[str]) -> _Run:
        """A further run of the same job, to the output of `place`."""
        (self.folder / f"{place}-log").mkdir(exist_ok=True)
        return _Run(self.folder / "job.yaml", self.folder / "out", ("--run_id", run_id, *flags))

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Run and kind of all entries of the ledger."""
        return [(each.run, each.kind) for each in Ledger(str(self.folder / "book" / "ledger")).entries() if each.run]

    def wait_for_noise(self, seconds: float) -> None:
        """Waits until the run may draw, and some seconds more."""
        self.run.wait_until(lambda: (RUN, "start") in self.kinds)
        time.sleep(seconds)


class Bench:
    """The lake of all trials, and what a run releases that nobody disturbs."""

    def __init__(self, folder: pathlib.Path, rows: int):
        self.folder = folder
        (folder / "lake").mkdir()
        self._parts = [lake.table_of(part) for part in _split(lake.mixture(rows))]
        self.server = lake.write_server(folder / "server.parquet")
        self.key = lake.write_key(folder / "key")
        trial = self.trial(MEMORY)
        assert trial.run.wait(SECONDS) == 0, trial.run.err
        self.reference = lake.released(trial.run.output)

    def trial(self, flags: Sequence[str]) -> Trial:
        """A new run with files and a ledger of its own."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        data = lake.write_files(folder / "lake", self._parts, row_group_size=20_000)
        (folder / "book").mkdir()
        Ledger(str(folder / "book" / "ledger")).set_limit("toy", Limit(epsilon=3.0, delta=1e-5))
        job = lake.job(data, self.server, lloyd={"steps": faults.LLOYD_STEPS}, key_uri=self.key, data__name="toy")
        (folder / "job.yaml").write_text(json.dumps(job | {"ledger": str(folder / "book" / "ledger")}))
        return Trial(folder, flags)


def _split(points):
    return [points[start::8] for start in range(8)]


Fault = Callable[[Trial], None]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=faults.N_ROWS)
    parser.add_argument("--only", default="", help="a regular expression for the names of trials")
    arguments = parser.parse_args()
    os.environ["DAPPLE_LOG_FORMAT"] = "plain"
    # In the background of a shell it may be switched off, and runs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = []
    failed = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as stack:
        bench = Bench(pathlib.Path(folder), arguments.rows)
        wanted = [each for each in (*LOCAL, *FLINK) if re.search(arguments.only, each[0])]
        cluster = stack.enter_context(flink()) if any(each in FLINK for each in wanted) else None
        for name, flags, fault in wanted:
            if cluster is not None and (name, flags, fault) in FLINK:
                cluster.up()
                trial, work = bench.trial(cluster.flags), fault(cluster)
            else:
                trial, work = bench.trial(flags), fault
            cells, good = judged(name, bench, trial, work)
            failed += not good
            rows.append(cells)
            print(*cells, sep=" | ", file=sys.stderr, flush=True)
            shutil.rmtree(trial.folder, ignore_errors=True)
    head = heading("Faults: runs that are disturbed half-way")
    measurement.show([*head, _ABOUT, "", *measurement.table(_COLUMNS, rows)], arguments.out)
    if failed:
        raise SystemExit(f"{failed} of {len(wanted)} trials were not as promised.")


_ABOUT = (
    '"Taken up" is the same --run_id, in memory, afterwards. Right: the released bytes are those of a run that nobody '
    "disturbed, the ledger has one reserve and one commit, and nothing else is left."
)
_COLUMNS = ("runs", "trial", "exit code", "s to the end", "what it said last", "taken up", "right")


def judged(name: str, bench: Bench, trial: Trial, fault: Fault) -> tuple[list[str], bool]:
    """The cells of a trial, and whether all was as promised."""
    said, code, taken = "", "HANG", ""
    start = time.monotonic()
    try:
        fault(trial)
        start = time.monotonic()
        code = str(trial.run.wait(SECONDS))
    except subprocess.TimeoutExpired:
        trial.run.kill()
    except AssertionError as error:
        said = f"not disturbed: {error}"[:80]
    seconds = time.monotonic() - start
    last = (trial.run.err.splitlines() or [""])[-1].removeprefix("dapple: ")
    said = said or last.replace(f"{trial.folder}/", "")[:160]
    if not (trial.run.output / "run.json").exists() and (RUN, "void") not in trial.kinds:
        again = trial.start("again", RUN, MEMORY)
        taken = f"exit code {again.wait(SECONDS)}"
    voided = (RUN, "void") in trial.kinds
    whole = voided or (
        lake.released(trial.run.output) == bench.reference
        and [kind for run, kind in trial.kinds if run == RUN] == ["reserve", "start", "commit"]
    )
    left = {each.name for each in trial.folder.iterdir()} - {"lake", "book", "job.yaml", "run-log", "again-log", "out"}
    good = code != "HANG" and whole and not left and not said.startswith("not disturbed")
    said = "; ".join([said, *trial.notes, *(f"left: {each}" for each in sorted(left))])
    right = "given back" if voided and whole else "yes" if good else "NO"
    return [*name.split(": ", 1), code, f"{seconds:.0f}", said, taken, right], good


@contextlib.contextmanager
def flink() -> Iterator[FlinkCluster]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = FlinkCluster(pathlib.Path(folder), Ports.free())
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


def signaled(number: int, seconds: float) -> Fault:
    def work(trial: Trial) -> None:
        trial.wait_for_noise(seconds)
        trial.run.send(number)

    return work


def killed(seconds: float) -> Fault:
    """The command and all it has started."""

    def work(trial: Trial) -> None:
        trial.wait_for_noise(seconds)
        os.killpg(trial.run._child.pid, signal.SIGKILL)

    return work


def worker_killed(seconds: float) -> Fault:
    def work(trial: Trial) -> None:
        trial.wait_for_noise(seconds)
        trial.run.wait_until(lambda: trial.run.workers())
        os.kill(trial.run.workers()[0], signal.SIGKILL)

    return work


def another_run(trial: Trial) -> None:
    """A second run id with the same output, refused before it is charged."""
    trial.wait_for_noise(0)
    other = trial.start("other", "other", MEMORY)
    code, said = other.wait(SECONDS), other.err.splitlines()[-1].replace(f"{trial.folder}/", "")
    trial.notes.append(f"the other: exit code {code}, {said[:60]}")
    assert not [run for run, _ in trial.kinds if run == "other"], "the other was charged"
    shutil.rmtree(trial.folder / "other-log")


def same_run(trial: Trial) -> None:
    """The same run id a second time, at once."""
    trial.wait_for_noise(0)
    other = trial.start("other", RUN, MEMORY)
    trial.notes.append(f"the other: exit code {other.wait(SECONDS)}")
    shutil.rmtree(trial.folder / "other-log")


def swapped(trial: Trial) -> None:
    """A file of the input is replaced by one with as many rows."""
    trial.wait_for_noise(0)
    path = sorted((trial.folder / "lake").glob("*.parquet"))[-1]
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table.take(list(range(len(table)))[::-1]), path, 20_000)


def removed(trial: Trial) -> None:
    """A file of the input goes."""
    trial.wait_for_noise(0)
    sorted((trial.folder / "lake").glob("*.parquet"))[-1].unlink()


LOCAL: tuple[tuple[str, Sequence[str], Fault], ...] = (
    *((f"in memory: kill -9 after {s} s", MEMORY, killed(s)) for s in (0, 0.5, 1, 2, 3, 4)),
    *((f"two processes: kill -9 after {s} s", PROCESSES, killed(s)) for s in (0, 2, 4)),
    *((f"two processes: a worker killed after {s} s", PROCESSES, worker_killed(s)) for s in (0, 2, 4)),
    ("in memory: SIGTERM", MEMORY, signaled(signal.SIGTERM, 1)),
    ("in memory: SIGINT", MEMORY, signaled(signal.SIGINT, 1)),
    ("two processes: SIGTERM", PROCESSES, signaled(signal.SIGTERM, 2)),
    ("in memory: another run id, same output", MEMORY, another_run),
    ("in memory: the same run id twice", MEMORY, same_run),
    ("in memory: a file is replaced", MEMORY, swapped),
    ("in memory: a file is removed", MEMORY, removed),
)


def on_cluster(fault: Callable[[FlinkCluster, Trial], None]) -> Callable[[FlinkCluster], Fault]:
    """A fault when half of the tasks of the job are over."""

    def bound(cluster: FlinkCluster) -> Fault:
        def work(trial: Trial) -> None:
            # Before it may draw, a job of its own digests the input.
            trial.wait_for_noise(0)
            trial.run.wait_until(lambda: half_done(cluster))
            fault(cluster, trial)

        return work

    return bound


def half_done(cluster: FlinkCluster) -> bool:
    """True if a job is running and half of its tasks are done."""
    running = [job["tasks"] for job in cluster.jobs() if job["state"] == "RUNNING"]
    return any(2 * tasks["finished"] >= tasks["total"] for tasks in running)


def lose(*names: str, back: bool = False) -> Callable[[FlinkCluster], Fault]:
    """Processes of the cluster are killed, and perhaps started again at once."""

    def work(cluster: FlinkCluster, trial: Trial) -> None:
        for name in names:
            cluster.processes[name].kill()
        if back:
            cluster.up()
        elif "job-server" in names:
            trial.run.wait(SECONDS)
            trial.notes.append(f"{_cancel_all(cluster)} job went on and was canceled")

    return on_cluster(work)


def _cancel_all(cluster: FlinkCluster) -> int:
    master = f"127.0.0.1:{cluster.ports.rest}"
    found = on_flink.running_jobs(master)
    for job in found:
        on_flink.cancel(master, job)
    return len(found)


def driver(number: int, *, orphan: bool = False) -> Callable[[FlinkCluster], Fault]:
    """The command gets a signal; its job is canceled by name, unless it is to stay while the run is taken up."""

    def work(cluster: FlinkCluster, trial: Trial) -> None:
        trial.run.send(number)
        trial.run.wait(SECONDS)
        if not orphan:
            trial.notes.append(f"jobs that went on: {_cancel_all(cluster)}")

    return on_cluster(work)


def halted(name: str, seconds: float) -> Callable[[FlinkCluster], Fault]:
    """Processes are stopped for a while."""

    def work(cluster: FlinkCluster, trial: Trial) -> None:
        process = cluster.processes[name]
        pids = faults.workers(process) if name == "worker-pool" else [process.pid]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)

    return on_cluster(work)


def pool_worker(cluster: FlinkCluster, trial: Trial) -> None:
    """A Python worker is killed, as when memory is short."""
    os.kill(faults.workers(cluster.processes["worker-pool"])[0], signal.SIGKILL)


FLINK = tuple(
    (f"Flink: {name}", (), fault)
    for name, fault in (
        ("a TaskManager is killed and started again", lose("taskmanager-0", back=True)),
        ("the other TaskManager is killed and started again", lose("taskmanager-1", back=True)),
        ("a TaskManager is killed for good", lose("taskmanager-0")),
        ("a Python worker is killed", on_cluster(pool_worker)),
        ("the pool is killed and started again", lose("worker-pool", back=True)),
        ("the pool is killed for good", lose("worker-pool")),
        ("the job server is killed", lose("job-server")),
        ("the JobManager is killed", lose("jobmanager")),
        ("the driver is killed", driver(signal.SIGKILL)),
        ("the driver is killed, taken up beside its job", driver(signal.SIGKILL, orphan=True)),
        ("SIGTERM to the driver", driver(signal.SIGTERM)),
        ("a TaskManager stands still for 60 s", halted("taskmanager-0", 60)),
        ("Python workers stand still for 45 s", halted("worker-pool", 45)),
    )
)


if __name__ == "__main__":
    try:
        main()
    except downloads.UnavailableError as error:
        raise SystemExit(str(error)) from None
