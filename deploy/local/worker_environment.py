"""A pool of workers, and the wheel that workers elsewhere have."""

import pathlib
import shutil
import subprocess
import sys

from deploy.local import downloads, processes

WORKER_POOL = pathlib.Path(__file__).with_name("worker_pool.py")
_PACKAGES = ("dapple_dp", "schemas", "transforms", "pipelines", "schedule")
_TIMEOUT = 900.0


def start_pool(python: str, port: int, log: pathlib.Path) -> processes.Process:
    """Starts a pool of workers on a port of loopback and waits for it.

    Args:
      python: of the workers' environment; if it is the one that runs this, they get the packages of this repository,
        else what is installed there.
      port: where runners ask for workers.
      log: where pool and workers write what they have to say.
    """
    path = str(downloads.ROOT) if python == sys.executable else ""
    pool = processes.start([python, "-P", str(WORKER_POOL), str(port)], log, {"PYTHONPATH": path})
    processes.wait_for("the pool of workers", lambda: processes.listening(port), pool, log)
    return pool


def build_wheel(folder: pathlib.Path) -> pathlib.Path:
    """The wheel of the sources as they are now, built from a copy so that nothing is left among them."""
    copy = folder / "source"
    for path in sources():
        target = copy / path.relative_to(downloads.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    words = ("-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "--no-build-isolation")
    subprocess.run([sys.executable, *words, "-w", str(folder), str(copy)], check=True, timeout=_TIMEOUT)
    return next(folder.glob("dapple_dp-*.whl"))


def sources() -> list[pathlib.Path]:
    """Files that make up the wheel."""
    found = [downloads.ROOT / name for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md")]
    for package in _PACKAGES:
        found += [path for path in (downloads.ROOT / package).rglob("*") if _is_source(path)]
    return sorted(found)


def _is_source(path: pathlib.Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
