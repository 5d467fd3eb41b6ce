"""The census example end to end: makes a small lake, clusters it privately and shows what that cost.

Run `./run_local.sh` without arguments, or this file with the package installed. Everything is written to
`out/census` in the root of the repository.
"""

import pathlib
import shutil
import sys

import numpy as np
import pyarrow.parquet as pq
import yaml
from make_lake import make_lake
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from dapple_dp.pipelines.command.main import main as dapple

HERE = pathlib.Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "out" / "census"
RESTARTS = 20
"""Random starts of the k-means that private centers are compared with."""


def resolve_job(folder: pathlib.Path, feature_names: list[str]) -> pathlib.Path:
    """Writes a copy of job.yaml to `folder`, with names of the features and absolute paths, and returns its path."""
    job = yaml.safe_load((HERE / "job.yaml").read_text())
    job["data"]["feature_names"] = feature_names
    for section in ("data", "server_data"):
        job[section]["path"] = str(folder / job[section]["path"])
    resolved = folder / "job.yaml"
    resolved.write_text(yaml.safe_dump(job, sort_keys=False))
    return resolved


def read_vectors(path: pathlib.Path, column: str) -> NDArray[np.float64]:
    """A column of lists of equal length as a matrix; `path` is a Parquet file or a folder of them."""
    lists = pq.read_table(path, columns=[column])[column].combine_chunks()
    return lists.flatten().to_numpy().reshape(len(lists), -1).astype(np.float64)


def cost_per_row(points: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Mean squared distance to the nearest center."""
    squares = (points**2).sum(axis=1)[:, None] - 2 * points @ centers.T + (centers**2).sum(axis=1)
    return float(squares.min(axis=1).mean())


def evaluate(lake: pathlib.Path, fit: pathlib.Path) -> dict[str, float]:
    """Cost per row of the private centers and of two clusterings to compare them with. Not private.

    Nobody knows the least cost. k-means is the best of `RESTARTS` random starts, and of one from each of the other two
    clusterings. Its steps only lower the cost of a start, so it never costs more than the private centers.
    """
    points, server = read_vectors(lake / "clients", "x"), read_vectors(lake / "server.parquet", "x")
    private = read_vectors(fit / "centers.parquet", "center")
    of_server = KMeans(len(private), n_init=RESTARTS, random_state=0).fit(server).cluster_centers_
    return {
        "private centers": cost_per_row(points, private),
        "k-means, no privacy": min(k_means_cost(points, len(private), start) for start in (private, of_server, None)),
        "server data only": cost_per_row(points, of_server),
    }


def k_means_cost(points: NDArray[np.float64], n_clusters: int, start: NDArray[np.float64] | None) -> float:
    """Cost per row of k-means from some centers, or of the best of `RESTARTS` random starts."""
    init, n_init = ("k-means++", RESTARTS) if start is None else (start, 1)
    found = KMeans(n_clusters, init=init, n_init=n_init, random_state=0).fit(points)
    return cost_per_row(points, found.cluster_centers_)


def run(output: pathlib.Path) -> int:
    """Runs the example in `output` and returns the exit code of the fit."""
    if (output / "fit").exists():
        shutil.rmtree(output / "fit")
    lake = make_lake(output / "lake")
    print(f"Lake: {lake.n_rows} rows of {len(lake.feature_names)} binary features in {lake.n_silos} silos.", flush=True)
    job = resolve_job(output, lake.feature_names)
    exit_code = dapple(["fit", "--config", str(job), "--output", str(output / "fit")])
    if exit_code:
        return exit_code
    print("Cost per row, an evaluation on the example's public data (not private):")
    for name, cost in evaluate(output / "lake", output / "fit").items():
        print(f"  {name:<20} {cost:.4f}")
    print(f"k-means is the best of {RESTARTS} random starts and of one from each of the other two.")
    print(f"Report: {output / 'fit' / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(run(OUTPUT))
