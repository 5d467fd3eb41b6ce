"""Waiting times of a user: first and later fits in Python, whole commands, and rounds, each beside a reference.

Every measurement is a process of its own on one core, with an empty cache of plans and bytecode that was compiled
before, as `pip install` does it. CPU seconds include all that the process starts. Arms take turns; medians count. The
large folders are measured once. `--before` names a checkout to compare with, whose arms take turns with those of this
one. With `--data`, what a commit has measured stays there, with or without another checkout, and a command goes on
where an earlier one stopped.

    python -m benchmarks.speed --before CHECKOUT --out benchmarks/results/speed.md
"""

import concurrent.futures
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine, measurement
from benchmarks.measurement import Figures

ROOT = Path(__file__).resolve().parents[1]
LLOYD = {"steps": 8, "share": 0.5}
"""With the three rounds of the start these are 11 rounds."""
MORE_ROUNDS = 40
LARGE, FEWER, MEMORY = 2_000_000, 125_000, 1_000_000
BEFORE, NOW = "before", "now"
Arm = Callable[[Path], Any]


class Row(NamedTuple):
    """A line of the table: a number of what a part measures, and what limits it where it misses its goal."""

    what: str
    anchor: str
    part: str
    number: Callable[[Any], float]
    goal: float
    limit: str = ""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--turns", type=int, default=3, help="of what takes a few seconds")
    parser.add_argument("--data", type=Path, help="folder for rows and what was measured; default: a temporary one")
    parser.add_argument("--parts", nargs="*", help="names in the source; default: all")
    arguments = parser.parse_args()
    checkouts = {NOW: ROOT} if arguments.before is None else {BEFORE: arguments.before.resolve(), NOW: ROOT}
    with tempfile.TemporaryDirectory() as temporary:
        data, load = arguments.data or Path(temporary), os.getloadavg()
        os.environ["PYTHONPYCACHEPREFIX"] = f"{temporary}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # In another process: the peak of a command starts with the memory of the process that starts it.
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            pool.submit(_write_all, data).result()
        for checkout in checkouts.values():  # Compiles bytecode.
            command(data / "small.yaml", checkout)
        found = {}
        for name, (arm, often) in _parts(data).items():
            if not arguments.parts or name in arguments.parts:
                kept = data / f"{machine.commit()}-{name}.json"
                found[name] = _measured(arm, checkouts, arguments.turns if often else 1, kept)
    cells = []
    for row in (each for each in ROWS if each.part in found):
        numbers = {name: statistics.median(map(row.number, each)) for name, each in found[row.part].items()}
        shown = [f"{numbers[name]:.2f}" if name in numbers else "" for name in checkouts]
        cells.append([row.what, row.anchor, *shown, f"{row.goal:g}", row.limit if numbers[NOW] > row.goal else ""])
    lines = [
        f"Medians of {arguments.turns} turns; one of large folders. Load of the machine before: {load[1]:.1f}.",
        "",
        *measurement.table(("what", "over", *checkouts, "goal, at most", "what limits it"), cells),
    ]
    measurement.show([*machine.heading("What a user waits for"), *lines], arguments.out)


def _measured(arm: Arm, checkouts: dict[str, Path], turns: int, kept: Path) -> dict[str, list[Any]]:
    """Returns the measurements of an arm in each turn, by checkout; the first of several turns doesn't count.

    An earlier checkout may have other modules: what needs those of this one is left out there.
    """
    if not kept.exists():
        found: dict[str, list[Any]] = {name: [] for name in checkouts}
        for turn in range(turns + (turns > 1)):
            for name in tuple(found):
                try:
                    measured = arm(checkouts[name])
                except subprocess.CalledProcessError:
                    if name == NOW:
                        raise
                    del found[name]
                    continue
                found[name] += [measured] if turn or turns == 1 else []
        kept.write_text(json.dumps(found))
    return json.loads(kept.read_text())  # type: ignore[no-any-return]


def _parts(data: Path) -> dict[str, tuple[Arm, bool]]:
    """Lists the parts that run with the code of a checkout, and whether each is short enough for turns."""

    def in_process(*words: str) -> Arm:
        return functools.partial(_in_process, words=words)

    def commands(*jobs: str) -> Arm:
        return lambda checkout: [command(data / f"{job}.yaml", checkout) for job in jobs]

    def pair(form: str) -> Arm:
        return lambda checkout: [_in_process(checkout, ("fits", library, form)) for library in ("dapple", "sklearn")]

    large, decoded = commands("small", "large", "longer"), in_process("floor", str(data / "large"))
    return {
        "array": (pair("array"), True),
        "frame": (pair("frame"), True),
        "search": (in_process("search", "dapple"), False),
        "names": (in_process("names"), False),
        "passes": (in_process("passes"), True),
        "small": (commands("small"), True),
        "large": (lambda checkout: [*large(checkout), decoded(checkout)], False),
        "memory": (commands("fewer", "more"), False),
    } | {name: (commands(name), False) for name in ("wide", "packed", "files", "clients", "tree")}


