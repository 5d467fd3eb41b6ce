"""Scores of DP-Lloyd's clusterings on the data sets of the FastLloyd paper: silhouette, Davies-Bouldin, center error.

Runs, data and scaling are those of `papers.fastlloyd`. Rows are labeled by their nearest released center. The center
error is the mean squared distance between released centers and those of k-means without privacy, matched one to one.

    python -m benchmarks.papers.fastlloyd_scores --data FOLDER --out benchmarks/results
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import data as data_sets
from benchmarks.machine import heading, write
from benchmarks.papers.fastlloyd import (
    EPSILONS,
    METHODS,
    N_CLUSTERS,
    USUAL,
    Figure,
    lloyd_job,
    released_centers,
    scaled,
)
from transforms.numerics.trusted_zone import clustering_scores

SILHOUETTE_ROWS = 2_000
"""Most rows a silhouette is taken of; a random sample of larger data sets."""
TITLES = {
    "silhouette": "Silhouette (higher is better)",
    "davies_bouldin": "Davies-Bouldin index (lower is better)",
    "center_error": "Mean squared error of centers (lower is better)",
}
Values = dict[str, dict[str, NDArray[np.float64]]]
"""Method, score: values of shape (n_epsilons, n_seeds); NaN where a score is not defined."""


class DataSet(NamedTuple):
    """Rows, those for silhouettes, and the centers of k-means without privacy."""

    rows: NDArray[np.float64]
    sample: NDArray[np.float64]
    optimum: NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of npz files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--datasets", nargs="+", choices=N_CLUSTERS, default=list(USUAL))
    parser.add_argument("--out", type=Path, required=True, help="folder for the table")
    arguments = parser.parse_args()
    tables, optima = {}, {}
    with threadpool_limits(limits=1):
        for name in arguments.datasets:
            start = time.perf_counter()
            data = load(arguments.data, name)
            tables[name] = {method: measure(data, name, method, arguments.seeds) for method in METHODS}
            optima[name] = scores(data, data.optimum)
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    lines = heading("Scores of DP-Lloyd on the data sets of the FastLloyd paper")
    lines += about(tables, arguments.seeds)
    for score, title in TITLES.items():
        lines += [f"## {title}", ""]
        for name, table in tables.items():
            lines += section(name, table, score, optima[name][score])
    write(lines, arguments.out / "fastlloyd_scores.md")


def load(folder: Path | None, name: str) -> DataSet:
    """One data set."""
    rows = scaled(data_sets.rows(name, folder))
    chosen = np.random.default_rng(0).permutation(len(rows))[:SILHOUETTE_ROWS]
    optimum = KMeans(N_CLUSTERS[name], n_init=20, random_state=0).fit(rows).cluster_centers_
    return DataSet(rows, rows[chosen], optimum)


def measure(data: DataSet, name: str, method: str, n_seeds: int) -> dict[str, NDArray[np.float64]]:
    """All scores of one method."""
    found = {score: np.empty((len(EPSILONS), n_seeds)) for score in TITLES}
    for index, epsilon in enumerate(EPSILONS):
        for seed in range(n_seeds):
            job = lloyd_job(data.rows, N_CLUSTERS[name], METHODS[method], epsilon, seed)
            centers = released_centers(data.rows, job, f"{name} {method} {epsilon} {seed}")
            for score, value in scores(data, centers).items():
                found[score][index, seed] = value
    return found


def scores(data: DataSet, centers: NDArray[np.float64]) -> dict[str, float]:
    """The scores of a clustering by nearest centers."""
    labels = nearest(data.rows, centers)
    silhouette = clustering_scores.silhouette(data.sample, nearest(data.sample, centers))
    index = davies_bouldin(data.rows, labels, len(centers))
    return {
        "silhouette": np.nan if silhouette is None else silhouette,
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


def about(tables: dict[str, Values], n_seeds: int) -> list[str]:
    """What the figures are, and how many are missing."""
    measured = [values for table in tables.values() for found in table.values() for values in found.values()]
    undefined = sum(int(np.isnan(values).sum()) for values in measured)
    return [
        f"Means of {n_seeds} draws with 95% confidence intervals; data scaled to [-1, 1]. Silhouettes are of at most "
        f"{SILHOUETTE_ROWS:,} random rows.",
        f"Not defined, and left out, where all rows have one nearest center: {undefined} values.",
        "Both scores of labels may pass those of k-means: that minimizes the cost, which they do not measure.",
        "",
    ]


def section(name: str, table: Values, score: str, optimum: float) -> list[str]:
    """One score on one data set."""
    lines = [f"| {name} | " + " | ".join(f"eps {epsilon:g}" for epsilon in EPSILONS) + " |"]
    lines += ["| --- " * (len(EPSILONS) + 1) + "|"]
    for method, found in table.items():
        lines.append(f"| {method} | " + " | ".join(map(cell, found[score])) + " |")
    if score != "center_error":
        lines.append(f"| k-means without privacy | {optimum:.4f} |" + " |" * (len(EPSILONS) - 1))
    return [*lines, ""]


def cell(values: NDArray[np.float64]) -> str:
    """Mean and interval of the defined values."""
    known = values[~np.isnan(values)]
    return str(Figure.of(known)) if len(known) > 1 else "not defined"


if __name__ == "__main__":
    main()
