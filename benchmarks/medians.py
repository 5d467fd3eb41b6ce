"""k-medians under noise beside DP-Lloyd, where some rows lie at the edge of the box.

Rows are a mixture of Gaussians in the box [-1, 1]^d; a share of them lies at the edge instead. Of outliers `corners`
each coordinate is -1 or 1 at random; of outliers `saturated` each coordinate of a row is 1 with odds of one in three.
`objective` is the mean distance of all rows to their nearest center over that of k-medians without noise, minus 1;
`error` the root mean square over clusters of the distance from the true mean to its center, in units of the root mean
squared distance of rows from their mean (centers matched one to one). All are medians over draws, with the largest.
Rows and noise are those of a fit, by its pure functions on arrays.

    python -m benchmarks.medians --out benchmarks/results/medians.md
"""

import argparse
import functools
import hashlib
import itertools
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement
from schemas.kmeans.fit_config import validated
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.protocols import PROTOCOLS
from transforms.kmeans.simulated_fit import run_once
from transforms.numerics.kmeans import lloyd_rules
from transforms.privacy import accounting

N_CLUSTERS, DELTA = 8, 1e-6
WIDTHS = {5: 0.08, 20: 0.1}
"""Stddev of a cluster along each feature, by the number of features."""
_STEPS = 100


class Drawn(NamedTuple):
    """Rows (n, d), true means (k, d), rows' distance from these, and objective and error of k-medians without noise."""

    rows: NDArray[np.float64]
    means: NDArray[np.float64]
    spread: float
    best: float
    floor: float


def draw(seed: int, n_rows: int, n_features: int, outliers: float, kind: str, width: float) -> Drawn:
    """One draw; `width` is the stddev of a cluster along each feature."""
    rng = np.random.default_rng([seed, n_features])
    means = _apart(rng, n_features, 6.0 * max(WIDTHS[n_features], width))
    rows = means[rng.integers(0, N_CLUSTERS, n_rows)] + rng.normal(0.0, width, (n_rows, n_features))
    far = rng.random(n_rows) < outliers
    shape = (int(far.sum()), n_features)
    if kind == "corners":
        rows[far] = rng.choice([-1.0, 1.0], shape)
    else:
        rows[far] = np.where(rng.random(shape) < 1.0 / 3.0, 1.0, rows[far])
    rows = np.clip(rows, -1.0, 1.0)
    best, centers = medians(rows, means)
    found = Drawn(rows, means, width * n_features**0.5, best, 0.0)
    return found._replace(floor=error(found, centers))


def _apart(rng: np.random.Generator, n_features: int, least: float) -> NDArray[np.float64]:
    """Means that lie at least so far apart."""
    while True:
        means = rng.uniform(-0.7, 0.7, (N_CLUSTERS, n_features))
        squared = ((means[:, None] - means[None]) ** 2).sum(axis=2)
        if squared[~np.eye(N_CLUSTERS, dtype=bool)].min() > least**2:
            return means


