"""How the utility and the cost of DP-Lloyd grow with the number of features and of clusters.

Scaling: mixtures of clusters that are well apart in [-1, 1]^d, all rows of one client; their number is public and
delta is 1 / (n log n). NICV is the mean squared distance to the nearest center. A message is what one client sends.
Public starts: the mixture of the FedDP-KMeans paper in 100 features, where server data come close to the clusters.

    python -m benchmarks.papers.fastlloyd_scaling --out benchmarks/results
"""

import argparse
import functools
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import mixture
from benchmarks.machine import heading, write
from benchmarks.papers.fastlloyd import METHODS, Figure, lloyd_job, nicv, released_centers
from pipelines.kmeans.plan.planned_fit import plan_fit
from schemas.kmeans.fit_config import validated
from schemas.tables.client_block import ClientBlock
from transforms.numerics.privacy.noise import draw_release

CHOSEN = ("GLloyd, folded", "FastLloyd", "best")
EPSILONS = (0.25, 1.0)
FEATURES = (2, 4, 8, 16, 32, 64)
CLUSTERS = (2, 4, 8, 16, 32, 64)
USUAL = 8
"""Features where clusters vary, and clusters where features do."""
OPTIMUM = "k-means without privacy"
MIXTURE_ROWS = 100_000
MIXTURE_EPSILONS = (0.4, 1.0)
MIXTURE_DOMAIN = [-2.5, 3.5]
MIXTURE_METHODS: dict[str, dict[str, Any]] = {
    "FedDP-KMeans": {"algorithm": "feddp_kmeans"},
    "FastLloyd after feddp_init": {"init": "feddp_init"},
    "FastLloyd after server_kmeanspp": {"init": "server_kmeanspp"},
    "FastLloyd after server_kmeanspp, 2 rounds, shrunken": {
        "init": "server_kmeanspp",
        "steps": 2,
        "radius": "constant",
        "update": "shrunken",
    },
    "best": {"init": "best"},
}


class Size(NamedTuple):
    """What varies."""

    n_features: int
    n_clusters: int


class Cost(NamedTuple):
    """Of one run: rounds, seconds of a client per round, and bytes a client sends in all."""

    n_rounds: int
    seconds: float
    sent: int


Table = dict[Size, dict[tuple[str, float], NDArray[np.float64]]]
"""By size, method and epsilon: NICV of each seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--mixture-seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    arguments = parser.parse_args()
    lines = heading("DP-Lloyd: features, clusters and public starts")
    with threadpool_limits(limits=1):
        for title, sizes in (
            (f"Features, with {USUAL} clusters", [Size(each, USUAL) for each in FEATURES]),
            (f"Clusters, with {USUAL} features", [Size(USUAL, each) for each in CLUSTERS]),
        ):
            table = {size: utility(size, arguments.rows, arguments.seeds) for size in sizes}
            costs = {size: {method: cost(size, arguments.rows, method) for method in CHOSEN} for size in sizes}
            lines += utility_section(title, table, arguments.rows) + cost_section(costs, arguments.rows)
        lines += [*mixture_section(arguments.mixture_seeds, MIXTURE_ROWS)]
    write(lines, arguments.out / "fastlloyd_scaling.md")


@functools.lru_cache(maxsize=1)
def separable(size: Size, n_rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows and means: of 20 random candidates for a mean the one farthest from all others is taken."""
    rng = np.random.default_rng([seed, *size])
    means = rng.uniform(-0.8, 0.8, (1, size.n_features))
    while len(means) < size.n_clusters:
        candidates = rng.uniform(-0.8, 0.8, (20, size.n_features))
        apart = np.linalg.norm(candidates[:, None] - means[None], axis=2).min(axis=1)
        means = np.vstack([means, candidates[apart.argmax()]])
    apart = np.linalg.norm(means[:, None] - means[None], axis=2)
    stddev = min(0.1, float(apart[apart > 0.0].min()) / 8.0)
    noise = rng.normal(0.0, stddev, (n_rows, size.n_features))
    return np.clip(means[rng.integers(0, len(means), n_rows)] + noise, -1.0, 1.0), means


def utility(size: Size, n_rows: int, n_seeds: int) -> dict[tuple[str, float], NDArray[np.float64]]:
    """NICV of all methods on one mixture per seed."""
    start = time.perf_counter()
    found: dict[tuple[str, float], list[float]] = {}
    for seed in range(n_seeds):
        rows, means = separable(size, n_rows, seed)
        optimum = KMeans(size.n_clusters, init=means, n_init=1).fit(rows)
        found.setdefault((OPTIMUM, 0.0), []).append(float(optimum.inertia_) / n_rows)
        for method in CHOSEN:
            for epsilon in EPSILONS:
                job = lloyd_job(rows, size.n_clusters, METHODS[method], epsilon, seed)
                centers = released_centers(rows, job, f"{size} {method} {epsilon} {seed}")
                found.setdefault((method, epsilon), []).append(nicv(rows, centers))
    print(f"{size}: {time.perf_counter() - start:.0f} s", flush=True)
    return {key: np.array(values) for key, values in found.items()}


