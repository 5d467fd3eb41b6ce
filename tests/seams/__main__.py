"""All rows of the tables of seams, or others at random, by one command.

    python -m tests.seams                                  # the rows of CI; exit code 1 if one fails
    python -m tests.seams --random 300 --seed 2            # others: levels at random, so that triples meet, too
    python -m tests.seams --table fit --only 7 12          # some rows of a table
    python -m tests.seams --write FILE                     # a page of results; rows of tables that did not run stay

Rows run one after the other, each in a folder of its own, which stays if `--keep` names one.
"""

import argparse
import contextlib
import os
import pathlib
import random
import sys
import tempfile
import time
import traceback
import warnings

from benchmarks.machine import heading
from tests.scenes import lake
from tests.seams.array import Row
from tests.seams.tables import TABLES, Told

_HEAD = ("| table | factors | levels | jobs | pairs of levels | failed | CPU minutes |", "| --- |" + " --- |" * 6)


def main() -> int:
    """Returns 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.seams", description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="append", choices=sorted(TABLES), help="one or several; default: all")
    parser.add_argument("--random", type=int, default=0, help="rows at random instead of those of CI")
    parser.add_argument("--seed", type=int, default=0, help="of these")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of rows")
    parser.add_argument("--keep", help="a folder for what runs leave; default: none")
    parser.add_argument("--write", help="a page of results")
    options = parser.parse_args()
    lines = list(_HEAD)
    failed: list[str] = []
    with contextlib.ExitStack() as stack:
        root = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        for name in options.table or TABLES:
            told, table = TABLES[name], TABLES[name].table
            rng = random.Random(options.seed)
            rows = [table.drawn(rng) for _ in range(options.random)] or table.rows()
            start, found = _cpu(), _run(name, rows, told, pathlib.Path(root), options.only)
            failed += found
            levels = sum(len(each.levels) for each in table.factors)
            cells = (len(table.factors), levels, len(rows), table.holds(rows), len(found))
            shown = f"{name}, at random, seed {options.seed}" if options.random else name
            lines.append(f"| {shown} | {' | '.join(map(str, cells))} | {(_cpu() - start) / 60.0:.1f} |")
            sys.stdout.write("\n".join(lines[-1:]) + "\n")
    if options.write:
        _write(pathlib.Path(options.write), lines[2:], failed)
    return int(bool(failed))


def _write(path: pathlib.Path, rows: list[str], failed: list[str]) -> None:
    """The page of results; rows of tables that were not run stay."""
    before = path.read_text().splitlines() if path.exists() else []
    known = {line.split(" | ")[0]: line for line in before if line.startswith("| ")}
    known |= {line.split(" | ")[0]: line for line in rows}
    found = [line for line in known.values() if line not in _HEAD]
    head = [line.replace("benchmarks.__main__", "tests.seams") for line in heading("Seams: pairs that ran together")]
    text = [*head, *_HEAD, *found, "", *failed]
    path.write_text("\n".join(text).rstrip() + "\n")


def _run(name: str, rows: list[Row], told: Told, root: pathlib.Path, only: list[int] | None) -> list[str]:
    """Rows of a table one after the other; those that failed, with what they have other than the first levels."""
    place, failed = told.place(root / name / "place"), []
    usual = {each.name: next(iter(each.levels)) for each in told.table.factors}
    for index, row in enumerate(rows):
        if only is not None and index not in only:
            continue
        start = time.perf_counter()
        try:
            told.story(row, place, root / name / str(index)).tell()
            word = "ok"
        except Exception as error:  # noqa: BLE001 - a row that fails must not stop the others
            last = traceback.extract_tb(error.__traceback__)[-1]
            word = f"{type(error).__name__} in {last.name}: {last.line}: {error}"
            failed.append(f"- {name} {index}: {word[:500]}; {_others(row, usual)}")
        sys.stderr.write(f"{name} {index} ({time.perf_counter() - start:.1f} s): {word}\n")
        if word != "ok":
            sys.stderr.write(f"    {_others(row, usual)}\n")
    return failed


def _cpu() -> float:
    """Seconds of processors, of this process and of those that it waited for."""
    return sum(os.times()[:4])


def _others(row: Row, usual: Row) -> dict[str, str]:
    return {name: level for name, level in row.items() if level != usual[name]}


if __name__ == "__main__":
    # As in all tests: a warning of the packages is a fault.
    warnings.filterwarnings("error", module="(schemas|transforms|pipelines|dapple_dp)")
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
    with lake.keys_of_runs():
        sys.exit(main())
