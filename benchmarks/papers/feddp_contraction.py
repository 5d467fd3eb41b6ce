"""Contraction of FedDP-KMeans' Lloyd rounds, from a start far off the noise: the factor 2^-T of Theorems 2 and 14.

On separated mixtures the private start is at the noise already, so rounds after it cannot show their factor. Here the
start is given: two of five centers lie most of the way to another mean, so that many rows go to the wrong one. The
rounds are those of Algorithm 2, which spend the whole budget. Distances are from the mean of a component to its center,
and the worst one counts. `2^-T` is the bound without its second term; the last line is that of a run without noise.

Source: Scott, Lampert, Saulpic (2025), inequality (4) and its proof: each step halves the distance, and adds noise.

    python -m benchmarks.papers.feddp_contraction --out benchmarks/results/feddp_contraction.md
"""

import hashlib

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers import feddp_baselines, in_memory
from dapple_dp.transforms.core import loop

N_CLUSTERS, N_FEATURES, ROUNDS = 5, 20, 8
SEPARATIONS = (4.0, 6.0, 8.0)
"""Distances of any two means, in stddevs of a component."""
MOVED = 0.8
"""Of the way to another mean."""
EPSILONS = (0.5, 2.0)
Rows = NDArray[np.float64]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    lines = heading("Lloyd rounds of FedDP-KMeans from a start off the noise")
    lines += [
        f"{arguments.rows:,} rows, k = {N_CLUSTERS}, d = {N_FEATURES}, stddev 1, T = {ROUNDS} in every run; means of "
        f"{arguments.seeds} draws. Cells: distance of the worst center to its mean after this many rounds.",
    ]
    with threadpool_limits(limits=1):
        for separation in SEPARATIONS:
            found = [runs(arguments.rows, separation, seed) for seed in range(arguments.seeds)]
            lines += ["", f"## Means {separation:g} stddevs apart", ""]
            lines += ["| | " + " | ".join(f"T = {step}" for step in range(ROUNDS + 1)) + " |"]
            lines += ["| --- " * (ROUNDS + 2) + "|"]
            start = float(np.mean([each["no noise"][0] for each in found]))
            means = {"2^-T": [start * 2.0**-step for step in range(ROUNDS + 1)]}
            means |= {name: list(np.mean([each[name] for each in found], axis=0)) for name in found[0]}
            lines += [f"| {name} | {' | '.join(f'{each:.3g}' for each in cells)} |" for name, cells in means.items()]
    measurement.show(lines, arguments.out)


def runs(n_rows: int, separation: float, seed: int) -> dict[str, list[float]]:
    """Distances after each round, by epsilon, and without noise; the first one is that of the start."""
    rng = np.random.default_rng([seed, round(10 * separation)])
    means = np.linalg.qr(rng.normal(size=(N_FEATURES, N_FEATURES)))[0][:N_CLUSTERS] * separation / np.sqrt(2.0)
    rows = means[rng.integers(0, N_CLUSTERS, n_rows)] + rng.normal(size=(n_rows, N_FEATURES))
    start = means.copy()
    for moved, to in ((0, 1), (2, 3)):
        start[moved] += MOVED * (means[to] - means[moved])
    found = {f"epsilon {epsilon:g}": private(rows, start, means, epsilon, seed) for epsilon in EPSILONS}
    steps = [KMeans(N_CLUSTERS, init=start, n_init=1, max_iter=each, tol=0.0) for each in range(1, ROUNDS + 1)]
    return found | {
        "no noise": [worst(start, means), *(worst(each.fit(rows).cluster_centers_, means) for each in steps)]
    }


def private(rows: Rows, start: Rows, means: Rows, epsilon: float, seed: int) -> list[float]:
    """Distances of a run whose server rows are its start: k of them, so that k-means++ takes each as a center."""
    norm = float(np.linalg.norm(means, axis=1).max() + 8.0)
    sections = {"lloyd": {"steps": ROUNDS}, "clipping": {"norm": norm, "center": "none"}}
    config = in_memory.job("feddp_kmeans", "record", epsilon, N_CLUSTERS, seed, **sections)
    fit = feddp_baselines.planned("server_kmeanspp", config, start)
    key = hashlib.sha256(b"papers in memory, a public key/%d" % seed).digest()
    _, *states = loop.simulate(fit.initial, fit.rounds, [in_memory.client_block(rows, None)], key).states
    models = [np.asarray(each.model().centers, dtype=np.float64) for each in states]
    return [worst(each, means) for each in (start, *models)]


def worst(centers: Rows, means: Rows) -> float:
    """The largest distance of a mean to the nearest center."""
    return float(np.linalg.norm(means[:, None] - centers[None], axis=2).min(axis=1).max())


if __name__ == "__main__":
    main()
