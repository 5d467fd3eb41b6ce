"""Radius and post-processing of FastLloyd: Figure 5 (appendix B) of its paper.

Data sets are drawn as in the appendix: k and d from 2, 4, 8, 16, separations .25, .5 and .75, clusters of 70% to 130%
of 2048/k rows (`benchmarks.data.separated` says what differs from the R package clusterGeneration). Each NICV is
divided by that of relative sums without a radius (the diagonal of the domain in all rounds), without clipped moves
and without post-processing, on the same data set; shown is the mean of the quotients, and the quotient of the means
that the paper has.

    python -m benchmarks.papers.fastlloyd_ablation --out benchmarks/results/fastlloyd_ablation.md
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import data, measurement
from benchmarks.machine import heading
from benchmarks.papers.fastlloyd import lloyd_job, nicv, released_centers, scaled

EPSILON = 0.1
SIDES = (2, 4, 8, 16)
SEPARATIONS = (0.25, 0.5, 0.75)
FACTORS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.6)
RADII = ("step", "constant")
CHOSEN = 0.8


class Setting(NamedTuple):
    """The settings varied: factor of the radius (None for no radius), its rule, post-processing, clipped moves."""

    factor: float | None
    radius: str = "step"
    post_process: str = "fold"
    clip_moves: bool = True

    def method(self, n_clusters: int, n_features: int) -> dict[str, Any]:
        """Section of the algorithm."""
        options = {"init": "sphere_packing", "post_process": self.post_process}
        if self.factor is None:
            whole = {"radius": "constant", "radius_factor": 2.0 * n_clusters ** (1.0 / n_features)}
            return options | whole | {"clip_moves": False}
        return options | {"radius": self.radius, "radius_factor": self.factor, "clip_moves": self.clip_moves}


NAIVE = Setting(None, post_process="none")


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="draws of the noise for each data set")
    parser.add_argument("--sides", type=int, nargs="+", default=list(SIDES), help="values of k and of d")
    parser.add_argument("--factors", type=float, nargs="+", default=list(FACTORS))
    arguments = parser.parse_args()
    sets = list(drawn(arguments.sides))
    lines = heading("Radius and post-processing of FastLloyd")
    lines += [f"Epsilon {EPSILON:g}; {len(sets)} data sets, {arguments.seeds} draws each. Smaller is better."]
    with threadpool_limits(limits=1):
        naive = costs(sets, NAIVE, arguments.seeds)
        lines += figure(sets, naive, arguments.factors, arguments.seeds)
        lines += table_of_steps(sets, naive, arguments.seeds)
    measurement.show(lines, arguments.out)


class DataSet(NamedTuple):
    """Rows in [-1, 1] and the number of clusters."""

    rows: NDArray[np.float64]
    k: int


def drawn(sides: Sequence[int]) -> Iterator[DataSet]:
    """All data sets."""
    for index, (k, d, separation) in enumerate(itertools.product(sides, sides, SEPARATIONS)):
        yield DataSet(scaled(data.separated(d, k, separation, seed=index)), k)


def costs(sets: Sequence[DataSet], setting: Setting, n_seeds: int) -> NDArray[np.float64]:
    """NICV, shape (n_sets,), means over draws."""
    found = np.zeros((len(sets), n_seeds))
    for index, (rows, k) in enumerate(sets):
        for seed in range(n_seeds):
            job = lloyd_job(rows, k, setting.method(k, rows.shape[1]), EPSILON, seed)
            found[index, seed] = nicv(rows, released_centers(rows, job, f"{index} {setting} {seed}"))
    return found.mean(axis=1)


def figure(sets: Sequence[DataSet], naive: NDArray[np.float64], factors: Sequence[float], n_seeds: int) -> list[str]:
    """Rule and post-processing down, factor across."""
    lines = ["", "## Figure 5", "", "Quotient of the means / mean of the quotients.", ""]
    lines += ["| radius | post-processing | " + " | ".join(f"{factor:g}" for factor in factors) + " |"]
    lines += ["| --- " * (2 + len(factors)) + "|"]
    for radius, post in itertools.product(RADII, ("fold", "truncate", "none")):
        cells = [share(costs(sets, Setting(factor, radius, post), n_seeds), naive) for factor in factors]
        lines.append(f"| {radius} | {post} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def table_of_steps(sets: Sequence[DataSet], naive: NDArray[np.float64], n_seeds: int) -> list[str]:
    """One thing after the other, at the factor that the paper chose."""
    steps = {
        "no radius, none (the unit)": NAIVE,
        "no radius, folded": Setting(None),
        "radius, moves not clipped, none": Setting(CHOSEN, post_process="none", clip_moves=False),
        "radius, moves clipped, none": Setting(CHOSEN, post_process="none"),
        "radius, moves not clipped, folded": Setting(CHOSEN, clip_moves=False),
        "radius, moves clipped, folded (FastLloyd)": Setting(CHOSEN),
    }
    lines = ["", f"## One thing after the other, factor {CHOSEN:g}", "", "| | NICV |", "| --- | --- |"]
    return [*lines, *(f"| {name} | {share(costs(sets, each, n_seeds), naive)} |" for name, each in steps.items())]


def share(found: NDArray[np.float64], naive: NDArray[np.float64]) -> str:
    """Returns the share of the naive setting's NICV."""
    return f"{found.mean() / naive.mean():.3f} / {(found / naive).mean():.3f}"


if __name__ == "__main__":
    main()
