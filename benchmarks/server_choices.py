"""What public server data choose for FedDP-KMeans: the space of its start, and `privacy.shares: auto`.

Space: on the census (class Private, record level), FedDP-KMeans in the subspace (as it was) and in the chosen space
beside ServerLloyds with the same Lloyd rounds. How often full space is chosen is counted on the mixture (with and
without all components in the server data) and on census draws; where the subspace is chosen nothing changes.
Shares: fixed table, auto, and the best of the whole grid that auto chooses from. The best is looked for on draws of
their own; the best few are measured again on the draws of the other columns. The mixture has 100,000 rows or 2,000
clients of 50; clients of the census are silos by occupation and education. Each set is one draw of rows; draws differ
in noise and in the seed of public randomness. Costs are mean squared distances of all rows to the nearest center, at
delta 1e-6. What runs are the rounds of a `fit` job on rows in memory, without Beam's workers around them.

    python -m benchmarks.server_choices --data DATA --parts space_chosen space_costs --out FILE
    python -m benchmarks.server_choices --data DATA --parts shares --out FILE
"""

import argparse
import functools
import hashlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from benchmarks.papers.feddp_kmeans import CATEGORICAL, CLASSES, NUMERIC
from benchmarks.separated_mixture import mean_cost

SPACE_EPSILONS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0)
SHARE_EPSILONS = (0.2, 1.0, 4.0)
STEPS = (1, 2)
DELTA, CLIENT_ROWS, BEST = 1e-6, 50, 2
MISSING = (0, 2, 6)
_T95 = {10: 2.262, 20: 2.093, 5: 2.776, 3: 4.303, 2: 12.706}
Lines = Iterator[str]


class Task(NamedTuple):
    """Rows (n, d), server data (q, d), and where clients begin; None at record level."""

    rows: NDArray[np.float64]
    server: NDArray[np.float64]
    offsets: NDArray[np.int64] | None = None

    @property
    def n_units(self) -> int:
        """Rows, or clients."""
        return len(self.rows) if self.offsets is None else len(self.offsets) - 1


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with adult_census.parquet")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines = heading("What server data choose for FedDP-KMeans")
    lines += [f"Mean cost (half the 95% interval) of {arguments.draws} draws, delta 1e-6."]
    with threadpool_limits(limits=1):
        for part in arguments.parts:
            for line in PARTS[part](arguments):
                print(line, flush=True)
                lines.append(line)
                if arguments.out:
                    arguments.out.write_text("\n".join(lines) + "\n")


@functools.cache
def census(data: Path, seed: int) -> Task:
    """Rows of class Private by silo; server: 20 rows of it and 1000 of other classes."""
    from schemas.tables.encoder import Encoder
    from schemas.tables.encoding import OneHot, QuantileBins

    table = pq.read_table(data / "adult_census.parquet")
    inside = table["workclass"].to_numpy(zero_copy_only=False) == CLASSES["private"]
    rng = np.random.default_rng(seed)
    ours, others = rng.permutation(np.flatnonzero(inside)), rng.permutation(np.flatnonzero(~inside))
    silos = pa.array(["/".join(each.values()) for each in table.select(["occupation", "education"]).to_pylist()])
    features = (*CATEGORICAL, *NUMERIC)
    rows = table.select(features).append_column("silo", silos).take(ours[20:]).sort_by("silo")
    server = table.select(features).take(np.concatenate([ours[:20], others[:1000]]))
    encodings: dict[str, Any] = {each: OneHot(kind="one_hot", vocabulary="server") for each in CATEGORICAL}
    encodings |= {each: QuantileBins(kind="quantile_bins", bins=5) for each in NUMERIC}
    encoder = Encoder.learn(features, encodings, server, "server")
    begins = np.unique(rows["silo"].to_numpy(zero_copy_only=False), return_index=True)[1]
    offsets = np.append(np.sort(begins), len(rows)).astype(np.int64)
    points = [encoder.encode(each.select(features), "rows").astype(np.float64) for each in (rows, server)]
    return Task(points[0], points[1], offsets)


