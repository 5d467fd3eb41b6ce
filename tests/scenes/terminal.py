"""A command on a real pseudo-terminal: what a user sees and types, and what Ctrl-C and Ctrl-D do."""

import contextlib
import os
import pathlib
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
_LIMIT = 600.0
# The terminal has to be that of the session, or Ctrl-C would be a letter like any other.
_START = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
INTERRUPT, END = "\x03", "\x04"


class Terminal:
    """A process whose standard input, output and error are one terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self.seen = process, ""
        self._master, self._known = master, 0

    def type(self, text: str | bytes) -> None:
        """Types; a line ends with Enter."""
        os.write(self._master, text.encode() if isinstance(text, str) else text)

    def wait_for(self, text: str) -> None:
        """Waits until this is on the screen, after what was waited for before."""
        limit = time.monotonic() + _LIMIT
        while text not in self.seen[self._known :]:
            assert time.monotonic() < limit, f"{text!r} is not on the screen: {self.seen!r}"
            assert self._read(), f"the command ended before {text!r} was on the screen: {self.seen!r}"
        self._known = self.seen.index(text, self._known) + len(text)

    def ends(self) -> int:
        """Reads on until the command ends; its exit code."""
        while self._read():
            pass
        return self.process.wait(_LIMIT)

    def _read(self) -> bool:
        """Reads what is there; False once nobody writes any more."""
        if not select.select([self._master], [], [], _LIMIT)[0]:
            raise AssertionError(f"nothing is written any more: {self.seen!r}")
        with contextlib.suppress(OSError):
            found = os.read(self._master, 1 << 16)
            self.seen += found.decode(errors="replace").replace("\r\n", "\n")
            return bool(found)
        return False


@contextlib.contextmanager
def on_terminal(*words: str, folder: pathlib.Path | None = None) -> Iterator[Terminal]:
    """`dapple` with some words, in a folder or in this one."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "dapple_dp", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=environment,
        cwd=folder,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
