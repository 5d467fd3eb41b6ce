"""Cells: a system's cost on a draw of a set at an epsilon; kept by the digest of what was asked and of the rows."""

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data
from benchmarks.arena import environments, sets
from benchmarks.arena.environments import Job
from benchmarks.separated_mixture import mean_cost


class Cell(NamedTuple):
    """A question: a system, a set, an epsilon, the number of a draw, and the door as of `Job`."""

    system: str
    name: str
    epsilon: float
    draw: int
    door: str = "rounds"


class Kept:
    """Results of finished work by their digests, kept in a file of JSON lines."""

    def __init__(self, path: Path):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a run ended while it wrote
            path.write_text(whole)
        self._found = {each["digest"]: each for each in map(json.loads, whole.splitlines())}

    def get(self, key: str) -> dict[str, Any] | None:
        """A result, or None."""
        return self._found.get(key)

    def keep(self, key: str, result: dict[str, Any]) -> None:
        """Adds a result to memory and file."""
        self._found[key] = {"digest": key} | result
        with self._path.open("a") as file:
            file.write(json.dumps(self._found[key]) + "\n")


def digest(*what: Any) -> str:
    """Digest of everything that decides a result, in this order."""
    return hashlib.sha256("\x00".join(map(str, what)).encode()).hexdigest()


def key_of(system: ModuleType, cell: Cell, task: sets.Task) -> str:
    """The digest of a cell: the system, what it is asked for, and the rows."""
    server = None if task.server is None else data.digest(task.server)
    asked = (cell.epsilon, cell.draw, cell.door, task.k, task.delta, environments.LIMIT)
    return digest(environments.fingerprint(system, cell.door), *asked, data.digest(task.rows), server)


def costs(system: ModuleType, wanted: Sequence[tuple[Cell, sets.Task]], home: Path) -> Iterator[dict[str, Any]]:
    """Runs cells of one system in one process of its environment; each is reported when it is done."""
    where = environments.environment(system, home)
    jobs = [
        Job(task.rows, task.k, cell.epsilon, task.delta, [_seed(cell)], task.server, door=cell.door)
        for cell, task in wanted
    ]
    for (cell, task), each in zip(wanted, environments.fits(system, where, jobs), strict=True):
        centers = each["centers"][0]
        centers = centers[np.isfinite(centers).all(axis=1)]
        error = str(each["error"][0]) or ("" if len(centers) else "no finite center")
        cost = None if error else mean_cost(task.rows, centers)
        yield cell._asdict() | {"cost": cost, "error": error, "seconds": round(float(each["seconds"][0]), 3)}


def _seed(cell: Cell) -> int:
    """The same behind all doors."""
    return int(digest(cell.system, cell.name, cell.epsilon, cell.draw)[:7], 16)


def best_cost(name: str, task: sets.Task, kept: Kept) -> float:
    """The least cost without privacy, with some starts."""
    from benchmarks.regimes import best_cost as least

    key = digest("best", task.k, data.digest(task.rows))
    if kept.get(key) is None:
        kept.keep(key, {"system": "best", "name": name, "cost": least(task.rows, task.k)})
    return float((kept.get(key) or {})["cost"])


def measured(
    systems: dict[str, ModuleType], options: Any, doors: Sequence[str] = ("rounds",)
) -> Iterator[dict[str, Any]]:
    """All cells, those that are not kept after running them; each with its `ratio` to k-means without privacy."""
    kept = Kept(options.home / "cells.jsonl")
    asked = itertools.product(range(options.draws), options.sets)
    tasks = {(name, draw): sets.drawn(name, draw, options.data) for draw, name in asked}
    for title, system in systems.items():
        cells = {}
        for (name, draw), task in tasks.items():
            for epsilon, door in itertools.product(options.epsilons, doors):
                cell = Cell(title, name, epsilon, draw, door)
                cells[key_of(system, cell, task)] = (cell, task)
        missing = [key for key in cells if kept.get(key) is None and not options.only_kept]
        if missing:
            for key, found in zip(missing, costs(system, [cells[key] for key in missing], options.home), strict=True):
                kept.keep(key, found)
                print(*found.values(), flush=True)
        for key, (cell, task) in cells.items():
            if (result := kept.get(key)) is not None:
                least = best_cost(cell.name, task, kept)
                ratio = None if result["cost"] is None else result["cost"] / least
                yield result | {"ratio": ratio, "k": task.k, "rows": len(task.rows), "features": task.rows.shape[1]}
