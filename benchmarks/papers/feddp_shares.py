"""Budget shares and Lloyd steps of the Pareto-optimal runs of FedDP-KMeans: Tables 2 to 5.

Every data set sees the same settings: shares drawn evenly from the simplex beside the paper's recommendation, T of 0, 1
and 2, and some epsilons, with `allocation: paper`. A run is on the front if no run of its data set costs less at the
same or a smaller epsilon. `near` allows runs that cost up to 1% more than the best at their epsilon: it says how much
the choice matters. Fits run on rows in memory, with the statistics, noise and server steps of `fit`.

Mixtures are drawn here. Census and Stack Overflow rows join if a lake of them is named, which
`python -m benchmarks.papers.feddp_real` writes.

    python -m benchmarks.papers.feddp_shares --out benchmarks/results/feddp_kmeans
    python -m benchmarks.papers.feddp_shares --lakes WORK/lake-acs-federal --out benchmarks/results/feddp_kmeans
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from benchmarks.papers import in_memory
from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.numerics.statistics.nearest import NearestCenters
from dapple_dp.transforms.numerics.trusted_zone.curves import on_front

MIXTURES = {"record": (100_000, None), "client-1000": (50_000, 50), "client-2000": (100_000, 50)}
MIXTURES |= {"client-5000": (250_000, 50)}
"""Rows, and rows of each client."""
EPSILONS = (0.2, 0.5, 1.0)
STEPS = (0, 1, 2)
N_SHARES = 12
LEAST_SHARE = 0.04
PARTS = ("outer_product", "weights", "sums", "counts")
RECOMMENDED = {"record": (0.2, 0.2, 0.45, 0.15), "client": (0.35, 0.1, 0.45, 0.1)}
PUBLISHED = {
    "record": ((0.18, 0.23, 0.43, 0.17), (0.61, 0.39, 0.0)),
    "client-1000": ((0.38, 0.09, 0.42, 0.10), (0.86, 0.11, 0.04)),
    "client-2000": ((0.43, 0.10, 0.36, 0.11), (0.80, 0.17, 0.03)),
    "client-5000": ((0.43, 0.09, 0.37, 0.11), (0.81, 0.10, 0.10)),
    "acs-not-for-profit": ((0.24, 0.17, 0.41, 0.18), (0.80, 0.10, 0.10)),
    "acs-federal": ((0.15, 0.16, 0.52, 0.17), (0.91, 0.09, 0.0)),
    "acs-self-employed": ((0.20, 0.23, 0.47, 0.10), (0.92, 0.08, 0.0)),
    "questions-facebook-hibernate": ((0.29, 0.15, 0.42, 0.15), (1.0, 0.0, 0.0)),
    "questions-github-pdf": ((0.37, 0.12, 0.40, 0.10), (1.0, 0.0, 0.0)),
    "questions-machine-learning-math": ((0.29, 0.14, 0.45, 0.13), (0.94, 0.06, 0.0)),
    "questions-plotting-cookies": ((0.33, 0.11, 0.47, 0.09), (0.96, 0.04, 0.0)),
}
"""Tables 2 and 4 (record level), 3 and 5 (client level)."""
SLACK = 0.01


class Data(NamedTuple):
    """`block` of all rows, `server` (q, d), and the privacy `unit`."""

    block: ClientBlock
    server: NDArray[np.float64]
    unit: str


class Run(NamedTuple):
    """One fit: `epsilon`, `shares` in the order of `PARTS`, Lloyd `steps` and `cost` / n."""

    epsilon: float
    shares: tuple[float, ...]
    steps: int
    cost: float


def main() -> None:
    parser = measurement.script(__doc__, "folder for the table")
    parser.add_argument("--sets", nargs="*", choices=MIXTURES, default=list(MIXTURES))
    parser.add_argument("--lakes", type=Path, nargs="*", default=[], help="folders that feddp_real wrote")
    arguments = parser.parse_args()
    found: dict[str, list[Run]] = {}
    with threadpool_limits(limits=1):
        for name, data in itertools.chain(
            ((each, drawn(each)) for each in arguments.sets), map(_named, arguments.lakes)
        ):
            found[name] = runs(data)
            measurement.show(report(found), arguments.out and arguments.out / "shares.md")


def drawn(name: str) -> Data:
    """A mixture of the paper."""
    n_rows, client_rows = MIXTURES[name]
    found = mixture.draw(0, n_rows)
    block = in_memory.client_block(np.asarray(found.rows, dtype=np.float64), client_rows)
    return Data(block, found.server, "record" if client_rows is None else "client")


def _named(lake: Path) -> tuple[str, Data]:
    return lake.name.removeprefix("lake-"), read_lake(lake)


def read_lake(lake: Path) -> Data:
    """Rows of `clients/part-*.parquet`, sorted by client, and of `server.parquet`; by client unless census rows."""
    table = pq.read_table(lake / "clients").sort_by("client_id")
    owners = table["client_id"].to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    rows = _matrix(table["x"])
    server = _matrix(pq.read_table(lake / "server.parquet")["x"])
    if "acs" in lake.name:
        return Data(ClientBlock(rows), server, "record")
    return Data(ClientBlock(rows, np.append(starts, len(rows)).astype(np.int64)), server, "client")


def _matrix(column) -> NDArray[np.float64]:  # type: ignore[no-untyped-def]
    """A column of lists as rows."""
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float64).reshape(len(column), -1)


def settings(unit: str) -> list[tuple[float, ...]]:
    """Shares to try, in the order of `PARTS`: the recommendation first, then points of the simplex."""
    rng = np.random.default_rng(0)
    points = LEAST_SHARE + (1.0 - len(PARTS) * LEAST_SHARE) * rng.dirichlet(np.ones(len(PARTS)), N_SHARES - 1)
    return [RECOMMENDED[unit], *(tuple(float(share) for share in point) for point in np.round(points, 3))]


def runs(data: Data) -> list[Run]:
    """Every setting once."""
    found = []
    for seed, (shares, steps, epsilon) in enumerate(itertools.product(settings(data.unit), STEPS, EPSILONS)):
        given = dict(zip(PARTS, shares, strict=True))
        given["sums"] = 1.0 - sum(share for part, share in given.items() if part != "sums")
        sections = {"privacy": {"allocation": "paper"}, "lloyd": {"steps": steps}, "shares": given}
        config = in_memory.job("feddp_kmeans", data.unit, epsilon, 10, seed, **sections)
        centers = in_memory.centers(config, data.server, data.block, seed)
        cost = float(NearestCenters.of(centers).rows(data.block.points).squared.mean())
        found.append(Run(epsilon, shares, steps, cost))
    return found


def front(found: list[Run]) -> list[Run]:
    """Runs that no other one beats."""
    kept = on_front(np.array([run.epsilon for run in found]), np.array([run.cost for run in found]))
    return [run for run, keep in zip(found, kept, strict=True) if keep]


def near(found: list[Run]) -> list[Run]:
    """Runs that cost at most a little more than the best at their epsilon."""
    best = {epsilon: min(run.cost for run in found if run.epsilon == epsilon) for epsilon in EPSILONS}
    return [run for run in found if run.cost <= (1.0 + SLACK) * best[run.epsilon]]


def summary(some: list[Run]) -> list[float]:
    """Mean shares, and the part of the runs with each number of steps."""
    shares = np.mean([run.shares for run in some], axis=0)
    return [*shares, *(float(np.mean([run.steps == number for run in some])) for number in STEPS)]


def report(found: dict[str, list[Run]]) -> list[str]:
    """Markdown lines."""
    lines = heading("FedDP-KMeans: shares and Lloyd steps of Pareto-optimal runs")
    number = N_SHARES * len(STEPS) * len(EPSILONS)
    lines += [f"{number} runs per data set: {N_SHARES} shares, T of 0, 1, 2, epsilon {', '.join(map(str, EPSILONS))}."]
    lines += ["`near` are all runs within 1% of the best at their epsilon.", ""]
    lines += [
        "| data | runs | number | outer product | weights | sums | counts | T=0 | T=1 | T=2 |",
        "| --- " * 10 + "|",
    ]
    for name, some in found.items():
        for label, chosen in (("front", front(some)), ("near", near(some))):
            cells = " | ".join(f"{each:.2f}" for each in summary(chosen))
            lines.append(f"| {name} | {label} | {len(chosen)} | {cells} |")
        if name in PUBLISHED:
            shares, steps = PUBLISHED[name]
            lines.append(f"| {name} | published | | {' | '.join(f'{each:.2f}' for each in (*shares, *steps))} |")
    lines += ["", "## Cost / n at the front", "", "| data | " + " | ".join(f"eps {each:g}" for each in EPSILONS) + " |"]
    lines += ["| --- " * (len(EPSILONS) + 1) + "|"]
    for name, some in found.items():
        best = [min(run.cost for run in some if run.epsilon == epsilon) for epsilon in EPSILONS]
        lines.append(f"| {name} | " + " | ".join(f"{cost:.2f}" for cost in best) + " |")
    return lines


if __name__ == "__main__":
    main()
