"""What a fit of 11 rounds takes: before and after, with one core and all, over scikit-learn and over a floor.

Passes: microseconds of CPU per row and round, as multiples of one iteration of scikit-learn's Lloyd on the same rows,
by one thread. Whole commands: each turn is a process of its own, from its start to its end, with all it starts; the
arms take turns. `--before` names a checkout to compare with. The floor is the command on 10,000 rows, the decoding of
all rows, and eleven iterations of scikit-learn on float32. The rounds alone: `execute` after imports and planning, with
one core and with all. On Flink: the command in memory and on a cluster of two TaskManagers with all four slots. Each
turn starts a cluster, whose first job is measured apart from the one after it, and a second table says which processes
took the CPU time.

Every turn is written to a JSON file beside `--out` as soon as it is over; the same command goes on where it stopped.

    python -m benchmarks.engine --before CHECKOUT --rows 10000 10000000 --out benchmarks/results/engine.md
"""

import argparse
import concurrent.futures
import contextlib
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib

from benchmarks import engine_turns, large_lakes, machine, measurement, runners
from benchmarks.engine_turns import ROOT
from benchmarks.measurement import Figures

LLOYD = {"steps": 8, "share": 0.5}
"""With the three rounds of the start these are 11 rounds."""
SMALL, LARGE = 100_000, 5_000_000
"""Rows below which nothing but the command is measured, and above which turns are few."""
PARTS = ("passes", "commands", "rounds", "flink")
Arms = dict[str, Callable[[], Figures]]
BEFORE, AFTER, ALL_CORES, ONE_CORE = "before", "after", "all cores, rows kept", "one core, rows kept"
FLOOR = "decode, and 11 iterations of scikit-learn"
IN_MEMORY, FLINK_FIRST, FLINK = "in memory, all cores", "Flink, p = 4, first job", "Flink, p = 4, later job"


CPU_OF = "CPU of "
DRIVER = CPU_OF + "driver"


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--clients", type=int, nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--few", type=int, default=2, help=f"turns of more than {LARGE:,} rows")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, help="folder for the generated lakes; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        record = Record((arguments.out or Path(temporary) / "engine").with_suffix(".json"))
        # In another process: the peak of a command starts with the memory of the process that starts it.
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            lakes = pool.submit(made, arguments, arguments.data or Path(temporary)).result()
        if "passes" in arguments.parts:
            where = {BEFORE: arguments.before, AFTER: ROOT}
            checkouts = {arm: checkout for arm, checkout in where.items() if checkout is not None}
            works = {arm: functools.partial(engine_turns.passes, path) for arm, path in checkouts.items()}
            record.measure(PASSES, works, arguments.repeats)
        for part in filter(TITLES.__contains__, arguments.parts):
            with arms_of(part, arguments.before) as arms:
                for n, name, lake in lakes:
                    if n >= SMALL or part == "commands":
                        repeats = arguments.few if n > LARGE else arguments.repeats
                        record.measure(f"{name}: {TITLES[part]}", arms(n, lake), repeats)
        measurement.show([*machine.heading("The engine: a fit of 11 rounds"), *record.lines()], arguments.out)


PASSES = "A round per row, over scikit-learn's iteration"
TITLES = {"commands": "the whole command", "rounds": "the rounds alone", "flink": "on Flink"}


def made(arguments: argparse.Namespace, data: Path) -> list[tuple[int, str, Path]]:
    """Rows, name and folder of every lake; the job of each has 11 rounds."""
    found = [(n, f"{n:,} rows x {large_lakes.ROW_FEATURES}", large_lakes.record_lake(data, n)) for n in arguments.rows]
    for n in arguments.clients:
        name = f"{n:,} clients x {large_lakes.CLIENT_ROWS} rows x {large_lakes.CLIENT_FEATURES}"
        found.append((n * large_lakes.CLIENT_ROWS, name, large_lakes.client_lake(data, n)))
    for _, _, lake in found:
        job = json.loads((lake / "job.yaml").read_text())
        (lake / "engine.yaml").write_text(json.dumps(job | {"lloyd": LLOYD}))
    return found


