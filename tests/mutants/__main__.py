"""Mutants of the lines that must be right for epsilon: does a test notice each of them?

    python -m tests.mutants --list                       # counts of lines and mutants
    python -m tests.mutants --sample 400 --seed 1        # of all rooms in proportion, at least 40 of each
    python -m tests.mutants --room noise                 # all of one room
    python -m tests.mutants --only lattice.py:clip       # those whose names hold this text
    python -m tests.mutants --write FILE                 # the results as a page

`tests/mutants/lines.py` says which lines count, and `tests/mutants/trial.py` how a mutant is tried. Exit code 1 if one
is neither noticed nor explained in `tests/mutants/equivalent.py`.
"""

import argparse
import collections
import dataclasses
import datetime
import importlib
import json
import math
import os
import pathlib
import platform
import random
import resource
import sys
import tempfile
from typing import Any

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.trial import Outcome, Server, in_child

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEAST = 40
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


def sampled(mutants: dict[str, list[Mutant]], n_mutants: int | None, seed: int) -> dict[str, list[Mutant]]:
    """A random sample of each room.

    Args:
      mutants: by room.
      n_mutants: of all rooms in proportion, at least `LEAST` of each; None for all.
      seed: of the draw.
    """
    if n_mutants is None:
        return mutants
    total = sum(map(len, mutants.values()))
    numbers = {room: max(LEAST, round(n_mutants * len(found) / total)) for room, found in mutants.items()}
    return {
        room: random.Random(f"{seed} {room}").sample(found, min(numbers[room], len(found)))
        for room, found in mutants.items()
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Counts of a room.

    Attributes:
      lines: that count.
      mutants: of these lines.
      outcomes: of those that were tried.
    """

    lines: int
    mutants: int
    outcomes: list[Outcome]

    @property
    def equivalent(self) -> int:
        """Those that were tried, not noticed, and explained."""
        return sum(each.noticed_by is None and each.name in EQUIVALENT for each in self.outcomes)

    @property
    def undecided(self) -> int:
        """Those that were not noticed at first, and have not been tried again."""
        return sum(each.undecided and each.name not in EQUIVALENT for each in self.outcomes)

    @property
    def killed(self) -> int:
        """Those that a test noticed."""
        return sum(each.noticed_by is not None for each in self.outcomes)

    @property
    def counted(self) -> int:
        """Those that count: all but equivalent ones."""
        return len(self.outcomes) - self.equivalent


def interval(scores: list[Score]) -> tuple[float, float, float]:
    """Share of mutants that are noticed, and its interval of 95%.

    Rooms count by their numbers of mutants. Within each, the share is taken as (killed + 1) / (tried + 2) for the
    variance, so that a room without survivors is not taken for certain; a room that was tried as a whole has none.
    """
    total = sum(each.mutants for each in scores)
    share = sum(each.mutants * each.killed / max(1, each.counted) for each in scores) / total
    variance = 0.0
    for each in scores:
        careful, missing = (each.killed + 1) / (each.counted + 2), 1.0 - len(each.outcomes) / each.mutants
        variance += (each.mutants / total) ** 2 * careful * (1.0 - careful) / max(1, each.counted) * missing
    spread = 1.96 * math.sqrt(variance)
    return share, max(0.0, share - spread), min(1.0, share + spread)


def page(scores: dict[str, Score], command: str, minutes: float) -> str:
    """The results as Markdown.

    Args:
      scores: by room.
      command: that gave them.
      minutes: of processors that it took; 0 if that is not known.
    """
    share, low, high = interval([each for each in scores.values() if each.outcomes])
    missing = ", ".join(room for room, each in scores.items() if not each.outcomes)
    untried = f" Not tried yet, and not in this figure: {missing}." if missing else ""
    tried = sum(len(each.outcomes) for each in scores.values())
    total, lines = (sum(getattr(each, name) for each in scores.values()) for name in ("mutants", "lines"))
    clock = sum(outcome.seconds for each in scores.values() for outcome in each.outcomes)
    spent = f"{minutes:.0f} of processors with the runs before them" if minutes else "those of processors unknown"
    today = datetime.datetime.now(datetime.UTC).date()
    kind = "all" if tried == total else "a stratified random sample"
    text = [
        "# Mutants",
        "",
        f"{lines} lines must be right for epsilon (the rule is in `tests/mutants/lines.py`), with {total} mutants. "
        f"{tried} were tried, {kind}. Of those that are not equivalent, **{share:.1%} are known to be noticed** by a "
        f"test of their room (95% interval {low:.1%} to {high:.1%}; rooms count by their numbers of mutants)."
        + untried,
        "",
        f"{today}, `{command}`, AMD EPYC, {os.cpu_count()} cores, 24 GiB, Linux, Python {platform.python_version()}; "
        f"{clock / 60.0:.0f} minutes of the clock for trials, {spent}. Other processes shared the machine.",
        "",
        "A mutant is undecided if it was not noticed in place, with few examples of properties, or cannot be put in "
        "place, and has not been tried again by importing everything anew. It counts as not noticed, so the share is a "
        "lower bound where there are any.",
        "",
        "| room | lines | mutants | tried | noticed | equivalent | undecided | not noticed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    text += [
        f"| {room} | {each.lines} | {each.mutants} | {len(each.outcomes)} | {each.killed} | {each.equivalent} | "
        f"{each.undecided} | {each.counted - each.killed - each.undecided} |"
        for room, each in scores.items()
    ]
    survivors = [each for score in scores.values() for each in score.outcomes if each.noticed_by is None]
    text += ["", "## Not noticed", "", "| mutant | tests that come by | reason |", "| --- | --- | --- |"]
    text += [
        f"| {_cell(each.name)} | {'-' if each.undecided else each.n_tests} | "
        f"{EQUIVALENT.get(each.name, _state(each))} |"
        for each in survivors
    ]
    busy = collections.Counter(
        each.noticed_by.split("::")[0]
        for score in scores.values()
        for each in score.outcomes
        if each.noticed_by is not None and "::" in each.noticed_by
    )
    text += ["", "## Which files notice most", "", "| file | mutants |", "| --- | --- |"]
    text += [f"| `{path}` | {number} |" for path, number in busy.most_common(12)]
    return "\n".join([*text, ""])


def _state(outcome: Outcome) -> str:
    return "undecided" if outcome.undecided else "open"


def _cell(name: str) -> str:
    text = name if len(name) < 240 else f"{name[:160]} ... {name[-70:]}"
    return f"`` {text} ``".replace("|", "\\|")


def tried(mutants: list[Mutant], tests: tuple[str, ...], log: pathlib.Path, only_tell: bool) -> list[Outcome]:
    """Outcomes of the mutants of a room.

    Args:
      mutants: to try.
      tests: of the room.
      log: gets a line for each outcome; those that are in it already are not tried again.
      only_tell: whether no other is tried either.
    """
    known = _known(log)

    def tell(outcome: Any) -> None:
        with log.open("a") as file:
            file.write(json.dumps(outcome if isinstance(outcome, dict) else dataclasses.asdict(outcome)) + "\n")

    missing = [each for each in mutants if known.get(each.name, {"undecided": True}).get("undecided")]
    if missing and not only_tell:
        before = _processor_seconds()
        Server(missing, ROOT, tell).run(tests)
        tell({"processor_seconds": _processor_seconds() - before})
    known = _known(log)
    return [Outcome(**known[each.name]) for each in mutants if each.name in known]


def _known(log: pathlib.Path) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
    return {line["name"]: line for line in lines if "name" in line}


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Lists, tries and tells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", nargs="*", help="names of rooms")
    parser.add_argument("--sample", type=int, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--only", default="", help="text in the names of mutants")
    parser.add_argument("--log", type=pathlib.Path, help="a line for each mutant; those in it are not tried again")
    parser.add_argument("--write", type=pathlib.Path, help="the page to write")
    parser.add_argument("--tell", action="store_true", help="try none, but tell what the log holds")
    parser.add_argument("--list", action="store_true", help="count only")
    options = parser.parse_args()
    _import_others()
    rooms = in_child(_all)
    mutants = {room: [Mutant(**each) for each in found["mutants"]] for room, found in rooms.items()}
    chosen = sampled(mutants, options.sample, options.seed)
    log = options.log or pathlib.Path(tempfile.mkdtemp(prefix="dapple-mutants-")) / "log.jsonl"
    scores = {}
    for room, found in rooms.items():
        sys.stderr.write(f"{room}: {found['lines']} lines, {len(mutants[room])} mutants, {len(chosen[room])} to try\n")
        if options.list or (options.room and room not in options.room):
            continue
        outcomes = tried(
            [each for each in chosen[room] if options.only in each.name], tuple(found["tests"]), log, options.tell
        )
        scores[room] = Score(lines=found["lines"], mutants=len(mutants[room]), outcomes=outcomes)
        for each in outcomes:
            if each.noticed_by is None and each.name not in EQUIVALENT:
                sys.stderr.write(f"NOT NOTICED by {each.n_tests} tests: {each.name}\n")
    if options.write is not None:
        told = map(json.loads, log.read_text().splitlines())
        minutes = sum(each.get("processor_seconds", 0.0) for each in told) / 60.0
        sample = f" --sample {options.sample} --seed {options.seed}" if options.sample else ""
        options.write.write_text(page(scores, f"python -m tests.mutants{sample}", minutes))
    return int(any(each.killed < each.counted for each in scores.values()))


if __name__ == "__main__":
    sys.exit(main())
