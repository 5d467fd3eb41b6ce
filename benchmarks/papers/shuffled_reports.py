"""Shuffled reports priced by the closed form of the clones and by the certificate of their privacy blanket.

Both methods see the same draws of the mixture, in one run: normalized cost (mean squared distance to the nearest
center; d = 100, k = 8, separation 100) at epsilon 1, delta 1e-6. Finished runs are kept in a file of JSON lines.

    python -m benchmarks.papers.shuffled_reports --runs shuffled.jsonl --out benchmarks/results/shuffled_reports.md
"""

import argparse
import itertools
import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.one_round import Cell, parameters_of, report_cost

GOALS = {10_000: 0.12, 100_000: 0.0020}
EPSILON, DELTA = 1.0, 1e-6
METHODS = ("clones", "shuffle")


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(10)))
    parser.add_argument("--clients", type=int, nargs="*", default=list(GOALS))
    parser.add_argument("--runs", type=Path, required=True, help="file of finished runs, JSON lines")
    arguments = parser.parse_args()
    measurement.show(report(measure(arguments)), arguments.out)


def measure(arguments: argparse.Namespace) -> dict[tuple[int, str], list[float]]:
    """Costs by number of clients and method, over draws."""
    costs: dict[tuple[int, str], list[float]] = defaultdict(list)
    for n_clients, seed, method in itertools.product(arguments.clients, arguments.seeds, METHODS):
        lines = arguments.runs.read_text().splitlines() if arguments.runs.exists() else []
        known = {tuple(key): cost for *key, cost in map(json.loads, lines)}
        key = (n_clients, method, seed)
        if key not in known:
            known[key] = report_cost(Cell("shuffle", method, n_clients, EPSILON), seed)
            with arguments.runs.open("a") as file:
                file.write(json.dumps([*key, known[key]]) + "\n")
        costs[n_clients, method].append(known[key])
    return costs


def report(costs: dict[tuple[int, str], list[float]]) -> list[str]:
    """Tables of costs, of epsilons of one report, and of the time that a client takes to verify."""
    lines = heading("Shuffled reports: clones and blanket")
    lines += ["Normalized cost at epsilon 1, delta 1e-6, mean (standard deviation; draws), all draws in one run.", ""]
    lines += ["| n_clients | clones | blanket | goal |", "| --- | --- | --- | --- |"]
    for n_clients in sorted({number for number, _ in costs}):
        found = [costs[n_clients, method] for method in METHODS]
        shown = " | ".join(f"{np.mean(each):.4g} ({np.std(each):.2g}; {len(each)})" for each in found)
        lines.append(f"| {n_clients:,} | {shown} | {GOALS.get(n_clients, '')} |")
    return [*lines, "", *designs()]


def designs() -> list[str]:
    """What one report may spend, and what it gains."""
    from transforms.numerics.reports.blanket import blanket_keeps
    from transforms.numerics.reports.mechanism import codeword_moments

    lines = ["Epsilon of one report, and the variance of sums (that of the clones over that of the blanket).", ""]
    lines += ["| n_clients | epsilon | clones | blanket | variance | s to verify |", "| --- " * 6 + "|"]
    for n_clients in (1_000, 10_000, 100_000, 1_000_000):
        for epsilon in (0.1, 0.5, 1.0):
            try:
                both = [
                    parameters_of(Cell("", method, n_clients, epsilon), bytes(16)) for method in ("clones", "shuffle")
                ]
            except ValueError:
                continue
            choice = both[1].choices[0][0]
            start = time.perf_counter()
            assert blanket_keeps(choice, epsilon, n_clients, DELTA) or both[0].choices == both[1].choices
            seconds = time.perf_counter() - start
            old, new = (each.guarantee.local_epsilon for each in both)
            gain = (codeword_moments(choice).mean / codeword_moments(both[0].choices[0][0]).mean) ** 2
            lines.append(f"| {n_clients:,} | {epsilon:g} | {old:.3f} | {new:.3f} | {gain:.2f}x | {seconds:.2f} |")
    return lines


if __name__ == "__main__":
    main()