def job(unit: str, epsilon: float, seed: int, n_units: int, **sections: Any) -> dict[str, Any]:
    """Settings of a fit; `sections` replace or add."""
    clipping = {"norm": "server_radius"} | ({"client_rows": CLIENT_ROWS} if unit == "client" else {})
    return {
        "algorithm": "feddp_kmeans",
        "data": {"path": "rows", "features": "x", "client_id": "client_id"},
        "server_data": {"path": "server"},
        "n_clusters": 10,
        "privacy": {"unit": unit, "epsilon": epsilon, "delta": DELTA},
        "clipping": clipping,
        "plan": {"assumed_rows": n_units},
        "seed": seed,
    } | sections


def resolved(settings: dict[str, Any], task: Task) -> Any:
    """The job with what its server data choose."""
    from pipelines.kmeans.plan import public_fit
    from schemas.kmeans.fit_config import validated

    return public_fit.resolved(validated(settings), task.server)


def cost(config: Any, task: Task, label: str, *, calibrated: bool = True) -> float:
    """Of one run of a job that is resolved; `label` makes its noise its own."""
    from schemas.tables.client_block import ClientBlock
    from transforms.kmeans.protocols import PROTOCOLS
    from transforms.numerics.privacy.noise import draw_release
    from transforms.privacy import accounting

    protocol, privacy, n_features = PROTOCOLS[config.algorithm], config.privacy, task.rows.shape[1]
    specs = protocol.round_specs(config, n_features, len(task.server))
    if calibrated:
        plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    else:
        plan = accounting.nearly_calibrated(privacy.unit, specs, privacy.epsilon, privacy.delta)
    state, key = protocol.initial_state(config, task.server, n_features), hashlib.sha256(label.encode()).digest()
    block = ClientBlock(task.rows, task.offsets if privacy.unit == "client" else None)
    for each in protocol.rounds(config, plan):
        exact = _outer_product(each, block, state, config.seed) if "outer" in each.plan.path else None
        if exact is None:
            exact = each.statistic(block, state.broadcast())
        state = each.step(state, draw_release(key, each.plan, exact))
    return mean_cost(task.rows, state.model().centers)


_OUTER: dict[tuple[int, int, int], NDArray[np.int64]] = {}


def _outer_product(bound: Any, block: Any, state: Any, seed: int) -> NDArray[np.int64]:
    """The exact statistic of the first round, which is the same for all noise."""
    name = (id(block.points), 0 if block.offsets is None else seed + 1, bound.plan.size)
    if name not in _OUTER:
        _OUTER[name] = bound.statistic(block, state.broadcast())
    return _OUTER[name]


