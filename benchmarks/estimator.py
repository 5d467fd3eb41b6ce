"""What `DPKMeans` finds without and with public rows, beside what it found when it knew FedDP-KMeans only.

The mixture has 20 features and 10 components of equal weight, with means uniform on [0, 1] and 0.248 as the stddev of
each feature. Costs are mean squared distances of all rows to the nearest center; the means of the components cost
about 1.227. Public are: a radius of 4 about the origin; -1 to 2 as bounds of every column; or 500 rows around the same
means with stddev 0.35. `feddp_kmeans` and `central_tree` in the same ball are
what the estimator and jobs without a box had before.
All fits of one draw see the same rows. What runs is the job that the estimator asks for: its plan, statistics, noise
and server steps, on rows in memory and without Beam's workers around them, which add minutes and change no release.

    python -m benchmarks.estimator --rows 10000 100000 --out benchmarks/results/estimator.md
    python -m benchmarks.estimator --rows 1000000 --methods bounds feddp --out benchmarks/results/estimator_million.md
"""

import argparse
import logging
import math
import secrets
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement
from benchmarks.machine import heading
from benchmarks.separated_mixture import mean_cost

N_FEATURES, N_CLUSTERS = 20, 10
STDDEV = math.sqrt(1.227 / N_FEATURES)
RADIUS, BOUNDS = 4.0, (-1.0, 2.0)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
METHODS: Mapping[str, tuple[str, dict[str, Any], bool]] = {
    "server": ("auto, 500 public rows", {}, True),
    "bounds": ("auto, bounds", {"domain": BOUNDS}, False),
    "radius": ("auto, a radius", {"clipping_norm": RADIUS}, False),
    "tree": ("central_tree, a radius", {"algorithm": "central_tree", "clipping_norm": RADIUS}, False),
    "feddp": ("feddp_kmeans, a radius (before)", {"algorithm": "feddp_kmeans", "clipping_norm": RADIUS}, False),
}
"""The public knowledge, parameters of the estimator, and whether it is given public rows."""
_PART = 1 << 16
_BEST = "means of the components"


class Drawn(NamedTuple):
    """One draw: `rows` (n, d), `server` (500, d), and `best`, the cost of the means of the components."""

    rows: NDArray[np.float64]
    server: NDArray[np.float64]
    best: float


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    measurement.show(report(arguments), arguments.out)


def draw(seed: int, n_rows: int) -> Drawn:
    """The draw of a seed."""
    rng = np.random.default_rng([seed, 7])
    means = rng.uniform(0.0, 1.0, (N_CLUSTERS, N_FEATURES))
    rows = means[rng.integers(0, N_CLUSTERS, n_rows)] + rng.normal(0.0, STDDEV, (n_rows, N_FEATURES))
    server = means[rng.integers(0, N_CLUSTERS, 500)] + rng.normal(0.0, 0.35, (500, N_FEATURES))
    return Drawn(rows, server, mean_cost(rows, means))


def cost(drawn: Drawn, parameters: Mapping[str, Any], *, with_server: bool) -> float:
    """Of one fit."""
    from dapple_dp.estimator.dp_kmeans import DPKMeans
    from dapple_dp.estimator.job_of_parameters import Place, job_of
    from transforms.kmeans.protocols import PROTOCOLS
    from transforms.numerics.kmeans.starts import seeding
    from transforms.privacy import accounting

    place = Place("rows", "server" if with_server else None, tuple(map(str, range(N_FEATURES))), None)
    config = job_of(DPKMeans(N_CLUSTERS, **BUDGET, **parameters).get_params(), place)
    server = drawn.server if with_server else seeding.points_in_ball(300, N_FEATURES, RADIUS, 0)
    protocol, privacy = PROTOCOLS[config.algorithm], config.privacy
    state = protocol.initial_state(config, server, N_FEATURES)
    specs = protocol.round_specs(config, N_FEATURES, len(server))
    plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    for each in protocol.rounds(config, plan):
        state = each.step(state, _released(each, state, drawn.rows))
    return mean_cost(drawn.rows, state.model().centers)


def _released(each: Any, state: Any, rows: NDArray[np.float64]) -> Any:
    """What a round releases of all rows, under a key of its own."""
    from schemas.tables.client_block import ClientBlock
    from transforms.numerics.privacy.noise import draw_release

    parts = (rows[start : start + _PART] for start in range(0, len(rows), _PART))
    exact = sum(each.statistic(ClientBlock(part, None), state.broadcast()) for part in parts)
    return draw_release(secrets.token_bytes(32), each.plan, exact)


def report(arguments: argparse.Namespace) -> list[str]:
    """Markdown lines."""
    costs: dict[tuple[str, int], list[float]] = {}
    for n_rows in arguments.rows:
        for seed in range(arguments.draws):
            drawn = draw(seed, n_rows)
            costs.setdefault((_BEST, n_rows), []).append(drawn.best)
            for name, parameters, with_server in map(METHODS.__getitem__, arguments.methods):
                costs.setdefault((name, n_rows), []).append(cost(drawn, parameters, with_server=with_server))
            print(n_rows, seed, flush=True)
    lines = heading("DPKMeans by what is public")
    lines += [f"Mean cost (standard deviation; largest) of {arguments.draws} draws, epsilon 1, delta 1e-6.", ""]
    lines += [f"| what is public | {' | '.join(f'{n_rows:,} rows' for n_rows in arguments.rows)} |"]
    lines += ["| --- " * (1 + len(arguments.rows)) + "|"]
    for name in [*(METHODS[each][0] for each in arguments.methods), _BEST]:
        lines += [f"| {name} | {' | '.join(_cell(costs[name, n_rows]) for n_rows in arguments.rows)} |"]
    return lines


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.4f} ({np.std(values):.4f}; {max(values):.4f})"


if __name__ == "__main__":
    main()
