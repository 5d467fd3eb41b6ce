"""Private k-prototypes against `kmodes.KPrototypes` without privacy, on public rows with numbers and codes.

Both have the same intervals, lists and gamma, and the same cost: that of Huang, of all rows to their nearest prototype.
The library works row by row in Python: ten runs of both inits on all rows of the census take an hour. So it makes its
ten runs of each init, Huang and Cao, on 3,000 rows, and goes on from the best prototypes with all rows, where neither
cost nor labels are of a part. `--whole` has it make them on all rows. The reference is the best of what is there. Lists
and intervals are those of the publishers' descriptions. `--data` has the files that the sets name; the census sample is
in `examples`.

    python -m benchmarks.prototypes --build out/kmodes                # an environment with the library
    python -m benchmarks.prototypes --kmodes out/kmodes --data FOLDER --kept FILE.jsonl [--cells 3] [--whole]
    python -m benchmarks.prototypes --kept FILE.jsonl --out benchmarks/results/k_prototypes.md

Runs that are finished are kept, so a command that was stopped goes on where it was.
"""

import functools
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import machine, measurement
from benchmarks.coverage_kinds import Job
from benchmarks.own_environment import ROOT, run
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.kmeans.k_prototypes.columns import Columns

NEEDS = ("kmodes==0.12.2", "numpy==2.4.6", "scikit-learn==1.9.1", "scipy==1.17.1")
INITS = ("Huang", "Cao")
STARTS = 3_000
WHOLE = ", all rows"
SEEDS = 8
DELTA = 1e-6
GOAL, MOST_CELLS, LEAST_ROWS = 1.1, 500, 30_000
"""A median cost over the reference of at most this, up to so many clusters times categories, from so many rows on."""


class MixedSet(NamedTuple):
    """A public table with numbers and codes.

    Attributes:
      source: who publishes it, and the licence.
      file: in `--data`, or in this repository.
      sha256: of the file; "" for one of this repository.
      numbers: intervals of the columns of numbers.
      codes: columns of codes; every word of them is listed, `?` among them.
    """

    source: str
    file: str
    sha256: str
    numbers: dict[str, tuple[float, float]]
    codes: tuple[str, ...]


_DRUGS = (
    "metformin repaglinide nateglinide chlorpropamide glimepiride acetohexamide glipizide glyburide tolbutamide "
    "pioglitazone rosiglitazone acarbose miglitol troglitazone tolazamide examide citoglipton insulin "
    "glyburide-metformin glipizide-metformin glimepiride-pioglitazone metformin-rosiglitazone metformin-pioglitazone"
)
SETS = {
    "census": MixedSet(
        "UCI Adult (CC BY 4.0), its training file",
        "examples/census/adult_census.parquet",
        "",
        {
            "age": (17, 90),
            "education_num": (1, 16),
            "capital_gain": (0, 99_999),
            "capital_loss": (0, 4_356),
            "hours_per_week": (1, 99),
        },
        (
            *("workclass", "education", "marital_status", "occupation", "relationship"),
            *("race", "sex", "native_country", "income"),
        ),
    ),
    "bank": MixedSet(
        "UCI Bank Marketing (CC BY 4.0), bank-additional-full.csv",
        "bank-additional-full.csv",
        "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        {
            "age": (17, 98),
            "duration": (0, 4_918),
            "campaign": (1, 56),
            "pdays": (0, 999),
            "previous": (0, 7),
            "emp.var.rate": (-3.4, 1.4),
            "cons.price.idx": (92.201, 94.767),
            "cons.conf.idx": (-50.8, -26.9),
            "euribor3m": (0.634, 5.045),
            "nr.employed": (4963.6, 5228.1),
        },
        (
            *("job", "marital", "education", "default", "housing", "loan"),
            *("contact", "month", "day_of_week", "poutcome", "y"),
        ),
    ),
    "diabetes": MixedSet(
        "UCI Diabetes 130-US hospitals (CC BY 4.0), without ids, weight, and columns of more than 30 codes",
        "diabetic_data.csv",
        "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
        {
            "time_in_hospital": (1, 14),
            "num_lab_procedures": (1, 132),
            "num_procedures": (0, 6),
            "num_medications": (1, 81),
            "number_outpatient": (0, 42),
            "number_emergency": (0, 76),
            "number_inpatient": (0, 21),
            "number_diagnoses": (1, 16),
        },
        tuple(
            "race gender age admission_type_id discharge_disposition_id admission_source_id payer_code max_glu_serum "
            f"A1Cresult {_DRUGS} change diabetesMed readmitted".split()
        ),
    ),
}


class Cell(NamedTuple):
    """What is compared: a set, some of its rows (0 for all) and a number of clusters."""

    name: str
    n_rows: int
    k: int


