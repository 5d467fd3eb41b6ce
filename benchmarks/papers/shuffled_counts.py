"""Frequencies in the shuffle model by a hashed oracle: Theorems 34 and 32 of Chang et al. (2021).

Count sketch, as in Ghazi et al. (2021a): a client adds a public sign to one of w cells of each of s rows, all cells are
summed by split and mix, and the decoder takes the median of the s signed cells of a value. Sums carry the noise of the
sums of Dapple's reports, and are drawn by their law instead of sent. The theorem is about the largest error over all
values: it grows with a power of log |Y| and not with n. Beside it stands one noisy count per value, whose messages grow
with |Y|. For Theorem 32 a client has T values, one in each of T histograms, with epsilon / T and delta / T for each
(Lemma 25). Half of the clients have one of ten values, the others any.

    python -m benchmarks.papers.shuffled_counts --out benchmarks/results/shuffled_counts.md
"""

import math

import numpy as np

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.split_and_mix import gaussian_stddev

EPSILON, DELTA = 1.0, 1e-6
ROWS = 25
"""Of the sketch, s: enough that no median of this many is wrong by more than the noise of a cell, but by chance."""
VALUES = (1 << 10, 1 << 14, 1 << 18)
CLIENTS = (10_000, 100_000)
HISTOGRAMS = (1, 4, 16)
N_HEAVY = 10


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    lines = heading("Shuffled frequencies by a hashed oracle")
    lines += [
        f"Epsilon {EPSILON:g}, delta {DELTA:g}, s = {ROWS}, w = n; the largest error over all values in rows, mean of"
    ]
    lines += [
        f"{arguments.seeds} draws. Over T and the root of log2 of the size of Y it is alike, if the theorems hold."
    ]
    columns = ["T", "size of Y", *(f"n = {each:,}" for each in CLIENTS), "over both", "a count per value"]
    lines += ["", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for n_histograms in HISTOGRAMS:
        for n_values in VALUES:
            found = [
                float(np.mean([largest_error(n_values, n, n_histograms, seed) for seed in range(arguments.seeds)]))
                for n in CLIENTS
            ]
            scaled = found[-1] / math.sqrt(math.log2(n_values)) / n_histograms
            dense = dense_error(n_values, n_histograms)
            cells = [f"{each:,.0f}" for each in (*found, scaled, dense)]
            lines.append(f"| {n_histograms} | 2^{round(math.log2(n_values))} | {' | '.join(cells)} |")
    measurement.show(lines, arguments.out)


def stddev(cells: int, n_histograms: int) -> float:
    """Stddev of the noise on a cell, if a replaced client changes `cells` cells by 1 each, twice."""
    return math.sqrt(2.0 * cells) * gaussian_stddev(EPSILON / n_histograms, DELTA / n_histograms)


def largest_error(n_values: int, n_clients: int, n_histograms: int, seed: int) -> float:
    """Largest error of one histogram, over all values."""
    rng = np.random.default_rng([seed, n_values, n_clients, n_histograms])
    values = rng.integers(0, n_values, n_clients)
    values[: n_clients // 2] = rng.integers(0, N_HEAVY, n_clients // 2)
    counts = np.bincount(values, minlength=n_values)
    scale = stddev(ROWS, n_histograms)
    estimates = np.empty((ROWS, n_values), dtype=np.float32)
    for row in range(ROWS):
        cell, sign = rng.integers(0, n_clients, n_values), 2 * rng.integers(0, 2, n_values) - 1
        sums = np.bincount(cell, sign * counts, n_clients) + rng.normal(0.0, scale, n_clients)
        estimates[row] = sign * sums[cell]
    return float(np.abs(np.median(estimates, axis=0) - counts).max())


def dense_error(n_values: int, n_histograms: int) -> float:
    """The largest of this many draws of the noise of a count per value, about."""
    return stddev(1, n_histograms) * math.sqrt(2.0 * math.log(n_values))


if __name__ == "__main__":
    main()
