"""Net trees of the one-round paper: its lemmas checked, its error over n, and nets beside hyperplanes.

- lemmas 14, 15, 16 and 19: the largest ratio of both sides over trees of exact and of noisy frequencies, at most 1.
- Theorem 20: nodes, transport cost and coreset error of the tree with exact frequencies and the printed constants. If
  these split at least as many nodes of a level as there are rows, then every node with a row is split, and the leaves
  that count are cells of the last level: they are taken without the tree around them.
- Theorems 1 and 22: excess of the cost over k-means from the true means as n grows; the theorems allow it to fall
  like n to -0.5.
- nets beside hyperplanes: variant `paper` by SimHash, and by nets of the rows, or of their random projection (Theorem
  21), with half of epsilon for frequencies as Algorithm 3 prints. `one level` splits clients over levels, `all levels`
  splits epsilon (Lemma 25). Beside it stands k-means from the true means.

Frequencies and vector sums of nets are drawn from their law: the exact sums of 20,000 rows that stand for all clients,
and normal noise of the variance of the published mechanisms (Algorithms 5 to 8). Nothing here is a release.

    python -m benchmarks.papers.net_trees --out benchmarks/results
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading
from benchmarks.papers import net_tree, published_protocol
from benchmarks.papers.one_round import Cell, parameters_of
from dapple_dp.transforms.numerics.kmeans.starts.seeding import weighted_kmeans
from dapple_dp.transforms.numerics.reports.decoding.decode_tree import in_ball
from dapple_dp.transforms.numerics.reports.published_protocol import sphere_norm

ROWS, N_CLUSTERS = 20_000, 8
FEATURES = (2, 3, 4)
CORESET_FEATURES = (1, 2, 3, 4)
CLIENTS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
EPSILONS = (1.0, 4.0)
DEPTH = 4
"""Levels of the trees beside hyperplanes: cells of 1/16, finer than the clusters."""
MOST_NODES = 100_000
SPREAD = 0.05
DISTORTION = 0.5
HIGH, DIMENSIONS = 100, (2, 3, 4)
PRACTICAL = net_tree.Parameters(DEPTH, 1, 20, 0.0)
"""One node per center may be split further, as with hyperplanes; the printed number splits all there are."""
Rows = NDArray[np.float64]


class Law(NamedTuple):
    """Noise of one node: `frequency`, in clients, and `vector`, of one coordinate of its sum."""

    frequency: float
    vector: float


def main() -> None:
    parser = measurement.script(__doc__, "folder for the table")
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    with threadpool_limits(limits=1):
        lines = heading("Net trees of the one-round paper")
        lines += [*lemmas(arguments.draws), "", *coresets(), ""]
        lines += [*excesses(arguments.draws), "", *beside(arguments.draws), "", *projections(arguments.draws), ""]
    measurement.show(lines, arguments.out and arguments.out / "net_trees.md")


def law(n_clients: int, epsilon: float, n_features: int, depth: int, all_levels: bool) -> Law:
    """Noise of the published mechanisms, half of epsilon for frequencies.

    Args:
      n_clients: n.
      epsilon: of a client.
      n_features: of the vectors that are summed.
      depth: T.
      all_levels: whether a client reports all levels with epsilon / T, or one level with all of it.
    """
    half = 0.5 * epsilon / (depth if all_levels else 1)
    n_reports = n_clients * (1.0 if all_levels else float(depth))
    return Law(
        math.sqrt(n_reports) / math.tanh(half / 2.0), math.sqrt(n_reports / n_features) * sphere_norm(half, n_features)
    )


def draw(seed: int, n_features: int) -> tuple[Rows, Rows]:
    """Rows of eight clusters anywhere in the unit ball, and their means."""
    rng = np.random.default_rng([seed, n_features, 20])
    means = rng.normal(size=(N_CLUSTERS, n_features))
    means *= (
        0.9 * rng.uniform(size=(N_CLUSTERS, 1)) ** (1.0 / n_features) / np.linalg.norm(means, axis=1, keepdims=True)
    )
    labels = rng.integers(0, N_CLUSTERS, ROWS)
    return in_ball(means[labels] + rng.normal(0.0, SPREAD / math.sqrt(n_features), (ROWS, n_features))), means


def oracle(rows: Rows, n_clients: int, stddev: float, rng: np.random.Generator) -> net_tree.Oracle:
    """Frequencies of cells with noise of its own for each."""

    def frequencies(level: int, cells: net_tree.Cells) -> Rows:
        distinct, counts = np.unique(net_tree.cells_of(rows, level), axis=0, return_counts=True)
        known = {cell.tobytes(): count for cell, count in zip(distinct, counts, strict=True)}
        exact = np.array([known.get(cell.tobytes(), 0) for cell in cells]) * (n_clients / len(rows))
        return exact + stddev * rng.normal(size=len(cells))

    return frequencies


def decoded(
    rows: Rows, placed: Rows, n_clients: int, noise: Law, seed: int, parameters: net_tree.Parameters = PRACTICAL
) -> Rows:
    """Centers by Algorithm 4, shape (k, d).

    Args:
      rows: that are summed.
      placed: the same rows in the space of the nets.
      n_clients: for which the rows stand.
      noise: of every node.
      seed: of noise and k-means.
      parameters: of the tree.
    """
    rng = np.random.default_rng([seed, 4])
    frequencies = oracle(placed, n_clients, noise.frequency, rng)
    tree = net_tree.build(frequencies, placed.shape[1], N_CLUSTERS, parameters, MOST_NODES)
    labels = net_tree.cluster(tree, N_CLUSTERS, seed)
    sums = np.zeros((len(labels), rows.shape[1]))
    np.add.at(sums, net_tree.leaves_of(placed, tree), rows * (n_clients / len(rows)))
    sums += noise.vector * rng.normal(size=sums.shape)
    members = labels == np.arange(N_CLUSTERS)[:, None]
    return in_ball((members @ sums) / np.maximum(1.0, members @ tree.sizes)[:, None])


def lemmas(draws: int) -> list[str]:
    """Largest ratios of the left to the right sides."""
    lines = ["## Lemmas 14, 15, 16, 19: the largest ratio of left to right side", ""]
    lines += ["Children are counted below the root, which has those at the rim of the ball, too.", ""]
    lines += ["| d | distance (14) | children (15) | transport (16) | threshold (19) |", "| --- " * 5 + "|"]
    for n_features in FEATURES:
        ratios = [ratio_of(n_features, seed, stddev) for seed in range(draws) for stddev in (0.0, 200.0)]
        lines.append(f"| {n_features} | " + " | ".join(f"{each:.3f}" for each in np.max(ratios, axis=0)) + " |")
    return lines


def ratio_of(n_features: int, seed: int, stddev: float) -> list[float]:
    """Ratios of one tree over the rows themselves, whose frequencies have noise of `stddev` rows."""
    rows, _ = draw(seed, n_features)
    rng = np.random.default_rng([seed, 5])
    tree = net_tree.build(oracle(rows, len(rows), stddev, rng), n_features, N_CLUSTERS, PRACTICAL, MOST_NODES)
    distances, branches = [], []
    for level in range(DEPTH + 1):
        cells = net_tree.cells_of(rows, level)
        apart = np.linalg.norm(rows - net_tree.positions(cells, level), axis=1)
        distances.append(float(apart.max()) * 2.0 ** (level - 1))
        below = range(20 if level else 0)
        branches += [len(net_tree.children(cells[index : index + 1], level)) for index in below]
    transport = net_tree.transport(rows, tree) / net_tree.transport_bound(rows, tree)
    children = max(branches) / net_tree.most_children(n_features)
    return [max(distances), children, transport, threshold_ratio(rng, n_features)]


def threshold_ratio(rng: np.random.Generator, n_features: int) -> float:
    """Both sides of Lemma 19 for frequencies of many sizes."""
    sizes = np.sort(rng.pareto(1.0, 50 * n_features)) * 100.0
    tau = net_tree.threshold(sizes, N_CLUSTERS, PRACTICAL)
    left, kept = sizes[: len(sizes) - tau].sum(), sizes[: max(len(sizes) - tau - N_CLUSTERS, 0)].sum()
    return float(left / (2.0 * kept + sizes.sum() / 2.0**PRACTICAL.steps))


def coresets() -> list[str]:
    """Theorem 20 for the printed constants."""
    lines = [f"## Theorem 20, xi = {DISTORTION:g}, {ROWS:,} rows, exact frequencies", ""]
    lines += ["| d | a | T | nodes | levels | transport / OPT | allowed | coreset error |", "| --- " * 8 + "|"]
    for n_features in CORESET_FEATURES:
        rows, means = draw(0, n_features)
        parameters = net_tree.printed(ROWS, n_features, DISTORTION)
        tree = with_exact(rows, parameters)
        optimum = ROWS * separated_mixture.mean_cost(rows, means)
        moved = net_tree.transport(rows, tree) / optimum
        allowed = DISTORTION / (8.0 * (1.0 + 2.0 / DISTORTION))
        nodes = f"{tree.n_nodes:,}" if tree.n_nodes else "all"
        lines.append(
            f"| {n_features} | {parameters.ball:,} | {parameters.depth} | {nodes} | {tree.levels.max()} | "
            f"{moved:.4f} | {allowed:.4f} | {coreset_error(rows, tree):.4f} |"
        )
    return lines


def with_exact(rows: Rows, parameters: net_tree.Parameters) -> net_tree.NetTree:
    """The tree of exact frequencies; `n_nodes` is 0 if only leaves with rows were made, the others left out."""
    if N_CLUSTERS * parameters.ball < len(rows):
        exact = oracle(rows, len(rows), 0.0, np.random.default_rng(0))
        return net_tree.build(exact, rows.shape[1], N_CLUSTERS, parameters, MOST_NODES)
    cells, counts = np.unique(net_tree.cells_of(rows, parameters.depth), axis=0, return_counts=True)
    return net_tree.NetTree(np.full(len(cells), parameters.depth), cells, counts.astype(np.float64), 0)


def coreset_error(rows: Rows, tree: net_tree.NetTree) -> float:
    """Largest relative difference of the cost of rows and of representatives, over 200 sets of centers."""
    rng, points, worst = np.random.default_rng(0), net_tree.representatives(tree), 0.0
    filled = tree.sizes > 0.0
    for _ in range(200):
        near = rows[rng.integers(0, len(rows), N_CLUSTERS)]
        centers = near if rng.random() < 0.5 else rng.uniform(-0.6, 0.6, near.shape)
        squared = ((points[filled][:, None, :] - centers[None]) ** 2).sum(axis=2).min(axis=1)
        cost = len(rows) * separated_mixture.mean_cost(rows, centers)
        worst = max(worst, abs(float(squared @ tree.sizes[filled]) / cost - 1.0))
    return worst


def excesses(draws: int) -> list[str]:
    """Excess of the cost over k-means from the true means by n, and its slope in logarithms."""
    found: dict[tuple[int, float], list[float]] = {}
    for n_features, epsilon in itertools.product(FEATURES, EPSILONS):
        found[n_features, epsilon] = [
            float(np.mean([_excess(n_features, n, epsilon, seed) for seed in range(draws)])) for n in CLIENTS
        ]
    lines = [f"## Theorems 1 and 22: excess of the cost / n over k-means from the true means, {draws} draws", ""]
    lines += ["| d | epsilon | " + " | ".join(f"n = {n:,}" for n in CLIENTS) + " | last slope |"]
    lines += ["| --- " * (len(CLIENTS) + 3) + "|"]
    for (n_features, epsilon), values in found.items():
        slope = math.log(max(values[-1], 1e-9) / max(values[-3], 1e-9)) / math.log(CLIENTS[-1] / CLIENTS[-3])
        cells = " | ".join(f"{value:.4f}" for value in values)
        lines.append(f"| {n_features} | {epsilon:g} | {cells} | {slope:.2f} |")
    return lines


def _excess(n_features: int, n_clients: int, epsilon: float, seed: int) -> float:
    rows, means = draw(seed, n_features)
    centers = decoded(rows, rows, n_clients, law(n_clients, epsilon, n_features, DEPTH, False), seed)
    return separated_mixture.mean_cost(rows, centers) - from_true_means(rows, means)


def from_true_means(rows: Rows, means: Rows) -> float:
    """Cost / n of k-means from the true means: what the excess is measured from."""
    weights = np.ones(len(rows))
    best = weighted_kmeans(rows, weights, len(means), 1, 0).centers
    return min(separated_mixture.mean_cost(rows, each) for each in (means, best))


def beside(draws: int) -> list[str]:
    """Nets and hyperplanes in few dimensions."""
    lines = [f"## Nets beside hyperplanes, clusters anywhere in the ball, {draws} draws", ""]
    lines += ["Cost / n; the origin alone costs about 0.5.", ""]
    lines += [
        "| d | n | epsilon | k-means from the true means | hyperplanes | nets, one level | nets, all levels |",
        "| --- " * 7 + "|",
    ]
    for n_features, n_clients, epsilon in itertools.product(FEATURES, (100_000, 1_000_000), EPSILONS):
        costs = np.array([_both(n_features, n_clients, epsilon, seed) for seed in range(draws)])
        cells = " | ".join(
            f"{mean:.4f} ({spread:.3f})" for mean, spread in zip(costs.mean(0), costs.std(0), strict=True)
        )
        lines.append(f"| {n_features} | {n_clients:,} | {epsilon:g} | {cells} |")
    return lines


def _both(n_features: int, n_clients: int, epsilon: float, seed: int) -> list[float]:
    """Costs of k-means from the true means, of hyperplanes and of nets on the same rows."""
    rows, means = draw(seed, n_features)
    found = [means, hyperplanes(rows, n_clients, epsilon, seed)]
    for all_levels in (False, True):
        found.append(decoded(rows, rows, n_clients, law(n_clients, epsilon, n_features, DEPTH, all_levels), seed))
    return [separated_mixture.mean_cost(rows, centers) for centers in found]


def hyperplanes(rows: Rows, n_clients: int, epsilon: float, seed: int) -> Rows:
    """Centers of variant `paper`."""
    rng = np.random.default_rng([seed, 8])
    parameters = parameters_of(Cell("", "paper", n_clients, epsilon), rng.bytes(16), rows.shape[1])
    return published_protocol.decoded(rows, parameters, n_clients, rng, seed)[0]


def projections(draws: int) -> list[str]:
    """The mixture of Figure 1 by nets of a random projection."""
    n_clients = 1_000_000
    lines = [f"## Random projection of d = {HIGH} (the mixture of Figure 1), n = {n_clients:,}, {draws} draws", ""]
    lines += [
        "`printed` has Lambda of Theorem 22 with beta 0.1 and levels that are as many finer; otherwise Lambda",
        "",
    ]
    lines[-2] += " is the root of d / d' over 2."
    lines += ["| epsilon | hyperplanes | " + " | ".join(f"d' = {each}" for each in DIMENSIONS) + " | d' = 3, printed |"]
    lines += ["| --- " * (len(DIMENSIONS) + 3) + "|"]
    for epsilon in (4.0, 8.0):
        costs = np.array([_projected(n_clients, epsilon, seed) for seed in range(draws)])
        cells = " | ".join(
            f"{mean:.3f} ({spread:.3f})" for mean, spread in zip(costs.mean(0), costs.std(0), strict=True)
        )
        lines.append(f"| {epsilon:g} | {cells} |")
    return lines


def _projected(n_clients: int, epsilon: float, seed: int) -> list[float]:
    """Costs of hyperplanes, of nets by dimension, and of nets with the printed scale."""
    drawn = separated_mixture.draw(seed, ROWS, HIGH, N_CLUSTERS)
    found = [hyperplanes(drawn.rows, n_clients, epsilon, seed)]
    for n_dims in DIMENSIONS:
        found.append(
            _by_projection(drawn.rows, n_dims, 0.5 * math.sqrt(HIGH / n_dims), DEPTH, n_clients, epsilon, seed)
        )
    scale = net_tree.printed_scale(n_clients, HIGH, 3, 0.1)
    finer = round(math.log2(0.5 * math.sqrt(HIGH / 3) / scale))
    found.append(_by_projection(drawn.rows, 3, scale, DEPTH + finer, n_clients, epsilon, seed))
    return [separated_mixture.mean_cost(drawn.rows, centers) for centers in found]


def _by_projection(
    rows: Rows, n_dims: int, scale: float, depth: int, n_clients: int, epsilon: float, seed: int
) -> Rows:
    placed = net_tree.projected(rows, net_tree.subspace(HIGH, n_dims, seed), scale)
    noise = law(n_clients, epsilon, HIGH, depth, False)
    return decoded(rows, placed, n_clients, noise, seed, PRACTICAL._replace(depth=depth))


if __name__ == "__main__":
    main()
