"""`algorithm: auto` where clusters are unequal, many or few, or rows are few, beside k-means without privacy.

Cost (mean squared distance to the nearest center) over that of the best of some k-means runs without privacy: mean,
largest of the draws. Only the box is public. Rows and noise are those of a fit, by its pure functions on arrays.
Rows that the page has and a run does not draw stay. `before` is what the page said of a row of as many draws, which are
the same ones, or what `--package DIR` makes of them: another checkout of the project, measured by this script.

    python -m benchmarks.regimes --draws 10 --out benchmarks/results/regimes.md
    python -m benchmarks.regimes --draws 10 --sets "k = 48" --out benchmarks/results/regimes.md
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine, measurement

Rows = NDArray[np.float64]
Make = Callable[[np.random.Generator], Rows]
EPSILONS = (0.3, 1.0, 3.0)
DELTA = 1e-6


def clusters(k: int, d: int, n: int, width: float, power: float = 0.0) -> Make:
    """Gaussian clusters anywhere in the box, with sizes that fall by a power of their rank."""

    def draw(rng: np.random.Generator) -> Rows:
        means, shares = rng.uniform(-0.85, 0.85, (k, d)), np.arange(1.0, k + 1.0) ** -power
        return np.clip(means[rng.choice(k, n, p=shares / shares.sum())] + rng.normal(0.0, width, (n, d)), -1.0, 1.0)

    return draw


def far_cluster(d: int, n: int, few: int) -> Make:
    """Three clusters near each other, and one of few rows in another corner."""

    def draw(rng: np.random.Generator) -> Rows:
        rows = rng.uniform(-0.7, 0.0, (3, d))[rng.integers(0, 3, n - few)] + rng.normal(0.0, 0.04, (n - few, d))
        return np.clip(np.vstack([rows, 0.8 + rng.normal(0.0, 0.03, (few, d))]), -1.0, 1.0)

    return draw


def atoms(m: int, d: int, n: int) -> Make:
    """Few distinct points, of very unequal weights."""

    def draw(rng: np.random.Generator) -> Rows:
        weights = rng.exponential(1.0, m) ** 2 + 0.02
        return rng.uniform(-1.0, 1.0, (m, d))[rng.choice(m, n, p=weights / weights.sum())]

    return draw


def bundled(name: str) -> Make:
    """A set that scikit-learn ships, scaled to the box by its own columns, which are taken for public here."""

    def draw(rng: np.random.Generator) -> Rows:
        from sklearn import datasets

        rows = getattr(datasets, f"load_{name}")(return_X_y=True)[0].astype(np.float64)
        side = np.ptp(rows, axis=0)
        return np.asarray(2.0 * (rows - rows.min(axis=0)) / np.where(side > 0.0, side, 1.0) - 1.0)

    return draw


SETS: dict[str, tuple[int, Make]] = {
    "far cluster of 200 of 90,000, d = 3": (4, far_cluster(3, 90_000, 200)),
    "far cluster of 200 of 100,000, d = 6": (5, far_cluster(6, 100_000, 200)),
    "Zipf sizes, k = 19, d = 6": (19, clusters(19, 6, 45_000, 0.05, 1.0)),
    "Zipf sizes, k = 16, d = 4": (16, clusters(16, 4, 60_000, 0.04, 1.0)),
    "30 atoms, k = 12, d = 5": (12, atoms(30, 5, 30_000)),
    "k = 40, d = 5": (40, clusters(40, 5, 50_000, 0.05)),
    "k = 48, d = 4": (48, clusters(48, 4, 60_000, 0.04)),
    "equal, k = 10, d = 8": (10, clusters(10, 8, 50_000, 0.08)),
    "wide, k = 6, d = 6": (6, clusters(6, 6, 8_000, 0.3)),
    "k = 15, d = 2": (15, clusters(15, 2, 6_000, 0.05)),
    "400 rows, k = 4, d = 6": (4, clusters(4, 6, 400, 0.15)),
    "iris, k = 3": (3, bundled("iris")),
    "wine, k = 3": (3, bundled("wine")),
    "digits, k = 10": (10, bundled("digits")),
}
FROZEN = {
    "frozen: sizes by 1.5th power, k = 14, d = 7": (14, clusters(14, 7, 70_000, 0.06, 1.5)),
    "frozen: far cluster of 400 of 120,000, d = 5": (4, far_cluster(5, 120_000, 400)),
    "frozen: 20 atoms, k = 8, d = 4": (8, atoms(20, 4, 15_000)),
    "frozen: k = 30, d = 10": (30, clusters(30, 10, 60_000, 0.1)),
    "frozen: equal, k = 5, d = 3": (5, clusters(5, 3, 20_000, 0.1)),
    "frozen: breast cancer, k = 2": (2, bundled("breast_cancer")),
}
"""Made before the first run of the rule on any set of this page. They were looked at once for small clusters, and once
more for those that lie far off, whose rule was tuned on other draws of such generators: only the first look was new."""


def cost(rows: Rows, centers: Rows) -> float:
    """Mean squared distance to the nearest center."""
    from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters

    return float(NearestCenters.of(np.asarray(centers)).rows(rows).squared.mean())


def best_cost(rows: Rows, k: int) -> float:
    """Cost of k-means without privacy: the best of ten starts on a part and of three on all rows."""
    from sklearn.cluster import KMeans

    points, weights = np.unique(rows, axis=0, return_counts=True)
    part = np.random.default_rng(0).choice(len(points), min(len(points), 4_000), replace=False)
    first = KMeans(k, n_init=10, random_state=0).fit(points[part], sample_weight=weights[part]).cluster_centers_
    found = [KMeans(k, init=first, n_init=1).fit(points, sample_weight=weights).cluster_centers_]
    found.append(KMeans(k, n_init=3, random_state=1).fit(points, sample_weight=weights).cluster_centers_)
    return min(cost(rows, each) for each in found)


def fitted(rows: Rows, k: int, epsilon: float, label: str) -> Rows:
    """Centers of one run of `auto`."""
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.transforms.core import accounting, loop
    from dapple_dp.transforms.kmeans.protocols import protocol_of
    from dapple_dp.transforms.numerics.kernel import row_pass
    from dapple_dp.transforms.numerics.one_thread import one_thread

    data = {"path": "rows", "features": [f"x{index}" for index in range(rows.shape[1])]}
    privacy = {"unit": "record", "epsilon": epsilon, "delta": DELTA}
    settings: dict[str, Any] = {"algorithm": "auto", "data": data, "n_clusters": k, "privacy": privacy}
    config = validated(settings | {"dp_lloyd": {"domain": [-1.0, 1.0]}})
    protocol, server = protocol_of(config.algorithm), np.zeros((0, rows.shape[1]))
    specs = protocol.round_specs(config, rows.shape[1], 0)
    plan = accounting.calibrate(config.privacy.unit, specs, epsilon, DELTA, protocol.allocation(config))
    initial = protocol.initial_state(config, server, rows.shape[1])
    row_pass.start()
    key = hashlib.sha256(label.encode()).digest()
    with one_thread():
        found = loop.simulate(initial, protocol.rounds(config, plan), [ClientBlock(rows)], key)
    return np.asarray(found.model().centers)


def measured(draws: int, pattern: str) -> Iterator[tuple[str, float, float, float]]:
    """Set, epsilon, mean and largest ratio."""
    for name, (k, make) in (SETS | FROZEN).items():
        if re.search(pattern, name) is None:
            continue
        drawn = [make(np.random.default_rng([seed, 2026])) for seed in range(draws)]
        best = [best_cost(rows, k) for rows in drawn]
        for epsilon in EPSILONS:
            found = [fitted(rows, k, epsilon, f"{name}/{seed}/{epsilon}") for seed, rows in enumerate(drawn)]
            ratios = [cost(rows, each) / least for rows, each, least in zip(drawn, found, best, strict=True)]
            yield name, epsilon, float(np.mean(ratios)), max(ratios)


def other(package: str, draws: int, pattern: str) -> dict[tuple[str, float], str]:
    """The cells of another checkout, by this script."""
    environment = os.environ | {"PYTHONPATH": package, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, os.path.abspath(__file__), "--cells", "--draws", str(draws), "--sets", pattern]
    done = subprocess.run(command, env=environment, cwd=package, stdout=subprocess.PIPE, text=True, check=True)
    rows = (line.split("\t") for line in done.stdout.splitlines() if "\t" in line)
    return {(name, float(epsilon)): cell for name, epsilon, cell in rows}


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--sets", default="", help="a regular expression of their names; default: all")
    parser.add_argument("--package", help="another checkout, measured first")
    parser.add_argument("--cells", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cells:
        for name, epsilon, mean, largest in measured(arguments.draws, arguments.sets):
            print(f"{name}\t{epsilon}\t{mean:.3f} ({largest:.2f})", flush=True)
        return
    measured_before = other(arguments.package, arguments.draws, arguments.sets) if arguments.package else {}
    rows = []
    for name, epsilon, mean, largest in measured(arguments.draws, arguments.sets):
        before = measured_before.get((name, epsilon), "-")
        rows.append([name, str(epsilon), before, f"{mean:.3f} ({largest:.2f})"])
        print(*rows[-1], sep="\t", flush=True)
    words = f"Mean of {arguments.draws} draws, in brackets the largest. Unit record, delta {DELTA:g}. "
    words += "`before`: the same draws in another checkout."
    heading = machine.heading("auto by regime: cost over k-means without privacy")
    lines = measurement.table(("set", "epsilon", "before", "now"), rows)
    measurement.show([*heading, words, "", *lines], arguments.out)


if __name__ == "__main__":
    main()
