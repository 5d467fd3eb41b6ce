"""Mutants of the lines that must be right for epsilon: does a test notice each of them?

    python -m tests.mutants --list                       # counts of lines and mutants
    python -m tests.mutants --sample 400 --seed 1        # of all rooms in proportion, at least 40 of each
    python -m tests.mutants --room noise                 # all of one room
    python -m tests.mutants --only lattice.py:clip       # those whose names hold this text
    python -m tests.mutants --write FILE                 # the results as a page; other rooms stay on it
    python -m tests.mutants --again                      # once more those that no test noticed
    python -m tests.mutants --quick                      # by unit tests only; what these miss is left for another run

What is known is kept in `.mutants/`: a run that was ended goes on where it was.
`tests/mutants/lines.py` says which lines count, and `tests/mutants/trial.py` how a mutant is tried. Exit code 1 if one
is neither noticed nor explained in `tests/mutants/equivalent.py`.
"""

import argparse
import dataclasses
import datetime
import hashlib
import importlib
import json
import os
import pathlib
import random
import resource
import sys
from typing import Any

from tests.mutants.children import in_child
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.page import Score, page, remembered
from tests.mutants.trial import Outcome, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 40
UNIT = "tests/unit"
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
    """What takes seconds and is not ours, once for all children."""
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
    """Outcomes of the mutants of a room.

    Args:
      mutants: to try.
      room: its tests, and its files.
      options: those of the command.
    """
    digests = {each: _digest(each) for each in {mutant.path for mutant in mutants}}

    def known(told: bool) -> dict[str, dict[str, Any]]:
        """What the log holds; what unit tests missed is known only if nothing else is to be asked, or shown."""
        lines = map(json.loads, options.log.read_text().splitlines() if options.log.exists() else ())
        right = [line for line in lines if "name" in line and line["digest"] == digests.get(line["path"])]
        right = [line for line in right if told or line["noticed_by"] or not line.get("quick")]
        return {line["name"]: {each: line[each] for each in Outcome.__slots__ if each in line} for line in right}

    def tell(outcome: Outcome) -> None:
        path = paths[outcome.name]
        more = {"path": path, "digest": digests[path], "quick": options.quick}
        _write(options.log, dataclasses.asdict(outcome) | more)
        if outcome.noticed_by is None:
            sys.stderr.write(f"NOT NOTICED by {outcome.n_tests} tests: {outcome.name}\n")

    paths = {each.name: each.path for each in mutants}
    done = {name: line["noticed_by"] for name, line in known(options.quick).items() if name in paths}
    if options.again:
        done = {name: noticed for name, noticed in done.items() if noticed or name in EQUIVALENT}
    if not options.tell and not paths.keys() <= done.keys():
        before = _processor_seconds()
        try:
            server = Server(mutants, ROOT, set(room["files"]), options.log.with_name("coverage.jsonl"))
            server.run(tuple(each for each in room["tests"] if not options.quick or each.startswith(UNIT)), tell, done)
        finally:
            _write(options.log, {"processor_seconds": _processor_seconds() - before})
    found = known(True)
    return [Outcome(**found[each.name]) for each in mutants if each.name in found]


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
    parser.add_argument(
        "--looked",
        type=int,
        nargs=2,
        metavar=("SEED", "SAMPLE"),
        help="a sample that tests were written by; reported, too",
    )
    parser.add_argument("--quick", action="store_true", help="unit tests only")
    parser.add_argument("--tell", action="store_true", help="try none, but show what the log holds")
    parser.add_argument("--list", action="store_true", help="count only")
    options = parser.parse_args()
    _import_others()
    rooms = in_child(_all)
    mutants = {room: [Mutant(**each) for each in found["mutants"]] for room, found in rooms.items()}
    files = sorted({each.path for found in mutants.values() for each in found})
    drawn = f"--sample {options.sample} --seed {options.seed} --least {options.least}" if options.sample else "all"
    today = datetime.datetime.now(datetime.UTC).date()
    chosen = sampled(mutants, options.sample, options.seed, options.least)
    scores = {}
    for room, found in rooms.items():
        sys.stderr.write(f"{room}: {found['lines']} lines, {len(mutants[room])} mutants, {len(chosen[room])} to try\n")
        if options.list or (options.room and room not in options.room and options.write is None):
            continue
        if options.room and room not in options.room:
            there = options.write.read_text() if options.write.exists() else ""
            outcomes, earlier = remembered(there, room, {each.path for each in mutants[room]})
            scores[room] = Score(lines=found["lines"], mutants=len(mutants[room]), outcomes=outcomes, sample=earlier)
            continue
        wanted = [each for each in chosen[room] if options.only in each.name]
        scores[room] = Score(
            lines=found["lines"],
            mutants=len(mutants[room]),
            outcomes=tried(wanted, found | {"files": files}, options),
            sample=f"{drawn}, {today}",
        )
    if options.write is not None:
        looked = {}
        if options.looked is not None:
            before, options.tell = sampled(mutants, options.looked[1], options.looked[0]), True
            looked = {
                room: dataclasses.replace(
                    scores[room],
                    outcomes=tried(before[room], found, options),
                    sample=f"--sample {options.looked[1]} --seed {options.looked[0]}, {today}",
                )
                for room, found in rooms.items()
                if not options.room or room in options.room
            }
        told = map(json.loads, options.log.read_text().splitlines())
        minutes = sum(each.get("processor_seconds", 0.0) for each in told) / 60.0
        asked = [f"--room {' '.join(options.room)}"] if options.room else []
        command = " ".join(["python -m tests.mutants", *asked, *([drawn] if options.sample else [])])
        options.write.write_text(page(scores, command, minutes, looked))
    return int(any(each.killed < each.counted for each in scores.values()))


if __name__ == "__main__":
    sys.exit(main())
