"""Systems: their adapters, and the environment of each, which one command builds.

A repository is cloned at the commit that the adapter names, from its address or from a clone that is there already.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.arena import worker
from benchmarks.own_environment import ROOT, run, variables

SYSTEMS = Path(__file__).with_name("systems")
HOME = ROOT / "out" / "arena"
OURS = ("dapple", "not_private")
"""They run in the project's own environment."""
PACKAGES = ("schemas", "transforms", "pipelines", "dapple_dp")
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
LIMIT = 10
"""CPU seconds that a fit may take."""


class Environment(NamedTuple):
    """Environment of a system: a Python, and a folder on its path."""

    python: Path
    folder: Path


def adapters() -> dict[str, ModuleType]:
    """All adapters by the title of their system, ours last."""
    found = [worker.adapter(path) for path in sorted(SYSTEMS.glob("*.py")) if path.stem != "__init__"]
    return {each.TITLE: each for each in sorted(found, key=lambda each: (each.TITLE in OURS, each.TITLE))}


@functools.cache
def fingerprint(system: ModuleType, door: str) -> str:
    """Digest of what decides a system's answers: its adapter, with packages and commit; for ours all code of Dapple."""
    files = [Path(str(worker.__file__)), Path(str(system.__file__))]
    if system.TITLE in OURS:
        files += [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return source_digest(files) + door


def source_digest(files: Sequence[Path]) -> str:
    """Digest of the text of files."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def environment(system: ModuleType, home: Path) -> Environment:
    """Returns the environment of a built system.

    Raises:
      LookupError: if nobody has built it.
    """
    if system.TITLE in OURS:
        return Environment(Path(sys.executable), ROOT)
    place = home / "environments" / system.TITLE
    if not (place / "built.json").exists() or json.loads((place / "built.json").read_text()) != _wanted(system):
        raise LookupError(f"{system.TITLE} is not built; call python -m benchmarks.arena build {system.TITLE}.")
    own = system.REPOSITORY is None or hasattr(system, "OVERLAY")
    folder = place / "source" / ("" if own else system.REPOSITORY[2])
    return Environment(place / "venv" / "bin" / "python", folder)


def _wanted(system: ModuleType) -> list[Any]:
    return json.loads(json.dumps([system.NEEDS, system.REPOSITORY, getattr(system, "OVERLAY", None)]))


def build(system: ModuleType, home: Path, clone: str | None = None) -> None:
    """Makes the environment of a system again; `clone` stands in for the address of its repository."""
    place = home / "environments" / system.TITLE
    shutil.rmtree(place, ignore_errors=True)
    source = place / "source"
    source.mkdir(parents=True)
    run(sys.executable, "-m", "venv", place / "venv", home=place)
    run(place / "venv" / "bin" / "python", "-m", "pip", "install", "-q", *system.NEEDS, home=place)
    if system.REPOSITORY is not None:
        address, commit, _ = system.REPOSITORY
        run("git", "clone", "-q", "--no-checkout", clone or address, source, home=place)
        run("git", "-C", source, "checkout", "-q", commit, home=place)
    for name in getattr(system, "FOLDERS", ()):
        (source / name).mkdir(exist_ok=True)
    for name in getattr(system, "OVERLAY", ()):
        [packages] = (place / "venv" / "lib").glob("python*/site-packages")
        shutil.copytree(source / system.REPOSITORY[2] / name, packages / name, dirs_exist_ok=True)
    (place / "built.json").write_text(json.dumps(_wanted(system)))


class Job(NamedTuple):
    """Question to one system: `rows` (n, d) inside the bounds, as many fits as there are seeds.

    Attributes:
      rows: shape (n, d).
      k: number of centers.
      epsilon: claimed by one fit.
      delta: the same.
      seeds: of each fit, None for what the system does if its user gives none.
      server: public points, shape (q, d), or None.
      bounds: of every column.
      door: "job" as users run it, "rounds", which are those of the job without files and ledger, or one of
        `stages.DOORS`; for Dapple.
      limit: CPU seconds that a fit may take.
      ledger: path of a ledger, for systems that have one.
    """

    rows: NDArray[np.float64]
    k: int
    epsilon: float
    delta: float
    seeds: Sequence[int | None]
    server: NDArray[np.float64] | None = None
    bounds: tuple[float, float] = (-1.0, 1.0)
    door: str = "rounds"
    limit: int = LIMIT
    ledger: str | None = None


def fits(system: ModuleType, where: Environment, jobs: Sequence[Job]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields what a system publishes for every job, as soon as it is done: arrays by name, as `worker` says.

    Raises:
      SystemExit: if the worker ends early.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(jobs, folder / "jobs.npz")
        with _started(system, where, folder) as process:
            assert process.stdout is not None
            try:
                for path in (folder / f"{index}.npz" for index in range(len(jobs))):
                    while not path.exists():
                        if not process.stdout.readline() and not path.exists():
                            raise SystemExit(f"{system.TITLE} ended: {(folder / 'errors').read_text()[-2000:]}")
                    with np.load(path) as file:
                        yield dict(file)
                    path.unlink()
            finally:
                process.kill()


def _write(jobs: Sequence[Job], path: Path) -> None:
    """Jobs for the worker; rows that several jobs share are written once."""
    arrays: dict[int, NDArray[np.float64]] = {}
    described = []
    for job in jobs:
        named: dict[str, Any] = job._asdict()
        for name in ("rows", "server"):
            if named[name] is not None:
                arrays.setdefault(id(named[name]), named[name])
                named[name] = list(arrays).index(id(named[name]))
        described.append(named)
    found = {f"array_{index}": each for index, each in enumerate(arrays.values())}
    np.savez(path, jobs=json.dumps(described), **found)


def _started(system: ModuleType, where: Environment, folder: Path) -> subprocess.Popen[str]:
    """The worker where the system's modules are; its home has nothing of the user's. It ends with its reader."""
    given = variables(folder) | {"PYTHONPATH": str(where.folder), "PYTHONDONTWRITEBYTECODE": "1"}
    given |= {"PYTHONSAFEPATH": "1"} | THREADS | {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
    words = [where.python, Path(worker.__file__), str(system.__file__), folder]
    with (folder / "errors").open("w") as errors:
        return subprocess.Popen(words, cwd=where.folder, env=given, stdout=subprocess.PIPE, stderr=errors, text=True)


def settings_of(system: ModuleType) -> SimpleNamespace:
    """Returns the description of a system on the page."""
    by = "PyPI" if system.REPOSITORY is None else f"{system.REPOSITORY[0]} at {system.REPOSITORY[1][:8]}"
    return SimpleNamespace(title=system.TITLE, what=system.WHAT, source="here" if system.TITLE in OURS else by)