def distances(rows: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of every row from every center, shape (n, k)."""
    squared = (rows**2).sum(axis=1)[:, None] - 2.0 * rows @ centers.T + (centers**2).sum(axis=1)
    return np.sqrt(np.maximum(squared, 0.0))


def objective(rows: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Mean distance of rows to the nearest center."""
    return float(distances(rows, centers).min(axis=1).mean())


def medians(rows: NDArray[np.float64], start: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """The objective of k-medians without noise by Weiszfeld's steps from the true means, the best start there is."""
    centers, best = start, objective(rows, start)
    for _ in range(_STEPS):
        found = distances(rows, centers)
        weights = np.where(found == found.min(axis=1, keepdims=True), 1.0 / np.maximum(found, 1e-9), 0.0)
        centers = weights.T @ rows / np.maximum(weights.sum(axis=0)[:, None], 1e-9)
        before, best = best, objective(rows, centers)
        if before - best < 1e-6 * before:
            break
    return best, centers


def error(drawn: Drawn, centers: NDArray[np.float64]) -> float:
    """Of the centers, matched one to one."""
    found = distances(drawn.means, centers)
    return float(np.sqrt((found[linear_sum_assignment(found**2)] ** 2).mean())) / drawn.spread


def job(algorithm: str, epsilon: float, n_rows: int, n_features: int, **more: Any) -> Any:
    """Settings of a fit."""
    data = {"path": "rows", "features": [f"x{index}" for index in range(n_features)], "public_rows": n_rows}
    settings: dict[str, Any] = {"experimental": True, "algorithm": algorithm, "data": data, "n_clusters": N_CLUSTERS}
    privacy = {"unit": "record", "epsilon": epsilon, "delta": DELTA}
    box = {"domain": [-1.0, 1.0]} | more.pop("dp_lloyd", {})
    return validated(settings | {"privacy": privacy, "dp_lloyd": box} | more)


@functools.cache
def _plan(unit: str, specs: Any, epsilon: float, allocation: Any) -> Any:
    return accounting.calibrate(unit, specs, epsilon, DELTA, allocation)  # type: ignore[arg-type]


def fitted(config: Any, rows: NDArray[np.float64], label: str) -> NDArray[np.float64]:
    """Centers of one run; `label` makes its noise its own."""
    protocol, n_features = PROTOCOLS[config.algorithm], rows.shape[1]
    server = np.zeros((0, n_features))
    specs = protocol.round_specs(config, n_features, 0)
    plan = _plan(config.privacy.unit, specs, config.privacy.epsilon, protocol.allocation(config))
    initial = protocol.initial_state(config, server, n_features)
    key = hashlib.sha256(label.encode()).digest()
    model, _ = run_once(initial, protocol.rounds(config, plan), ClientBlock(rows), 1.0, key)
    return np.asarray(model.centers)


def compared(drawn: list[Drawn], epsilon: float, chosen: Mapping[str, tuple[str, dict[str, Any]]]) -> list[str]:
    """Cells of a row: objective and error of every method, then the error of k-medians without noise."""
    cells, (n_rows, n_features) = [], drawn[0].rows.shape
    for name, (algorithm, more) in chosen.items():
        config = job(algorithm, epsilon, n_rows, n_features, **more)
        found = [fitted(config, each.rows, f"{name}/{seed}/{epsilon}") for seed, each in enumerate(drawn)]
        costs = [100.0 * (objective(each.rows, one) / each.best - 1.0) for each, one in zip(drawn, found, strict=True)]
        cells.append(_shown(costs, 2) + " %")
        cells.append(_shown([error(each, one) for each, one in zip(drawn, found, strict=True)], 3))
    return [*cells, _shown([each.floor for each in drawn], 3)]


def _shown(values: list[float], digits: int) -> str:
    return f"{np.median(values):.{digits}f} (at most {max(values):.{digits}f})"


BEST = {name: (name, {}) for name in ("dp_lloyd", "dp_medians")}
CANDIDATES = {f"{name}, candidates": (name, {"dp_lloyd": {"init": "candidates"}}) for name in BEST}
SPLITS = {
    f"{share:g} of the budget for the start, {steps} rounds": {"start_share": share, "steps": steps}
    for share in (0.3, 0.5)
    for steps in (6, 8, 12)
}
WEIGHTS = (0.25, 4.0, 16.0)
"""Of the sums of directions against counts, in place of 1 for what jobs have."""
EPSILONS = (0.3, 1.0, 3.0)


class Part(NamedTuple):
    """Rows of a table: draws of one kind, at some epsilons, by some methods."""

    n_features: int
    kind: str
    outliers: float
    narrow: float
    epsilons: tuple[float, ...]
    methods: dict[str, tuple[str, dict[str, Any]]]

    def lines(self, n_rows: int, draws: int) -> list[str]:
        """Of the table."""
        width = self.narrow * WIDTHS[self.n_features]
        drawn = [draw(seed, n_rows, self.n_features, self.outliers, self.kind, width) for seed in range(draws)]
        shown = f"{self.outliers:.0%} {self.kind}" if self.outliers else "none"
        head = (self.n_features, f"{width:g}", shown)
        return [_line(*head, epsilon, *compared(drawn, epsilon, self.methods)) for epsilon in self.epsilons]


KINDS = [("none", 0.0), *itertools.product(("corners", "saturated"), (0.01, 0.05))]
TABLES = {
    "Start `best`": [Part(d, kind, share, 1.0, EPSILONS, BEST) for d in WIDTHS for kind, share in KINDS],
    "Clusters a tenth as wide": [
        Part(d, kind, 0.05, 0.1, (1.0,), BEST) for d in WIDTHS for kind in ("corners", "saturated")
    ],
    "Start `candidates`": [
        Part(d, kind, 0.05, 1.0, (1.0,), CANDIDATES) for d in WIDTHS for kind in ("corners", "saturated")
    ],
}


def splits(n_features: int, n_rows: int, draws: int) -> list[str]:
    """How the budget is split between start and rounds, and by the rounds between directions and counts."""
    drawn = [draw(seed, n_rows, n_features, 0.05, "saturated", WIDTHS[n_features]) for seed in range(draws)]
    lines = [
        _line(n_features, name, *compared(drawn, 0.3, {name: ("dp_medians", {"dp_lloyd": options})}))
        for name, options in SPLITS.items()
    ]
    usual = lloyd_rules.sums_weight
    for factor in WEIGHTS:
        with mock.patch.object(lloyd_rules, "sums_weight", lambda *given, by=factor: by * usual(*given)):
            cells = compared(drawn, 0.3, {"dp_medians": BEST["dp_medians"]})
        lines.append(_line(n_features, f"directions weigh {factor:g} times as much against counts", *cells))
    return lines


def report(arguments: argparse.Namespace) -> list[str]:
    """Markdown lines."""
    size, lines = (arguments.rows, arguments.draws), []
    with threadpool_limits(limits=1), ProcessPoolExecutor(arguments.processes) as pool:
        asked = {title: [pool.submit(part.lines, *size) for part in parts] for title, parts in TABLES.items()}
        of_splits = [pool.submit(splits, n_features, *size) for n_features in WIDTHS]
        for title, parts in asked.items():
            heads = [f"{what}, {name}" for name in TABLES[title][0].methods for what in ("objective", "error")]
            lines += ["", f"## {title}", ""]
            lines += _head("d", "width", "outliers", "epsilon", *heads, "error without noise")
            lines += [line for part in parts for line in part.result()]
        lines += ["", "## How the budget is split", "", "5 % saturated, epsilon 0.3.", ""]
        lines += _head("d", "dp_medians with", "objective", "error", "error without noise")
        return lines + [line for part in of_splits for line in part.result()]


def _head(*names: str) -> list[str]:
    return [_line(*names), _line(*["---"] * len(names))]


def _line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    lines = machine.heading("k-medians where some rows lie at the edge of the box")
    lines += [f"{N_CLUSTERS} clusters, {arguments.rows:,} rows, unit record, {arguments.draws} draws."]
    measurement.show(lines + report(arguments), arguments.out)


if __name__ == "__main__":
    main()
