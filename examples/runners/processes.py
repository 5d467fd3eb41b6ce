"""Background processes of this machine: started in a session of their own, found again, stopped with their children."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

_STOP_SECONDS = 10.0


class Process(NamedTuple):
    """A process that was started here.

    Attributes:
      pid: of the process, and of its session and group.
      born: when it started, as the system says; another process of the same number has another time.
    """

    pid: int
    born: str

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return bool(self.born) and _born(self.pid) == self.born

    def stop(self) -> None:
        """Ends it and all it has started, by force if it has to be."""
        if self.alive:
            self.signal(signal.SIGTERM)
            _wait_while(lambda: self.alive, _STOP_SECONDS)
            self.signal(signal.SIGKILL)

    def kill(self) -> None:
        """Ends it and all it has started, by force."""
        if self.alive:
            self.signal(signal.SIGKILL)
            _wait_while(lambda: self.alive, _STOP_SECONDS)

    def signal(self, number: int) -> None:
        """Sends a signal to its group; a group that is gone is no error."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def start(words: list[str], log: pathlib.Path, variables: Mapping[str, str] | None = None) -> Process:
    """Starts a command in a session of its own, away from this folder; what it says goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        child = subprocess.Popen(
            words,
            cwd=log.parent,
            env=os.environ | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Process(child.pid, _born(child.pid))


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def listening(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what: str, ready: Callable[[], bool], process: Process, log: pathlib.Path, seconds: float = 90.0) -> None:
    """Waits until something is ready.

    Raises:
      RuntimeError: if it takes too long or the process ends; the log says why.
    """
    if _wait_while(lambda: process.alive and not ready(), seconds) and process.alive:
        return
    raise RuntimeError(f"{what} did not come up; see {log}.")


def _wait_while(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits while a condition holds; returns whether it ended in time."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def _born(pid: int) -> str:
    """When a process started; empty if there is none, or only what its parent has not collected."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    done = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, born = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else born.strip()
