"""Machine, versions and duration of a benchmark, for the head of its results."""

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESULTS = "benchmarks/results"
_COMMIT = "- commit: "
"""Begins the line of a head after which `write` says what the results took."""


def heading(title: str) -> list[str]:
    """Lines that name command, date, machine, versions and commit."""
    import apache_beam
    import numpy as np

    import dapple_dp

    ours = dapple_dp.__version__ + " from a wheel" * ("site-packages" in dapple_dp.__file__)
    return [
        f"# {title}",
        "",
        f"- command: `python -m {_module()} {' '.join(map(_shown, sys.argv[1:]))}`",
        f"- date: {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
        f"- machine: {_cpu()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB, {platform.system()}",
        f"- Dapple {ours}, Python {platform.python_version()}, NumPy {np.__version__}, Beam {apache_beam.__version__}",
        f"{_COMMIT}{commit()}",
        "",
    ]


def write(lines: Sequence[str], out: Path) -> None:
    """Writes results, with the wall and CPU seconds since `begin` in their head; makes their folder."""
    wall, cpu = (now - then for now, then in zip(_clocks(), _begun, strict=True))
    timed = []
    for line in lines:
        timed += [line, f"- took: {wall:.1f} s, {cpu:.1f} s of CPU"] if line.startswith(_COMMIT) else [line]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(timed).rstrip() + "\n")


def begin() -> None:
    """Lets seconds count from here on; without it they count from the first import."""
    global _begun
    _begun = _clocks()


def took(text: str) -> float | None:
    """Wall seconds of a result by its text, or None if its head does not say."""
    found = re.search(r"^- took: ([\d.]+) s", text, re.MULTILINE)
    return float(found[1]) if found else None


def _clocks() -> tuple[float, float]:
    """Wall seconds of some clock, and CPU seconds of this process and of those that it waited for."""
    return time.perf_counter(), sum(os.times()[:4])


_begun = (time.perf_counter(), 0.0)
_ROOTS = ("benchmarks", "tests")
"""Folders of scripts that write results."""


def _module() -> str:
    """Name of the script that runs, as `python -m` takes it."""
    path = Path(sys.argv[0]).with_suffix("")
    parts = (path.parent if path.name == "__main__" else path).parts
    root = next((each for each in _ROOTS if each in parts), None)
    return ".".join(parts[parts.index(root) :] if root else (_ROOTS[0], parts[-1]))


def _shown(word: str) -> str:
    """An argument; of an absolute path only the name."""
    return Path(word).name if word.startswith("/") else word


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def commit() -> str:
    """Commit of this checkout, and whether anything but results was changed."""
    done, changed = (
        subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        for words in (["describe", "--always"], ["diff", "--quiet", "HEAD", "--", ".", f":!{RESULTS}"])
    )
    return done.stdout.strip() + "-dirty" * (changed.returncode == 1) or "unknown"
