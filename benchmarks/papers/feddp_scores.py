"""Scores beside the cost, and server data without some clusters: the answer of FedDP-KMeans to its reviews.

- scores: Fowlkes-Mallows and adjusted Rand index against the components (Figures 6 to 9 of the answer), silhouette and
  Calinski-Harabasz index, over epsilon, at both levels.
- missing: cost over epsilon up to 20 if the server data lack some components (Figures 1 to 5), with T Lloyd steps; each
  method has its best T.

Fits run on rows in memory, with the statistics, noise and server steps of `fit`; scores are those of `evaluate`.
Figures are drawn with the mixtures of the paper: 100 clients x 1000 rows, record level, and 2000 x 50, client level.

    python -m benchmarks.papers.feddp_scores --out benchmarks/results/feddp_kmeans
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from benchmarks.papers import feddp_baselines, in_memory
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.trusted_zone import clustering_scores

LEVELS = {"record": (100_000, None), "client": (100_000, 50)}
"""Rows, and rows of each client."""
EPSILONS = (0.1, 0.2, 0.4, 1.0, 2.0)
LARGE_EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
N_MISSING = (0, 1, 2, 4, 6)
MISSING_STEPS = (0, 2, 5)
SILHOUETTE_ROWS = 2_000
PER_COMPONENT = 20
METHODS: dict[str, dict[str, Any]] = {
    "FedDP-KMeans (tuned)": {},
    "FedDP-KMeans (paper's shares)": {"privacy": {"allocation": "paper"}},
    "FedDP-KMeans (published)": {"preset": "published", "clipping": {"center": "none"}},
    "ServerKMeans++": {"start": "server_kmeanspp", "lloyd": {"steps": 2}},
    "ServerLloyds": {"start": "server_lloyds", "lloyd": {"steps": 2}},
    "SpherePacking": {"start": "sphere_packing", "lloyd": {"steps": 5}},
}
"""Settings of a job of feddp_kmeans, and the start of a baseline."""
WITH_SERVER = [name for name in METHODS if name != "SpherePacking"]
OPTIMAL = "Optimal"
Rows = NDArray[np.float64]
Key = tuple[str, float, str]
"""Level or number of missing components, epsilon, method."""


class Scores(NamedTuple):
    """`cost` / n, Fowlkes-Mallows, adjusted Rand, silhouette and Calinski-Harabasz of one clustering."""

    cost: float
    fowlkes_mallows: float
    adjusted_rand: float
    silhouette: float
    calinski_harabasz: float


class Drawn(NamedTuple):
    """A mixture: `rows` (n, d), `labels` (n,), `server` (q, d), `best` centers (k, d)."""

    rows: Rows
    labels: NDArray[np.int64]
    server: Rows
    best: Rows


def main() -> None:
    parser = measurement.script(__doc__, "folder for tables")
    parser.add_argument("--figures", nargs="+", choices=("scores", "missing"), default=["scores", "missing"])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        for name in arguments.figures:
            lines = {"scores": scores, "missing": missing}[name](arguments.seeds)
            measurement.show(lines, arguments.out and arguments.out / f"{name}.md")


def draw(n_rows: int) -> Drawn:
    """The mixture that all figures of FedDP-KMeans share, with its labels and k-means from its true means."""
    drawn = mixture.draw(0, n_rows)
    rng = np.random.default_rng(0)
    rng.uniform(0.0, 1.0, drawn.means.shape)
    labels = rng.integers(0, len(drawn.means), n_rows)
    best = KMeans(len(drawn.means), init=drawn.means, n_init=1).fit(drawn.rows).cluster_centers_
    return Drawn(np.asarray(drawn.rows, dtype=np.float64), labels, drawn.server, best)


def fitted(drawn: Drawn, client_rows: int | None, method: dict[str, Any], epsilon: float, seed: int) -> Rows:
    """Centers of one private run."""
    sections = {name: value for name, value in method.items() if name != "start"}
    unit = "record" if client_rows is None else "client"
    config = in_memory.job("feddp_kmeans", unit, epsilon, len(drawn.best), seed, **sections)
    block = in_memory.client_block(drawn.rows, client_rows)
    if (start := method.get("start")) is None:
        return in_memory.centers(config, drawn.server, block, seed)
    return in_memory.last_state(feddp_baselines.planned(start, config, drawn.server), [block], seed).model().centers


def scored(drawn: Drawn, centers: Rows) -> Scores:
    """All scores, as `evaluate` has them; the silhouette of the first rows, which are drawn at random."""
    found = NearestCenters.of(centers).rows(drawn.rows)
    n_clusters = len(centers)
    table = np.zeros((len(drawn.best), n_clusters), dtype=np.int64)
    np.add.at(table, (drawn.labels, found.labels), 1)
    sizes = table.sum(axis=0)
    sums = np.stack([drawn.rows[found.labels == label].sum(axis=0) for label in range(n_clusters)])
    means = sums / np.maximum(sizes, 1)[:, None]
    within = np.bincount(found.labels, (drawn.rows**2).sum(axis=1), n_clusters) - sizes * (means**2).sum(axis=1)
    dispersion = clustering_scores.calinski_harabasz(sizes, means, drawn.rows.mean(axis=0), within)
    width = clustering_scores.silhouette(drawn.rows[:SILHOUETTE_ROWS], found.labels[:SILHOUETTE_ROWS])
    return Scores(
        float(found.squared.mean()),
        clustering_scores.fowlkes_mallows(table),
        clustering_scores.adjusted_rand(table),
        np.nan if width is None else width,
        np.nan if dispersion is None else dispersion,
    )


def scores(seeds: int) -> list[str]:
    """All scores of all methods over epsilon, a table per level and score."""
    found: dict[Key, Rows] = {}
    lines = heading("FedDP-KMeans: scores beside the cost")
    lines += [f"Means of {seeds} seeds; silhouettes are those of {SILHOUETTE_ROWS:,} rows.", ""]
    for level, (n_rows, client_rows) in LEVELS.items():
        drawn = draw(n_rows)
        optimum = scored(drawn, drawn.best)
        for epsilon, method in itertools.product(EPSILONS, METHODS):
            runs = [scored(drawn, fitted(drawn, client_rows, METHODS[method], epsilon, seed)) for seed in range(seeds)]
            found[level, epsilon, method] = np.mean(runs, axis=0)
            found[level, epsilon, OPTIMAL] = np.array(optimum)
        for index, score in enumerate(Scores._fields):
            lines += [f"## {score.replace('_', ' ').capitalize()}, {level} level", ""]
            lines += [*_table(found, level, EPSILONS, [*METHODS, OPTIMAL], functools.partial(_number, index=index)), ""]
    return lines


def missing(seeds: int) -> list[str]:
    """Cost over epsilon of all methods that read server data, for each number of missing components."""
    n_rows, _ = LEVELS["record"]
    drawn, found = draw(n_rows), {}
    optimum = float(NearestCenters.of(drawn.best).rows(drawn.rows).squared.mean())
    for n_missing, epsilon, method in itertools.product(N_MISSING, LARGE_EPSILONS, WITH_SERVER):
        less = drawn._replace(server=drawn.server[PER_COMPONENT * n_missing :])
        costs = {steps: _cost(less, METHODS[method], steps, epsilon, seeds) for steps in MISSING_STEPS}
        best = min(costs, key=lambda steps: costs[steps])
        found[str(n_missing), epsilon, method] = np.array([costs[best], best])
    lines = heading("FedDP-KMeans: components that the server data lack")
    steps = ", ".join(map(str, MISSING_STEPS))
    lines += [
        f"Cost / n, means of {seeds} seeds; the best T of {steps}, in brackets. k-means from the true means: "
        f"{optimum:.2f}.",
        "",
    ]
    for n_missing in N_MISSING:
        lines += [f"## {n_missing} of 10 components missing", ""]
        lines += [*_table(found, str(n_missing), LARGE_EPSILONS, WITH_SERVER, _cost_and_steps), ""]
    return lines


def _cost(drawn: Drawn, method: dict[str, Any], steps: int, epsilon: float, seeds: int) -> float:
    """Mean cost of some runs with so many Lloyd steps; infinite for a start that no row has been asked about."""
    if not steps and "start" in method:
        return np.inf
    changed = method | {"lloyd": {"steps": steps}}
    runs = [fitted(drawn, None, changed, epsilon, seed) for seed in range(seeds)]
    return float(np.mean([NearestCenters.of(each).rows(drawn.rows).squared.mean() for each in runs]))


def _number(cell: Rows, index: int) -> str:
    return f"{cell[index]:.4g}"


def _cost_and_steps(cell: Rows) -> str:
    return f"{cell[0]:.2f} ({cell[1]:.0f})"


def _table(
    found: dict[Key, Rows],
    group: str,
    epsilons: tuple[float, ...],
    methods: list[str],
    show: Callable[[Rows], str],
) -> list[str]:
    """Methods by epsilons."""
    lines = ["| method | " + " | ".join(f"eps {epsilon:g}" for epsilon in epsilons) + " |"]
    lines += ["| --- " * (len(epsilons) + 1) + "|"]
    for method in methods:
        lines.append(f"| {method} | " + " | ".join(show(found[group, epsilon, method]) for epsilon in epsilons) + " |")
    return lines


if __name__ == "__main__":
    main()
