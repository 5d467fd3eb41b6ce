"""Scaling of DP-Lloyd on data after those of the FastLloyd paper: Figures 3a (G2), 3b (Synth-K) and 4 (Synth).

Rows are drawn by `benchmarks.data` and scaled to [-1, 1]. AUC is the integral of NICV over epsilon from 0.1 to 1, by
trapezoids, and is shown in units of that of SuLloyd, which folds nothing. Where R isn't, a generator stands in for its
package clusterGeneration; what differs is in the docstring of `benchmarks.data.synth`. `--generated` takes sets of the
package itself, which `random_clusters.R` writes.

    python -m benchmarks.papers.fastlloyd_synthetic --out benchmarks/results/fastlloyd_synthetic.md
    Rscript benchmarks/papers/random_clusters.R SETS 20 2,4,8,16 2,4,8,16
    python -m benchmarks.papers.fastlloyd_synthetic --figures 4 --largest 16 --generated SETS --seeds 20
"""

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import data, measurement
from benchmarks.machine import heading
from benchmarks.papers.fastlloyd import METHODS, lloyd_job, nicv, released_centers, scaled

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)
G2_FEATURES = tuple(2**power for power in range(1, 11))
SYNTH_K = (2, 4, 8, 16, 32, 64, 128)
SYNTH_FEATURES = tuple(2**power for power in range(1, 10))
SYNTH_CLUSTERS = (2, 4, 8, 16, 32)
UNIT = "SuLloyd"
CHOSEN = ("Lloyd, not private", "GLloyd", "FastLloyd")
"""Beside `UNIT`, whose AUC is 1."""


class Size(NamedTuple):
    """Features and clusters of a data set."""

    d: int
    k: int


Draw = Callable[[Size, int], NDArray[np.float64]]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figures", nargs="+", choices=("3a", "3b", "4"), default=["3a", "3b", "4"])
    parser.add_argument("--rows", type=int, default=data.SYNTH_ROWS, help="rows of Synth and Synth-K")
    parser.add_argument("--largest", type=int, default=1024, help="most features, and most clusters")
    parser.add_argument("--generated", type=Path, metavar="SETS", help="folder of sets that random_clusters.R wrote")
    arguments = parser.parse_args()
    lines = heading("DP-Lloyd on synthetic data after the FastLloyd paper")
    lines += [f"AUC in units of that of {UNIT}: means of {arguments.seeds} data sets, one draw each.", ""]
    with threadpool_limits(limits=1):
        for title, sizes, draw in figures(arguments.rows, arguments.generated):
            if not title.removeprefix("Figure ").startswith(tuple(arguments.figures)):
                continue
            kept = [size for size in sizes if max(size) <= arguments.largest]
            lines += section(title, kept, draw, arguments.seeds)
    measurement.show(lines, arguments.out)


def figures(n_rows: int, generated: Path | None = None) -> list[tuple[str, list[Size], Draw]]:
    """Title, sizes and generator of each figure."""
    synth = partial(_generated, generated) if generated else partial(_synth, n_rows=n_rows)
    grid = itertools.product(SYNTH_FEATURES, SYNTH_CLUSTERS)
    return [
        ("Figure 3a: features of G2, 2 clusters", [Size(d, 2) for d in G2_FEATURES], _g2),
        ("Figure 3b: clusters of Synth-K, 2 features", [Size(2, k) for k in SYNTH_K], synth),
        ("Figure 4: Synth", [Size(d, k) for d, k in grid], synth),
    ]


def _g2(size: Size, seed: int) -> NDArray[np.float64]:
    return data.g2(size.d, seed=seed)


def _synth(size: Size, seed: int, n_rows: int) -> NDArray[np.float64]:
    return data.synth(size.d, size.k, seed, n_rows)


def _generated(folder: Path, size: Size, seed: int) -> NDArray[np.float64]:
    return data.random_clusters(folder, size.k, size.d, seed + 1)


def section(title: str, sizes: Iterable[Size], draw: Draw, n_seeds: int) -> list[str]:
    """Markdown lines of a figure."""
    lines = [f"## {title}", "", "| d | k | " + " | ".join((f"AUC of {UNIT}", *CHOSEN)) + " |"]
    lines += ["| --- " * (3 + len(CHOSEN)) + "|"]
    for size in sizes:
        found = np.array([areas(scaled(draw(size, seed)), size, seed) for seed in range(n_seeds)])
        shares = (found[:, 1:] / found[:, :1]).mean(axis=0)
        cells = [f"{found[:, 0].mean():.4g}", *(f"{share:.3f}" for share in shares)]
        lines.append(f"| {size.d} | {size.k} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def areas(rows: NDArray[np.float64], size: Size, seed: int) -> list[float]:
    """AUC of `UNIT` and of all that are chosen, on one data set."""
    return [float(np.trapezoid(_costs(rows, size, name, seed), EPSILONS)) for name in (UNIT, *CHOSEN)]


def _costs(rows: NDArray[np.float64], size: Size, name: str, seed: int) -> list[float]:
    found = []
    for epsilon in EPSILONS:
        job = lloyd_job(rows, size.k, METHODS[name], epsilon, seed)
        found.append(nicv(rows, released_centers(rows, job, f"{size} {name} {epsilon} {seed}")))
    return found


if __name__ == "__main__":
    main()
