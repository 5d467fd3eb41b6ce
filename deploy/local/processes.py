"""Background processes of this machine: started in a session of their own, found again, stopped with their children."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

_STOP_SECONDS, _KILL_SECONDS = 10.0, 300.0
# Systems lend ports of their own choice to outgoing connections from 32768 on, so a port from there that is free now
# may be taken a second later.
_LENT_FROM = 32768
_OURS_FROM = 20000


class Process(NamedTuple):
    """A process that was started here.

    Attributes:
      pid: of the process, and of its session and group.
      born: when it started, in the system's own words; another process of the same number has other words.
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
            _wait_while(lambda: self.alive, _KILL_SECONDS)

    def kill(self) -> None:
        """Ends it and all it has started, by force."""
        if self.alive:
            self.signal(signal.SIGKILL)
            _wait_while(lambda: self.alive, _KILL_SECONDS)

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
    """Ports of loopback that nobody listens on now and that no outgoing connection will be given."""
    with contextlib.ExitStack() as stack:
        return [_bound(stack.enter_context(socket.socket())) for _ in range(number)]


def _bound(free: socket.socket) -> int:
    """Binds a socket to a port that is drawn until it is free; returns the port."""
    while True:
        port = random.randrange(_OURS_FROM, _LENT_FROM)
        with contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def listening(port: int) -> bool:
    """Whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what: str, ready: Callable[[], bool], process: Process, log: pathlib.Path, seconds: float = 300.0) -> None:
    """Waits until something is ready.

    Raises:
      RuntimeError: if it takes too long or the process ends; the message holds the end of the log.
    """
    if not _wait_while(lambda: process.alive and not ready(), seconds):
        raise RuntimeError(f"{what} did not come up in {seconds:.0f} s; the end of {log}:\n{_end(log)}")
    if not process.alive:
        raise RuntimeError(f"{what} ended before it came up; the end of {log}:\n{_end(log)}")


def _end(log: pathlib.Path) -> str:
    """The last 20 lines of a log; nothing if there is none."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:]) if log.exists() else ""


def _wait_while(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits while a condition holds; returns whether it ended in time."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def _born(pid: int) -> str:
    """When a process started; empty if there is none, or only what its parent has not collected.

    Linux counts ticks since its own start. `ps` adds these to the time of day and so may be a second off the next time.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    stat = pathlib.Path(f"/proc/{pid}/stat")
    with contextlib.suppress(OSError):
        # The name in brackets may hold anything; state is the first word after it, the start the twentieth.
        words = stat.read_text(errors="replace").rpartition(")")[2].split()
        return "" if words[0] == "Z" else words[19]
    if pathlib.Path("/proc/self/stat").exists():
        return ""
    done = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, born = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else born.strip()
