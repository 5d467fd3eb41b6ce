"""A Kafka broker of this machine: one process, KRaft mode, loopback only."""

import pathlib
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping

from deploy.local import downloads, processes
from deploy.local.processes import Process

_HEAP = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MAIN, _FORMAT = "kafka.Kafka", "kafka.tools.StorageTool"


class KafkaBroker:
    """A broker that keeps its data when it is killed and started again.

    Args:
      folder: of its data and its log.
      settings: further ones of the broker.
    """

    def __init__(self, folder: pathlib.Path, settings: Mapping[str, object] | None = None):
        self.folder = folder
        self._more = settings or {}
        self.process = Process(0, "")
        self._port, self._controller = processes.free_ports(2)
        self._jars: pathlib.Path | None = None

    @property
    def servers(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self._port}"

    def up(self) -> None:
        """Starts it, with the data that it had, and waits until it listens.

        Raises:
          downloads.UnavailableError: without Java or the jars.
          RuntimeError: if it does not come up.
        """
        if self.process.alive:
            return
        if self._jars is None:
            self._jars = downloads.kafka_jars()
            self._format()
        log = self.folder / "broker.log"
        self.process = processes.start(self._java(_MAIN, str(self._settings)), log)
        processes.wait_for("kafka", lambda: processes.listening(self._port), self.process, log)

    def kill(self) -> None:
        """Ends it by force, as a machine does that fails."""
        self.process.kill()

    @property
    def _settings(self) -> pathlib.Path:
        return self.folder / "server.properties"

    def _java(self, main: str, *words: str) -> list[str]:
        """A command of Kafka; it logs nothing but errors."""
        return ["java", *_HEAP, "-cp", f"{self._jars}/*", main, *words]

    def _format(self) -> None:
        """Writes settings and an empty store."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.retention.ms": -1,
            "num.network.threads": 1,
            "num.io.threads": 2,
            "num.recovery.threads.per.data.dir": 1,
            "log.cleaner.enable": "false",
            **self._more,
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        name = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        name = name if not name.startswith("-") else f"A{name[1:]}"
        words = self._java(_FORMAT, "format", "-t", name, "-c", str(self._settings))
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"kafka's store could not be formatted: {done.stderr[-500:]}")
