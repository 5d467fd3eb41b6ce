"""Theorems 2 and 14 and Corollary 15 of FedDP-KMeans, on separated mixtures, as the number of rows grows.

Data: k spherical Gaussians of stddev 1 whose means are as far apart as Definition 1 asks with c = 1 at the largest n;
server data: five rows of each. Assumptions (1) and (2) are printed with constants of 1. Per n and number of Lloyd steps
T the tables have the largest distance of a center to its mean, the excess over the cost of the means of the true
clusters, and the rows in wrong clusters. `bound` is the right side of (4) with zeta_2 = 1.

- FedDP-KMeans: Algorithms 1 and 2 as printed (`preset: published`).
- Algorithm 5: diameter, projection, start and means get a quarter of epsilon each; see `fifth`.
- Algorithm 3: neither private nor federated.

Source: Scott, Lampert, Saulpic (2025), Section 4, Appendices C to F.

    python -m benchmarks.papers.feddp_theorems --out benchmarks/results
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers import algorithm_5, in_memory
from dapple_dp.transforms.numerics.kmeans.starts import seeding

EPSILON, DELTA = 1.0, 1e-6
N_CLUSTERS, N_FEATURES, SERVER_ROWS = 5, 20, 5
STEPS = (0, 1, 2, 4)
LOG_STEPS = "log n"
PRINTED: dict[str, Any] = {"preset": "published", "clipping": {"norm": "server_radius", "center": "none"}}
Rows = NDArray[np.float64]


class Drawn(NamedTuple):
    """A separated mixture: `rows` (n, d), their `labels` (n,), `means` (k, d) and `server` (q, d)."""

    rows: Rows
    labels: NDArray[np.int64]
    means: Rows
    server: Rows


class Outcome(NamedTuple):
    """`distance` of the worst center to its mean, `excess` over the cost of the true clusters, rows in `wrong` ones."""

    distance: float
    excess: float
    wrong: float


def main() -> None:
    parser = measurement.script(__doc__, "folder for the table")
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    found = {
        n_rows: [outcomes(n_rows, max(arguments.rows), seed) for seed in range(arguments.seeds)]
        for n_rows in arguments.rows
    }
    measurement.show(report(found), arguments.out and arguments.out / "feddp_theorems.md")


def separation(n_rows: int) -> float:
    """Least distance of two means of Definition 1 with c = 1, for clusters of equal weight and stddev 1."""
    return math.sqrt(N_CLUSTERS / (1.0 / N_CLUSTERS)) * math.log(n_rows)


def draw(n_rows: int, most_rows: int, seed: int) -> Drawn:
    """Means at the corners of a simplex that is turned at random, at the separation of `most_rows`."""
    rng = np.random.default_rng([seed, n_rows])
    turned = np.linalg.qr(rng.normal(size=(N_FEATURES, N_FEATURES)))[0]
    means = turned[:N_CLUSTERS] * separation(most_rows) / math.sqrt(2.0)
    labels = rng.integers(0, N_CLUSTERS, n_rows)
    server = np.repeat(means, SERVER_ROWS, axis=0)
    return Drawn(
        means[labels] + rng.normal(size=(n_rows, N_FEATURES)), labels, means, server + rng.normal(size=server.shape)
    )


def fifth(
    steps: int, n_server: int, w_min: float, sigma_max: float, epsilon: float
) -> tuple[dict[str, Any], algorithm_5.Parts]:
    """Sections of a fit, and parts beside it, that are Algorithm 5: a quarter of epsilon for each of its parts.

    Rounds within a part are equal.

    Args:
      steps: T of Part 3.
      n_server: rows of the server data.
      w_min: of the mixture.
      sigma_max: of the mixture.
      epsilon: of the whole run.
    """
    quarter = 0.25
    thinning = algorithm_5.thinning_rounds(n_server, epsilon * quarter, w_min)
    simplify, lloyd = quarter * thinning / (thinning + 1), quarter * steps / (steps + 1)
    rest = 1.0 - quarter - simplify - lloyd
    means = 0.5 * (quarter - lloyd) / rest
    shares = {"outer_product": quarter / rest, "weights": (quarter - simplify) / rest, "sums": means}
    shares["counts"] = 1.0 - sum(shares.values())
    last = {"steps": steps} | ({"share": lloyd} if steps else {})
    sections = PRINTED | {"shares": shares, "lloyd": last}
    return sections, algorithm_5.Parts(w_min, sigma_max, quarter, thinning, simplify, third=True)


def algorithm_3(rows: Rows, n_clusters: int, seed: int) -> Rows:
    """Centers of the algorithm of Awasthi and Sheffet, shape (k, d): neither private nor federated.

    k-means of the projection to the top k singular vectors, means of the rows at most a third as far from their center
    as from every other, Lloyd's steps until nothing changes.

    Args:
      rows: shape (n, d).
      n_clusters: k.
      seed: of the start.

    Source: Scott, Lampert, Saulpic (2025), Algorithm 3; Awasthi, Sheffet (2012).
    """
    basis = np.linalg.eigh(rows.T @ rows)[1][:, -n_clusters:]
    projected = rows @ basis
    rough = seeding.weighted_kmeans(projected, np.ones(len(rows)), n_clusters, 1, seed)
    distances = cdist(projected, rough.centers)
    nearest = distances.argmin(axis=1)
    ordered = np.partition(distances, 1, axis=1)
    clear = 3.0 * ordered[:, 0] <= ordered[:, 1]
    start = rough.centers @ basis.T
    for cluster in range(n_clusters):
        core = clear & (nearest == cluster)
        start[cluster] = rows[core].mean(axis=0) if core.any() else start[cluster]
    return np.asarray(KMeans(n_clusters, init=start, n_init=1, tol=0.0).fit(rows).cluster_centers_, dtype=np.float64)


def outcomes(n_rows: int, most_rows: int, seed: int) -> dict[tuple[str, Any], Outcome]:
    """All methods on one draw."""
    drawn = draw(n_rows, most_rows, seed)
    block = in_memory.client_block(drawn.rows, None)
    found: dict[tuple[str, Any], Outcome] = {}
    with threadpool_limits(limits=1):
        found["Algorithm 3", ""] = judged(drawn, algorithm_3(drawn.rows, N_CLUSTERS, seed))
        for label in (*STEPS, LOG_STEPS):
            steps = math.ceil(math.log(n_rows)) if label == LOG_STEPS else int(label)
            job = functools.partial(in_memory.job, "feddp_kmeans", "record", EPSILON, N_CLUSTERS, seed)
            printed = in_memory.centers(job(**PRINTED, lloyd={"steps": steps}), drawn.server, block, seed)
            found["FedDP-KMeans", label] = judged(drawn, printed)
            sections, parts = fifth(steps, len(drawn.server), 1.0 / N_CLUSTERS, 1.0, EPSILON)
            centers = algorithm_5.centers(job(**sections), parts, drawn.server, block, seed)
            found["Algorithm 5", label] = judged(drawn, centers)
    return found


def judged(drawn: Drawn, centers: Rows) -> Outcome:
    """Centers beside the means of the mixture, and beside the means of its clusters' rows."""
    apart = cdist(drawn.means, centers)
    order = linear_sum_assignment(apart)[1]
    nearest = cdist(drawn.rows, centers[order], "sqeuclidean")
    best = np.stack([drawn.rows[drawn.labels == label].mean(axis=0) for label in range(len(drawn.means))])
    optimum = ((drawn.rows - best[drawn.labels]) ** 2).sum(axis=1).mean()
    wrong = (nearest.argmin(axis=1) != drawn.labels).mean()
    return Outcome(
        float(apart[np.arange(len(order)), order].max()), float(nearest.min(axis=1).mean() / optimum - 1.0), wrong
    )