CELLS = (
    Cell("census", 0, 4),
    Cell("bank", 0, 4),
    *(Cell(name, n, 4) for n in (10_000, 3_000, 1_000) for name in ("census", "bank")),
    Cell("diabetes", 0, 2),
    *(Cell(name, 0, k) for k in (2, 8) for name in ("census", "bank")),
    Cell("diabetes", 0, 4),
)
EPSILONS = (1.0, 0.3)


@functools.cache
def table_of(name: str, folder: Path | None) -> pa.Table:
    """Columns of a set, codes as words.

    Raises:
      LookupError: if the file is not there.
      ValueError: if it is another one.
    """
    wanted = SETS[name]
    path = ROOT / wanted.file if not wanted.sha256 else (folder or Path()) / wanted.file
    if not path.exists():
        raise LookupError(f"{name} needs {wanted.file} of {wanted.source}; give --data.")
    if wanted.sha256 and hashlib.sha256(path.read_bytes()).hexdigest() != wanted.sha256:
        raise ValueError(f"{path.name} must have the SHA-256 {wanted.sha256}; it is not the same data.")
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    else:
        first = path.open("rb").readline()
        parse = pa.csv.ParseOptions(delimiter=";" if b";" in first else ",")
        words = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted.codes, pa.string()), strings_can_be_null=False, include_columns=None
        )
        table = pa.csv.read_csv(path, parse_options=parse, convert_options=words)
    table = table.select([*wanted.numbers, *wanted.codes])
    for column in wanted.codes:
        words_of = pa.array([word or "?" for word in table[column].cast(pa.string()).to_pylist()])
        table = table.set_column(table.schema.get_field_index(column), column, words_of)
    return table


def rows_of(cell: Cell, folder: Path | None) -> pa.Table:
    """Rows of a cell: all, or some at random."""
    table = table_of(cell.name, folder)
    if not cell.n_rows:
        return table
    return table.take(np.random.default_rng(0).permutation(len(table))[: cell.n_rows])


def settings(cell: Cell, folder: Path | None, epsilon: float) -> dict[str, Any]:
    """The job; lists are of the whole set, whatever rows are taken."""
    named, table = SETS[cell.name], table_of(cell.name, folder)
    listed = {each: sorted(set(table[each].to_pylist())) for each in named.codes}
    return {
        "experimental": True,
        "algorithm": "k_prototypes",
        "data": {"path": "none", "features": [*named.numbers, *named.codes]},
        "n_clusters": cell.k,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": DELTA},
        "encode": {each: {"kind": "one_hot", "vocabulary": words} for each, words in listed.items()},
        "k_prototypes": {"domain": {each: list(ends) for each, ends in named.numbers.items()}},
    }


