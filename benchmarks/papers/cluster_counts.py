"""How often rules find the true number of clusters in what FedDP-KMeans releases, and how far off they are.

Rounds run in memory up to the histogram of the server points; their job asks for `{max: 20, choose: elbow}`. All rules
of `cluster_rules` and `histogram_mixture` then see the same released numbers. Every draw has data of its own:

- ten: the paper's mixture (k = 10, d = 100, 100,000 rows), record level; clients: the same rows, 50 to each client.
- missing: 50,000 rows of it; three of the ten components have no server points.
- five: k = 5, d = 30, shares from 1/9 to 3/9, well apart; forty server points of each and no others.
- fifteen: k = 15, d = 30, overlapping a little; twenty server points of each and fifty wide ones.
- plane: k = 8, d = 2, at least five stddevs apart; 200 server points of the mixture and 100 uniform ones.

    python -m benchmarks.papers.cluster_counts --out benchmarks/results/feddp_kmeans/cluster_counts.md
    python -m benchmarks.papers.cluster_counts --settings ten clients --epsilons 1 --restarts 50 --out OUT.md
"""

import collections
import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from benchmarks.papers import cluster_rules, histogram_mixture, in_memory
from benchmarks.papers.cluster_rules import MOST, RESTARTS, Released
from pipelines.kmeans.plan.public_fit import PublicFit
from schemas.kmeans.fit_config import FitConfig
from schemas.privacy.release import Release
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.feddp_kmeans.state import FedDPState
from transforms.numerics.kmeans import server_points
from transforms.numerics.privacy.noise import draw_release
from transforms.numerics.statistics import lattice
from transforms.rounds.protocol import measured

Array = NDArray[np.float64]
EPSILONS = (0.2, 0.4, 1.0, 2.0, 4.0)
CLIENT_ROWS = 50
Found = dict[tuple[str, str, float], list[int]]


class Data(NamedTuple):
    """`rows` (n, d), `server` (q, d), and the true number of clusters."""

    rows: Array
    server: Array
    n_clusters: int


def ten(seed: int) -> Data:
    """The paper's mixture."""
    drawn = mixture.draw(seed, 100_000)
    return Data(np.asarray(drawn.rows, dtype=np.float64), drawn.server, 10)


def missing(seed: int) -> Data:
    """The paper's mixture without the server points of three components."""
    drawn = mixture.draw(seed, 50_000)
    return Data(np.asarray(drawn.rows, dtype=np.float64), drawn.server[60:], 10)


def five(seed: int) -> Data:
    """Few clusters, well apart."""
    rng = np.random.default_rng([seed, 5])
    means, shares = rng.uniform(0.0, 1.0, (5, 30)), np.array([1.0, 1.0, 2.0, 2.0, 3.0]) / 9.0
    server = _normal(rng, np.repeat(means, 40, axis=0), 0.25)
    return Data(_normal(rng, means[rng.choice(5, 50_000, p=shares)], 0.25), server, 5)


def fifteen(seed: int) -> Data:
    """Many clusters that overlap; neighbors are some four stddevs apart."""
    rng = np.random.default_rng([seed, 15])
    means = rng.normal(0.0, 4.5 / np.sqrt(60.0), (15, 30))
    near, wide = _normal(rng, np.repeat(means, 20, axis=0), 1.0), rng.normal(0.0, 1.2, (50, 30))
    return Data(_normal(rng, means[rng.integers(0, 15, 50_000)], 1.0), np.vstack([near, wide]), 15)


def plane(seed: int) -> Data:
    """More clusters than dimensions."""
    rng, means = np.random.default_rng([seed, 8]), np.zeros((8, 2))
    while np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(8, 1)].min() <= 0.2:
        means = rng.uniform(0.0, 1.0, (8, 2))
    server = np.vstack([_normal(rng, means[rng.integers(0, 8, 200)], 0.04), rng.uniform(0.0, 1.0, (100, 2))])
    return Data(_normal(rng, means[rng.integers(0, 8, 20_000)], 0.04), server, 8)


def _normal(rng: np.random.Generator, means: Array, stddev: float) -> Array:
    """A row around each mean."""
    return means + rng.normal(0.0, stddev, means.shape)


SETTINGS: dict[str, Callable[[int], Data]] = {
    "ten": ten,
    "clients": ten,
    "missing": missing,
    "five": five,
    "fifteen": fifteen,
    "plane": plane,
}


def released(config: FitConfig, server: Array, block: ClientBlock, seed: int) -> Released:
    """What the server has before it clusters its points; the keys of this noise are public."""
    fit = PublicFit.of(config, server)
    key = hashlib.sha256(b"clusters in memory, a public key/%d" % seed).digest()
    state = fit.initial
    for each in fit.rounds:
        release = draw_release(key, each.plan, measured(each, block, state.broadcast()))
        if each.plan.path.endswith("/weights") and isinstance(state, FedDPState):
            return _weighted(state, release[0].with_unit(_unit(state)))
        state = each.step(state, release)
    raise ValueError("config must have a round of weights, got none; take feddp_kmeans.")


