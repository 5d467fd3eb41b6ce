"""Cores, memory and disk that this process may use, within the limits of its control groups.

A container or a service has a control group with limits, and so may each group above it. Sizes of this machine are
public: they depend on no row.
"""

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import joblib

NO_MEMORY = (
    "The rows being processed don't fit into memory; use a machine with more memory, fewer --cores or a lower "
    "--cache_megabytes, and run the job again."
)
_SELF = Path("/proc/self")
_MEMORY_INFO = Path("/proc/meminfo")
_WITHOUT_LIMIT = 1 << 60
_DISK_LEFT = 6
"""Part of a disk that stays free, as a divisor: Kubernetes stops pods if less than 15% is left."""
_LEAST_LEFT = 1 << 30
_THREAD_BYTES = 1 << 27
"""Approximate memory for the rows that a thread works on."""


class _Names(NamedTuple):
    """Files of a control group, and a field of its statistics; the names depend on the version."""

    limit: str
    used: str
    unused: str


_VERSIONS = {
    "cgroup2": _Names("memory.max", "memory.current", "inactive_file"),
    "cgroup": _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def cores(process: Path = _SELF) -> int:
    """Returns the cores that this process may use, at least 1: its affinity, limited by its control groups.

    Args:
      process: its folder in /proc.
    """
    found = float(joblib.cpu_count())
    for kind, folder in _groups("cpu", process):
        if kind == "cgroup2":
            quota, period = (*_words(folder / "cpu.max"), "", "")[:2]
        else:
            quota, period = (" ".join(_words(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            found = min(found, int(quota) / int(period))
    return max(1, math.ceil(found))


def threads(most: int) -> int:
    """Returns the threads that cores and free memory suffice for, from 1 to `most`."""
    free = free_memory()
    return max(1, min(cores(), most, most if free is None else free // _THREAD_BYTES))


def free_memory(process: Path = _SELF, machine: Path = _MEMORY_INFO) -> int | None:
    """Returns the bytes of memory that this process may still take; None if the system doesn't say.

    Args:
      process: its folder in /proc.
      machine: the system's file about its memory.
    """
    found = [1024 * each for each in (_field(machine, "MemAvailable:"),) if each is not None]
    found += [
        free for kind, folder in _groups("memory", process) if (free := _free(_VERSIONS[kind], folder)) is not None
    ]
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = _field(process / "status", "VmSize:")
    if most != resource.RLIM_INFINITY and size is not None:
        found.append(most - 1024 * size)
    return max(0, min(found)) if found else None


def has_room(n_bytes: int) -> bool:
    """Returns whether this many bytes are at most half of the memory that this process may still take."""
    free = free_memory()
    return free is None or n_bytes <= free // 2


def free_disk(folder: int | str, *, left: bool = True) -> int:
    """Returns the bytes that may still be written to the disk of a folder or an open file.

    Args:
      folder: path of the folder, or descriptor of the file.
      left: True to keep a sixth of the disk free, for data that could be done without.

    Raises:
      OSError: if it doesn't exist.
    """
    disk = os.statvfs(folder)
    keep = max(_LEAST_LEFT, disk.f_blocks * disk.f_frsize // _DISK_LEFT) if left else 0
    return max(0, disk.f_bavail * disk.f_frsize - keep)


def _free(names: _Names, folder: Path) -> int | None:
    """Returns the bytes that a group may still take, unused file cache included; None without a limit."""
    limit, used = ((*_words(folder / name), "")[0] for name in (names.limit, names.used))
    if not (limit.isdecimal() and used.isdecimal()) or int(limit) >= _WITHOUT_LIMIT:
        return None
    return int(limit) - int(used) + (_field(folder / "memory.stat", names.unused) or 0)


def _groups(controller: str, process: Path) -> Iterator[tuple[str, Path]]:
    """Yields version and folder of every control group of a process that may have this limit, its own one first."""
    paths = {}
    for line in _lines(process / "cgroup"):
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            paths["cgroup"] = path
        elif number == "0":
            paths["cgroup2"] = path
    for line in _lines(process / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, system = before.split(" "), (*after.split(" "), "", "", "")
        kind = system[0]
        if kind in paths and len(fields) > 4 and (kind == "cgroup2" or controller in system[2].split(",")):
            root, mounted = fields[3], Path(fields[4])
            # In a container the mount may begin at its own group, while the path has all folders of the group.
            inside = paths[kind].removeprefix(root.rstrip("/")).strip("/")
            folder = mounted / inside if ".." not in inside.split("/") else mounted
            yield from (
                (kind, each) for each in (folder, *folder.parents) if each == mounted or mounted in each.parents
            )


def _field(file: Path, name: str) -> int | None:
    """Returns the number after a name in a file of lines; None if there is none."""
    for line in _lines(file):
        words = line.split()
        if words[:1] == [name] and words[1:] and words[1].isdecimal():
            return int(words[1])
    return None


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    """Reads the lines of a system file; none if there is no such file."""
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []
