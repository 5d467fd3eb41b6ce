"""Bytes and time of an iteration of FastLloyd with two clients, beside Table 3 of its paper.

A client sends k (d + 1) words of 8 bytes and receives as many. The time is the whole iteration's: the slower client's
statistic of its half of the rows and its mask, the server's sum and noise, a client's unmasking and next centers, all
with the code of the jobs, and the paper's 0.25 ms for each of three sends that follow each other (a client to the
server, the server to one client and to the other). Sends are added, not waited for. The paper draws its rows with the
same sizes; its machine was another one.

    python -m benchmarks.papers.fastlloyd_messages --out benchmarks/results/fastlloyd_messages.md
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import data, measurement
from benchmarks.machine import heading
from benchmarks.papers.fastlloyd import METHODS, Figure, lloyd_job, scaled
from dapple_dp.pipelines.kmeans.plan.planned_fit import plan_files
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.transforms.core import loop
from dapple_dp.transforms.core.noise import releases_of
from dapple_dp.transforms.numerics.masked.shared_masks import RoundMasks, message_bytes

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
"""Rows, clusters and features: milliseconds of an iteration and bytes (Table 3)."""
N_CLIENTS, WORD = 2, 8
SEND_MS, SENDS = 0.25, 3
"""Of the simulated network, and how many follow each other in an iteration."""
REPEATS = 30


def n_bytes(n_clusters: int, n_features: int) -> int:
    """Bytes of an iteration: sums and counts of every client, up and down."""
    return 2 * N_CLIENTS * WORD * n_clusters * (n_features + 1)


def milliseconds(n_rows: int, n_clusters: int, n_features: int, repeats: int) -> Figure:
    """Milliseconds of iterations between two clients with a shared secret, sends included."""
    rows = scaled(data.timesynth(n_rows, n_features, n_clusters))
    fit = plan_files(validated(lloyd_job(rows, n_clusters, METHODS["FastLloyd"], 1.0, 0)))
    iteration(fit, rows, turn=0)
    times = [1e3 * iteration(fit, rows, turn=turn) + SENDS * SEND_MS for turn in range(repeats)]
    return Figure.of(np.array(times))


def iteration(fit: Any, rows: NDArray[np.float64], turn: int) -> float:
    """CPU seconds of the critical path."""
    each, masks = fit.rounds[0], RoundMasks(bytes(32), b"%d" % turn)
    tags, seconds = [], []

    def masked(block: ClientBlock, state: Any) -> NDArray[np.int64]:
        start = time.process_time()
        message = masks.mask([b"%d" % len(tags)], each.statistic(block, state)[None])
        seconds.append(time.process_time() - start)
        tags.append(message.tags[0])
        return message.values[0]

    def unmasked(state: Any, releases: Any) -> Any:
        noised = np.concatenate([release.values.ravel() for release in releases])
        return each.step(state, releases_of(each.plan, noised - masks.total(tags, each.plan.size)))

    halves = [ClientBlock(np.ascontiguousarray(rows[first::2])) for first in range(N_CLIENTS)]
    start = time.process_time()
    loop.simulate(fit.initial, [each._replace(statistic=masked, step=unmasked)], halves, bytes(32))
    return time.process_time() - start - min(seconds)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--largest", type=int, default=100_000, help="most rows")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="iterations that are measured, at least 2")
    arguments = parser.parse_args()
    lines = heading("An iteration of FastLloyd: bytes and time")
    lines += [
        f"Means of {arguments.repeats} iterations with 95% intervals. A message has 28 bytes more here: its pseudonym "
        "and its tag.",
        "",
    ]
    columns = ("rows", "k", "d", "bytes", "bytes, paper", "a client's message", "ms", "ms, paper")
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    with threadpool_limits(limits=1):
        for (rows, k, d), (paper, sent) in PUBLISHED.items():
            if rows <= arguments.largest:
                found = milliseconds(rows, k, d, arguments.repeats)
                shown = f"{found.mean:.2f} ± {found.half:.2f}"
                cells = (f"{rows:,}", k, d, n_bytes(k, d), sent, message_bytes(k * (d + 1)), shown, paper)
                lines.append(f"| {' | '.join(map(str, cells))} |")
    measurement.show(lines, arguments.out)


if __name__ == "__main__":
    main()
