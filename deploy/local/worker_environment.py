"""An environment of its own for workers: the pinned requirements and the built wheel, nothing of this repository."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from deploy.local import downloads, processes

WORKER_POOL = pathlib.Path(__file__).with_name("worker_pool.py")
_STAMP = ".installed"
_PACKAGES = ("dapple_dp", "schemas", "transforms", "pipelines", "schedule")
_PIP = ("-m", "pip", "--disable-pip-version-check")
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


def worker_python() -> pathlib.Path:
    """The interpreter of an environment that holds the wheel of the sources as they are now.

    Raises:
      downloads.UnavailableError: if the requirements cannot be fetched.
    """
    folder = downloads.CACHE / "worker"
    python, stamp = folder / "bin" / "python", folder / _STAMP
    requirements = _digest([downloads.ROOT / "requirements.txt", pathlib.Path(sys.executable)])
    wanted = f"{requirements} {_digest(sources())}"
    have = stamp.read_text() if stamp.exists() else ""
    if have == wanted:
        return python
    stamp.unlink(missing_ok=True)
    if not have.startswith(requirements):
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), *_PIP, "install", "-q", "-r", str(downloads.ROOT / "requirements.txt")])
    with tempfile.TemporaryDirectory() as built:
        wheel = build_wheel(pathlib.Path(built))
        _run([str(python), *_PIP, "install", "-q", "--no-deps", "--force-reinstall", str(wheel)])
    stamp.write_text(wanted)
    return python


def build_wheel(folder: pathlib.Path) -> pathlib.Path:
    """The wheel of the sources as they are now, built from a copy so that nothing is left among them."""
    copy = folder / "source"
    for path in sources():
        target = copy / path.relative_to(downloads.ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    _run([sys.executable, *_PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(copy)])
    return next(folder.glob("dapple_dp-*.whl"))


def sources() -> list[pathlib.Path]:
    """Files that make up the wheel."""
    found = [downloads.ROOT / name for name in ("setup.py", "pyproject.toml", "LICENSE", "README.md")]
    for package in _PACKAGES:
        found += [path for path in (downloads.ROOT / package).rglob("*") if _is_source(path)]
    return sorted(found)


def _is_source(path: pathlib.Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"


def _digest(paths: list[pathlib.Path]) -> str:
    """SHA-256 of paths and contents; of an interpreter, of its path."""
    digest = hashlib.sha256()
    for each in _contents(paths):
        digest.update(len(each).to_bytes(8, "big") + each)
    return digest.hexdigest()


def _contents(paths: list[pathlib.Path]) -> Iterator[bytes]:
    for path in paths:
        yield os.fsencode(path)
        if downloads.ROOT in path.parents and ".venv" not in path.parts:
            yield path.read_bytes()


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise downloads.UnavailableError(f"the workers' environment could not be made: {lines[-1] if lines else '?'}")
