"""A standalone Flink cluster on loopback: a JobManager, TaskManagers, Beam's job server, a pool of Python workers."""

import dataclasses
import json
import pathlib
import shutil
import sys
import urllib.request
from typing import Any

import yaml

from deploy.local import downloads, processes
from deploy.local.processes import Process
from deploy.local.worker_environment import start_pool

_STATE, _CONF = "cluster.json", "conf"
JOB_SERVER = pathlib.Path(__file__).with_name("LoopbackJobServer.java")
_JOB_SERVER_HEAP = "-Xmx512m"
_SPARING = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of each Java process. Python does the work of a job; Java's second compiler takes half of what Java takes in
all, for code that runs for seconds."""
_SLOTS = 2
_CACHE_SECONDS, _RESTART_SECONDS, _SLOT_SECONDS = 10, 20, 30
"""How long Flink keeps workers that no task uses, how long it waits before it starts a job again, and for slots.

A worker that died is kept like any other. A job that starts again sooner gets it back, and fails again.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where everything listens, on 127.0.0.1.

    Attributes:
      rest: Flink's REST interface and web page.
      rpc: of the JobManager.
      job: of the job server, where jobs are sent.
      artifact: of the job server, where their files are sent.
      expansion: of the job server.
      pool: of the workers.
    """

    rest: int = 8081
    rpc: int = 6123
    job: int = 8099
    artifact: int = 8098
    expansion: int = 8097
    pool: int = 50000

    @classmethod
    def free(cls) -> "Ports":
        """Ports that nobody listens on now."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**dict(zip(names, processes.free_ports(len(names)), strict=True)))


