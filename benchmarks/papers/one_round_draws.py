"""Figures 1 and 2 of the one-round paper with ten draws per point: cost over n, epsilon, k and r.

The published protocol is decoded from sums that are drawn from their law, see `published_protocol`; ten draws of a
million clients would take an hour as reports. The decoder is the real one. `levels` prices Lemma 25: every client
reports all T levels with epsilon / T each, instead of one level with all of epsilon. Such sums have as many reports as
clients at each level, and reports of epsilon / T.

    python -m benchmarks.papers.one_round_draws --out benchmarks/results
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading
from benchmarks.papers import published_protocol
from benchmarks.papers.one_round import N_FEATURES, PAPER_COLUMN, Cell, parameters_of

CLIENTS = (20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
FIGURES: dict[str, list[Cell]] = {
    "n": [Cell("n", "paper", n_clients, epsilon) for epsilon in (1.0, 4.0) for n_clients in CLIENTS],
    "epsilon": [
        Cell("epsilon", "paper", n, epsilon) for n in (100_000, 1_000_000) for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0)
    ],
    "k": [Cell("k", "paper", 1_000_000, 4.0, k) for k in (2, 4, 8, 16, 32)],
    "r": [Cell("r", "paper", 1_000_000, 4.0, 8, r) for r in (1.0, 2.0, 4.0, 8.0, 16.0, 100.0)],
}
"""Points of the three panels of Figure 1, and of Figure 2."""
TITLES = {"n": "Figure 1: clients", "epsilon": "Figure 1: epsilon", "k": "Figure 1: clusters", "r": "Figure 2: r"}


class Point(NamedTuple):
    """Costs over draws: `one` level per client, shape (draws,), and all `levels` of each client."""

    one: np.ndarray
    levels: np.ndarray


def main() -> None:
    parser = measurement.script(__doc__, "folder for the table")
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        found = {cell: point(cell, arguments.draws) for cells in FIGURES.values() for cell in cells}
    measurement.show(report(found, arguments.draws), arguments.out and arguments.out / "one_round_draws.md")


def point(cell: Cell, n_draws: int) -> Point:
    """All draws of a point."""
    rest = (cell.n_clusters, cell.separation)
    one = [published_protocol.draw(cell.n_clients, cell.epsilon, seed, *rest).cost for seed in range(n_draws)]
    return Point(np.array(one), np.array([all_levels(cell, seed) for seed in range(n_draws)]))


def all_levels(cell: Cell, seed: int) -> float:
    """Cost if every client reports all levels with epsilon / T: T times the reports, each of less epsilon."""
    rng = np.random.default_rng([seed, 25])
    depth = parameters_of(cell, bytes(16)).depth
    cut = cell._replace(epsilon=cell.epsilon / depth)
    parameters = dataclasses.replace(parameters_of(cut, rng.bytes(16)), depth=depth)
    drawn = separated_mixture.draw(seed, published_protocol.ROWS, N_FEATURES, cell.n_clusters, cell.separation)
    centers, _ = published_protocol.decoded(drawn.rows, parameters, cell.n_clients * depth, rng, seed)
    return separated_mixture.mean_cost(drawn.rows, centers)


def report(found: dict[Cell, Point], n_draws: int) -> list[str]:
    """Markdown lines: one table per panel."""
    lines = heading("Figures 1 and 2 of the one-round paper")
    lines += [f"Normalized cost, d = 100, k = 8, r = 100 unless said otherwise: mean (stddev) of {n_draws} draws."]
    lines += ["`published` is what our prototype of the printed protocol cost on the same mixture.", ""]
    for name, cells in FIGURES.items():
        lines += [f"## {TITLES[name]}", "", "| n | epsilon | k | r | one level per client | all levels | published |"]
        lines += ["| --- " * 7 + "|"]
        for cell in cells:
            one, levels = found[cell]
            known = PAPER_COLUMN.get((cell.n_clients, cell.epsilon), "") if cell[4:6] == (8, 100.0) else ""
            axes = f"{cell.n_clients:,} | {cell.epsilon:g} | {cell.n_clusters} | {cell.separation:g}"
            costs = f"{one.mean():.3f} ({one.std():.3f}) | {levels.mean():.3f} ({levels.std():.3f})"
            lines.append(f"| {axes} | {costs} | {known} |")
        lines.append("")
    return lines


if __name__ == "__main__":
    main()