class Mixed(NamedTuple):
    """Rows as both sides see them: numbers in [-1, 1] and codes, and what a code that differs costs."""

    numbers: NDArray[np.float64]
    codes: NDArray[np.int64]
    gamma: float

    def cost(self, numbers: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
        """Mean cost of the rows to the nearest of some prototypes."""
        least = np.full(len(self.numbers), np.inf)
        for number, code in zip(numbers, codes, strict=True):
            far = ((self.numbers - number) ** 2).sum(axis=1) + self.gamma * (self.codes != code).sum(axis=1)
            least = np.minimum(least, far)
        return float(least.mean())


def mixed_of(job: Job, rows: pa.Table) -> tuple[NDArray[np.float64], Columns, Mixed]:
    """Features of rows, places of their columns, and the rows as numbers and codes."""
    assert job.encoder is not None
    points, columns = job.encoder.encode(rows, "the benchmark"), Columns.of(job.config)  # type: ignore[arg-type]
    gamma = job.config.k_prototypes.gamma  # type: ignore[union-attr]
    return points, columns, Mixed(points[:, list(columns.numbers)], columns.codes_of(points), gamma)


def figures_of(
    cell: Cell, folder: Path | None, python: Path, have: set[tuple[str, ...]], whole: bool
) -> Iterator[dict[str, Any]]:
    """Costs of a cell that are not there yet."""
    rows = rows_of(cell, folder)
    jobs = {epsilon: Job.of(validated(settings(cell, folder, epsilon))) for epsilon in EPSILONS}
    points, columns, mixed = mixed_of(jobs[1.0], rows)
    facts = {
        "rows": len(rows),
        "numbers": len(columns.numbers),
        "codes": len(columns.codes),
        "categories": sum(size for _, size in columns.codes),
    }
    for init in INITS:
        by = f"{init}{WHOLE}" if whole else init
        if (by, "0") not in have:
            found = _reference(mixed, cell.k, init, 0 if whole else STARTS, python)
            yield facts | {
                "by": by,
                "seed": 0,
                "cost": mixed.cost(np.array(found["numbers"]), np.array(found["codes"])),
            }
    for epsilon, job in jobs.items():
        for seed in range(SEEDS):
            if (str(epsilon), str(seed)) not in have:
                key = hashlib.sha256(f"{cell} {epsilon} {seed}".encode()).digest()
                model = job.run(ClientBlock(points), key)[1]
                centers = model.centers[:, list(columns.numbers)], columns.codes_of(model.centers)
                yield facts | {"by": str(epsilon), "seed": seed, "cost": mixed.cost(*centers)}


def _reference(mixed: Mixed, k: int, init: str, starts: int, python: Path) -> dict[str, Any]:
    """What the library finds."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.npz"
        np.savez(path, numbers=mixed.numbers, codes=mixed.codes)
        worker = Path(__file__).with_name("kmodes_worker.py")
        words = [str(python), str(worker), str(path), str(k), str(mixed.gamma), init, str(starts)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def read(kept: Path) -> list[dict[str, Any]]:
    """Finished runs."""
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def measure(kept: Path, folder: Path | None, python: Path, n_cells: int, whole: bool) -> None:
    """Runs that are not there yet."""
    for cell in CELLS[:n_cells]:
        have = {(each["by"], str(each["seed"])) for each in read(kept) if Cell(*each["cell"]) == cell}
        for found in figures_of(cell, folder, python, have, whole):
            with kept.open("a") as file:
                file.write(json.dumps({"cell": list(cell)} | found) + "\n")


def table(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each set, number of rows and number of clusters."""
    lines = []
    for cell in CELLS:
        own = [each for each in runs if Cell(*each["cell"]) == cell]
        costs = {by: sorted(each["cost"] for each in own if each["by"] == by) for by in (*INITS, *map(str, EPSILONS))}
        if not all(costs.values()):
            continue
        whole = [each["cost"] for each in own if each["by"].endswith(WHOLE)]
        best, facts = min([*whole, *(costs[init][0] for init in INITS)]), own[0]
        ratios = [np.array(costs[str(epsilon)]) / best for epsilon in EPSILONS]
        cells = cell.k * facts["categories"]
        asked = cells <= MOST_CELLS and facts["rows"] >= LEAST_ROWS
        kept = "" if not asked else "yes" if np.median(ratios[0]) <= GOAL else "no"
        sizes = (f"{facts['rows']:,}", f"{facts['numbers']} / {facts['codes']} / {facts['categories']}")
        told = (f"{np.median(each):.3f} ({each.max():.3f})" for each in ratios)
        known = (*(f"{costs[init][0]:.4f}" for init in INITS), f"{min(whole):.4f}" if whole else "")
        lines.append((cell.name, *sizes, str(cell.k), f"{cells:,}", *known, *told, kept))
    inits = (*(f"kmodes, {each}" for each in INITS), "both, all rows")
    titles = ("set", "rows", "numbers / codes / categories", "k", "k x categories", *inits)
    return measurement.table((*titles, *(f"epsilon {each:g}" for each in EPSILONS), f"at most {GOAL}"), lines)


def main() -> None:
    """Builds, measures, or writes the results."""
    parser = measurement.script(__doc__)
    parser.add_argument("--build", type=Path, help="a new folder for an environment with the library")
    parser.add_argument("--kmodes", type=Path, help="that folder: measure what is not kept yet")
    parser.add_argument("--data", type=Path, help="folder with bank-additional-full.csv and diabetic_data.csv")
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only so many of the list")
    parser.add_argument("--whole", action="store_true", help="ten runs of kmodes on all rows")
    parser.add_argument("--kept", type=Path, default=Path("out/prototypes.jsonl"), help="finished runs")
    options = parser.parse_args()
    if options.build:
        options.build.mkdir(parents=True)
        run(sys.executable, "-m", "venv", options.build.resolve(), home=options.build)
        run(options.build.resolve() / "bin" / "python", "-m", "pip", "install", "-q", *NEEDS, home=options.build)
        return
    if options.kmodes:
        measure(options.kept, options.data, options.kmodes / "bin" / "python", options.cells, options.whole)
    about = (
        f"Costs over the best that kmodes found: the median (and largest) of {SEEDS} draws. Delta is {DELTA:g}. Each "
        f"init has ten runs on {STARTS:,} rows, and one on all from the best; under “both, all rows” it has ten on all."
    )
    measurement.show(
        [*machine.heading("K-prototypes against kmodes"), about, "", *table(read(options.kept))], options.out
    )


if __name__ == "__main__":
    main()
