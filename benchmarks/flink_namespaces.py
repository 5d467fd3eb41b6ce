r"""Fits on a Flink cluster whose TaskManagers have a network each, as hosts of their own have.

Each TaskManager lives in a network namespace with a cable to a bridge, and so does the pool of its workers, on the
loopback of that namespace. There is no route from there to anything but the bridge. JobManager, job server and driver
are on this machine's side. All see one disk. Needs root and `ip`; devices and namespaces are gone at the end.

    python -m benchmarks.flink_namespaces --rows 400000 --out benchmarks/results/flink_namespaces.md
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import flink_tasks, large_lakes, measurement
from benchmarks.machine import heading
from deploy.local import processes
from deploy.local.downloads import ROOT
from deploy.local.flink_cluster import FlinkCluster, Ports
from deploy.local.worker_environment import WORKER_POOL

BRIDGE, HOST, HOSTS = "dapple0", "10.83.0.1", ("10.83.0.2", "10.83.0.3")
STEPS = 20


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    arguments = parser.parse_args()
    lines = heading("Flink: TaskManagers in network namespaces of their own")
    with tempfile.TemporaryDirectory() as data, networks(), cluster() as apart:
        lake = large_lakes.record_lake(Path(data), arguments.rows)
        lines += [*what_is_apart(apart), "", *fits(lake, apart, arguments.rows)]
    measurement.show(lines, arguments.out)


def ip(*words: str) -> None:
    """Runs a command of `ip`, which must succeed."""
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def networks() -> Iterator[None]:
    """The bridge, and a namespace with a cable to it for each TaskManager."""
    with contextlib.ExitStack() as made:
        ip("link", "add", BRIDGE, "type", "bridge")
        made.callback(ip, "link", "delete", BRIDGE)
        ip("address", "add", f"{HOST}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for index, host in enumerate(HOSTS):
            inside, end = f"dapple-tm{index}", f"dapple-v{index}"
            ip("netns", "add", inside)
            made.callback(ip, "netns", "delete", inside)
            ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", inside)
            ip("link", "set", end, "master", BRIDGE, "up")
            ip("-n", inside, "address", "add", f"{host}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", inside, "link", "set", device, "up")
        yield


class ApartCluster(FlinkCluster):
    """A cluster with a namespace for each TaskManager and its pool."""

    host = HOST

    def start_pool(self) -> None:
        """Starts a pool in each namespace, and waits for it there."""
        for index in range(self.task_managers):
            name = "worker-pool" if not index else f"worker-pool-{index}"
            words = [*within(index), sys.executable, "-P", str(WORKER_POOL), str(self.ports.pool)]
            process = processes.start(words, self.log(name), {"PYTHONPATH": str(ROOT)})
            self._remember(name, process)
            processes.wait_for(
                name, lambda index=index: reaches(index, "127.0.0.1", self.ports.pool), process, self.log(name)
            )

    def _words(self, name: str, script: str) -> list[str]:
        words = super()._words(name, script)
        if not name.startswith("taskmanager-"):
            return words
        index = int(name.removeprefix("taskmanager-"))
        own = [f"-Dtaskmanager.{key}={HOSTS[index]}" for key in ("host", "bind-host")]
        return [*within(index), *words, *own]


def within(index: int) -> list[str]:
    """What a command begins with to run in a namespace."""
    return ["ip", "netns", "exec", f"dapple-tm{index}"]


def reaches(index: int, host: str, port: int) -> bool:
    """Whether a process in a namespace reaches a port."""
    look = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
    words = [*within(index), sys.executable, "-c", look, host, str(port)]
    return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0


@contextlib.contextmanager
def cluster() -> Iterator[ApartCluster]:
    """Two TaskManagers, of two slots each."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = ApartCluster(Path(folder), Ports.free())
        try:
            found.up()
            yield found
        finally:
            found.down()


def what_is_apart(apart: ApartCluster) -> list[str]:
    """Who reaches what: all of it must be as on hosts of their own."""
    ports = apart.ports
    places = {
        f"JobManager, {HOST}": (HOST, ports.rest),
        "job server, on the driver's loopback": (HOST, ports.job),
        "pool of its own, 127.0.0.1": ("127.0.0.1", ports.pool),
        "pool of the other": (HOSTS[1], ports.pool),
    }
    lines = ["| from the namespace of the first TaskManager | reached |", "| --- | --- |"]
    lines += [f"| {what} | {'yes' if reaches(0, *place) else 'no'} |" for what, place in places.items()]
    driver = "yes" if processes.listening(ports.pool) else "no"
    known = (apart.overview("taskmanagers") or {})["taskmanagers"]
    hosts = sorted(each["id"].partition(":")[0] for each in known)
    return [
        *lines,
        f"| a pool, from the driver | {driver} |",
        "",
        f"TaskManagers that Flink knows: {', '.join(hosts)}.",
    ]


def fits(lake: Path, apart: ApartCluster, rows: int) -> list[str]:
    """A row for each job: what ran where, and whether it released the bytes of a run in memory."""
    lines = [f"Fits of {rows:,} rows x {large_lakes.ROW_FEATURES}, p = 4:", ""]
    lines += ["| | jobs | tasks on each TaskManager | wall s | same bytes as in memory |", "| --- " * 5 + "|"]
    settings = {"11 rounds": {"lloyd": {"steps": 8, "share": 0.5}}, f"`dp_lloyd`, {STEPS}": flink_tasks.dp_lloyd(STEPS)}
    for name, each in settings.items():
        found = flink_tasks.run(lake, each, apart)
        same = "yes" if found.released == flink_tasks.run(lake, each).released else "NO"
        lines.append(f"| {name} | {found.jobs} | {_tasks(apart, found.jobs)} | {found.wall:.1f} | {same} |")
    return lines


def _tasks(apart: ApartCluster, n_jobs: int) -> str:
    """How many tasks of the last jobs each TaskManager had."""
    found = dict.fromkeys(HOSTS, 0)
    for job in sorted(apart.jobs(), key=lambda each: each["start-time"])[-n_jobs:]:
        for step in (apart.overview(f"jobs/{job['jid']}") or {})["vertices"]:
            where = apart.overview(f"jobs/{job['jid']}/vertices/{step['id']}/taskmanagers") or {}
            for each in where["taskmanagers"]:
                found[each["taskmanager-id"].partition(":")[0]] += sum(each["status-counts"].values())
    return " and ".join(map(str, found.values()))


if __name__ == "__main__":
    main()
