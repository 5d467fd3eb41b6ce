"""Utility and speed of DP-Lloyd on the data sets of the FastLloyd paper, beside figures of the reference code.

Every draw runs the real rounds (statistic, noise stage, server step) in this process. The folder of the data holds
one npz file per data set with the rows as `X` (`benchmarks.data` says which need one); they are scaled to [-1, 1], the
number of rows is public and delta is 1 / (n log n), as in the paper. NICV is the mean squared distance to the nearest
center, AUC its integral over epsilon by trapezoids. The reference is compared as `clean`: the public code with
independent and rounded noise.

    python -m benchmarks.papers.fastlloyd --data FOLDER --out benchmarks/results/fastlloyd.md
"""

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import data, measurement

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
N_CLUSTERS = {name: each.n_clusters for name, each in data.SETS.items()}
USUAL = ("iris", "lsun", "s1", "house", "wine", "adult")
REFERENCE = Path(__file__).parents[1] / "reference" / "fastlloyd.json"
"""Means of the authors' public code on six of its data sets."""
PACKING = {"init": "sphere_packing"}
METHODS: dict[str, dict[str, Any]] = {
    "Lloyd, not private": PACKING | {"variant": "lloyd"},
    "SuLloyd": PACKING | {"variant": "su", "post_process": "none"},
    "GLloyd": PACKING | {"variant": "g", "post_process": "none"},
    "SuLloyd, folded": PACKING | {"variant": "su"},
    "GLloyd, folded": PACKING | {"variant": "g"},
    "FastLloyd": PACKING,
    "FastLloyd, constant radius": PACKING | {"radius": "constant"},
    "FastLloyd, shrunken moves": PACKING | {"update": "shrunken"},
    "best": {"init": "best"},
}
SPEED = ((10_000, 2, 2), (10_000, 5, 5), (100_000, 2, 2), (100_000, 5, 5))
"""Rows, clusters, features of one client step."""


class Figure(NamedTuple):
    """Mean and half width of its 95% confidence interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> "Figure":
        """Returns statistics of independent draws."""
        return cls(float(values.mean()), 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values)))

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.half:.4f}"


class Measured(NamedTuple):
    """One method on one data set: AUC, and NICV per epsilon."""

    auc: Figure
    nicv: tuple[Figure, ...]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, help="folder of npz files")
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="JSON of the reference code's figures")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--datasets", nargs="+", choices=N_CLUSTERS, default=list(USUAL))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    reference = json.loads(arguments.reference.read_text())["datasets"]
    from threadpoolctl import threadpool_limits

    from benchmarks.machine import heading

    with threadpool_limits(limits=1):
        lines = heading("DP-Lloyd on the data sets of the FastLloyd paper")
        lines += speed_section()
        tables = {name: measure(arguments, name) for name in arguments.datasets}
    lines += auc_section(tables, reference, arguments.seeds)
    for name, table in tables.items():
        lines += nicv_section(name, table, reference.get(name, {}))
    measurement.show(lines, arguments.out)


def scaled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows with every feature stretched to [-1, 1]; 0 for one that is the same in all rows, as in the authors' code."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    return np.where(high > low, 2.0 * (rows - low) / np.where(high > low, high - low, 1.0) - 1.0, 0.0)


def nicv(rows: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Mean squared distance to the nearest center."""
    scores = (centers**2).sum(axis=1) - 2.0 * rows @ centers.T
    return float(((rows**2).sum(axis=1) + scores.min(axis=1)).mean())


def measure(arguments: argparse.Namespace, name: str) -> dict[str, Measured]:
    """All methods on one data set."""
    rows = scaled(data.rows(name, arguments.data))
    found = {}
    for method in arguments.methods:
        start = time.perf_counter()
        draws = [[draw(rows, name, method, epsilon, seed) for epsilon in EPSILONS] for seed in range(arguments.seeds)]
        values = np.array(draws)
        auc = np.trapezoid(values, EPSILONS, axis=1)
        found[method] = Measured(Figure.of(auc), tuple(Figure.of(column) for column in values.T))
        print(f"{name} {method}: AUC {found[method].auc}, {time.perf_counter() - start:.0f} s", flush=True)
    return found


def draw(rows: NDArray[np.float64], name: str, method: str, epsilon: float, seed: int) -> float:
    """NICV of one run."""
    job = lloyd_job(rows, N_CLUSTERS[name], METHODS[method], epsilon, seed)
    return nicv(rows, released_centers(rows, job, f"{name} {method} {epsilon} {seed}"))


def lloyd_job(
    rows: NDArray[np.float64], n_clusters: int, method: dict[str, Any], epsilon: float, seed: int
) -> dict[str, Any]:
    """Settings of a fit on [-1, 1] as the paper has them; `method` goes to the section of the algorithm."""
    return {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": {"path": "rows", "features": [f"x{i}" for i in range(rows.shape[1])], "public_rows": len(rows)},
        "n_clusters": n_clusters,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": 1.0 / (len(rows) * math.log(len(rows)))},
        "dp_lloyd": {"domain": [-1.0, 1.0]} | method,
        "seed": seed,
    }


def released_centers(rows: NDArray[np.float64], job: dict[str, Any], label: str) -> NDArray[np.float64]:
    """Centers of one run: the rounds of the `fit` job one after the other; `label` makes the noise its own."""
    from benchmarks.papers import fastlloyd_options
    from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.transforms.core import loop

    key, section = hashlib.sha256(label.encode()).digest(), job["dp_lloyd"]
    if given := {name: section[name] for name in fastlloyd_options.DEFAULTS if name in section}:
        plain = {name: value for name, value in section.items() if name not in given}
        return fastlloyd_options.released_centers(rows, job | {"dp_lloyd": plain}, given, key)
    config = validated(job | {"dp_lloyd": {name: value for name, value in section.items() if name != "update"}})
    if "update" in section:
        options = fastlloyd_options.ShrunkenMoves(**config.dp_lloyd.model_dump())
        config = config.model_copy(update={"dp_lloyd": options})
    fit = plan_files(config)
    centers: NDArray[np.float64] = loop.simulate(fit.initial, fit.rounds, [ClientBlock(rows)], key).model().centers
    return centers


