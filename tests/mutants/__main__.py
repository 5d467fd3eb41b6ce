"""Mutants of the lines that must be right for epsilon: does a test notice each of them?

    python -m tests.mutants --list                       # counts of lines and mutants
    python -m tests.mutants --sample 400 --seed 1        # of all rooms in proportion, at least 40 of each
    python -m tests.mutants --room noise                 # all of one room
    python -m tests.mutants --only lattice.py:clip       # those whose names hold this text
    python -m tests.mutants --write FILE                 # the results as a page
    python -m tests.mutants --again                      # once more those that no test noticed
    python -m tests.mutants --quick                      # by quick tests only; what these miss is left for another run

What is known is kept in `.mutants/`: a run that was ended goes on where it was.
`tests/mutants/lines.py` says which lines count, and `tests/mutants/trial.py` how a mutant is tried. Exit code 1 if one
is neither noticed nor explained in `tests/mutants/equivalent.py`.
"""

import argparse
import dataclasses
import hashlib
import importlib
import json
import os
import pathlib
import random
import resource
import sys
from collections.abc import Callable
from typing import Any

from tests.mutants.children import in_child
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.page import Score, page
from tests.mutants.trial import Outcome, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 40
QUICK, SLOW = "not slow and not nightly", "slow"
"""Expressions of markers of the tiers that `./run_local.sh test all` runs."""
OTHERS = (
    "apache_beam.runners.portability.fn_api_runner",
    "dp_accounting.pld",
    "hypothesis.extra.numpy",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "scipy.stats",
    "sklearn.cluster",
)
"""Packages that take seconds to import."""


def _import_others() -> None:
    """Returns what takes seconds and is not ours, once for all children."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in OTHERS:
        importlib.import_module(name)


def _all() -> dict[str, Any]:
    """Tests, number of lines and mutants of each room."""
    from tests.mutants.lines import ROOMS, listed

    return {
        room: {
            "tests": ROOMS[room].tests,
            "lines": sum(map(len, files.values())),
            "mutants": [
                dataclasses.asdict(mutant)
                for path, lines in files.items()
                for mutant in mutants_of(path, (ROOT / path).read_text(), lines)
            ],
        }
        for room, files in listed().items()
    }


def sampled(
    mutants: dict[str, list[Mutant]], n_mutants: int | None, seed: int, least: int = LEAST
) -> dict[str, list[Mutant]]:
    """A random sample of each room; a larger one holds the smaller one of its seed.

    Args:
      mutants: by room.
      n_mutants: of all rooms in proportion; None for all.
      seed: of the draw.
      least: of each room.
    """
    if n_mutants is None:
        return mutants
    total = sum(map(len, mutants.values()))
    numbers = {room: max(least, round(n_mutants * len(found) / total)) for room, found in mutants.items()}
    shuffled = {room: random.Random(f"{seed} {room}").sample(found, len(found)) for room, found in mutants.items()}
    return {room: found[: numbers[room]] for room, found in shuffled.items()}


def tried(mutants: list[Mutant], room: dict[str, Any], options: argparse.Namespace) -> list[Outcome]:
    """Outcomes of the mutants of a room: quick tests are asked first, slow ones for what these miss.

    Args:
      mutants: to try.
      room: its tests, and its files.
      options: those of the command.
    """
    digests = {each: _digest(each) for each in {mutant.path for mutant in mutants}}
    paths = {each.name: each.path for each in mutants}

    def known() -> dict[str, Outcome]:
        """The last outcome of each mutant in the log."""
        lines = map(json.loads, options.log.read_text().splitlines() if options.log.exists() else ())
        right = [line for line in lines if line.get("name") in paths and line["digest"] == digests[line["path"]]]
        return {line["name"]: Outcome(**{each: line[each] for each in Outcome.__slots__}) for line in right}

    def tell(outcome: Outcome) -> None:
        path = paths[outcome.name]
        _write(options.log, dataclasses.asdict(outcome) | {"path": path, "digest": digests[path]})
        if outcome.noticed_by is None and not outcome.quick:
            sys.stderr.write(f"NOT NOTICED by {outcome.n_tests} tests: {outcome.name}\n")

    def ask(done: dict[str, Outcome], tier: str, tell: Callable[[Outcome], None]) -> None:
        if options.tell or paths.keys() <= done.keys():
            return
        before = _processor_seconds()
        try:
            server = Server(mutants, ROOT, set(room["files"]), options.log.with_name("coverage.jsonl"))
            server.run(tuple(room["tests"]), tell, {name: each.noticed_by for name, each in done.items()}, tier)
        finally:
            _write(options.log, {"processor_seconds": _processor_seconds() - before})

    again = {name for name, each in known().items() if options.again and not each.noticed_by and name not in EQUIVALENT}
    ask(
        {name: each for name, each in known().items() if name not in again},
        QUICK,
        lambda outcome: tell(dataclasses.replace(outcome, quick=True)),
    )
    if not options.quick:
        quick = known()
        ask(
            {name: each for name, each in quick.items() if each.noticed_by or not each.quick},
            SLOW,
            lambda outcome: tell(dataclasses.replace(outcome, n_tests=outcome.n_tests + quick[outcome.name].n_tests)),
        )
    found = known()
    return [found[each.name] for each in mutants if each.name in found]


def _write(log: pathlib.Path, line: dict[str, Any]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Lists, tries and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", nargs="*", help="names of rooms")
    parser.add_argument("--sample", type=int, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--least", type=int, default=LEAST, help="of each room in the sample")
    parser.add_argument("--only", default="", help="text in the names of mutants")
    parser.add_argument(
        "--log", type=pathlib.Path, default=ROOT / ".mutants" / "log.jsonl", help="what is known of mutants"
    )
    parser.add_argument("--again", action="store_true", help="try those again that were not noticed")
    parser.add_argument("--write", type=pathlib.Path, help="the page to write")
    parser.add_argument("--quick", action="store_true", help="quick tests only")
    parser.add_argument("--tell", action="store_true", help="try none, but show what the log holds")
    parser.add_argument("--list", action="store_true", help="count only")
    options = parser.parse_args()
    _import_others()
    rooms = in_child(_all)
    mutants = {room: [Mutant(**each) for each in found["mutants"]] for room, found in rooms.items()}
    files = sorted({each.path for found in mutants.values() for each in found})
    chosen = sampled(mutants, options.sample, options.seed, options.least)
    scores = {}
    for room, found in rooms.items():
        if options.room and room not in options.room:
            continue
        sys.stderr.write(f"{room}: {found['lines']} lines, {len(mutants[room])} mutants, {len(chosen[room])} to try\n")
        if not options.list:
            wanted = [each for each in chosen[room] if options.only in each.name]
            outcomes = tried(wanted, found | {"files": files}, options)
            scores[room] = Score(lines=found["lines"], mutants=len(mutants[room]), outcomes=outcomes)
    if options.write is not None:
        told = map(json.loads, options.log.read_text().splitlines())
        minutes = sum(each.get("processor_seconds", 0.0) for each in told) / 60.0
        options.write.write_text(page(scores, minutes))
    return int(any(each.killed < each.counted for each in scores.values()))


if __name__ == "__main__":
    sys.exit(main())
