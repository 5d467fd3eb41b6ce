"""A fit of many rows on Flink with four workers that share nothing, and rows, staging and results on a server of S3.

A worker is a TaskManager and a pool of Python workers, in a network and with mounts of its own: it sees Python, the
wheel, Flink and an empty disk, and no file of the launcher, of the server or of another worker. The server (versitygw)
has a network of its own, too. Each size has a fit in one process, one by four workers of which one is killed in the
middle of a round and stays away, one by four, and one by a single worker, all under one key. Needs root, on Linux.

    python -m benchmarks.share_nothing --data FOLDER --rows 10000000 --out benchmarks/results/share_nothing.md
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.runners import Runner, cpu_by_server
from benchmarks.scale import lake_of
from benchmarks.speed import ROOT
from dapple_dp import Ledger
from dapple_dp.pipelines.ledger.store import Ledger as Book
from dapple_dp.pipelines.ledger.store import charges_of
from deploy.local import downloads, processes
from deploy.local.flink_cluster import FlinkCluster
from deploy.local.worker_environment import WORKER_POOL, build_wheel

N_FEATURES, FILE_ROWS, N_ROUNDS, N_WORKERS = 4, 1_000_000, 11, 4
NETWORK, HERE, SERVER = "198.18.0", 1, 2
"""Addresses for benchmarks (RFC 2544); workers are from 11 on."""
RELEASED, NAME, LOST = "released", "rows", f"taskmanager-{N_WORKERS - 1}"
MIDDLE = re.compile("Rounds/Lloyd0[0-5]/{Statistic")
PLACE = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": f"http://{NETWORK}.{SERVER}:7070",
    "AWS_ALLOW_HTTP": "true",
    "AWS_EC2_METADATA_DISABLED": "true",
}
ONE, FEWER, FOUR, SINGLE = "one process", "four workers, one killed", "four workers", "one worker"
FITS = {
    ONE: ("--runner=FnApiRunner",),
    FEWER: (f"--parallelism={N_WORKERS}",),
    FOUR: (f"--parallelism={N_WORKERS}",),
    SINGLE: ("--parallelism=1",),
}
HEADS = ("rows", "fit by", "minutes", "CPU s", "us of CPU a row", "over one worker", "CPU s of the server")
HEADS += ("KB shuffled a round", "peak MB of the driver", "charges", "killed after s", "same bytes")
_NEW_NETWORK = 0x40000000
_SETTINGS = ("-Dcluster.evenly-spread-out-slots=true", "-Dweb.refresh-interval=100")
"""A task for each worker, and an answer at once to what the job does."""
_COMMAND = """
import secrets, sys
drawn = secrets.token_bytes
secrets.token_bytes = lambda number=32: bytes(range(number)) if number == 32 else drawn(number)
from dapple_dp.command import main
sys.exit(main())
"""
"""The command with a nonce that is always the same."""
_CONNECTED = """
until ip address add $ADDRESS/24 dev eth0 2>/dev/null; do sleep 0.1; done
ip link set eth0 up
ip link set lo up
"""
_WORKER = """
rm -rf $OWN && mkdir $OWN && cp -r $FLINK_CONF_DIR $OWN/conf
mount -t tmpfs none /mnt && cd /mnt && mkdir python flink packages
mount --bind $PYTHON python; mount --bind $FLINK flink; mount --bind $PACKAGES packages
mount --bind $OWN /tmp
for each in $HIDDEN; do [ ! -d $each ] || mount -t tmpfs none $each; done
cd /tmp
export PYTHONPATH=/mnt/packages FLINK_CONF_DIR=/tmp/conf FLINK_LOG_DIR=/tmp FLINK_PID_DIR=/tmp
/mnt/python/bin/python -P /mnt/packages/worker_pool.py $POOL &
exec /mnt/flink/bin/taskmanager.sh start-foreground -Dio.tmp.dirs=/tmp \\
    -Dtaskmanager.host=$ADDRESS -Dtaskmanager.bind-host=$ADDRESS
