"""Theorem 4.3 of R-DPCFL: how fast EM comes to the true mixture when its components hardly overlap.

Ma, Xu, Jordan (2000): the ratio of two errors of EM that follow each other is o(O^(0.5 - gamma)), O the largest overlap
of two components. Here many points are drawn from four spherical Gaussians on a square (shares 3 : 6 : 6 : 6, as
clients have), and plain EM for means, one variance and shares starts near the truth. The limit of EM stands for the
truth, which a sample does not have. Rates are those of the last steps above rounding.

    python -m benchmarks.papers.mixture_rate --out benchmarks/results/r_dpcfl_theorem.md
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.federated_clients import CLUSTER_SIZES
from dapple_dp.transforms.numerics.clustered_fl.update_clusters import overlap

DISTANCES = (3.0, 4.0, 5.0, 6.0, 7.0)
"""Of neighboring means, in stddevs: twice the separation score."""
GAMMA = 0.05
MOST_STEPS = 2_000
SMALLEST_ERROR = 1e-9
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


class Mixture(NamedTuple):
    """Means (4, 2), one variance, shares (4,)."""

    means: NDArray[np.float64]
    variance: float
    shares: NDArray[np.float64]

    def vector(self) -> NDArray[np.float64]:
        """Means, variance and shares in one vector."""
        return np.concatenate([self.means.ravel(), [self.variance], self.shares])


def true_mixture(distance: float) -> Mixture:
    """Unit variance, neighbors so far apart."""
    shares = np.array(CLUSTER_SIZES, dtype=np.float64)
    return Mixture(distance * CORNERS, 1.0, shares / shares.sum())


def step(points: NDArray[np.float64], at: Mixture) -> Mixture:
    """One step of EM."""
    squared = ((points[:, None] - at.means) ** 2).sum(axis=2)
    logs = np.log(at.shares) - squared / (2.0 * at.variance)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    sizes = weights.sum(axis=0)
    means = weights.T @ points / sizes[:, None]
    spread = (weights * ((points[:, None] - means) ** 2).sum(axis=2)).sum()
    return Mixture(means, float(spread / points.size), sizes / len(points))


def errors(distance: float, n_points: int, seed: int) -> NDArray[np.float64]:
    """Distances to the limit of EM, step by step, as long as they are above rounding."""
    random, truth = np.random.default_rng([seed, round(100 * distance)]), true_mixture(distance)
    labels = random.choice(len(truth.shares), n_points, p=truth.shares)
    points = truth.means[labels] + random.normal(size=(n_points, 2))
    at = truth._replace(means=truth.means + random.normal(0.0, 0.1, truth.means.shape))
    path = [at.vector()]
    for _ in range(MOST_STEPS):
        at = step(points, at)
        path.append(at.vector())
        if np.linalg.norm(path[-1] - path[-2]) < 1e-14:
            break
    found = np.linalg.norm(np.array(path) - path[-1], axis=1)
    return found[found > SMALLEST_ERROR]


def rate(path: NDArray[np.float64]) -> float:
    """Geometric mean of the last ratios of errors."""
    last = path[-min(len(path), 6) :]
    return float((last[-1] / last[0]) ** (1.0 / (len(last) - 1)))


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--points", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    lines = heading("R-DPCFL: convergence of EM by overlap (Theorem 4.3)")
    lines += [f"Means of {arguments.seeds} samples of {arguments.points:,} points; gamma = {GAMMA:g}.", ""]
    columns = ("distance", "SS", "overlap O", "rate of EM", "rate / O^(0.5 - gamma)", f"steps to {SMALLEST_ERROR:g}")
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for distance in DISTANCES:
        paths = [errors(distance, arguments.points, seed) for seed in range(arguments.seeds)]
        mean_rate, largest = float(np.mean([rate(path) for path in paths])), overlap(distance / 2.0)
        ratio = mean_rate / math.pow(largest, 0.5 - GAMMA)
        steps = float(np.mean([len(path) for path in paths]))
        lines.append(
            f"| {distance:g} | {distance / 2.0:g} | {largest:.3g} | {mean_rate:.3g} | {ratio:.3g} | {steps:.0f} |"
        )
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
