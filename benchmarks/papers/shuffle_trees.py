"""k-means in one round of the shuffle model over all levels of a net tree: Theorem 2 of Chang et al. (2021).

Algorithms 3 and 4 with the oracles of appendix C: for frequencies a count sketch per level (Theorems 32 and 34,
`benchmarks.papers.shuffled_counts`), for vector sums s = 2 n / beta buckets per level (Theorem 33, Algorithm 10). Half
of epsilon and delta goes to each, and 1 / T of that to a level (Lemma 25). Messages that a shuffler mixed show noisy
sums alone, so the sums are drawn by their law, hashes and collisions included, from 20,000 rows that stand for all
clients.

Theorem 2 allows an error beyond the approximation ratio that grows like the root of d over epsilon, and with n only
like a power of log n. Shown is what the noise adds to the cost of all clients: the cost with it less the cost of the
same protocol without it, times n. Beside it stands the local model (Theorem 1, Algorithms 5 to 8), which may grow like
the root of n. The trees are those of `benchmarks.papers.net_trees`. A client would send the messages of the last
column.

    python -m benchmarks.papers.shuffle_trees --out benchmarks/results/shuffle_trees.md
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading
from benchmarks.papers import net_tree, net_trees
from benchmarks.papers.net_trees import Rows
from benchmarks.papers.shuffled_counts import ROWS as SKETCH_ROWS
from benchmarks.papers.split_and_mix import gaussian_stddev, messages_per_value, next_prime
from dapple_dp.transforms.numerics.reports.decoding.decode_tree import in_ball

DELTA, FAILURE = 1e-6, 0.1
FEATURES = (2, 3)
CLIENTS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
HIGH = (2, 8, 32, 128)
"""Features of rows that lie in a plane, by which the tree is built."""
MIDDLE = 1_000_000
WORST_BITS = 40.0
"""Security of the shares, in place of the logarithm of what delta leaves."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=5)
    arguments = parser.parse_args()
    draws = arguments.draws
    with threadpool_limits(limits=1):
        lines = heading("Shuffled sums over all levels of a net tree")
        lines += [
            f"{draws} draws, k = {net_trees.N_CLUSTERS}, delta {DELTA:g}, T = {net_trees.DEPTH}, beta {FAILURE:g}."
        ]
        lines += ["Errors in units of one client's squared radius, summed over clients; costs over n in brackets.", ""]
        lines += by_clients(draws)
        lines += ["", *by("epsilon", [(2, each, 2) for each in EPSILONS], EPSILONS, draws)]
        lines += ["", *by("features of the rows", [(2, 1.0, each) for each in HIGH], HIGH, draws)]
    measurement.show(lines, arguments.out)


