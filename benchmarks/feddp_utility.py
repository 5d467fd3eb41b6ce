"""Utility of FedDP-KMeans on the published mixture, beside the reference code's figures.

Every cell is a real `fit` of a lake on disk. The cost (mean squared distance of all rows to the nearest center) of
each draw is scaled so that k-means from the true means costs 49.95. Reference figures are read from a JSON file: the
public code of the paper, at record level with its first sensitivity corrected, at client level as it is.

    python -m benchmarks.feddp_utility --out benchmarks/results/feddp_utility.md
"""

import argparse
import concurrent.futures
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement, mixture

OPTIMUM = 49.95
REFERENCE = Path(__file__).parent / "reference" / "feddp_kmeans.json"
"""Means of the authors' public code on this mixture."""
CLIENT_ROWS = 50
SETTINGS = ("record", "client 2000", "client 1000")
METHODS: dict[str, dict[str, Any]] = {
    "tuned": {},
    "paper's shares": {"privacy": {"allocation": "paper"}},
    "published": {"preset": "published", "clipping": {"center": "none"}},
}
"""The second one has guards, and centers its rows at the server's mean; the third is the letter."""
MANY, FEW = (0.2, 0.4, 0.6, 0.8, 1.0, 2.0), (0.05, 0.1, 0.2, 0.4, 1.0, 2.0)
EPSILONS = {"tuned": FEW, "paper's shares": MANY, "published": MANY}
TARGETS = {
    "record": {0.1: 50.75, 0.2: 50.15, 0.4: 50.02, 1.0: 49.97},
    "client 2000": {0.2: 52.8, 0.4: 51.6, 1.0: 50.5, 2.0: 50.2},
    "client 1000": {0.2: 54.0, 1.0: 51.3},
}
Cell = tuple[str, str, float]


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--reference", type=Path, default=REFERENCE, help="JSON of the reference code's figures")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epsilons", type=float, nargs="+", help="default: those with a target or a reference figure")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    costs = measure(arguments)
    reference = read_reference(arguments.reference)
    lines = report(costs, reference, arguments.seeds)
    measurement.show(lines, arguments.out)


def measure(arguments: argparse.Namespace) -> dict[Cell, list[float]]:
    """Scaled costs of every cell, one per seed."""
    costs: dict[Cell, list[float]] = defaultdict(list)
    jobs = [(setting, seed) for setting in arguments.settings for seed in range(arguments.seeds)]
    with concurrent.futures.ProcessPoolExecutor(arguments.processes) as pool:
        pending = [pool.submit(one_draw, *job, arguments.epsilons, arguments.methods) for job in jobs]
        for done, job in zip(pending, jobs, strict=True):
            for cell, cost in done.result().items():
                costs[cell].append(cost)
            print(*job, flush=True)
    return costs


def one_draw(setting: str, seed: int, epsilons: list[float] | None, methods: list[str]) -> dict[Cell, float]:
    """All epsilons and methods on one draw."""
    import logging

    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    from dapple_dp.api import fit
    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.schemas.trusted_zone.sweep_config import merged

    logging.disable(logging.WARNING)
    unit, n_rows = "record", 100_000
    if setting != "record":
        unit, n_rows = "client", int(setting.split()[1]) * CLIENT_ROWS
    drawn = mixture.draw(seed, n_rows)
    found = {}
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(limits=1):
        lake = Path(temporary)
        mixture.write_lake(lake, drawn, n_files=2, group_rows=n_rows // 4, client_rows=CLIENT_ROWS)
        optimum = KMeans(len(drawn.means), init=drawn.means, n_init=1).fit(drawn.rows).inertia_ / n_rows
        for method in methods:
            for epsilon in epsilons or EPSILONS[method]:
                config = merged(mixture.config(lake, unit, epsilon), METHODS[method])
                centers = fit(validated(config)).model.centers
                found[setting, method, epsilon] = mean_cost(drawn.rows, centers) * OPTIMUM / optimum
    return found


def mean_cost(rows: NDArray[np.floating], centers: NDArray[np.float64]) -> float:
    """Mean squared distance to the nearest center."""
    scores = (centers**2).sum(axis=1) - 2.0 * rows @ centers.T
    return float(((rows**2).sum(axis=1) + scores.min(axis=1)).mean())


def read_reference(path: Path) -> dict[tuple[str, float], float]:
    """Mean cost of the reference code per (setting, epsilon), without Lloyd steps; the better one if run twice."""
    found = {}
    for row in json.loads(path.read_text())["rows"]:
        method = {"data": "FedDP-KMeans[fixed]", "client": "FedDP-KMeans[asis]"}[row["setting"]]
        if row["method"] == method and row["lloyd_steps"] == 0:
            setting = "record" if row["setting"] == "data" else f"client {row['clients']}"
            cell = setting, row["eps_total_target"]
            found[cell] = min(row["cost_mean"], found.get(cell, float("inf")))
    return found


def report(costs: dict[Cell, list[float]], reference: dict[tuple[str, float], float], n_seeds: int) -> list[str]:
    """Markdown lines: one table per setting."""
    from benchmarks.machine import heading

    lines = heading("FedDP-KMeans: utility on the Gaussian mixture")
    lines += [
        f"Mean cost / n (standard deviation) of {n_seeds} draws, delta 1e-6; k-means from the true means costs "
        f"{OPTIMUM}.",
        "",
    ]
    for setting in dict.fromkeys(cell[0] for cell in costs):
        lines += [f"## {setting}", "", f"| epsilon | {' | '.join(METHODS)} | target | reference code |"]
        lines.append("| --- " * (len(METHODS) + 3) + "|")
        for epsilon in sorted({cell[2] for cell in costs if cell[0] == setting}):
            target = TARGETS[setting].get(epsilon)
            known = reference.get((setting, epsilon))
            cells = [_cell(costs.get((setting, method, epsilon))) for method in METHODS]
            texts = [
                *cells,
                "" if target is None else f"<= {target}",
                "" if known is None else f"{known:.2f}",
            ]
            lines.append(f"| {epsilon:g} | {' | '.join(texts)} |")
        lines.append("")
    return lines


def _cell(values: list[float] | None) -> str:
    return "" if not values else f"{np.mean(values):.3f} ({np.std(values):.3f})"


if __name__ == "__main__":
    main()
