"""A PostgreSQL server of this machine for tests: Debian's package, loopback only, run by an unprivileged user."""

import contextlib
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import tempfile
from typing import Any

import pytest

from dapple_dp.pipelines.ledger.store import Ledger
from deploy.local import processes
from deploy.local.downloads import UnavailableError
from deploy.local.processes import Process
from tests.scenes.conformance import needed

_ROOT = pathlib.Path("/usr/lib/postgresql")
_USER = "nobody"
_SETTINGS = (
    "listen_addresses=127.0.0.1",
    "recovery_init_sync_method=syncfs",
    "max_wal_size=64MB",
    "shared_buffers=16MB",
)
PASSWORD = "planted-0451"
"""Of the user `careful`, who alone needs one."""


class PostgresServer:
    """A server that keeps its data when it is killed and started again."""

    def __init__(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dapple-postgres-"))
        (self.port,) = processes.free_ports(1)
        self.process = Process(0, "")
        self._databases = 0

    def up(self, *settings: str) -> None:
        """Starts it with the data that it had, and waits until it answers.

        Raises:
          UnavailableError: where the package is not installed.
        """
        if not (self.folder / "data").exists():
            self._make()
        words = [f"-c{each}" for each in (f"port={self.port}", *_SETTINGS, *settings)]
        words = self._words("postgres", "-D", str(self.folder / "data"), "-cunix_socket_directories=", *words)
        # A server whose processes are about to end still has its memory, and the next one refuses to start.
        for _ in range(20):
            log = self.folder / "log" / "server.log"
            self.process = processes.start(words, log)
            with contextlib.suppress(RuntimeError):
                processes.wait_for("postgres", self._answers, self.process, log)
                return
        raise RuntimeError(f"postgres did not start: {log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Ends the server and all its processes by force, as a machine does that fails."""
        children = [each for each, parent in _parents().items() if parent == self.process.pid]
        self.process.kill()
        for each in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, 9)

    def remove(self) -> None:
        """Ends it and removes its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", user: str = "dapple") -> str:
        """URL of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres", user: str = "dapple") -> list[tuple[Any, ...]]:
        """Returns what a user sees; by default the owner of all databases."""
        import psycopg

        with psycopg.connect(self.url(database, user), autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[call-overload]
            return found.fetchall() if found.description else []

    def database(self) -> str:
        """The URL of a new database."""
        self._databases += 1
        name = f"ledger{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def _answers(self) -> bool:
        words = ["-q", "-t", "2", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run([_program("pg_isready"), *words], timeout=60, check=False).returncode == 0

    def _make(self) -> None:
        """A cluster of databases, by the rights of nobody; syncs its files as servers do."""
        _program("initdb")
        if os.getuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        words = (
            "-D",
            str(self.folder / "data"),
            "-A",
            "trust",
            "-U",
            "dapple",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )
        subprocess.run(self._words("initdb", *words), check=True, capture_output=True, timeout=300, cwd=self.folder)
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all careful 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")

    def _words(self, program: str, *words: str) -> list[str]:
        user = pwd.getpwnam(_USER)
        rights = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [*(rights if os.getuid() == 0 else []), _program(program), *words]


def started() -> PostgresServer:
    """A server that runs; skips where it cannot be had."""
    pytest.importorskip("psycopg", reason="needs psycopg, which the extra postgres brings")
    found = PostgresServer()
    with needed("postgres"):
        found.up()
    found.execute(f"CREATE USER careful PASSWORD '{PASSWORD}'")
    return found


def kinds(url: str) -> list[str]:
    """Returns what the entries of a ledger are, in order."""
    return [entry.kind for entry in Ledger(url).entries()]


def _program(name: str) -> str:
    """A program of the newest version that is installed."""
    found = sorted(_ROOT.glob(f"*/bin/{name}"), key=lambda each: int(each.parts[-3]) if each.parts[-3].isdigit() else 0)
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        raise UnavailableError(f"needs {name} of PostgreSQL (apt-get install postgresql)")
    return path


def _parents() -> dict[int, int]:
    """The parent of every process, by number."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state = re.sub(r"^.*\)", "", path.read_text(errors="replace")).split()
            found[int(path.parent.name)] = int(state[1])
    return found