def half(values: list[float]) -> float:
    """Half the 95% interval of a mean."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 * _T95.get(len(values), 1.96)


def _cell(values: list[float], digits: int = 3) -> str:
    return f"{np.mean(values):.{digits}f} ({half(values):.{digits}f})"


def space_chosen(arguments: argparse.Namespace) -> Lines:
    """How often full space is chosen."""
    from transforms.numerics.kmeans.starts.spaces import prefers_full_space

    yield from ("", "## Space: how often full space is chosen", "", "| server data | full space |", "| --- | --- |")
    for missing in MISSING:
        found = [
            prefers_full_space(mixture.draw(seed, 0).server[20 * missing :], 10) for seed in range(arguments.draws)
        ]
        yield f"| mixture, {missing} components missing | {sum(found)} of {len(found)} |"
    found = [prefers_full_space(census(arguments.data, seed).server, 10) for seed in range(arguments.draws)]
    yield f"| census, class Private | {sum(found)} of {len(found)} |"


def space_costs(arguments: argparse.Namespace) -> Lines:
    """FedDP-KMeans beside ServerLloyds on the census."""
    columns = ("epsilon", "T", "subspace (before)", "chosen space", "ServerLloyds", "its upper limit", "reached")
    yield from ("", "## Space: census, class Private, record level", "", f"| {' | '.join(columns)} |")
    yield "| --- " * len(columns) + "|"
    task = census(arguments.data, 0)
    methods: dict[str, dict[str, Any]] = {
        "before": {"feddp_kmeans": {"space": "subspace"}},
        "now": {},
        "rival": {"algorithm": "server_lloyds"},
    }
    for epsilon in SPACE_EPSILONS:
        for steps in STEPS:
            found: dict[str, list[float]] = {name: [] for name in methods}
            for seed in range(arguments.draws):
                for name, sections in methods.items():
                    settings = job("record", epsilon, seed, task.n_units, lloyd={"steps": steps}, **sections)
                    found[name].append(cost(resolved(settings, task), task, f"{name} {epsilon} {steps} {seed}"))
            limit = float(np.mean(found["rival"])) + half(found["rival"])
            reached = "yes" if np.mean(found["now"]) <= limit else "NO"
            cells = [_cell(found[name]) for name in methods]
            yield f"| {epsilon:g} | {steps} | {' | '.join(cells)} | {limit:.3f} | {reached} |"


def shares(arguments: argparse.Namespace) -> Lines:
    """Fixed table, auto, and the best of the grid."""
    columns = ("data", "unit", "epsilon", "fixed", "auto", "best of the grid", "auto over best", "chosen", "best")
    yield from ("", "## Shares and Lloyd rounds", "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|")
    for name, unit in (("mixture", "client"), ("census", "record"), ("census", "client"), ("mixture", "record")):
        task = _task(name, unit, arguments.data)
        for epsilon in SHARE_EPSILONS:
            yield f"| {name} | {unit} | {epsilon:g} | {_compared(task, unit, epsilon, arguments.draws)} |"


def _task(name: str, unit: str, data: Path) -> Task:
    if name == "census":
        task = census(data, 0)
        return task if unit == "client" else task._replace(offsets=None)
    drawn = mixture.draw(0, 100_000)
    offsets = np.arange(0, 100_001, CLIENT_ROWS) if unit == "client" else None
    return Task(drawn.rows, drawn.server, offsets)


def _compared(task: Task, unit: str, epsilon: float, draws: int) -> str:
    """Cells of one line."""
    from pipelines.kmeans.plan import simulated_shares
    from transforms.kmeans.feddp_kmeans.space import decided

    settings = job(unit, epsilon, 0, task.n_units)
    automatic = settings | {"privacy": settings["privacy"] | {"shares": "auto"}}
    chosen, grid = resolved(automatic, task), simulated_shares.candidates(decided(_validated(automatic), task.server))
    tried = [_look(each, task) for each in grid]
    measured = [resolved(settings, task), chosen, *(grid[each] for each in np.argsort(tried)[:BEST])]
    found = [_draws(each, task, epsilon, draws) for each in measured]
    # What auto chose is of the grid, too.
    best = min(range(1, len(found)), key=lambda each: float(np.mean(found[each])))
    words = [_words(simulated_shares.to_json(measured[each])) for each in (1, best)]
    excess = float(np.mean(found[1]) / np.mean(found[best])) - 1.0
    return " | ".join([*(_cell(found[each]) for each in (0, 1, best)), f"{excess:+.2%}", *words])


def _look(config: Any, task: Task) -> float:
    """One run of a candidate, by which the best few are found."""
    return cost(config.model_copy(update={"seed": 100}), task, "grid", calibrated=False)


def _validated(settings: dict[str, Any]) -> Any:
    from schemas.kmeans.fit_config import validated

    return validated(settings)


def _draws(config: Any, task: Task, epsilon: float, draws: int) -> list[float]:
    return [cost(config.model_copy(update={"seed": seed}), task, f"shares {epsilon} {seed}") for seed in range(draws)]


def _words(chosen: dict[str, Any]) -> str:
    parts = "/".join(f"{share:.2g}" for share in chosen["shares"].values())
    lloyd = chosen["lloyd"]
    return f"{chosen['space']} {parts}, T={lloyd['steps']}" + (f" ({lloyd['share']:g})" if lloyd["steps"] else "")


PARTS = {"space_chosen": space_chosen, "space_costs": space_costs, "shares": shares}


if __name__ == "__main__":
    main()
