"""Cells: a system's cost on a draw of a set at an epsilon; kept by the digest of what was asked and of the rows."""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data
from benchmarks.arena import environments, sets
from benchmarks.arena.environments import Job
from benchmarks.separated_mixture import mean_cost

TOGETHER = 48
"""Cells that one process of a system runs; they are kept at its end."""


class Cell(NamedTuple):
    """A question: a system, a set, an epsilon, and the number of a draw."""

    system: str
    name: str
    epsilon: float
    draw: int


class Kept:
    """Results of finished work by their digests, kept in a file of JSON lines."""

    def __init__(self, path: Path):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._found = {each["digest"]: each for each in map(json.loads, lines)}

    def get(self, key: str) -> dict[str, Any] | None:
        """A result, or None."""
        return self._found.get(key)

    def keep(self, key: str, result: dict[str, Any]) -> None:
        """Adds a result to memory and file."""
        self._found[key] = {"digest": key} | result
        with self._path.open("a") as file:
            file.write(json.dumps(self._found[key]) + "\n")


def digest(*what: Any) -> str:
    """Of whatever decides a result, in this order."""
    return hashlib.sha256("\x00".join(map(str, what)).encode()).hexdigest()


def key_of(system: ModuleType, cell: Cell, task: sets.Task) -> str:
    """The digest of a cell: the system, what it is asked for, and the rows."""
    server = None if task.server is None else data.digest(task.server)
    asked = (cell.epsilon, cell.draw, task.k, task.delta, environments.LIMIT)
    return digest(environments.fingerprint(system), *asked, data.digest(task.rows), server)


def costs(system: ModuleType, wanted: Sequence[tuple[Cell, sets.Task]], home: Path) -> Iterator[dict[str, Any]]:
    """Runs cells of one system in one process of its environment."""
    where = environments.environment(system, home)
    jobs = [Job(task.rows, task.k, cell.epsilon, task.delta, [_seed(cell)], task.server) for cell, task in wanted]
    with tempfile.TemporaryDirectory() as folder:
        found = environments.fits(system, where, jobs, Path(folder))
    for (cell, task), each in zip(wanted, found, strict=True):
        centers = each["centers"][0]
        centers = centers[np.isfinite(centers).all(axis=1)]
        error = str(each["error"][0]) or ("" if len(centers) else "no finite center")
        cost = None if error else mean_cost(task.rows, centers)
        yield cell._asdict() | {"cost": cost, "error": error, "seconds": round(float(each["seconds"][0]), 3)}


def _seed(cell: Cell) -> int:
    return int(digest(*cell)[:7], 16)


def best_cost(name: str, task: sets.Task, kept: Kept) -> float:
    """The least cost without privacy, with some starts."""
    from benchmarks.regimes import best_cost as least

    key = digest("best", task.k, data.digest(task.rows))
    if kept.get(key) is None:
        kept.keep(key, {"system": "best", "name": name, "cost": least(task.rows, task.k)})
    return float((kept.get(key) or {})["cost"])


def measured(
    systems: dict[str, ModuleType], names: Sequence[str], epsilons: Sequence[float], draws: int, options: Any
) -> Iterator[dict[str, Any]]:
    """All cells, those that are not kept after running them; each with its `ratio` to k-means without privacy."""
    kept = Kept(options.home / "cells.jsonl")
    tasks = {(name, draw): sets.drawn(name, draw, options.data) for name in names for draw in range(draws)}
    for title, system in systems.items():
        cells = {}
        for (name, draw), task in tasks.items():
            for cell in (Cell(title, name, each, draw) for each in epsilons):
                cells[key_of(system, cell, task)] = (cell, task)
        missing = [key for key in cells if kept.get(key) is None and not options.only_kept]
        for part in (missing[start : start + TOGETHER] for start in range(0, len(missing), TOGETHER)):
            for key, found in zip(part, costs(system, [cells[key] for key in part], options.home), strict=True):
                kept.keep(key, found)
                print(*found.values(), flush=True)
        for key, (cell, task) in cells.items():
            if (result := kept.get(key)) is not None:
                least = best_cost(cell.name, task, kept)
                ratio = None if result["cost"] is None else result["cost"] / least
                yield result | {"ratio": ratio, "k": task.k, "rows": len(task.rows), "features": task.rows.shape[1]}