class FlinkCluster:
    """The processes of a cluster, which outlive this one.

    Args:
      folder: of configuration, logs and the list of processes; a cluster that was started there is found again.
      ports: for a new cluster.
      task_managers: how many it has, of two slots each; jobs take the slots of all.
      python: whose environment the workers have; by default this one.
    """

    host = "127.0.0.1"
    """Where JobManager and TaskManagers listen; job server and pool are on loopback."""

    def __init__(
        self, folder: pathlib.Path, ports: Ports | None = None, task_managers: int = 2, python: str = sys.executable
    ):
        self.folder = folder
        self.task_managers = task_managers
        self.processes: dict[str, Process] = {}
        self._python = python
        self.ports = ports or Ports()
        if (folder / _STATE).exists():
            state = json.loads((folder / _STATE).read_text())
            self.ports = Ports(**state["ports"])
            self.processes = {name: Process(*each) for name, each in state["processes"].items()}

    @property
    def flags(self) -> tuple[str, ...]:
        """What a job is started with to run here."""
        return (
            "--runner=PortableRunner",
            f"--job_endpoint=127.0.0.1:{self.ports.job}",
            "--environment_type=EXTERNAL",
            f"--environment_config=127.0.0.1:{self.ports.pool}",
            "--no_save_main_session",
            f"--parallelism={_SLOTS * self.task_managers}",
            f"--environment_cache_millis={_CACHE_SECONDS}000",
            f"--flink_master={self.host}:{self.ports.rest}",
        )

    @property
    def complete(self) -> bool:
        """Whether everything runs and the TaskManagers have joined."""
        alive = bool(self.processes) and all(process.alive for process in self.processes.values())
        return alive and self._joined() >= self.task_managers

    def up(self) -> None:
        """Starts what is missing; what runs is left alone, unless the JobManager is gone.

        Raises:
          downloads.UnavailableError: if something cannot be had on this machine; nothing runs then.
          RuntimeError: if something does not come up; nothing runs then.
        """
        if self.complete:
            return
        if not self._runs("jobmanager"):
            self.down()
        home, runner = downloads.flink_home(), downloads.flink_runner()
        downloads.add_to_flink(home, runner.jars)
        try:
            self.start_flink(home)
            if not self._runs("job-server"):
                self.start_job_server(runner.server)
            if not self._runs("worker-pool"):
                self.start_pool()
        except BaseException:
            self.down()
            raise

    def start_flink(self, home: pathlib.Path) -> None:
        """Starts what does not run of JobManager and TaskManagers and waits until they know each other."""
        if not self._runs("jobmanager"):
            self._configure(home)
            self._start_flink(home, "jobmanager", "jobmanager.sh")
            self._wait("jobmanager", lambda: self._joined() >= 0)
        names = [f"taskmanager-{index}" for index in range(self.task_managers)]
        for name in names:
            if not self._runs(name):
                self._start_flink(home, name, "taskmanager.sh")
        self._wait(names[-1], lambda: self._joined() >= self.task_managers)

    def _runs(self, name: str) -> bool:
        """Whether one of the processes runs."""
        return name in self.processes and self.processes[name].alive

    def start_job_server(self, jar: pathlib.Path) -> None:
        """Starts Beam's job server and waits for it."""
        ports = self.ports
        words = ["java", *_SPARING, _JOB_SERVER_HEAP, "-cp", str(jar), str(JOB_SERVER)]
        words += ["--job-host=127.0.0.1", f"--job-port={ports.job}"]
        words += [f"--artifact-port={ports.artifact}", f"--expansion-port={ports.expansion}"]
        words += [f"--flink-master={self.host}:{ports.rest}", f"--artifacts-dir={self.folder / 'artifacts'}"]
        self._start("job-server", words)
        self._wait("job-server", lambda: processes.listening(ports.job))

    def start_pool(self) -> None:
        """Starts the pool of workers and waits for it."""
        self._remember("worker-pool", start_pool(self._python, self.ports.pool, self.log("worker-pool")))

    def down(self) -> None:
        """Stops everything that was started here and forgets it; no error if nothing runs."""
        for process in reversed(self.processes.values()):
            process.stop()
        self.processes = {}
        (self.folder / _STATE).unlink(missing_ok=True)
        # A TaskManager that was killed leaves copies of the jars of its jobs, all leave files with their numbers, and
        # the job server leaves a folder for each job.
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)
        shutil.rmtree(self.folder / "artifacts", ignore_errors=True)

    def cancel_jobs(self) -> int:
        """Cancels the jobs that run; returns how many. A job goes on when the process that sent it is gone."""
        running = [job["jid"] for job in self.jobs() if job["state"] in ("CREATED", "RUNNING", "RESTARTING")]
        for job in running:
            self._ask(urllib.request.Request(self._url(f"jobs/{job}"), method="PATCH"))
        return len(running)

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that the JobManager knows; none if it does not answer."""
        return (self.overview("jobs/overview") or {"jobs": []})["jobs"]

    def overview(self, path: str = "overview") -> dict[str, Any] | None:
        """An answer of Flink's REST interface, or None if there is none."""
        return self._ask(urllib.request.Request(self._url(path)))

    def _url(self, path: str) -> str:
        return f"http://{self.host}:{self.ports.rest}/{path}"

    def _ask(self, request: urllib.request.Request) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return found

    def _joined(self) -> int:
        """How many TaskManagers the JobManager knows; -1 if it does not answer."""
        found = self.overview()
        return -1 if found is None else int(found["taskmanagers"])

    def _configure(self, home: pathlib.Path) -> None:
        """Writes a configuration: Flink's own, on loopback, small, and quick to see that a process is gone."""
        conf = self.folder / _CONF
        shutil.rmtree(conf, ignore_errors=True)
        shutil.copytree(home / "conf", conf)
        settings = _flat(yaml.safe_load((home / "conf" / "config.yaml").read_text()))
        settings |= {
            "env.java.opts.jobmanager": " ".join(_SPARING),
            "env.java.opts.taskmanager": " ".join(_SPARING),
            "rest.port": self.ports.rest,
            "rest.bind-address": self.host,
            "rest.address": self.host,
            "jobmanager.rpc.address": self.host,
            "jobmanager.rpc.port": self.ports.rpc,
            "jobmanager.bind-host": self.host,
            "jobmanager.memory.process.size": "1024m",
            "taskmanager.host": self.host,
            "taskmanager.bind-host": self.host,
            "taskmanager.memory.process.size": "1536m",
            # Of the tasks of a fit, over a hundred, many hold buffers at once, 16 MB for each shuffle that is sorted.
            "taskmanager.network.sort-shuffle.min-parallelism": 64,
            "taskmanager.memory.managed.fraction": 0.2,
            "taskmanager.numberOfTaskSlots": _SLOTS,
            "parallelism.default": 2,
            # Beam's classes are in Flink's lib. Those that come with a job are dropped whenever none of its tasks runs,
            # and Python's workers with them: they would be restarted for every round.
            "classloader.resolve-order": "parent-first",
            "heartbeat.interval": 2000,
            "heartbeat.timeout": 10000,
            # With a TaskManager go results of earlier rounds, and each that is missed costs a restart.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 5,
            "restart-strategy.fixed-delay.delay": f"{_RESTART_SECONDS} s",
            # A job that lost slots for good fails after some four minutes, not after an hour.
            "slot.request.timeout": _SLOT_SECONDS * 1000,
            "io.tmp.dirs": str(self.folder / "tmp"),
        }
        (conf / "config.yaml").write_text(yaml.safe_dump(settings))

    def _start_flink(self, home: pathlib.Path, name: str, script: str) -> None:
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        variables = {"FLINK_CONF_DIR": str(self.folder / _CONF), "FLINK_LOG_DIR": str(self.folder / "log")}
        variables["FLINK_PID_DIR"] = str(self.folder / "tmp")
        self._start(name, self._words(name, str(home / "bin" / script)), **variables)

    def _words(self, name: str, script: str) -> list[str]:
        """The command of a JobManager or TaskManager."""
        return [script, "start-foreground"]

    def _start(self, name: str, words: list[str], **variables: str) -> None:
        self._remember(name, processes.start(words, self.log(name), variables))

    def _remember(self, name: str, process: Process) -> None:
        """Writes down what was started, so that it is found again."""
        self.processes[name] = process
        state = {"ports": dataclasses.asdict(self.ports), "processes": self.processes}
        (self.folder / _STATE).write_text(json.dumps(state))

    def _wait(self, name: str, ready: Any) -> None:
        processes.wait_for(name, ready, self.processes[name], self.log(name))

    def log(self, name: str) -> pathlib.Path:
        """Where a process writes what it has to say."""
        return self.folder / "log" / f"{name}.log"


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
