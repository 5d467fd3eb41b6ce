"""Figures 2, 6, 7 and 8 of FastLloyd: its four methods on all ten real data sets, four scores each.

Every draw runs the real rounds (statistic, noise stage, server step), as in `papers.fastlloyd`. Rows are labeled by
their nearest released center. As in the paper, a single cluster has the silhouette -1 and an infinite Davies-Bouldin
index, which means leave out. Baselines are the paper's: not folded, and Lloyd without noise, whose centers do not
depend on epsilon. Scores that are done are kept in `--work`, so an interrupted run goes on.

    python -m benchmarks.papers.fastlloyd_real --data FOLDER --work FOLDER --out benchmarks/results
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import data as data_sets
from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.fastlloyd import EPSILONS, METHODS, N_CLUSTERS, Figure, lloyd_job, nicv, released_centers, scaled
from dapple_dp.transforms.numerics.trusted_zone import clustering_scores

NAMES = ("Lloyd, not private", "SuLloyd", "GLloyd", "FastLloyd")
FEWER = {"mnist_784": 10, "birch2": 50}
"""Most draws of a data set on which a draw, or a packing of its centers, takes half a second or more."""
SILHOUETTE_ROWS = 2_000
"""Most rows a silhouette is taken of; a random sample of larger data sets."""
SMALL = 1_000_000
"""Numbers of a data set on which k-means without privacy starts often."""
TITLES = {
    "nicv": "Figure 2: NICV (lower is better)",
    "silhouette": "Figure 6: silhouette (higher is better)",
    "davies_bouldin": "Figure 7: Davies-Bouldin index (lower is better)",
    "center_error": "Figure 8: mean squared error of centers (lower is better)",
}
Values = dict[str, NDArray[np.float64]]
"""By score, shape (n_epsilons, n_draws); NaN where it is infinite."""


class DataSet(NamedTuple):
    """Rows, the rows and distances of silhouettes, and the centers of k-means without privacy."""

    rows: NDArray[np.float64]
    sample: NDArray[np.float64]
    distances: NDArray[np.float32]
    optimum: NDArray[np.float64]


def main() -> None:
    parser = measurement.script(__doc__, out="folder for the table")
    parser.add_argument("--data", type=Path, help="folder of npz files")
    parser.add_argument("--work", type=Path, required=True, help="folder for scores that are done")
    parser.add_argument("--seeds", type=int, default=100, help="draws")
    parser.add_argument("--datasets", nargs="+", choices=N_CLUSTERS, default=list(N_CLUSTERS))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    tables: dict[str, dict[str, Values]] = {}
    with threadpool_limits(limits=1):
        for name in arguments.datasets:
            n_draws = min(arguments.seeds, FEWER.get(name, arguments.seeds))
            tables[name] = all_methods(arguments.data, name, n_draws, arguments.work)
            print(f"{name}: done", flush=True)
    lines = heading("FastLloyd on the ten real data sets of its paper")
    lines += about(tables) + auc_section(tables)
    for score, title in TITLES.items():
        lines += [f"## {title}", ""]
        for name, table in tables.items():
            lines += section(name, table, score)
    measurement.show(lines, arguments.out / "fastlloyd_real.md" if arguments.out else None)


def all_methods(folder: Path | None, name: str, n_draws: int, work: Path) -> dict[str, Values]:
    """Scores of all methods on one data set, from `work` where they are there."""
    data: DataSet | None = None
    found = {}
    for method in NAMES:
        kept = work / f"{name} {method} {n_draws}.npz"
        if not kept.exists():
            data = data or load(folder, name)
            np.savez(kept, allow_pickle=False, **measure(data, name, method, n_draws))
        with np.load(kept, allow_pickle=False) as file:
            found[method] = dict(file)
    return found


def load(folder: Path | None, name: str) -> DataSet:
    """One data set."""
    rows = scaled(data_sets.rows(name, folder))
    sample = rows[np.random.default_rng(0).permutation(len(rows))[:SILHOUETTE_ROWS]]
    starts = 20 if rows.size < SMALL else 3
    optimum = KMeans(N_CLUSTERS[name], n_init=starts, random_state=0).fit(rows).cluster_centers_
    return DataSet(rows, sample, cdist(sample, sample).astype(np.float32), optimum)


def measure(data: DataSet, name: str, method: str, n_draws: int) -> Values:
    """All scores of one method."""
    noisy = METHODS[method].get("variant") != "lloyd"
    found: dict[str, list[list[float]]] = {score: [] for score in TITLES}
    for seed in range(n_draws):
        drawn = [
            scores(data, centers_of(data, name, method, epsilon, seed)) for epsilon in EPSILONS[: 5 if noisy else 1]
        ]
        for score, values in found.items():
            values.append([each[score] for each in drawn])
    shape = (len(EPSILONS), n_draws)
    return {score: np.broadcast_to(np.array(values).T, shape).copy() for score, values in found.items()}


def centers_of(data: DataSet, name: str, method: str, epsilon: float, seed: int) -> NDArray[np.float64]:
    """Released centers of one run."""
    job: dict[str, Any] = lloyd_job(data.rows, N_CLUSTERS[name], METHODS[method], epsilon, seed)
    return released_centers(data.rows, job, f"{name} {method} {epsilon} {seed}")


def scores(data: DataSet, centers: NDArray[np.float64]) -> dict[str, float]:
    """The four scores of a clustering by nearest centers."""
    index = davies_bouldin(data.rows, nearest(data.rows, centers), len(centers))
    return {
        "nicv": nicv(data.rows, centers),
        "silhouette": silhouette(data.distances, nearest(data.sample, centers), len(centers)),
        "davies_bouldin": np.nan if index is None else index,
        "center_error": clustering_scores.matched_error(centers, data.optimum)[0],
    }


def nearest(rows: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number of the nearest center of each row."""
    return ((centers**2).sum(axis=1) - 2.0 * rows @ centers.T).argmin(axis=1)


