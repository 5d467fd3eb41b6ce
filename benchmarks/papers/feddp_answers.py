"""FedDP-KMeans as printed beside its guarded form, and server data without some clusters beside rivals without any.

- letter: `printed` has guards and centers at the server's mean; `letter` has neither. T = 0, both levels.
- missing: also sphere packing, and the tree that `auto` takes without server data.

Fits run on rows in memory, as in `papers.feddp_scores`. The mixture is that of Figure 1; its first draw.

    python -m benchmarks.papers.feddp_answers --out benchmarks/results/feddp_kmeans
"""

import itertools
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers import in_memory
from benchmarks.papers.feddp_scores import LEVELS, METHODS, PER_COMPONENT, Drawn, draw, fitted
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters

EPSILONS = (0.4, 1.0, 2.0)
MISSING_EPSILONS = (1.0, 2.0, 5.0)
N_MISSING = 4
LETTER: dict[str, dict[str, Any]] = {
    "tuned": METHODS["FedDP-KMeans (tuned)"],
    "paper's shares": METHODS["FedDP-KMeans (paper's shares)"],
    "letter": METHODS["FedDP-KMeans (published)"],
}
TREE = "auto, no server data"


def main() -> None:
    parser = measurement.script(__doc__, "folder for tables")
    parser.add_argument("--sections", nargs="+", choices=("letter", "missing"), default=["letter", "missing"])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        for name in arguments.sections:
            start = time.process_time()
            lines = {"letter": letter, "missing": missing}[name](arguments.seeds)
            lines += ["", f"{time.process_time() - start:.0f} s of a CPU."]
            measurement.show(lines, arguments.out and arguments.out / f"answer-{name}.md")


def letter(seeds: int) -> list[str]:
    """Cost over n without Lloyd rounds: methods by level and epsilon."""
    lines = heading("FedDP-KMeans: the letter, and what is added to it")
    lines += [f"Cost / n, mean (standard deviation) of {seeds} seeds, T = 0.", ""]
    lines += ["| level | epsilon | " + " | ".join(LETTER) + " |", "| --- " * (len(LETTER) + 2) + "|"]
    for level, (n_rows, client_rows) in LEVELS.items():
        drawn = draw(n_rows)
        for epsilon in EPSILONS:
            cells = [
                spread([cost(drawn, fitted(drawn, client_rows, sections, epsilon, seed)) for seed in range(seeds)])
                for sections in LETTER.values()
            ]
            lines.append(f"| {level} | {epsilon:g} | {' | '.join(cells)} |")
    return lines


def missing(seeds: int) -> list[str]:
    """Cost over n at record level where the server lacks some components."""
    drawn = draw(LEVELS["record"][0])
    less = drawn._replace(server=drawn.server[PER_COMPONENT * N_MISSING :])
    feddp = {f"FedDP-KMeans, T = {steps}": LETTER["tuned"] | {"lloyd": {"steps": steps}} for steps in (2, 5)}
    methods = feddp | {"SpherePacking, T = 5": METHODS["SpherePacking"]}
    found: dict[tuple[str, float], list[float]] = {}
    for epsilon, seed in itertools.product(MISSING_EPSILONS, range(seeds)):
        for name, sections in methods.items():
            found.setdefault((name, epsilon), []).append(cost(less, fitted(less, None, sections, epsilon, seed)))
        found.setdefault((TREE, epsilon), []).append(cost(drawn, tree(drawn, epsilon, seed)))
    lines = heading(f"FedDP-KMeans: {N_MISSING} of 10 components missing, beside methods that need no server data")
    lines += [
        f"Cost / n, mean (standard deviation) of {seeds} seeds; k-means from the true means: "
        f"{cost(drawn, drawn.best):.2f}.",
        "",
    ]
    lines += ["| method | " + " | ".join(f"eps {each:g}" for each in MISSING_EPSILONS) + " |"]
    lines += ["| --- " * (len(MISSING_EPSILONS) + 1) + "|"]
    for name in (*methods, TREE):
        lines.append(f"| {name} | {' | '.join(spread(found[name, each], 3) for each in MISSING_EPSILONS)} |")
    lines += [
        "",
        "Sphere packing starts where its public seed says, the same at each epsilon, and this many rows outweigh the",
    ]
    lines += ["noise of the rounds that follow: so its costs differ in the third digit alone."]
    return lines


def tree(drawn: Drawn, epsilon: float, seed: int) -> in_memory.Rows:
    """Centers of `auto` without server data, whose rows are clipped at the radius that the server's had."""
    radius = float(np.linalg.norm(drawn.server, axis=1).max())
    clipping = {"norm": radius, "center": "none"}
    config = in_memory.job("auto", "record", epsilon, len(drawn.best), seed, server_data=None, clipping=clipping)
    return in_memory.centers(config, np.empty((0, drawn.rows.shape[1])), in_memory.client_block(drawn.rows, None), seed)


def cost(drawn: Drawn, centers: in_memory.Rows) -> float:
    """Mean squared distance of the rows to the nearest center."""
    return float(NearestCenters.of(centers).rows(drawn.rows).squared.mean())


def spread(values: list[float], digits: int = 2) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.{digits}f} ({np.std(values):.2f})"


if __name__ == "__main__":
    main()
