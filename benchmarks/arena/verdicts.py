"""Verdicts of attacks: a lower bound on epsilon for each claim, which is refuted if the bound is above it.

An attack asks a system for runs on neighbors and turns what it publishes into scores that were fixed beforehand. Test
and threshold are chosen on a third of the runs and counted on the rest (Clopper-Pearson). All bounds on one system
together exceed a true epsilon for at most one set of runs in 1,000: each comparison has its equal part of that.
"""

import functools
import importlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.arena import environments
from benchmarks.arena.attacks.neighbors import Asked, Fits, Scored
from benchmarks.arena.cells import Kept, digest

FAILURE = 1e-3
RUNS = {"diffprivlib": 600, "nvflare": 600, "dapple": 600, "fastlloyd": 240, "google_lsh": 100, "cedskmeans": 60}
"""Fits of each neighbor, for systems whose fits take less or more than some hundredths of a second."""
MOST = 160
"""Of the others."""
CHOICE = 0.5
"""Failure probability of the bounds by which a test is chosen."""
COMPARISONS = 24
"""At most as many on one system."""
FOLDER = Path(__file__).with_name("attacks")


def attacks() -> list[str]:
    """Names of all attacks: their files."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "neighbors"))


def loaded(name: str) -> ModuleType:
    """The module of an attack."""
    return importlib.import_module(f"benchmarks.arena.attacks.{name}")


def bound_of(scored: Scored) -> float:
    """The lower bound on epsilon that scores give: score, threshold and direction from a third of the runs.

    The choice needs no confidence, so it is made at one that few runs can reach; only what is counted on the rest has
    that of the page.
    """
    from tests.scenes import audit

    pairs = [
        *zip(scored.without, scored.with_canary, strict=True),
        *zip(-scored.with_canary, -scored.without, strict=True),
    ]
    n_choice = scored.without.shape[1] // 3
    found = [audit._best_threshold(low[:n_choice], high[:n_choice], scored.delta, CHOICE) for low, high in pairs]
    index = int(np.argmax([bound for bound, _ in found]))
    low, high = (scores[n_choice:] for scores in pairs[index])
    hits, alarms = (np.array([np.count_nonzero(scores >= found[index][1])]) for scores in (high, low))
    return float(audit.epsilon_lower_bounds(hits, alarms, len(low), scored.delta, FAILURE / COMPARISONS)[0])


def most_of(scored: Scored) -> float:
    """The bound that as many runs give if the test that is chosen never errs: no epsilon above it can be shown."""
    n_runs = scored.without.shape[1]
    apart = scored._replace(without=np.zeros((1, n_runs)), with_canary=np.ones((1, n_runs)))
    return bound_of(apart)


def key_of(system: ModuleType, name: str, asked: Sequence[Asked]) -> str:
    """The digest of an attack on a system: both sources, and the jobs."""
    doors = sorted({environments.fingerprint(system, each.job.door) for each in asked})
    jobs = [json.dumps([*each.job._replace(rows=data.digest(each.job.rows)), each.side]) for each in asked]
    return digest(*doors, _source(name), *jobs)


@functools.cache
def _source(name: str) -> str:
    """Digest of the code of an attack, and of what counts its scores."""
    return environments.source_digest([Path(str(loaded(name).__file__)), Path(__file__)])


def measured(systems: dict[str, ModuleType], names: Sequence[str], options: Any) -> Iterator[dict[str, Any]]:
    """Verdicts of attacks on systems, those that are not kept after running them, all of a system in one process."""
    kept = Kept(options.home / "verdicts.jsonl")
    for title, system in systems.items():
        if system.CLAIM is None:
            continue
        asked = {name: loaded(name).asked(system, RUNS.get(title, MOST)) for name in names}
        keys = {name: key_of(system, name, asked[name]) for name in names}
        missing = {name: asked[name] for name in names if kept.get(keys[name]) is None and not options.only_kept}
        if missing:
            for name, found in zip(missing, _verdicts(system, missing, options.home), strict=True):
                kept.keep(keys[name], found)
        yield from filter(None, (kept.get(key) for key in keys.values()))


def _verdicts(system: ModuleType, asked: dict[str, list[Asked]], home: Path) -> Iterator[dict[str, Any]]:
    """Runs attacks."""
    where = environments.environment(system, home)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            each.job._replace(ledger=each.job.ledger and f"{folder}/{each.job.ledger}")
            for one in asked.values()
            for each in one
        ]
        fits = environments.fits(system, where, jobs)
        for name, one in asked.items():
            yield _verdict(system, name, one, [next(fits) for _ in one])


def _verdict(system: ModuleType, name: str, asked: Sequence[Asked], fits: list[Fits]) -> dict[str, Any]:
    """Returns the result of an attack."""
    scored = list(loaded(name).scored(system, asked, fits))
    found = [
        {"case": each.case, "claim": each.claim, "bound": round(bound_of(each), 2), "most": round(most_of(each), 2)}
        for each in scored
    ]
    errors = sorted({str(error) for each in fits for error in each["error"] if str(error)})
    return {"system": system.TITLE, "attack": name, "cases": found, "errors": errors[:3]} | {
        "runs": max((each.without.shape[1] for each in scored), default=len(fits[0]["seconds"])),
        "seconds": round(float(sum(np.sum(each["seconds"]) for each in fits)), 1),
    }