IMPORTS = "imports: the accountant's library with scipy.signal, settings, and what is checked before noise is drawn"
SCATTER = "12.5 million numbers of the scatter: drawn, written, and read into the next round"
FILES = "each file is opened, compared with its seal and decoded twice, and listed once"
KEEPING = "rows become integers once and are kept; two rounds need other integers"
EXACT = "rows beyond the radius are shortened one by one, exactly"
CLIENTS = "each client's sums are scaled, measured and added up one by one: eight passes over k (d + 1) numbers"
TERMS = "scores are exact, in float64; for names, rows are read and become integers once more"


def _first(found: list[Any]) -> float:
    return float(found[0]["first"]["cpu"] / found[1]["first"]["cpu"])


def _cpu(found: list[Figures]) -> float:
    return found[0]["cpu"]


def _whole(found: list[Figures]) -> float:
    small, large, _, floor = found
    return large["cpu"] / (small["cpu"] + floor["decode"] + 11 * floor["iteration"])


def _over(case: str, kind: str) -> Callable[[Any], float]:
    return lambda found: found[case] / found[f"{case.partition(',')[0]}, {kind}"]


ROWS = (
    Row("import and first fit, 10,000 x 4, array", "`KMeans`", "array", _first, 1.4, IMPORTS),
    Row("the same, data frame", "`KMeans`", "frame", _first, 1.4, IMPORTS),
    Row("second fit, CPU s", "", "array", lambda found: found[0]["second"]["cpu"], 0.2),
    Row("at a new epsilon, CPU s", "", "array", lambda found: found[0]["new epsilon"]["cpu"], 0.25),
    Row("`GridSearchCV` of 50 fits, CPU s", "", "search", lambda found: found["cpu"], 15),
    Row("8,192 features of a file with 100,000 columns checked, CPU s", "", "names", lambda found: found["cpu"], 1),
    Row("`dapple fit`, 10,000 x 4, CPU s", "", "small", _cpu, 2.0, "imports of Beam, scikit-learn and pydantic"),
    Row("5,000 columns x 200 rows, 5 rounds and the start, CPU s", "", "wide", _cpu, 15, SCATTER),
    Row("the same, `init: sphere_packing`, CPU s", "", "packed", _cpu, 15, "5,000 columns of one Parquet file"),
    Row("20,000 files of 5 rows, 3 rounds and the start, CPU s", "", "files", _cpu, 20, FILES),
    Row("1e6 clients of one row, 3 rounds and the start, CPU s", "", "clients", _cpu, 15),
    Row(f"{LARGE:,} x 50, 11 rounds, CPU", "start, decode, 11 iterations", "large", _whole, 1.5, KEEPING),
    Row(
        "one more round of it, CPU",
        "iteration, float32",
        "large",
        lambda found: (found[2]["cpu"] - found[1]["cpu"]) / MORE_ROUNDS / found[3]["iteration"],
        1.5,
        "the pass over rows below, and reading kept rows",
    ),
    Row("a pass over rows, k = 10, d = 50", "iteration, float32", "passes", _over("10 x 50, absolute", "float32"), 1.5),
    Row("the same, relative", "iteration, float32", "passes", _over("10 x 50, relative", "float32"), 1.5, EXACT),
    Row(
        "clients of 20 rows, k = 10, d = 32",
        "iteration, float64",
        "passes",
        _over("10 x 32, client", "float64"),
        1.5,
        CLIENTS,
    ),
    Row(
        "rounds of a fit with names, k = 20, d = 256",
        "iterations, float32",
        "passes",
        _over("20 x 256, topics", "float32"),
        1.3,
        TERMS,
    ),
    Row(
        f"peak memory of {MEMORY:,} rows",
        f"{FEWER:,} rows",
        "memory",
        lambda found: found[1]["rss"] / found[0]["rss"],
        1.05,
        "kept rows: in memory before they go to a file",
    ),
    Row(f"`central_tree`, {MEMORY:,} rows, peak MB", "", "tree", lambda found: found[0]["rss"], 390),
)