def _unit(state: FedDPState) -> float:
    """Rows, or clients, of one lattice step of the histogram."""
    return (state.bounds.histogram if state.by_client else 1.0) / lattice.SUM_UNITS


def _weighted(state: FedDPState, histogram: Release) -> Released:
    """Server points in the subspace, feature units, and their weights as the server step cleans them."""
    points = state.projected_server()[state.active] * state.sum_unit
    noisy = histogram.decoded[: len(points)]
    return Released(points, noisy, server_points.shrunken_weights(noisy, histogram.stddev), histogram.stddev)


def chosen(of: Released, seed: int, restarts: int = RESTARTS) -> dict[str, int]:
    """The number of clusters by each rule."""
    found = cluster_rules.curve(of.points, of.weights, restarts, seed)
    left = histogram_mixture.misfits(of, found.clusterings[-1])
    return {
        "elbow": cluster_rules.elbow(found),
        "elbow of logs": cluster_rules.elbow_of_logs(found),
        "gap": cluster_rules.gap(of, found, seed),
        "silhouette": cluster_rules.silhouette(of, found),
        "BIC of points": cluster_rules.bic_of_points(of, found),
        "stability": cluster_rules.stability(of, found, seed),
        "BIC of rows": histogram_mixture.bic_of_rows(left, *of.points.shape),
        "bend of rows": cluster_rules.bend(left),
    }


def draw(name: str, seed: int, epsilons: tuple[float, ...], restarts: int) -> Found:
    """Numbers that the rules choose in one draw of data, by rule, setting and epsilon."""
    data, by_client = SETTINGS[name](seed), name == "clients"
    block = in_memory.client_block(data.rows, CLIENT_ROWS if by_client else None)
    found: Found = {}
    for epsilon in epsilons:
        unit, choice = "client" if by_client else "record", {"max": MOST, "choose": "elbow"}
        config = in_memory.job("feddp_kmeans", unit, epsilon, choice, seed)
        for rule, number in chosen(released(config, data.server, block, seed), seed, restarts).items():
            found[rule, name, epsilon] = [number - data.n_clusters]
    return found


def report(found: Found, epsilons: tuple[float, ...], restarts: int = RESTARTS) -> list[str]:
    """Markdown lines: a table per setting, and one of means."""
    lines = heading("FedDP-KMeans: rules for the number of clusters")
    n_draws = sorted({len(each) for each in found.values()})
    lines += [
        f"Draws: {' or '.join(map(str, n_draws))} of data and noise; up to {MOST} clusters; k-means with {restarts}"
    ]
    lines += ["restarts. A cell has the times that the true number was found, and the mean absolute error.", ""]
    rules, names = list(dict.fromkeys(key[0] for key in found)), list(dict.fromkeys(key[1] for key in found))
    for name in names:
        lines += [f"## {name}", "", f"| rule | {' | '.join(f'eps {each:g}' for each in epsilons)} |"]
        lines += ["| --- " * (len(epsilons) + 1) + "|"]
        for rule in rules:
            cells = " | ".join(_cell(found[rule, name, epsilon]) for epsilon in epsilons)
            lines.append(f"| {rule} | {cells} |")
        lines.append("")
    lines += ["## Means over epsilons: times found of all, mean absolute error", ""]
    lines += [f"| rule | {' | '.join(names)} | all |", "| --- " * (len(names) + 2) + "|"]
    for rule in rules:
        by_name = [np.concatenate([found[rule, name, epsilon] for epsilon in epsilons]) for name in names]
        cells = " | ".join(f"{np.mean(each == 0):.0%}, {np.abs(each).mean():.2f}" for each in by_name)
        exact, off = (np.mean([measure(each) for each in by_name]) for measure in (_exact, _off))
        lines.append(f"| {rule} | {cells} | {exact:.0%}, {off:.2f} |")
    return lines


def _cell(errors: list[int]) -> str:
    return f"{errors.count(0)} ({_off(np.array(errors)):.1f})"


def _exact(errors: NDArray[np.int64]) -> float:
    return float(np.mean(errors == 0))


def _off(errors: NDArray[np.int64]) -> float:
    return float(np.abs(errors).mean())


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=RESTARTS, help="of k-means on the released weights; fit has 50")
    arguments = parser.parse_args()
    epsilons, found = tuple(arguments.epsilons), collections.defaultdict[tuple[str, str, float], list[int]](list)
    with threadpool_limits(limits=1):
        for seed in range(arguments.draws):
            for name in arguments.settings:
                for key, errors in draw(name, seed, epsilons, arguments.restarts).items():
                    found[key] += errors
            if arguments.out:
                arguments.out.write_text("\n".join(report(found, epsilons, arguments.restarts)) + "\n")
    measurement.show(report(found, epsilons, arguments.restarts), arguments.out)


if __name__ == "__main__":
    main()