"""


class Took(NamedTuple):
    """Time and outcome of a fit."""

    digest: str
    minutes: float
    cpu: float
    server: float
    shuffled: float
    peak: float
    charges: int
    killed: float
    """Seconds until a worker was killed; 0 if none was."""


class Cluster(FlinkCluster):
    """A JobManager and a job server in this network, and workers each in its own."""

    host = f"{NETWORK}.{HERE}"

    def __init__(self, folder: Path, hidden: tuple[Path, ...]):
        super().__init__(folder, task_managers=N_WORKERS)
        self._home, self._runner = downloads.flink_home(), downloads.flink_runner()
        downloads.add_to_flink(self._home, self._runner.jars)
        packages = folder / "packages"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages)]
        subprocess.run([*pip, str(build_wheel(folder))], check=True)
        shutil.copy(WORKER_POOL, packages)
        self._shared = {"FLINK": str(self._home), "PYTHON": sys.prefix, "PACKAGES": str(packages)}
        self._shared |= {"HIDDEN": " ".join(map(str, hidden)), "POOL": str(self.ports.pool)}

    def up(self) -> None:
        """Starts what does not run; pools are with the workers."""
        self.start_flink(self._home)
        if not self._runs("job-server"):
            self.start_job_server(self._runner.server)

    def _words(self, name: str, script: str) -> list[str]:
        return [script, "start-foreground", self.host, str(self.ports.rest), *_SETTINGS]

    def _start(self, name: str, words: list[str], **variables: str) -> None:
        if not name.startswith("taskmanager"):
            return super()._start(name, words, **variables)
        variables |= {**self._shared, "OWN": str(self.folder / name)}
        self._remember(name, machine(11 + int(name[-1]), _WORKER, self.log(name), variables))

    def is_in_a_round(self) -> bool:
        """True if workers have tasks of a round in the middle."""
        found = [self.overview(f"jobs/{job['jid']}") for job in self.jobs() if job["state"] == "RUNNING"]
        steps = [step for job in found if job for step in job["vertices"] if MIDDLE.search(step["name"])]
        return any(step["tasks"]["RUNNING"] for step in steps)

    def written(self, jobs: set[str]) -> float:
        """Bytes that the tasks of jobs wrote for other tasks."""
        found = [self.overview(f"jobs/{each}") for each in jobs]
        return sum(each["metrics"]["write-bytes"] for job in found if job for each in job["vertices"])


def machine(number: int, script: str, log: Path, variables: dict[str, str]) -> processes.Process:
    """Starts a script in a network and with mounts of its own, at an address of the common network."""
    words, address = ["unshare", "--net", "--mount", "sh", "-euc", _CONNECTED + script], f"{NETWORK}.{number}"
    started = processes.start(words, log, variables | {"ADDRESS": address})
    here, there = (Path(f"/proc/{each}/ns/net") for each in ("self", started.pid))
    while here.readlink() == there.readlink():
        time.sleep(0.1)
    ip(f"link add cable{number} type veth peer name eth0 netns {started.pid}")
    ip(f"link set cable{number} master hub up")
    return started


def ip(words: str) -> None:
    """Changes this network."""
    subprocess.run(["ip", *words.split()], check=True)


def own_network() -> None:
    """Leaves the machine's network for one of its own, which no other can reach."""
    if ctypes.CDLL(None).unshare(_NEW_NETWORK):
        raise SystemExit("a network of its own needs root, on Linux")
    for words in ("link set lo up", "link add hub type bridge", f"address add {NETWORK}.{HERE}/24 dev hub"):
        ip(words)
    ip("link set hub up")


