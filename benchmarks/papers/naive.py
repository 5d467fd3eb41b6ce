"""The naive baseline of two papers: every client adds noise to its own row, then k-means++ clusters the noisy rows.

Sources: Chang, Ghazi, Kumar, Manurangsi (2021), Section 5; the answer of Scott, Lampert and Saulpic to their reviews.
Rows lie in the unit ball, so two of them differ by at most 2 in L2 norm and 2 sqrt(d) in L1 norm. Gaussian noise is
calibrated at delta 1e-6, Laplace noise needs none. The noise here is that of a simulation: nothing is released.

    python -m benchmarks.papers.naive --out benchmarks/results/naive.md
"""

import math

import numpy as np
from dp_accounting import get_sigma_gaussian
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-6
N_FEATURES, N_CLUSTERS = 100, 8
METHODS = ("Gaussian", "Laplace")


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    lines = heading("Noise on every row, then k-means++")
    lines += [
        f"Normalized cost, {arguments.rows:,} clients, d = 100, k = 8, r = 100; mean of {arguments.seeds} draws.",
        "",
    ]
    lines += ["| epsilon | Gaussian, stddev | Laplace, stddev | Gaussian | Laplace |", "| --- " * 5 + "|"]
    with threadpool_limits(limits=1):
        for epsilon in EPSILONS:
            found = [[cost(arguments.rows, epsilon, each, seed) for each in METHODS] for seed in range(arguments.seeds)]
            cells = [f"{stddev(epsilon, each):.3g}" for each in METHODS] + [
                f"{each:.3f}" for each in np.mean(found, axis=0)
            ]
            lines.append(f"| {epsilon:g} | {' | '.join(cells)} |")
    measurement.show(lines, arguments.out)


def stddev(epsilon: float, method: str) -> float:
    """Of the noise on one feature of a row in the unit ball."""
    if method == "Laplace":
        return math.sqrt(2.0) * 2.0 * math.sqrt(N_FEATURES) / epsilon
    return float(2.0 * get_sigma_gaussian(epsilon, DELTA))


def cost(n_rows: int, epsilon: float, method: str, seed: int) -> float:
    """Mean squared distance of the rows to the nearest center that was found on the noisy ones."""
    drawn = separated_mixture.draw(seed, n_rows, N_FEATURES, N_CLUSTERS)
    random = np.random.default_rng([seed, 8])
    noise: NDArray[np.float64] = getattr(random, method.lower().replace("gaussian", "normal"))(size=drawn.rows.shape)
    scale = stddev(epsilon, method) / (math.sqrt(2.0) if method == "Laplace" else 1.0)
    centers = (
        KMeans(N_CLUSTERS, n_init=1, max_iter=50, random_state=seed).fit(drawn.rows + scale * noise).cluster_centers_
    )
    return separated_mixture.mean_cost(drawn.rows, centers)


if __name__ == "__main__":
    main()