def bound(n_rows: int, steps: int, radius: float) -> float:
    """The right side of (4) with a constant of 1, for clusters of equal weight and stddev 1."""
    return 2.0**-steps * math.sqrt(N_CLUSTERS) + steps * radius * math.log(n_rows) * N_CLUSTERS / (EPSILON * n_rows)


def assumptions(n_rows: int, most_rows: int) -> list[float]:
    """Radius and the most that (1) allows, server rows and the most that (2) allows; constants are 1."""
    server = draw(10, most_rows, 0).server
    radius = float(np.linalg.norm(server, axis=1).max())
    most_radius = N_CLUSTERS * math.log(n_rows) ** 2 * math.sqrt(N_FEATURES) / (EPSILON / N_CLUSTERS)
    return [radius, most_radius, len(server), EPSILON * n_rows * N_CLUSTERS / radius**2]


def report(found: dict[int, list[dict[tuple[str, Any], Outcome]]]) -> list[str]:
    """Markdown lines: assumptions, then a table per quantity."""
    most = max(found)
    lines = heading("Theorems 2 and 14, Corollary 15 of FedDP-KMeans")
    lines += [
        f"k = {N_CLUSTERS}, d = {N_FEATURES}, stddev 1, means {separation(most):.0f} apart, epsilon {EPSILON:g}, delta "
        f"{DELTA:g}; means of {len(next(iter(found.values())))} draws.",
        "",
        "| n | radius | (1) at most | server rows | (2) at most |",
        "| --- " * 5 + "|",
    ]
    for n_rows in found:
        lines.append(f"| {n_rows:,} | " + " | ".join(f"{each:,.0f}" for each in assumptions(n_rows, most)) + " |")
    radius = assumptions(most, most)[0]
    titles = (
        "Distance of the worst center to its mean",
        "Excess over the cost of the means of the true clusters",
        "Rows in wrong clusters",
    )
    for index, title in enumerate(titles):
        lines += ["", f"## {title}", "", "| n | " + " | ".join(_columns(found)) + " |"]
        lines += ["| --- " * (len(_columns(found)) + 1) + "|"]
        for n_rows, draws in found.items():
            cells = [np.mean([each[key][index] for each in draws]) for key in draws[0]]
            lines.append(f"| {n_rows:,} | " + " | ".join(f"{cell:.2g}" for cell in cells) + " |")
    lines += ["", "## Bound (4)", "", "| n | " + " | ".join(f"T = {step}" for step in STEPS) + " |"]
    lines += ["| --- " * (len(STEPS) + 1) + "|"]
    for n_rows in found:
        lines.append(f"| {n_rows:,} | " + " | ".join(f"{bound(n_rows, step, radius):.2g}" for step in STEPS) + " |")
    return lines


def _columns(found: dict[int, list[dict[tuple[str, Any], Outcome]]]) -> list[str]:
    """Headings of all methods."""
    keys = next(iter(found.values()))[0]
    return [method if label == "" else f"{method}, T = {label}" for method, label in keys]


if __name__ == "__main__":
    main()