def cost(size: Size, n_rows: int, method: str) -> Cost:
    """What a run at epsilon 1 costs its client: median over rounds of the fastest of five times."""
    rows, _ = separable(size, n_rows, 0)
    fit = plan_fit(validated(lloyd_job(rows, size.n_clusters, METHODS[method], 1.0, 0)))
    state: Any = fit.initial
    block, seconds = ClientBlock(rows), []
    for each in fit.rounds:
        step = functools.partial(each.statistic, block, state)
        seconds.append(min(timeit.repeat(step, number=1, repeat=5)))
        state = each.step(state, draw_release(bytes(32), each.plan, step()))
    return Cost(len(fit.rounds), float(np.median(seconds)), sum(8 * each.plan.size for each in fit.rounds))


def utility_section(title: str, table: Table, n_rows: int) -> list[str]:
    """NICV of each size."""
    seeds = len(next(iter(next(iter(table.values())).values())))
    lines = [f"## {title}: NICV, {n_rows:,} rows", "", f"Means of {seeds} mixtures with 95% confidence intervals.", ""]
    columns = list(next(iter(table.values())))
    shown = [method if not epsilon else f"{method}, eps {epsilon:g}" for method, epsilon in columns]
    lines += ["| d | k | " + " | ".join(shown) + " |", "| --- " * (len(columns) + 2) + "|"]
    for size, found in table.items():
        cells = " | ".join(str(Figure.of(found[column])) for column in columns)
        lines.append(f"| {size.n_features} | {size.n_clusters} | {cells} |")
    return [*lines, ""]


def cost_section(costs: dict[Size, dict[str, Cost]], n_rows: int) -> list[str]:
    """Rounds, time and bytes of each size."""
    lines = [f"One client of {n_rows:,} rows, epsilon 1, one thread: rounds / median ms per round / bytes sent in all."]
    lines += ["", "| d | k | bytes of a Lloyd round | " + " | ".join(CHOSEN) + " |"]
    lines += ["| --- " * (len(CHOSEN) + 3) + "|"]
    for size, found in costs.items():
        raw = 8 * size.n_clusters * (size.n_features + 1)
        cells = " | ".join(f"{each.n_rounds} / {each.seconds * 1e3:.1f} / {each.sent:,}" for each in found.values())
        lines.append(f"| {size.n_features} | {size.n_clusters} | {raw:,} | {cells} |")
    return [*lines, ""]


def mixture_section(n_seeds: int, n_rows: int) -> list[str]:
    """Public and private starts on the mixture with 100 features and 10 clusters."""
    drawn = mixture.draw(0, n_rows)
    optimum = nicv(drawn.rows, KMeans(10, init=drawn.means, n_init=1).fit(drawn.rows).cluster_centers_)
    exact = nicv(drawn.rows, drawn.means)
    lines = [f"## Starts on the mixture of FedDP-KMeans: {n_rows:,} rows, d = 100, k = 10, record level", ""]
    lines += [
        f"NICV, mean of {n_seeds} draws with a 95% interval; domain {MIXTURE_DOMAIN}, delta 1e-6. "
        f"Without privacy: {optimum:.2f}; the true means: {exact:.2f}. k-means++ of the server data leaves some "
        "clusters without a center of their own, and Lloyd rounds do not mend that.",
        "",
        "| method | " + " | ".join(f"eps {epsilon:g}" for epsilon in MIXTURE_EPSILONS) + " |",
        "| --- " * (len(MIXTURE_EPSILONS) + 1) + "|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(mixture.table(drawn.server), Path(folder) / "server.parquet")
        for name in MIXTURE_METHODS:
            cells = [_mixture_cell(Path(folder), drawn.rows, name, epsilon, n_seeds) for epsilon in MIXTURE_EPSILONS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    return [*lines, ""]


def _mixture_cell(folder: Path, rows: NDArray[np.floating], name: str, epsilon: float, n_seeds: int) -> str:
    """One method at one epsilon."""
    exact, values = rows.astype(np.float64), []
    for seed in range(n_seeds):
        job = mixture_job(folder, len(rows), MIXTURE_METHODS[name], epsilon) | {"seed": seed}
        values.append(nicv(exact, released_centers(exact, job, f"{name} {epsilon} {seed}")))
    return str(Figure.of(np.array(values)))


def mixture_job(folder: Path, n_rows: int, method: dict[str, Any], epsilon: float) -> dict[str, Any]:
    """Settings of a fit of the mixture."""
    found = mixture.config(folder, "record", epsilon)
    if "algorithm" in method:
        return found | method
    if method["init"] != "feddp_init":
        del found["clipping"]
    data = {"path": str(folder / "clients"), "features": "x", "public_rows": n_rows}
    return found | {
        "experimental": True,
        "algorithm": "dp_lloyd",
        "data": data,
        "dp_lloyd": {"domain": MIXTURE_DOMAIN} | method,
    }


if __name__ == "__main__":
    main()