def speed_section() -> list[str]:
    """One client's step of a round against a plain loop over clusters, in the same process."""
    lines = ["## One client's step of a FastLloyd round", ""]
    lines += [
        "Median of 15 runs after one for warming up, one thread. The plain loop forms distances, a mask per cluster",
        "and the sum of the masked differences, in float64 and without any exactness.",
        "",
    ]
    lines += ["| rows | k | d | plain loop, ms | exact step, ms | times faster | bytes sent |", "| --- " * 7 + "|"]
    for n_rows, n_clusters, n_features in SPEED:
        plain, exact = step_times(n_rows, n_clusters, n_features)
        sent = 8 * n_clusters * (n_features + 1)
        lines.append(
            f"| {n_rows:,} | {n_clusters} | {n_features} | {plain * 1e3:.2f} | {exact * 1e3:.2f} | "
            f"{plain / exact:.1f} | {sent} |"
        )
    return [*lines, ""]


def step_times(n_rows: int, n_clusters: int, n_features: int) -> tuple[float, float]:
    """Seconds of the plain loop and of the exact step on the same rows."""
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.transforms.core.statistics.differences import Neighborhoods, row_relative_sums
    from dapple_dp.transforms.core.statistics.frame import Box, Frame
    from dapple_dp.transforms.kmeans.lloyd.box import lattice_centers, lattice_radius
    from dapple_dp.transforms.numerics.kmeans import lloyd_rules

    rng = np.random.default_rng(0)
    rows = rng.uniform(-1.0, 1.0, (n_rows, n_features))
    centers = rng.uniform(-0.8, 0.8, (n_clusters, n_features))
    frame, radius = Frame.of_box(Box(-1.0, 1.0), n_features), lloyd_rules.radius(n_clusters, n_features, 0.8)
    around = Neighborhoods(lattice_centers(frame, centers), lattice_radius(frame, radius))
    block = ClientBlock(rows)
    return median_time(lambda: plain_step(rows, centers, radius)), median_time(
        lambda: row_relative_sums(block, frame, around, around.radius)
    )


def plain_step(
    rows: NDArray[np.float64], centers: NDArray[np.float64], radius: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Relative sums and counts by boolean masks."""
    distances = np.stack([np.linalg.norm(rows - center, axis=1) for center in centers], axis=1)
    labels, nearest = distances.argmin(axis=1), distances.min(axis=1)
    sums, counts = np.zeros(centers.shape), np.zeros(len(centers), dtype=np.int64)
    for cluster, center in enumerate(centers):
        mask = (labels == cluster) & (nearest <= radius)
        sums[cluster] = (rows[mask] - center).sum(axis=0)
        counts[cluster] = mask.sum()
    return sums, counts


def median_time(step: Callable[[], object], repeats: int = 15) -> float:
    """Median wall time in seconds."""
    step()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def auc_section(tables: dict[str, dict[str, Measured]], reference: dict[str, Any], n_seeds: int) -> list[str]:
    """AUC of all methods on all data sets, and what they save against the reference's FastLloyd."""
    lines = [f"## Area under NICV over epsilon 0.1 to 1 ({n_seeds} draws)", ""]
    lines += ["Mean with a 95% confidence interval; in brackets against FastLloyd of the reference.", ""]
    lines += ["| | " + " | ".join(tables) + " |", "| --- " * (len(tables) + 1) + "|"]
    for method in sorted({known for row in reference.values() for known in row["clean"]["methods"]}):
        values = [_reference(reference, name, method) for name in tables]
        shown = " | ".join("" if value is None else f"{value:.4f}" for value in values)
        lines.append(f"| reference: {method} | {shown} |")
    for method in next(iter(tables.values()), {}):
        pairs = ((table[method].auc, _reference(reference, name, "FastLloyd")) for name, table in tables.items())
        cells = [_against(*pair) for pair in pairs]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return [*lines, ""]


def _reference(reference: dict[str, Any], name: str, method: str) -> float | None:
    """AUC of the reference code."""
    found = reference.get(name, {}).get("clean", {}).get("methods", {}).get(method)
    return None if found is None else float(found["auc"])


def _against(figure: Figure, known: float | None) -> str:
    return str(figure) if known is None else f"{figure} ({100.0 * (figure.mean / known - 1.0):+.0f}%)"


def nicv_section(name: str, table: dict[str, Measured], reference: dict[str, Any]) -> list[str]:
    """NICV per epsilon on one data set."""
    size = f", {reference['N']:,} rows of {reference['d']} features" if reference else ""
    lines = [f"## {name}: NICV, {N_CLUSTERS[name]} clusters{size}", ""]
    lines += ["| epsilon | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |"]
    lines += ["| --- " * (len(EPSILONS) + 1) + "|"]
    for method in ("FastLloyd", "GLloyd+fold"):
        known = reference.get("clean", {}).get("methods", {}).get(method, {}).get("nicv", {})
        if known:
            cells = (Figure(*known[str(epsilon)]) for epsilon in EPSILONS)
            lines.append(f"| reference: {method} | " + " | ".join(map(str, cells)) + " |")
    lines += [f"| {method} | " + " | ".join(map(str, found.nicv)) + " |" for method, found in table.items()]
    return [*lines, ""]


if __name__ == "__main__":
    main()