def fit(lake: Path, work: Path, cluster: Cluster, server: processes.Process, by: str) -> Took:
    """One command, whose results go to the server."""
    name, killed, lost = f"{lake.name}-{time.time_ns()}", 0.0, 0.0
    ledger, log = work / f"{name}.sqlite", work / f"{name}.log"
    Ledger(ledger).limit(NAME, epsilon=2.0, delta=1e-5)
    job = json.loads((lake / "engine.yaml").read_text())
    job["data"] |= {"path": f"s3://{lake.name}/clients", "name": NAME}
    job |= {"server_data": {"path": f"s3://{lake.name}/server.parquet"}, "key_uri": f"s3://{lake.name}/key"}
    (work / "job.yaml").write_text(json.dumps(job | {"ledger": str(ledger)}))
    words = [sys.executable, "-c", _COMMAND, "fit", "--config", str(work / "job.yaml")]
    words += ["--output", f"s3://{RELEASED}/{name}", "--run_id", "measured"]
    words += FITS[by] if by == ONE else (*cluster.flags, *FITS[by], "--cores", "1")
    runner = Runner((), (server, *cluster.processes.values()))
    start, jobs, before = time.perf_counter(), {each["jid"] for each in cluster.jobs()}, cpu_by_server(runner)
    with log.open("w") as file:
        child = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=file)
        while not (ended := os.wait4(child.pid, os.WNOHANG))[0]:
            if by == FEWER and not killed and cluster.is_in_a_round():
                place = list(cluster.processes).index(LOST) + 1
                killed, lost = time.perf_counter() - start, cpu_by_server(runner)[place]
                cluster.processes[LOST].kill()
            time.sleep(0.05)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(ended[1])
    if child.returncode:
        raise SystemExit(f"the fit by {by} must end with code 0, got {child.returncode}: {log.read_text()[-2000:]}")
    used = [now - then for now, then in zip(cpu_by_server(runner), before, strict=True)]
    released = lake.parent / RELEASED / name
    content = b"".join((released / each).read_bytes() for each in ("centers.parquet", "releases.parquet"))
    written = cluster.written({each["jid"] for each in cluster.jobs()} - jobs)
    return Took(
        hashlib.sha256(content).hexdigest()[:16],
        wall / 60,
        ended[2].ru_utime + ended[2].ru_stime + (sum(used[1:]) + lost if by != ONE else 0.0),
        used[0],
        written / N_ROUNDS / 1e3,
        ended[2].ru_maxrss / 1024,
        len(charges_of(Book(str(ledger)).entries(), NAME)),
        killed,
    )


def table(found: dict[int, dict[str, Took]]) -> list[str]:
    """A line for each fit; what a row takes is beyond the fit of the smallest lake."""
    smallest, rows = min(found), []
    least = {**found[smallest], FEWER: found[smallest].get(FOUR)}
    for n_rows, fits in found.items():
        row = {by: 1e6 * (took.cpu - least[by].cpu) / max(n_rows - smallest, 1) for by, took in fits.items()}
        for by, took in fits.items():
            cells = (f"{n_rows:,}", by, f"{took.minutes:.1f}", f"{took.cpu:.1f}", f"{row[by]:.3f}" if row[by] else "-")
            cells += (f"{row[by] / row[SINGLE]:.2f}" if row.get(SINGLE) else "-", f"{took.server:.1f}")
            cells += (f"{took.shuffled:.0f}", f"{took.peak:.0f}", str(took.charges))
            cells += (f"{took.killed:.0f}" if took.killed else "-",)
            rows.append((*cells, "yes" if took.digest == fits[ONE].digest else "NO"))
    return measurement.table(HEADS, rows)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder on a disk with room for the rows twice")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000])
    arguments = parser.parse_args()
    data, gateway = arguments.data.resolve(), downloads.s3_server()
    buckets = data / "store"
    head = heading(f"A fit of {N_ROUNDS} rounds on workers that share nothing: {N_FEATURES} float32 features")
    found: dict[int, dict[str, Took]] = {}
    lakes = {n_rows: lake_of(buckets, n_rows, N_FEATURES, FILE_ROWS) for n_rows in (FILE_ROWS, *sorted(arguments.rows))}
    for lake in lakes.values():
        (lake / "key").write_bytes(bytes(range(32)))
    (buckets / RELEASED).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data) as folder, contextlib.ExitStack() as stack:
        cluster = Cluster(Path(folder) / "cluster", (ROOT, data))
        own_network()
        stack.callback(cluster.down)
        os.environ |= PLACE
        words = ["--port", f"{NETWORK}.{SERVER}:7070", "--access", "benchmark", "--secret", "benchmark", "posix"]
        serve = shlex.join(["exec", str(gateway), *words, str(buckets)])
        server = machine(SERVER, serve, Path(folder) / "server.log", {})
        stack.callback(server.stop)
        for n_rows, lake in lakes.items():
            for by in FITS if n_rows > FILE_ROWS else (ONE, FOUR, SINGLE):
                if not cluster.complete:
                    # A fit that counts for none: processes that are new load what they need.
                    cluster.up()
                    fit(lakes[FILE_ROWS], Path(folder), cluster, server, FOUR)
                found.setdefault(n_rows, {})[by] = fit(lake, Path(folder), cluster, server, by)
                measurement.show([*head, *table(found)], arguments.out)


if __name__ == "__main__":
    main()
