"""Requests of a process and its children to the disk, by strace: written bytes, names, flushes, in their order."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from deploy.local.downloads import UnavailableError
from tests.power_cuts.sites import BEGIN, END, ROOT

_CALLS = (
    "access,chmod,chdir,clone,clone3,copy_file_range,creat,fallocate,fchmod,fchmodat,fdatasync,fork,fsync,ftruncate,"
    "link,linkat,lseek,mkdir,mkdirat,mmap,open,openat,pwrite64,pwritev,pwritev2,rename,renameat,renameat2,rmdir,"
    "sendfile,splice,symlink,symlinkat,sync,syncfs,truncate,unlink,unlinkat,vfork,write,writev"
)
_MOST_BYTES = 1 << 20
"""Of one write: a longer one cannot be followed, which is found out at the end of a record."""
_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?|0x[0-9a-f]+)")
_UNFINISHED = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_BASE = re.compile(r'iov_base="([^"]*)"')


class Call(NamedTuple):
    """A call that was carried out.

    Attributes:
      thread: which made it.
      name: of the system call.
      args: as strace prints them, strings as hexadecimal digits.
      result: what it returned.
    """

    thread: int
    name: str
    args: list[str]
    result: int


class Traced(NamedTuple):
    """A process that is over.

    Attributes:
      code: its exit code.
      out: its standard output.
      err: its standard error.
      calls: in the order in which they returned.
    """

    code: int
    out: str
    err: str
    calls: list[Call]


def needs_strace() -> str:
    """Returns where strace is; raises UnavailableError if it is not there, or may not trace here."""
    found = shutil.which("strace")
    if found is None:
        raise UnavailableError("power cuts are recorded by strace, which is not on this machine; install it.")
    if subprocess.run([found, "-f", "-o", os.devnull, "true"], capture_output=True, check=False).returncode:
        raise UnavailableError("power cuts are recorded by strace, which may not trace on this machine; allow ptrace.")
    return found


def traced(words: list[str], place: pathlib.Path, seconds: float) -> Traced:
    """Runs a command and records it.

    Args:
      words: after `dapple`.
      place: folder for the trace; others may not see it.
      seconds: after which a process hangs.
    """
    file = place / "trace"
    command = [needs_strace(), "-f", "-y", "-xx", "-s", str(_MOST_BYTES), "--seccomp-bpf", "-o", str(file)]
    command += ["-e", f"trace={_CALLS}", "-e", "signal=none"]
    command += [sys.executable, "-m", "tests.power_cuts.recorded", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False)
    assert file.exists(), done.stderr
    try:
        return Traced(done.returncode, done.stdout, done.stderr, list(_calls(file)))
    finally:
        file.unlink()


def _calls(file: pathlib.Path) -> Iterator[Call]:
    begun: dict[tuple[str, str], str] = {}
    with file.open() as lines:
        for line in lines:
            if match := _UNFINISHED.match(line):
                begun[match[1], match[2]] = match[3]
                if match[2] == "access":
                    # A mark of where a call begins or ends stands where it was made.
                    yield Call(int(match[1]), "access", match[3].split(", "), -1)
                continue
            if match := _RESUMED.match(line):
                line = f"{match[1]} {match[2]}({begun.pop((match[1], match[2]))}{match[3]}"
                if match[2] == "access":
                    continue
            if (match := _LINE.match(line)) and match[4] != "?":
                result = int(match[4], 0)
                if result >= 0 or match[2] == "access":
                    yield Call(int(match[1]), match[2], match[3].split(", "), result)


def text_of(argument: str) -> bytes:
    """The bytes of a printed string."""
    return bytes.fromhex(_HEX.sub(r"\1", argument.strip('"')))


def parts_of(argument: str) -> bytes:
    """The bytes of a printed list of buffers."""
    return b"".join(text_of(part) for part in _BASE.findall(argument))


def path_of(argument: str) -> str | None:
    """The path of a file that is open, or of a folder, as the kernel has it; None if it has no name any more."""
    rest = argument.partition("<")[2]
    path = os.fsdecode(text_of(rest.partition(">")[0])) if rest else ""
    return None if path.endswith(" (deleted)") or rest.endswith("(deleted)") else path


def number_of(argument: str) -> int:
    """The number of an open file."""
    return int(argument.partition("<")[0])


def mark_of(call: Call) -> tuple[str, str] | None:
    """BEGIN or END, and the site; None for any other call."""
    if call.name != "access":
        return None
    path = os.fsdecode(text_of(call.args[0]))
    for kind in (BEGIN, END):
        if path.startswith(kind):
            return kind, path.removeprefix(kind)
    return None
