"""The naive baseline of two papers: every client adds noise to its own row, then k-means++ clusters the noisy rows.

Sources: Chang, Ghazi, Kumar, Manurangsi (2021), Section 5; the answer of Scott, Lampert and Saulpic to their reviews.
Rows lie in the unit ball, so two of them differ by at most 2 in L2 norm and 2 sqrt(d) in L1 norm. Gaussian noise is
calibrated at delta 1e-6, Laplace noise needs none. The noise here is that of a simulation: nothing is released.

`projected` is the second paper's: rows of the mixture of its Figure 1 in the ten leading directions, which cost this
baseline nothing, clipped at the largest norm that a server row has there. Beside it stand FedDP-KMeans as printed,
sphere packing, and `auto` without server data.

    python -m benchmarks.papers.naive --rows 1000000 --out benchmarks/results/naive.md
"""

import math

import numpy as np
from dp_accounting import get_sigma_gaussian
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading
from benchmarks.papers import feddp_answers, feddp_scores

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-6
N_FEATURES, N_CLUSTERS = 100, 8
MIXTURE_ROWS, MIXTURE_EPSILONS = 100_000, (1.0, 2.0, 8.0)
METHODS = ("Gaussian", "Laplace")


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--table", choices=("rows", "projected"), default="rows")
    parser.add_argument("--rows", type=int, default=100_000, help="of the first table")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        lines = (
            projected(arguments.seeds) if arguments.table == "projected" else on_rows(arguments.rows, arguments.seeds)
        )
    measurement.show(lines, arguments.out)


def on_rows(n_rows: int, seeds: int) -> list[str]:
    """Markdown lines: normalized cost on the mixture of the one-round paper."""
    lines = heading("Noise on every row, then k-means++")
    lines += [f"Normalized cost, {n_rows:,} clients, d = 100, k = 8, r = 100; mean of {seeds} draws.", ""]
    lines += ["| epsilon | Gaussian, stddev | Laplace, stddev | Gaussian | Laplace |", "| --- " * 5 + "|"]
    for epsilon in EPSILONS:
        found = [[cost(n_rows, epsilon, each, seed) for each in METHODS] for seed in range(seeds)]
        cells = [f"{stddev(epsilon, each):.3g}" for each in METHODS]
        cells += [f"{each:.3f}" for each in np.mean(found, axis=0)]
        lines.append(f"| {epsilon:g} | {' | '.join(cells)} |")
    return lines


def projected(seeds: int) -> list[str]:
    """Markdown lines: cost over n on the mixture of FedDP-KMeans."""
    drawn = feddp_scores.draw(MIXTURE_ROWS)
    methods = {name: feddp_scores.METHODS[name] for name in ("FedDP-KMeans (published)", "SpherePacking")}
    columns = ["noise on projected rows, stddev", "its cost", *methods, feddp_answers.TREE]
    lines = heading("Noise on every projected row, beside methods of sums")
    lines += [
        f"Cost / n, {len(drawn.rows):,} rows, d = 100, k = 10; mean (standard deviation) of {seeds} draws; k-means "
    ]
    lines[-1] += f"from the true means: {feddp_answers.cost(drawn, drawn.best):.2f}."
    lines += ["", f"| epsilon | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
    for epsilon in MIXTURE_EPSILONS:
        cells = [f"{2.0 * radius(drawn) * get_sigma_gaussian(epsilon, DELTA):.3g}"]
        runs = [[_on_projected(drawn, epsilon, seed) for seed in range(seeds)]]
        runs += [
            [feddp_scores.fitted(drawn, None, each, epsilon, s) for s in range(seeds)] for each in methods.values()
        ]
        runs += [[feddp_answers.tree(drawn, epsilon, seed) for seed in range(seeds)]]
        cells += [feddp_answers.spread([feddp_answers.cost(drawn, each) for each in part]) for part in runs]
        lines.append(f"| {epsilon:g} | {' | '.join(cells)} |")
    return lines


def basis(drawn: feddp_scores.Drawn) -> NDArray[np.float64]:
    """The leading directions of the rows, shape (d, k)."""
    return np.linalg.eigh(drawn.rows.T @ drawn.rows)[1][:, -len(drawn.best) :]


def radius(drawn: feddp_scores.Drawn) -> float:
    """The largest norm of a server row in these directions."""
    return float(np.linalg.norm(drawn.server @ basis(drawn), axis=1).max())


def _on_projected(drawn: feddp_scores.Drawn, epsilon: float, seed: int) -> NDArray[np.float64]:
    """Centers in all features of the clusters of noisy projected rows."""
    directions, norm = basis(drawn), radius(drawn)
    rows = drawn.rows @ directions
    rows *= np.minimum(1.0, norm / np.linalg.norm(rows, axis=1, keepdims=True))
    noise = np.random.default_rng([seed, 9]).normal(size=rows.shape)
    noisy = rows + 2.0 * norm * get_sigma_gaussian(epsilon, DELTA) * noise
    found = KMeans(len(drawn.best), n_init=1, max_iter=50, random_state=seed).fit(noisy)
    return np.asarray(found.cluster_centers_ @ directions.T, dtype=np.float64)


def stddev(epsilon: float, method: str) -> float:
    """Stddev of the noise on one feature of a row in the unit ball."""
    if method == "Laplace":
        return math.sqrt(2.0) * 2.0 * math.sqrt(N_FEATURES) / epsilon
    return float(2.0 * get_sigma_gaussian(epsilon, DELTA))


def cost(n_rows: int, epsilon: float, method: str, seed: int) -> float:
    """Mean squared distance of the rows to the nearest center that was found on the noisy ones."""
    drawn = separated_mixture.draw(seed, n_rows, N_FEATURES, N_CLUSTERS)
    random = np.random.default_rng([seed, 8])
    noisy: NDArray[np.float64] = getattr(random, method.lower().replace("gaussian", "normal"))(size=drawn.rows.shape)
    noisy *= stddev(epsilon, method) / (math.sqrt(2.0) if method == "Laplace" else 1.0)
    noisy += drawn.rows
    found = KMeans(N_CLUSTERS, n_init=1, max_iter=50, random_state=seed).fit(noisy.astype(np.float32))
    centers = np.asarray(found.cluster_centers_, dtype=np.float64)
    return separated_mixture.mean_cost(drawn.rows, centers)


if __name__ == "__main__":
    main()
