"""Octets and time of an iteration of FastLloyd with two clients, beside Table 3 of its paper.

A client sends k (d + 1) words of 8 octets and receives as many. The time is that of one client's exact step on its half
of the rows; neither masks nor the network are in it.

    python -m benchmarks.papers.fastlloyd_messages --out benchmarks/results/fastlloyd_messages.md
"""

from threadpoolctl import threadpool_limits

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.papers.fastlloyd import step_times

PUBLISHED = {
    (10_000, 2, 2): (3.03, 192),
    (10_000, 2, 5): (3.24, 384),
    (10_000, 5, 2): (4.32, 480),
    (10_000, 5, 5): (4.95, 960),
    (100_000, 2, 2): (12.57, 192),
    (100_000, 2, 5): (13.17, 384),
    (100_000, 5, 2): (22.05, 480),
    (100_000, 5, 5): (22.56, 960),
    (400, 3, 2): (2.6, 288),
    (5_000, 15, 2): (5.81, 1440),
}
"""Rows, clusters and features: milliseconds of an iteration and octets (Table 3)."""
N_CLIENTS, WORD = 2, 8


def octets(n_clusters: int, n_features: int) -> int:
    """Of an iteration: sums and counts of every client, up and down."""
    return 2 * N_CLIENTS * WORD * n_clusters * (n_features + 1)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--largest", type=int, default=100_000, help="most rows")
    arguments = parser.parse_args()
    lines = heading("An iteration of FastLloyd: octets and time")
    columns = ("rows", "k", "d", "octets", "octets, paper", "one client's step, ms", "iteration on a LAN, paper, ms")
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    with threadpool_limits(limits=1):
        for (rows, k, d), (milliseconds, sent) in PUBLISHED.items():
            if rows <= arguments.largest:
                _, ours = step_times(rows // N_CLIENTS, k, d)
                lines.append(f"| {rows:,} | {k} | {d} | {octets(k, d)} | {sent} | {1e3 * ours:.2f} | {milliseconds} |")
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