def by_clients(draws: int) -> list[str]:
    """Cost that noise adds, by the number of clients."""
    columns = [
        "d",
        "n",
        "shuffle: added",
        "local: added",
        "without noise",
        "k-means from the true means",
        "messages of a client",
    ]
    lines = [f"## By n, epsilon {1.0:g}", "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for n_features, n_clients in itertools.product(FEATURES, CLIENTS):
        shuffled, local, free, best = added(n_features, n_clients, 1.0, n_features, draws)
        cells = [
            f"{n_clients * shuffled:,.0f} ({free + shuffled:.4f})",
            f"{n_clients * local:,.0f} ({free + local:.4f})",
            f"{free:.4f}",
            f"{best:.4f}",
            f"{n_messages(n_clients, n_features):.1g}",
        ]
        lines.append(f"| {n_features} | {n_clients:,} | {' | '.join(cells)} |")
    return lines


def by(title: str, cells: Sequence[tuple[int, float, int]], values: Sequence[float], draws: int) -> list[str]:
    """Cost that noise adds, by another setting.

    Args:
      title: of the values.
      cells: features of the tree, epsilon and features of the rows, one per value.
      values: that vary.
      draws: to average.
    """
    lines = [f"## By {title}, n = {MIDDLE:,}", "", f"| {title} | shuffle: added | local: added |", "| --- " * 3 + "|"]
    for value, (n_features, epsilon, n_high) in zip(values, cells, strict=True):
        shuffled, local, _, _ = added(n_features, MIDDLE, epsilon, n_high, draws)
        lines.append(f"| {value:g} | {MIDDLE * shuffled:,.0f} | {MIDDLE * local:,.0f} |")
    return lines


def added(n_features: int, n_clients: int, epsilon: float, n_high: int, draws: int) -> list[float]:
    """Means of cost / n: what noise adds in the shuffle and in the local model, without it, and of k-means."""
    found = []
    for seed in range(draws):
        placed, means = net_trees.draw(seed, n_features)
        rows = np.pad(placed, ((0, 0), (0, n_high - n_features)))
        noise = net_trees.law(n_clients, epsilon, n_high, net_trees.DEPTH, all_levels=True)
        centers = (
            shuffled_centers(rows, placed, n_clients, epsilon, seed),
            net_trees.decoded(rows, placed, n_clients, noise, seed),
            net_trees.decoded(rows, placed, n_clients, net_trees.Law(0.0, 0.0), seed),
        )
        shuffled, local, free = (separated_mixture.mean_cost(rows, each) for each in centers)
        found.append([shuffled - free, local - free, free, net_trees.from_true_means(placed, means)])
    return [float(each) for each in np.mean(found, axis=0)]


def stddev(epsilon: float, cells: int) -> float:
    """Stddev of the noise of one level's sums, if a replaced client moves `cells` of them, each by at most 2."""
    levels = 2.0 * net_trees.DEPTH
    return 2.0 * math.sqrt(cells) * gaussian_stddev(epsilon / levels, DELTA / levels)


def sketch(rows: Rows, n_clients: int, epsilon: float, rng: np.random.Generator) -> net_tree.Oracle:
    """Frequencies of cells by a count sketch of n cells in each row, for each level."""
    scale = stddev(epsilon, SKETCH_ROWS)

    def frequencies(level: int, cells: net_tree.Cells) -> Rows:
        taken, counts = np.unique(net_tree.cells_of(rows, level), axis=0, return_counts=True)
        known, places = np.unique(np.concatenate([taken, cells]), axis=0, return_inverse=True)
        exact = np.zeros(len(known))
        exact[places[: len(taken)]] = counts * (n_clients / len(rows))
        estimates = np.empty((SKETCH_ROWS, len(known)))
        for row in estimates:
            _, hashed = np.unique(rng.integers(0, n_clients, len(known)), return_inverse=True)
            signs = 2 * rng.integers(0, 2, len(known)) - 1
            sums = np.bincount(hashed, signs * exact)
            row[:] = signs * (sums + rng.normal(0.0, scale, len(sums)))[hashed]
        return np.asarray(np.median(estimates, axis=0)[places[len(taken) :]])

    return frequencies


def shuffled_centers(rows: Rows, placed: Rows, n_clients: int, epsilon: float, seed: int) -> Rows:
    """Centers by Algorithm 4 with shuffled oracles, shape (k, d).

    Args:
      rows: that are summed.
      placed: the same rows in the space of the nets.
      n_clients: for which the rows stand.
      epsilon: of a client.
      seed: of noise, hashes and k-means.
    """
    rng = np.random.default_rng([seed, 2])
    parameters = net_trees.PRACTICAL
    oracle = sketch(placed, n_clients, epsilon, rng)
    tree = net_tree.build(oracle, placed.shape[1], net_trees.N_CLUSTERS, parameters, net_trees.MOST_NODES)
    labels = net_tree.cluster(tree, net_trees.N_CLUSTERS, seed)
    sums = np.zeros((len(labels), rows.shape[1]))
    for level in np.unique(tree.levels):
        leaves = np.flatnonzero(tree.levels == level)
        sums[leaves] = buckets(rows, net_tree.cells_of(placed, int(level)), tree.cells[leaves], n_clients, rng)
    sums += rng.normal(0.0, stddev(epsilon, 1), sums.shape)
    members = labels == np.arange(net_trees.N_CLUSTERS)[:, None]
    return in_ball((members @ sums) / np.maximum(1.0, members @ tree.sizes)[:, None])


def buckets(rows: Rows, cells: net_tree.Cells, asked: net_tree.Cells, n_clients: int, rng: np.random.Generator) -> Rows:
    """Sums of the buckets of some cells, with rows of other cells that share a bucket.

    Args:
      rows: shape (n, d).
      cells: of the rows.
      asked: cells, shape (m, d').
      n_clients: for which the rows stand.
      rng: of the hash.
    """
    known, places = np.unique(np.concatenate([cells, asked]), axis=0, return_inverse=True)
    hashed = np.unique(rng.integers(0, round(2 * n_clients / FAILURE), len(known)), return_inverse=True)[1]
    sums = np.zeros((hashed.max() + 1, rows.shape[1]))
    np.add.at(sums, hashed[places[: len(cells)]], rows * (n_clients / len(rows)))
    return np.asarray(sums[hashed[places[len(cells) :]]])


def n_messages(n_clients: int, n_features: int) -> float:
    """Messages that a client would send: shares of every cell of every sketch and of every bucket's coordinates."""
    modulus = next_prime(2 * n_clients**2)
    shares = messages_per_value(n_clients, modulus, WORST_BITS)
    return float(net_trees.DEPTH * shares * n_clients * (SKETCH_ROWS + 2.0 / FAILURE * n_features))


if __name__ == "__main__":
    main()
