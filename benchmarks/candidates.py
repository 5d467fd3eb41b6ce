"""DP-Lloyd from `candidates` beside `best`, its start before: three settings in which `best` is weak.

Mixture: that of the FedDP-KMeans paper, 2,000 clients of 50 rows, privacy unit client, in a public ball of radius 11
about the origin, without server data. Clusters: mixtures in 8 features with 50,000 rows and a public box. Rows: the
mixture of `benchmarks.estimator` with 10,000 rows and public bounds. Costs are mean squared distances of all rows to
the nearest center, at delta 1e-6 (clusters: 1 / (n log n)). What runs are the rounds of a `fit` job: plan, statistics,
noise and server steps, on rows in memory and without Beam's workers around them.

    python -m benchmarks.candidates --out benchmarks/results/candidates.md
"""

import argparse
import logging
import secrets
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import estimator, measurement, mixture
from benchmarks.machine import heading
from benchmarks.separated_mixture import mean_cost

STARTS = ("best", "candidates")
RADIUS, CLIENT_ROWS = 11.0, 50
_PART = 50_000


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines = heading("DP-Lloyd: candidates as its start")
    lines += [f"Mean cost (standard deviation; largest) of {arguments.draws} draws.", ""]
    columns = ("setting", *arguments.starts, "goal", "means of the components")
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    with threadpool_limits(limits=1):
        for part in arguments.parts:
            for line in PARTS[part](arguments):
                print(line, flush=True)
                lines.append(line)
    measurement.show(lines, arguments.out)


def cost(settings: dict[str, Any], rows: NDArray[np.floating], client_rows: int | None = None) -> float:
    """Of one run of the job's rounds on rows in memory; clients have `client_rows` rows each, in their order."""
    from schemas.kmeans.fit_config import validated
    from schemas.tables.client_block import ClientBlock
    from transforms.kmeans.protocols import PROTOCOLS
    from transforms.numerics.kmeans.starts import seeding
    from transforms.numerics.privacy.noise import draw_release
    from transforms.privacy import accounting

    config = validated(settings)
    protocol, privacy, n_features = PROTOCOLS[config.algorithm], config.privacy, rows.shape[1]
    server = seeding.points_in_ball(300, n_features, 1.0, 0)
    specs = protocol.round_specs(config, n_features, len(server))
    plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    state = protocol.initial_state(config, server, n_features)
    for each in protocol.rounds(config, plan):
        exact, broadcast = 0, state.broadcast()
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            offsets = None if client_rows is None else np.arange(0, len(part) + 1, client_rows)
            exact = exact + each.statistic(ClientBlock(part, offsets), broadcast)
        state = each.step(state, draw_release(secrets.token_bytes(32), each.plan, exact))
    return mean_cost(rows, state.model().centers)


def _mixture(arguments: argparse.Namespace) -> Iterator[str]:
    """Lines of the mixture by client."""
    for epsilon, goal in ((0.2, 56.5), (1.0, 52.5), (4.0, 50.8)):
        found: dict[str, list[float]] = {start: [] for start in (*arguments.starts, "optimum")}
        for seed in range(arguments.draws):
            drawn = mixture.draw(seed, 100_000)
            for start in arguments.starts:
                found[start].append(cost(_by_client(epsilon, start, seed), drawn.rows, CLIENT_ROWS))
            found["optimum"].append(mean_cost(drawn.rows, drawn.means))
        yield _line(f"mixture, 2,000 clients, epsilon {epsilon:g}", found, goal, 2)


def _by_client(epsilon: float, start: str, seed: int) -> dict[str, Any]:
    bounds = {"domain": [-RADIUS, RADIUS], "init": start} | ({"steps": 2} if start == "best" else {})
    return {
        "algorithm": "dp_lloyd",
        "data": {"path": "rows", "features": "x", "client_id": "client_id"},
        "n_clusters": 10,
        "privacy": {"unit": "client", "epsilon": epsilon, "delta": 1e-6},
        "clipping": {"norm": RADIUS, "center": "none", "client_rows": CLIENT_ROWS},
        "dp_lloyd": bounds,
        "seed": seed,
    }


def _clusters(arguments: argparse.Namespace) -> Iterator[str]:
    """Lines of many clusters in 8 features."""
    from benchmarks.papers.fastlloyd import lloyd_job
    from benchmarks.papers.fastlloyd_scaling import Size, separable

    for n_clusters, goal in ((32, 0.095), (64, 0.105)):
        found: dict[str, list[float]] = {start: [] for start in (*arguments.starts, "optimum")}
        for seed in range(arguments.draws):
            rows, means = separable(Size(8, n_clusters), 50_000, seed)
            for start in arguments.starts:
                job = lloyd_job(rows, n_clusters, {"variant": "fast", "init": start}, 1.0, seed)
                found[start].append(cost(job, rows))
            found["optimum"].append(mean_cost(rows, means))
        yield _line(f"{n_clusters} clusters in 8 features, epsilon 1", found, goal, 4)


def _rows(arguments: argparse.Namespace) -> Iterator[str]:
    """The line of few rows."""
    found: dict[str, list[float]] = {start: [] for start in (*arguments.starts, "optimum")}
    job: dict[str, Any] = {"algorithm": "dp_lloyd", "data": {"path": "rows", "features": "x"}, "n_clusters": 10}
    job["privacy"] = {"unit": "record", "epsilon": 1.0, "delta": 1e-6}
    for seed in range(arguments.draws):
        drawn = estimator.draw(seed, 10_000)
        for start in arguments.starts:
            bounds = {"domain": list(estimator.BOUNDS), "init": start} | ({"steps": 2} if start == "best" else {})
            found[start].append(cost(job | {"dp_lloyd": bounds}, drawn.rows))
        found["optimum"].append(drawn.best)
    yield _line("10,000 rows, 20 features with bounds, epsilon 1", found, 1.26, 4)


def _line(name: str, found: dict[str, list[float]], goal: float, digits: int) -> str:
    cells = [_cell(found[start], digits) for start in found if start != "optimum"]
    return f"| {name} | {' | '.join(cells)} | {goal:g} | {np.mean(found['optimum']):.{digits}f} |"


def _cell(values: list[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f} ({np.std(values):.{digits}f}; {max(values):.{digits}f})"


PARTS = {"rows": _rows, "clusters": _clusters, "mixture": _mixture}


if __name__ == "__main__":
    main()