def davies_bouldin(rows: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int) -> float | None:
    """The index, of sizes, means and mean distances."""
    sizes = np.bincount(labels, minlength=n_clusters)
    known = np.maximum(sizes, 1)
    sums = np.stack([np.bincount(labels, column, minlength=n_clusters) for column in rows.T], axis=1)
    means = sums / known[:, None]
    distances = np.bincount(labels, np.linalg.norm(rows - means[labels], axis=1), minlength=n_clusters)
    return clustering_scores.davies_bouldin(sizes, means, distances / known)


def silhouette(distances: NDArray[np.float32], labels: NDArray[np.int64], n_clusters: int) -> float:
    """Mean silhouette from distances that are known; -1 for a single cluster.

    Args:
      distances: shape (n_rows, n_rows).
      labels: shape (n_rows,), from 0 to n_clusters - 1.
      n_clusters: k; empty clusters do not count.
    """
    sizes = np.bincount(labels, minlength=n_clusters)
    if (sizes > 0).sum() < 2:
        return -1.0
    rows = np.arange(len(labels))
    sums = (distances @ np.eye(n_clusters, dtype=np.float32)[labels]).astype(np.float64)
    inside = sums[rows, labels] / np.maximum(sizes[labels] - 1, 1)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    means[rows, labels] = np.inf
    outside = means.min(axis=1)
    larger = np.maximum(np.maximum(inside, outside), np.finfo(np.float64).tiny)
    return float(np.where(sizes[labels] > 1, (outside - inside) / larger, 0.0).mean())


def about(tables: dict[str, dict[str, Values]]) -> list[str]:
    """Describes the figures."""
    counts = {name: table["FastLloyd"]["nicv"].shape[1] for name, table in tables.items()}
    shown = ", ".join(f"{name} {count}" for name, count in counts.items())
    infinite = sum(
        int(np.isnan(found["davies_bouldin"]).sum()) for table in tables.values() for found in table.values()
    )
    return [
        f"Means with 95% confidence intervals; data scaled to [-1, 1]. Draws: {shown}. Silhouettes are of at most "
        f"{SILHOUETTE_ROWS:,} random rows; {infinite} infinite Davies-Bouldin indices are left out.",
        "",
    ]


def auc_section(tables: dict[str, dict[str, Values]]) -> list[str]:
    """Area under NICV, and where FastLloyd is the best private method."""
    lines = ["## Area under NICV over epsilon 0.1 to 1", "", f"| | {' | '.join(NAMES)} | FastLloyd is lowest |"]
    lines += ["| --- " * (len(NAMES) + 2) + "|"]
    for name, table in tables.items():
        areas = {method: np.trapezoid(found["nicv"].T, EPSILONS, axis=1) for method, found in table.items()}
        others = min(areas[method].mean() for method in NAMES[1:3])
        at = sum(
            table["FastLloyd"]["nicv"][index].mean() < min(table[method]["nicv"][index].mean() for method in NAMES[1:3])
            for index in range(len(EPSILONS))
        )
        verdict = f"{'yes' if areas['FastLloyd'].mean() < others else 'no'}; at {at} of {len(EPSILONS)} epsilons"
        lines.append(f"| {name} | {' | '.join(cell(areas[method]) for method in NAMES)} | {verdict} |")
    return [*lines, ""]


def section(name: str, table: dict[str, Values], score: str) -> list[str]:
    """One score on one data set."""
    lines = [f"| {name} | " + " | ".join(f"eps {epsilon:g}" for epsilon in EPSILONS) + " |"]
    lines += ["| --- " * (len(EPSILONS) + 1) + "|"]
    lines += [f"| {method} | " + " | ".join(map(cell, found[score])) + " |" for method, found in table.items()]
    return [*lines, ""]


def cell(values: NDArray[np.float64]) -> str:
    """Mean and interval of the values that are finite."""
    known = values[~np.isnan(values)]
    return str(Figure.of(known)) if len(known) > 1 else "-"


if __name__ == "__main__":
    main()
