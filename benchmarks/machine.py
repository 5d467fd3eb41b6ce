"""Where and how a benchmark ran, for the head of its results."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path


def heading(title: str) -> list[str]:
    """Lines that name machine, date, versions and command."""
    import apache_beam
    import numpy as np

    return [
        f"# {title}",
        "",
        f"- command: `python -m {_module()} {' '.join(map(_shown, sys.argv[1:]))}`",
        f"- date: {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}",
        f"- machine: {_cpu()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB, {platform.system()}",
        f"- Python {platform.python_version()}, NumPy {np.__version__}, Beam {apache_beam.__version__}",
        f"- commit: {commit()}",
        "",
    ]


def _module() -> str:
    """Name of the script that runs, as `python -m` takes it."""
    path = Path(sys.argv[0]).with_suffix("")
    parts = (path.parent if path.name == "__main__" else path).parts
    return ".".join(parts[parts.index("benchmarks") :] if "benchmarks" in parts else ("benchmarks", parts[-1]))


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
    """Of this checkout, and whether it was changed."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