class Record:
    """The turns of all sections, in a file that is whole after every turn.

    Args:
      path: of the file, which may be there.
    """

    def __init__(self, path: Path):
        self._path = path
        self._sections: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def measure(self, title: str, arms: Arms, repeats: int) -> None:
        """Turns that are missing; in each the arms follow each other."""
        if not arms:
            return
        section = self._sections.setdefault(title, {"commit": machine.commit(), "turns": [], "load": []})
        while len(section["turns"]) < repeats:
            section["date"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            section["turns"].append({arm: work() for arm, work in arms.items()})
            section["load"].append(os.getloadavg()[1])
            self._path.write_text(json.dumps(self._sections, indent=1) + "\n")
            print(title, json.dumps(section["turns"][-1]), flush=True)

    def lines(self) -> list[str]:
        """A table for each section, and what its ratios are."""
        found: list[str] = []
        for title, section in self._sections.items():
            turns, load = section["turns"], statistics.median(section["load"])
            found += [
                f"## {title}",
                "",
                f"{len(turns)} turns until {section['date']}, commit {section['commit']}, load average over five "
                f"minutes {load:.1f}: medians, with smallest and largest.",
                "",
                *(passes_table(turns) if title == PASSES else table(turns)),
                "",
                *shares(turns),
                *(f"- {line}" for line in (() if title == PASSES else ratios(turns, self._start()))),
                "",
            ]
        return found

    def _start(self) -> float | None:
        """CPU seconds of the command on few rows; None if it was not measured."""
        turns = [turn[ALL_CORES] for each in self._sections.values() for turn in each["turns"] if ALL_CORES in turn]
        return min((turn["cpu"] for turn in turns if "first" in turn), default=None)


def table(turns: list[dict[str, Figures]]) -> list[str]:
    """A line for each arm."""
    keys = {"wall": "wall s", "cpu": "CPU s", "first": "s to the first round", "first_cpu": "CPU s to the first round"}
    shown = {key: name for key, name in keys.items() if key in next(iter(turns[0].values()))}
    lines = ["| arm | " + " | ".join([*shown.values(), "peak RSS MB"]) + " |", "| --- " * (len(shown) + 2) + "|"]
    for arm in turns[0]:
        cells = [_spread([each[arm][key] for each in turns]) for key in shown]
        cells.append(f"{max(each[arm]['rss'] for each in turns):.0f}")
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return lines


def passes_table(turns: list[dict[str, Figures]]) -> list[str]:
    """A line for each case: medians over turns, each over what scikit-learn took in the same process."""
    lines = ["| k x d | arm | us | over float64 | over float32 |", "| --- " * 5 + "|"]
    for case in turns[0][AFTER]:
        size, name = case.split(", ")
        for arm in turns[0] if not name.startswith("float") else ():
            us = [each[arm][case] for each in turns]
            cells = [f"{size}, {name}", arm, f"{statistics.median(us):.3f}"]
            for kind in ("float64", "float32"):
                cells.append(
                    f"{statistics.median(each[arm][case] / each[arm][f'{size}, {kind}'] for each in turns):.2f}"
                )
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def shares(turns: list[dict[str, Figures]]) -> list[str]:
    """Which processes the CPU time of a cluster went to; nothing where no arm is of a cluster."""
    arms = [arm for arm in turns[0] if DRIVER in turns[0][arm]]
    if not arms:
        return []
    names = [name for name in turns[0][arms[0]] if name.startswith(CPU_OF)]
    heads = [name.removeprefix(CPU_OF) for name in names]
    lines = ["| CPU s of | " + " | ".join(heads) + " |", "| --- " * (len(names) + 1) + "|"]
    for arm in arms:
        lines.append(f"| {arm} | " + " | ".join(_spread([each[arm][name] for each in turns]) for name in names) + " |")
    return [*lines, ""]


def ratios(turns: list[dict[str, Figures]], start: float | None) -> list[str]:
    """What the goals are about, as medians over turns.

    Args:
      turns: of a section.
      start: CPU seconds of the command on few rows, which are a part of the floor.
    """

    def over(one: str, other: str, key: str) -> float:
        return statistics.median(each[one][key] / each[other][key] for each in turns)

    arms = list(turns[0])
    found = []
    if FLOOR in arms and start is not None:
        for arm in arms[:-1]:
            share = statistics.median(each[arm]["cpu"] / (start + each[FLOOR]["cpu"]) for each in turns)
            found.append(f"{arm} over the floor, a start of {start:.1f} s with it: CPU {share:.2f}")
    found += [
        f"{one} over {other}: wall {over(one, other, 'wall'):.2f}, CPU {over(one, other, 'cpu'):.2f}"
        for one, other in ((ALL_CORES, BEFORE), (ONE_CORE, BEFORE), (FLINK_FIRST, IN_MEMORY), (FLINK, IN_MEMORY))
        if one in arms and other in arms
    ]
    if arms[0].startswith("rounds"):
        one, many = arms
        found.append(
            f"all cores over one: wall {over(one, many, 'wall'):.2f} as fast, CPU {over(many, one, 'cpu'):.2f}"
        )
    return found


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


@contextlib.contextmanager
def arms_of(part: str, before: Path | None) -> Iterator[Callable[[int, Path], Arms]]:
    """The arms of a part, by number of rows and lake."""
    if part == "commands":
        yield lambda n, lake: command_arms(n, lake, before)
    elif part == "rounds":
        yield rounds_arms
    else:
        with contextlib.ExitStack() as clusters:
            yield lambda n, lake: flink_arms(lake, clusters)


def command_arms(n: int, lake: Path, before: Path | None) -> Arms:
    """Whole commands; of many rows without the arm that takes longest and shows least."""
    flags: dict[str, tuple[str, ...]] = {ALL_CORES: (), ONE_CORE: ("--cores", "1")}
    if n <= LARGE:
        flags["one core, rows read again"] = ("--cores", "1", "--cache_megabytes", "0")
    where = {arm: (lake, ROOT, each) for arm, each in flags.items()}
    if before is not None:
        where = {BEFORE: (known_to(before, lake), before, ())} | where

    def bound(job: Path, checkout: Path, words: tuple[str, ...]) -> Callable[[], Figures]:
        return lambda: engine_turns.command(job, checkout, words, marked=n < SMALL)

    found = {arm: bound(*each) for arm, each in where.items()}
    return found if by_client(lake) or n < SMALL else found | {FLOOR: lambda: engine_turns.alone(lake, "floor")}


def known_to(checkout: Path, lake: Path) -> Path:
    """A folder whose job a checkout knows: before commit b16810be there was no setting `experimental`."""
    job = json.loads((lake / "engine.yaml").read_text())
    if not (checkout / "schemas" / "settings" / "tiers.py").exists():
        del job["experimental"]
    place = lake / BEFORE
    place.mkdir(exist_ok=True)
    (place / "engine.yaml").write_text(json.dumps(job))
    return place


def by_client(lake: Path) -> bool:
    """Whether rows belong to clients."""
    return json.loads((lake / "engine.yaml").read_text())["data"]["client_id"] is not None


def rounds_arms(n: int, lake: Path) -> Arms:
    """The rounds with one core and with all; of rows without clients."""
    n_cores = joblib.cpu_count()
    if by_client(lake):
        return {}
    return {
        "rounds, one core": lambda: engine_turns.alone(lake, "rounds", cores=1),
        f"rounds, {n_cores} cores": lambda: engine_turns.alone(lake, "rounds", cores=n_cores),
    }


def flink_arms(lake: Path, clusters: contextlib.ExitStack) -> Arms:
    """The command in memory, as the first job of a new cluster, and as a later one.

    Args:
      lake: has `engine.yaml`.
      clusters: holds the last cluster; it goes before a new one is started.
    """
    running: list[runners.Runner] = []

    def first() -> Figures:
        clusters.close()
        running[:] = [clusters.enter_context(runners.flink())]
        return on_cluster(lake, running[0])

    return {
        IN_MEMORY: lambda: engine_turns.command(lake, ROOT, ()),
        FLINK_FIRST: first,
        FLINK: lambda: on_cluster(lake, running[0]),
    }


def on_cluster(lake: Path, cluster: runners.Runner) -> Figures:
    """The command on a cluster, whose processes count from before the command to after it."""
    start = runners.cpu_by_server(cluster)
    found = engine_turns.command(lake, ROOT, cluster.flags)
    used = [after - before for after, before in zip(runners.cpu_by_server(cluster), start, strict=True)]
    split = {DRIVER: found["cpu"]} | {CPU_OF + name: each for name, each in zip(cluster.names, used, strict=True)}
    return found | split | {"cpu": found["cpu"] + sum(used), "rss": found["rss"] + runners.rss_of(cluster)}


if __name__ == "__main__":
    main()
