"""The published one-round protocol over many draws of its hyperplanes: its mean cost, and how far draws lie apart.

Variant `paper` is decoded from sums over cells (level, subset). Instead of encoding a million clients per draw, the
sums are drawn from their law: the exact mean over rows of the mixture, and normal noise of the exact variance of signs
and directions (at the least a cell sums 260 terms). The decoder is the real one. `together` is how often two of the
eight clusters share a leaf of 64; then one center has to serve two clusters, which costs about 0.12.

    python -m benchmarks.papers.published_protocol --out benchmarks/results/published_protocol.md
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading
from benchmarks.papers.one_round import N_FEATURES, PAPER_COLUMN, Cell, parameters_of

ROWS = 20_000


class Draw(NamedTuple):
    """Cost of one draw, and whether two clusters share a leaf."""

    cost: float
    together: bool


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=200)
    arguments = parser.parse_args()
    lines = report(arguments.draws)
    measurement.show(lines, arguments.out)


def report(n_draws: int) -> list[str]:
    """Markdown lines."""
    lines = heading("The published one-round protocol over many draws")
    lines += [f"Normalized cost of variant `paper`, {n_draws} draws; `published` is the figure to compare with.", ""]
    lines += [
        "| n | epsilon | mean | stddev of a draw | means of 5 draws, 5 to 95% | together | mean if apart | published |"
    ]
    lines += ["| --- " * 8 + "|"]
    for (n_clients, epsilon), published in PAPER_COLUMN.items():
        draws = [draw(n_clients, epsilon, seed) for seed in range(n_draws)]
        costs, together = np.array([each.cost for each in draws]), np.array([each.together for each in draws])
        fives = np.random.default_rng(0).choice(costs, (10_000, 5)).mean(axis=1)
        low, high = np.quantile(fives, [0.05, 0.95])
        lines.append(
            f"| {n_clients:,} | {epsilon:g} | {costs.mean():.3f} | {costs.std():.3f} | {low:.3f} to {high:.3f} | "
            f"{together.mean():.0%} | {costs[~together].mean():.3f} | {published:g} |"
        )
        print(lines[-1], flush=True)
    return lines


def draw(n_clients: int, epsilon: float, seed: int, n_clusters: int = 8, separation: float = 100.0) -> Draw:
    """One draw of mixture, hyperplanes and sums."""
    rng = np.random.default_rng([seed, 8])
    cell = Cell("", "paper", n_clients, epsilon, n_clusters, separation)
    parameters = parameters_of(cell, rng.bytes(16))
    drawn = separated_mixture.draw(seed, ROWS, N_FEATURES, n_clusters, separation)
    centers, codes = decoded(drawn.rows, parameters, n_clients, rng, seed)
    first = [codes[np.flatnonzero(drawn.labels == label)[0]] for label in range(len(drawn.means))]
    return Draw(separated_mixture.mean_cost(drawn.rows, centers), len(set(first)) < len(first))


def decoded(  # type: ignore[no-untyped-def]
    rows: NDArray[np.float64], parameters, n_clients: int, rng: np.random.Generator, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Centers of variant `paper`, shape (k, d), and the leaf of every row, shape (n,).

    Args:
      rows: in the unit ball, shape (n, d); each stands for as many clients.
      parameters: public, of variant `paper`.
      n_clients: all of them.
      rng: of the noise of the sums.
      seed: of the decoder.
    """
    from dapple_dp.transforms.numerics.reports import codebook, published_protocol
    from dapple_dp.transforms.numerics.reports import encoder as report_encoder
    from dapple_dp.transforms.numerics.reports.decoding import decode_tree
    from dapple_dp.transforms.numerics.reports.sums import ReportSums

    n_features = rows.shape[1]
    codes = report_encoder.tree_codes(report_encoder.lattice_points(rows, 1.0), parameters)
    leaves = np.zeros((1 << parameters.depth, 1 + n_features))
    np.add.at(leaves, codes, np.column_stack([np.ones(len(rows)), rows]) / len(rows))
    (_, histogram), (_, vector) = parameters.choices
    shrunk = 1.0 / published_protocol.sphere_norm(vector, n_features)
    strength = np.append(np.tanh(histogram / 2.0), np.full(n_features, shrunk))
    means = codebook.walsh_hadamard(np.ascontiguousarray(leaves.T)).T * strength
    stddev = np.append(1.0, np.full(n_features, n_features**-0.5))
    cells = np.zeros((2 << parameters.depth, 1 + n_features))
    for level in range(1, parameters.depth + 1):
        size = 1 << level
        n_reports = n_clients / (parameters.depth * size)
        noise = rng.normal(size=(size, 1 + n_features)) * stddev * np.sqrt(n_reports)
        cells[size : 2 * size] = n_reports * means[:size] + noise
    cells[:, 1:] *= published_protocol.DIRECTION_UNITS
    sums = ReportSums(n_clients, np.rint(cells).astype(np.int64), np.zeros((0, 0), dtype=np.int64))
    return decode_tree.decode_tree(sums, parameters, seed).centers, codes


if __name__ == "__main__":
    main()