def _in_process(checkout: Path, words: tuple[str, ...]) -> Any:
    """Returns the measurements of `speed_arms` with the code of a checkout."""
    with tempfile.TemporaryDirectory() as plans:
        environment = os.environ | {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": plans}
        done = subprocess.run(
            [*_ONE_CORE, sys.executable, str(ROOT / "benchmarks" / "speed_arms.py"), *words],
            stdout=subprocess.PIPE,
            env=environment,
            cwd=checkout,
            check=True,
        )
    return json.loads(done.stdout.splitlines()[-1])


def command(job: Path, checkout: Path, flags: tuple[str, ...] = (), *, pinned: bool = True) -> Figures:
    """One `dapple fit` with the code of a checkout, from the start of its process to its end: seconds and megabytes."""
    with tempfile.TemporaryDirectory(dir=job.parent) as work:
        words = [*(_ONE_CORE if pinned else ()), sys.executable, "-m", "dapple_dp", "fit", "--config", str(job)]
        environment = os.environ | {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": f"{work}/cache"}
        start = time.perf_counter()
        with open(f"{work}/log", "w") as log:
            child = subprocess.Popen(
                [*words, "--output", f"{work}/out", *flags], env=environment, cwd=checkout, stdout=log, stderr=log
            )
            _, status, used = os.wait4(child.pid, 0)
        wall, said = time.perf_counter() - start, Path(work, "log").read_text().splitlines()[-3:]
    if status:
        raise SystemExit(f"the job must end with code 0, got {status} of {job} in {checkout}: {' '.join(said)}")
    cpu = used.ru_utime + used.ru_stime
    return {"wall": wall, "cpu": cpu, "system": used.ru_stime, "rss": used.ru_maxrss / 1024}


_ONE_CORE = ("taskset", "-c", "0")


def _write_all(data: Path) -> None:
    """Writes all rows and jobs, each once; imports what writes them, which the caller shall not."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks import mixture

    def folder(name: str) -> Path | None:
        if (data / name).exists():
            return None
        (data / name).mkdir(parents=True)
        return data / name

    def columns(*shape: int) -> Any:
        rows = np.random.default_rng(0).normal(size=shape)
        return pa.table({f"c{index}": rows[:, index] for index in range(shape[1])})

    for name, shape in {"small": (10_000, 4), "wide": (200, 5000)}.items():
        if (place := folder(name)) is not None:
            pq.write_table(columns(*shape), place / "rows.parquet")
    if (place := folder("files")) is not None:
        few = columns(5, 4)
        for index in range(20_000):
            pq.write_table(few, place / f"part-{index:05d}.parquet")
    if (place := folder("clients")) is not None:
        table = columns(1_000_000, 4).append_column("id", pa.array(np.arange(1_000_000)))
        pq.write_table(table, place / "rows.parquet", row_group_size=62_500)
    for name, n_rows in {"large": LARGE, "fewer": FEWER, "more": MEMORY}.items():
        if not (data / name).exists():
            mixture.write_large_lake(data / f"{name}-lake", n_rows, 50, 62_500)
            (data / f"{name}-lake" / "clients").rename(data / name)

    def job(name: str, path: str, **more: Any) -> None:
        names = [f"c{index}" for index in range(5000 if path == "wide" else 4)]
        features = {"data": {"path": str(data / path), "features": names}, "algorithm": "dp_lloyd", "n_clusters": 5}
        privacy = {"privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6}, "dp_lloyd": {"domain": [-4, 4]}}
        (data / f"{name}.yaml").write_text(json.dumps(features | privacy | more))

    three = {"domain": [-4, 4], "steps": 3}
    job("small", "small")
    job("wide", "wide", dp_lloyd={"domain": [-4, 4], "steps": 5})
    job("packed", "wide", dp_lloyd={"domain": [-4, 4], "steps": 5, "init": "sphere_packing"})
    job("files", "files", dp_lloyd=three)
    by_client = {"unit": "client", "epsilon": 1.0, "delta": 1e-6}
    at = {"path": str(data / "clients"), "features": ["c0", "c1", "c2", "c3"], "client_id": "id"}
    job("clients", "clients", data=at, privacy=by_client, clipping={"client_rows": 1}, dp_lloyd=three)
    for name, lake, steps in (
        ("large", "large", LLOYD["steps"]),
        ("longer", "large", LLOYD["steps"] + MORE_ROUNDS),
        ("fewer", "fewer", LLOYD["steps"]),
        ("more", "more", LLOYD["steps"]),
    ):
        settings = mixture.config(data / f"{lake}-lake", "record", 1.0, lloyd=LLOYD | {"steps": steps})
        settings["data"] = {"path": str(data / lake), "features": "x"}
        (data / f"{name}.yaml").write_text(json.dumps(settings))
        if name == "more":
            tree = {"algorithm": "central_tree", "tree": {"radius": 20.0}, "n_clusters": 5}
            tree |= {each: settings[each] for each in ("data", "privacy")}
            (data / "tree.yaml").write_text(json.dumps(tree))


if __name__ == "__main__":
    main()
