"""Environments that a benchmark makes: nothing of this one's packages or variables is in them."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
INSTALL = ROOT / "docs" / "start" / "install.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Done(NamedTuple):
    """A command that has ended: what it said, and seconds of it and of the processes that it waited for."""

    said: str
    code: int
    wall: float
    cpu: float


def variables(home: Path) -> dict[str, str]:
    """All that a command is given: a home, and where this Python and the system's programs are."""
    return {
        "HOME": str(home),
        "PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }


def install_lines() -> list[str]:
    """The lines of the page on installing."""
    found = CONSOLE.search(INSTALL.read_text())
    assert found is not None
    return found[1].splitlines()


def checkout(folder: Path) -> Path:
    """The last commit in a folder of its own, where building leaves what it leaves."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def run(*words: str | Path, home: Path, code: int | None = 0) -> Done:
    """Runs a command in its home.

    Raises:
      SystemExit: if it ends with another exit code than is right; None takes any.
    """
    start = time.perf_counter()
    running = subprocess.Popen(
        words, cwd=home, env=variables(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert running.stdout is not None
    said = running.stdout.read().decode()
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    if code is not None and running.returncode != code:
        raise SystemExit(f"{words} ended with {running.returncode}: {said}")
    return Done(said, running.returncode, time.perf_counter() - start, used.ru_utime + used.ru_stime)


def megabytes(folder: Path) -> float:
    """Size of a folder on the disk, in millions of bytes."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*") if not path.is_dir()) * 512 / 1e6
