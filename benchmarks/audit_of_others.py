"""What the audit finds in the outputs of a private k-means that anybody can install: diffprivlib's `KMeans`.

The package is installed into an environment of its own, in a temporary folder. It fits two data sets that differ by one
row, thousands of times each. Two auditors turn what it publishes into lower bounds on epsilon: ours and jax-privacy's.
Scores are fixed beforehand; the test is chosen on a third of the runs and counted on the rest. All bounds of one column
together exceed a true epsilon for at most one set of seeds in 1,000 (Bonferroni over the lines of the table).

    python -m benchmarks.audit_of_others --runs 2000 --out benchmarks/results/audit_of_others.md
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement
from benchmarks.machine import heading
from tests.scenes import audit, other_auditor

PINS = ("diffprivlib==0.6.6", "scikit-learn==1.6.1", "numpy==2.4.6", "scipy==1.17.1")
FITTER = Path(__file__).with_name("fit_others.py")
N_ROWS = 24
CENTERS, INERTIA, ROUNDS = "`cluster_centers_`", "`cluster_centers_`, `inertia_`", "`n_iter_`"
Fits = dict[str, NDArray[np.float64]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two data sets that differ by one row, and the settings of the fits."""

    name: str
    without: NDArray[np.float64]
    with_canary: NDArray[np.float64]
    bounds: tuple[float, float] = (0.0, 1.0)
    epsilon: float = 1.0
    published: tuple[str, ...] = (CENTERS, INERTIA)

    @property
    def canary(self) -> NDArray[np.float64]:
        """The last row, inside the bounds."""
        return np.clip(self.with_canary[-1], *self.bounds)


def pairs() -> list[Pair]:
    """Neighbors on two features."""
    middle = np.random.default_rng(0).uniform(0.4, 0.6, (N_ROWS, 2))
    low = np.zeros((200, 2))
    corner, beyond = np.array([[1.0, 1.0]]), np.array([[40.0, 40.0]])

    def added(name: str, rows: NDArray[np.float64], row: NDArray[np.float64], **settings: Any) -> Pair:
        return Pair(name=name, without=rows, with_canary=np.concatenate([rows, row]), **settings)

    many = np.random.default_rng(1).uniform(0.0, 1.0, (86, 2))
    replaced = [np.concatenate([middle, 1.0 - corner]), np.concatenate([middle, corner])]
    return [
        added("a row more, at a corner; the others in the middle", middle, corner),
        added("a row more, far beyond the bounds; the others in the middle", middle, beyond),
        added("a row more, at a corner; the others at the opposite corner", low, corner),
        added("a row more, at a corner; all moved by 100", middle + 100.0, corner + 100.0, bounds=(100.0, 101.0)),
        Pair(name="a row replaced, corner by corner", without=replaced[0], with_canary=replaced[1]),
        added("a row more, the 87th", many, corner, epsilon=10.0, published=(ROUNDS,)),
    ]


def install(folder: Path) -> Path:
    """The Python of a new environment with the package."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-I", "-m", "pip", "--disable-pip-version-check", "install", "-q", *PINS], check=True)
    return python


def fitted(python: Path, folder: Path, cases: list[Pair], runs: int) -> list[tuple[Fits, Fits]]:
    """Fits without and with the canary, of every pair; no seed is used twice."""
    jobs = [
        {
            "rows": rows.tolist(),
            "n_clusters": 2,
            "epsilon": case.epsilon,
            "bounds": case.bounds,
            "seeds": list(range((2 * index + side) * runs, (2 * index + side + 1) * runs)),
        }
        for index, case in enumerate(cases)
        for side, rows in enumerate((case.without, case.with_canary))
    ]
    (folder / "jobs.json").write_text(json.dumps({"jobs": jobs}))
    subprocess.run([python, "-I", FITTER, folder / "jobs.json", folder / "fits.npz"], check=True)
    with np.load(folder / "fits.npz") as file:
        names = ("centers", "inertia", "n_iter")
        fits = [{name: file[f"{name}_{index}"] for name in names} for index in range(len(jobs))]
    return list(zip(fits[::2], fits[1::2], strict=True))


def scores(case: Pair, fits: Fits, published: str) -> NDArray[np.float64]:
    """Scores of every fit, shape (n_scores, n_fits), high where the canary seems to be there."""
    if published == ROUNDS:
        return fits["n_iter"][None].astype(np.float64)
    found = of_centers(case, fits["centers"])
    return found if published == CENTERS else np.stack([*found, of_inertia(case, fits)])


def of_centers(case: Pair, centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """What centers alone, (n_fits, k, d), say: near the canary or not, far out, apart, where on average."""
    scaled = (centers - case.bounds[0]) / (case.bounds[1] - case.bounds[0])
    to_canary = np.linalg.norm(centers - case.canary, axis=2)
    outward = np.abs(scaled - 0.5).max(axis=2)
    apart = np.linalg.norm(scaled[:, 0] - scaled[:, 1], axis=1)
    average = scaled.sum(axis=(1, 2))
    found = [-to_canary.min(axis=1), -to_canary.max(axis=1), outward.max(axis=1), outward.min(axis=1), apart, average]
    return np.stack(found)


def of_inertia(case: Pair, fits: Fits) -> NDArray[np.float64]:
    """How much nearer the published inertia is to that of the rows with the canary, given the published centers."""
    gaps = []
    for rows in (case.without, case.with_canary):
        inside = np.clip(rows, *case.bounds)
        squared = ((inside[None, :, None] - fits["centers"][:, None]) ** 2).sum(axis=3)
        gaps.append(np.abs(fits["inertia"] - squared.min(axis=2).sum(axis=1)))
    return gaps[0] - gaps[1]


def bounds(case: Pair, fits: tuple[Fits, Fits], published: str, failure: float) -> tuple[float, float]:
    """Lower bounds on epsilon at delta 0: ours, and the other auditor's."""
    without, with_canary = (scores(case, each, published) for each in fits)
    ours = audit.audited_epsilon(without, with_canary, 0.0, failure)
    return ours, other_auditor.audited_epsilon(without, with_canary, 0.0, failure)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="fits of each data set")
    options = parser.parse_args()
    cases = pairs()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = fitted(install(folder / "environment"), folder, cases, options.runs)
    lines = [*heading("Lower bounds on epsilon: diffprivlib's KMeans"), f"- installed: {', '.join(PINS)}"]
    lines += [f"- runs: {options.runs:,} of each of the two data sets of a line; k = 2, d = 2", ""]
    lines += ["| neighbors | rows | bounds | published | claimed epsilon | our auditor | jax-privacy |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    failure = audit.FAILURE / sum(len(case.published) for case in cases)
    for case, fits in zip(cases, found, strict=True):
        size = f"{len(case.without)} and {len(case.with_canary)}"
        low, high = case.bounds
        for published in case.published:
            ours, theirs = bounds(case, fits, published, failure)
            settings = f"{case.name} | {size} | {low:g} to {high:g} | {published} | {case.epsilon:g}"
            lines.append(f"| {settings} | {ours:.2f} | {theirs:.2f} |")
    measurement.show(lines, options.out)


if __name__ == "__main__":
    sys.exit(main())
