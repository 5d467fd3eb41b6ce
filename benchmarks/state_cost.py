"""What it costs a fit that its state survives: CPU time of this checkout over that of others, in turns.

Each turn runs the whole command in each checkout, without a ledger and charged to one, from the start of its process to
its end, with all it starts. Claims, numbers of formats, flushes, registers and waits are what came between.

    python -m benchmarks.state_cost --before CHECKOUT [CHECKOUT ...] --out benchmarks/results/state_cost.md
"""

import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import engine_turns, large_lakes, machine, measurement
from benchmarks.engine import LLOYD, Arms

ALLOWED = 1.03
"""Of the CPU time before."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, nargs="+", required=True, help="checkouts to compare with")
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    checkouts = [*(each.resolve() for each in given.before), engine_turns.ROOT]
    lines = machine.heading("What it costs a fit that its state survives")
    with tempfile.TemporaryDirectory() as data:
        for n_rows, charged in itertools.product(given.rows, (False, True)):
            arms = {f"{_name(each)}": _arm(Path(data), n_rows, each, charged) for each in checkouts}
            turns = _turns(arms, given.repeats)
            how = "charged to a ledger" if charged else "without a ledger"
            lines += [f"## {n_rows:,} rows x {large_lakes.ROW_FEATURES}, {how}", "", *_table(turns), ""]
    measurement.show(lines, given.out)


def _name(checkout: Path) -> str:
    """The commit of a checkout, with its day and its subject."""
    words = ["git", "log", "-1", "--format=%h of %ad", "--date=format:%Y-%m-%d %H:%M"]
    return subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()


def _arm(data: Path, n_rows: int, checkout: Path, charged: bool) -> "functools.partial[measurement.Figures]":
    """A command on a lake that all share, with a job and a ledger of its own."""
    lake = large_lakes.record_lake(data, n_rows)
    own = data / f"{checkout.name}-{n_rows}-{charged}"
    own.mkdir()
    job = json.loads((lake / "job.yaml").read_text()) | {"lloyd": LLOYD}
    if charged:
        job["data"]["name"], job["ledger"] = "rows", str(own / "ledger.sqlite")
        words = ["ledger", "limit", "--ledger", job["ledger"], "--dataset", "rows", "--epsilon", "1000"]
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        command = [sys.executable, "-m", "pipelines", *words, "--delta", "0.001"]
        subprocess.run(command, cwd=checkout, env=environment, capture_output=True, check=True)
    (own / "engine.yaml").write_text(json.dumps(job))
    return functools.partial(_turn, own, checkout, itertools.count() if charged else None)


def _turn(own: Path, checkout: Path, runs: "itertools.count[int] | None") -> measurement.Figures:
    return engine_turns.command(own, checkout, () if runs is None else ("--run_id", f"run-{next(runs)}"))


def _turns(arms: Arms, repeats: int) -> list[dict[str, measurement.Figures]]:
    """All arms in each turn, in turning order; a first turn, in which modules are compiled, does not count."""
    names, found = list(arms), []
    for turn in range(repeats + 1):
        order = names[turn % len(names) :] + names[: turn % len(names)]
        found.append({name: arms[name]() for name in order})
        print({name: round(each["cpu"], 2) for name, each in found[-1].items()}, flush=True)
    return found[1:]


def _table(turns: list[dict[str, measurement.Figures]]) -> list[str]:
    """Medians of each checkout, and of the ratios within a turn to the first one."""
    first, *_ = names = sorted(turns[0], key=lambda name: name.partition(" of ")[2])
    lines = [f"{len(turns)} turns: medians, with smallest and largest.", ""]
    lines += ["| commit | CPU s | CPU over the first | wall over the first | kept |", "| --- " * 5 + "|"]
    for name in names:
        cpu = [each[name]["cpu"] for each in turns]
        over = [each[name]["cpu"] / each[first]["cpu"] for each in turns]
        wall = statistics.median(each[name]["wall"] / each[first]["wall"] for each in turns)
        ratio = statistics.median(over)
        cells = [f"{statistics.median(cpu):.2f} ({min(cpu):.2f} to {max(cpu):.2f})"]
        cells += [f"{ratio:.3f} ({min(over):.3f} to {max(over):.3f})", f"{wall:.3f}"]
        lines.append(f"| {name} | {' | '.join(cells)} | {'yes' if ratio <= ALLOWED else '**no**'} |")
    return lines


if __name__ == "__main__":
    main()
