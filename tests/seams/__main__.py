"""All rows of the tables of seams, or others at random, by one command.

    python -m tests.seams                                  # every row; exit code 1 if one fails
    python -m tests.seams --random 300 --seed 2            # others: levels at random, so that triples meet, too
    python -m tests.seams --table fit --only 7 12          # some rows of a table
    python -m tests.seams --table kafka                    # a table on demand, which needs a broker
    python -m tests.seams --every --out FILE               # a page of results

Without `--random` and `--only`, jobs that hold what is excluded are refused, too, as in the suite.

Rows run one after the other, each in a folder of its own, which stays if `--keep` names one.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable

from benchmarks import machine, measurement
from tests.scenes import lake
from tests.seams.array import Row
from tests.seams.places import Place
from tests.seams.tables import ON_DEMAND, TABLES, Told

_COUNTS = ("factors", "levels", "jobs", "pairs of levels", "refused", "failed", "CPU seconds", "seconds")


def main() -> int:
    """Returns 1 if a row failed."""
    os.environ["DAPPLE_LOG_FORMAT"] = "plain"
    parser = argparse.ArgumentParser(prog="python -m tests.seams", description=__doc__.splitlines()[0])
    known = TABLES | ON_DEMAND
    named = f"one or several; default: all but {', '.join(ON_DEMAND)}"
    parser.add_argument("--table", action="append", choices=sorted(known), help=named)
    parser.add_argument("--every", action="store_true", help="all tables")
    parser.add_argument("--random", type=int, default=0, help="rows at random instead of those of the table")
    parser.add_argument("--seed", type=int, default=0, help="of these")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of rows")
    parser.add_argument("--keep", help="a folder for what runs leave; default: none")
    parser.add_argument("--out", type=pathlib.Path, help="a page of results")
    options = parser.parse_args()
    rows = []
    failed: list[str] = []
    with contextlib.ExitStack() as stack:
        root = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        for name in known if options.every else options.table or TABLES:
            cells, found = _table(name, known[name], pathlib.Path(root) / name, options)
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            rows.append(cells)
            failed += found
    if options.out:
        head = machine.heading("Seams: pairs that ran together")
        lines = measurement.table(("table", "rows", *_COUNTS), rows)
        machine.write([*head, "Each job ran once.", "", *lines, "", *failed], options.out)
    return int(bool(failed))


def _table(name: str, told: Told, folder: pathlib.Path, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Runs a table; returns cells of its line of the page, and what failed."""
    rng, table, start = random.Random(options.seed), told.table, (_cpu(), time.perf_counter())
    rows = [table.drawn(rng) for _ in range(options.random)] or table.rows()
    refused = 0
    with contextlib.closing(told.place(folder / "place")) as place:
        failed = _run(name, rows, told, place, folder, options.only)
        if not options.random and options.only is None:
            refused = _refuse(name, told, place, folder, failed)
    levels = sum(len(each.levels) for each in table.factors)
    shown = f"at random, seed {options.seed}" if options.random else "all pairs"
    spent = (round(_cpu() - start[0]), round(time.perf_counter() - start[1]))
    counts = (len(table.factors), levels, len(rows), table.holds(rows), refused, len(failed))
    return [name, shown, *map(str, (*counts, *spent))], failed


def _run(name: str, rows: list[Row], told: Told, place: Place, root: pathlib.Path, only: list[int] | None) -> list[str]:
    """Rows of a table one after the other; those that failed, with what they have other than the first levels."""
    failed = []
    usual = {each.name: next(iter(each.levels)) for each in told.table.factors}
    for index, row in enumerate(rows):
        if only is None or index in only:
            others = {level_of: level for level_of, level in row.items() if level != usual[level_of]}
            tell = functools.partial(_told, told, row, place, root / str(index))
            failed += _failure(f"{name} {index}", tell, str(others))
    return failed


def _told(told: Told, row: Row, place: Place, folder: pathlib.Path) -> None:
    told.story(row, place, folder).tell()


def _refuse(name: str, told: Told, place: Place, root: pathlib.Path, failed: list[str]) -> int:
    """Rows that hold what is excluded; those that are not refused as they must be go to `failed`."""
    number = 0
    for rule in told.table.excluded:
        for row in told.table.only_excluded_by(rule) if rule.refusal else ():
            number += 1
            refused = functools.partial(_refused, told, row, place, root / f"refused-{number}", str(rule.refusal))
            failed += _failure(f"{name} refuses", refused, str(rule))
    return number


def _refused(told: Told, row: Row, place: Place, folder: pathlib.Path, refusal: str) -> None:
    told.story(row, place, folder).be_refused(refusal)


def _failure(name: str, told: Callable[[], None], about: str) -> list[str]:
    """A line on what is printed if that fails."""
    start = time.perf_counter()
    try:
        told()
        word = "ok"
    except Exception as error:  # noqa: BLE001 - a row that fails must not stop the others
        last = traceback.extract_tb(error.__traceback__)[-1]
        word = f"{type(error).__name__} in {last.name}: {last.line}: {error}"
    sys.stderr.write(f"{name} ({time.perf_counter() - start:.1f} s): {word}\n")
    if word == "ok":
        return []
    sys.stderr.write(f"    {about}\n")
    return [f"- {name}: {word[:500]}; {about}"]


def _cpu() -> float:
    """Seconds of processors, of this process and of those that it waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    # As in all tests: a warning of the packages is a fault.
    warnings.filterwarnings("error", module="dapple_dp")
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    with lake.keys_of_runs():
        sys.exit(main())
