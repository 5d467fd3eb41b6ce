"""One-round clustering of private reports on the axes of Figures 1 and 2 of its paper, and what decoding costs.

Source: Chang, Ghazi, Kumar, Manurangsi (2021), "Locally private k-means in one round": normalized cost (mean squared
distance to the nearest center) over the number of clients n, epsilon, the number of clusters k and the separation r.

Every cost is that of real reports: all clients of a draw are encoded and decoded by the functions that the jobs call.
Finished runs are kept in a file of JSON lines, so that a run that was stopped goes on where it was.

    python -m benchmarks.papers.one_round --runs one_round.jsonl --out benchmarks/results/one_round.md
"""

import argparse
import dataclasses
import importlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import measurement, separated_mixture
from benchmarks.machine import heading

PAPER_COLUMN = {(100_000, 1.0): 1.21, (100_000, 4.0): 0.46, (1_000_000, 1.0): 0.298, (1_000_000, 4.0): 0.106}
PAPER_COLUMN |= {(1_000_000, 8.0): 0.099}
TARGETS = {(100_000, 1.0): 0.72, (100_000, 4.0): 0.14, (1_000_000, 1.0): 0.18, (1_000_000, 4.0): 0.02}
METHODS = ("leaves", "nested", "points", "privunit", "paper", "shuffle", "central")
N_FEATURES = 100
_BLOCK = 50_000


class Cell(NamedTuple):
    """One point of a figure: `method` is paper, leaves, nested, points, privunit, shuffle, clones or central."""

    figure: str
    method: str
    n_clients: int
    epsilon: float
    n_clusters: int = 8
    separation: float = 100.0
    n_features: int = N_FEATURES


def cells(largest: int) -> Iterator[Cell]:
    """All points, cheap ones first; none with more than `largest` clients."""
    methods = ("paper", "leaves", "nested", "points")
    for epsilon in (1.0, 4.0):
        for n_clients in (20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000):
            for method in methods[: 4 if epsilon > 1.0 else 3]:
                yield Cell("n", method, n_clients, epsilon)
    for n_clients in (10_000, 100_000, 1_000_000):
        yield Cell("shuffle", "shuffle", n_clients, 1.0)
        yield Cell("shuffle", "central", n_clients, 1.0)
    yield Cell("n", "privunit", 100_000, 1.0)
    yield Cell("n", "privunit", 100_000, 4.0)
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        for n_clients in (100_000, 1_000_000):
            for method in methods[: 4 if epsilon > 2.0 else 3]:
                yield Cell("epsilon", method, n_clients, epsilon)
    for n_clusters in (2, 4, 8, 16, 32):
        for method in methods:
            yield Cell("k", method, 100_000, 4.0, n_clusters)
    for separation in (1.0, 2.0, 4.0, 8.0, 16.0, 100.0):
        for method in methods:
            yield Cell("r", method, 100_000, 4.0, 8, separation)
    for epsilon in (1.0, 4.0):
        for n_features in (8, 16, 32, 64, 100):
            for method in ("leaves", "nested"):
                yield Cell("d", method, 100_000, epsilon, n_features=n_features)


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first_seed", type=int, default=0, help="later ones are draws that nobody has tuned on")
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--figures", nargs="*", default=["n", "shuffle", "epsilon", "k", "r", "d"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--runs", type=Path, required=True, help="file of finished runs, JSON lines")
    parser.add_argument("--finished_only", action="store_true", help="show finished runs and start none")
    parser.add_argument("--speed", type=int, nargs="*", default=[300_000, 1_000_000, 3_000_000])
    parser.add_argument("--decode", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.decode:
        print(json.dumps(timed_decode(arguments.decode)))
        return
    lines = report(measure(arguments), [speed(n_reports) for n_reports in arguments.speed])
    measurement.show(lines, arguments.out)


def measure(arguments: argparse.Namespace) -> dict[Cell, list[float]]:
    """Costs of all cells; the same runs serve several figures."""
    known: dict[tuple[Any, ...], float] = {}
    if arguments.runs.exists():
        for line in arguments.runs.read_text().splitlines():
            *key, cost = json.loads(line)
            known[tuple(key)] = cost
    costs: dict[Cell, list[float]] = defaultdict(list)
    wanted = [cell for cell in cells(arguments.largest) if cell.figure in arguments.figures]
    wanted = [cell for cell in wanted if cell.n_clients <= arguments.largest and cell.method in arguments.methods]
    wanted = [cell for cell in wanted if cell.epsilon in arguments.epsilons]
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for cell in sorted(wanted, key=lambda each: each.n_clients):
            key = (*cell[1:], seed)
            if key not in known and arguments.finished_only:
                continue
            if key not in known:
                cost = central_cost(cell, seed) if cell.method == "central" else report_cost(cell, seed)
                if cost is None:
                    continue
                known[key] = cost
                with arguments.runs.open("a") as file:
                    file.write(json.dumps([*key, cost]) + "\n")
                print(*cell, seed, round(cost, 5), flush=True)
            costs[cell].append(known[key])
    return costs


def report_cost(cell: Cell, seed: int) -> float:
    """Cost of centers that were found from reports."""
    from threadpoolctl import threadpool_limits

    from dapple_dp.transforms.numerics.reports import encoder as report_encoder
    from dapple_dp.transforms.numerics.reports.coins import SystemCoins
    from dapple_dp.transforms.numerics.reports.decoding import decode_leaves, decode_points
    from dapple_dp.transforms.numerics.reports.sums import ReportSums

    drawn = separated_mixture.draw(seed, cell.n_clients, cell.n_features, cell.n_clusters, cell.separation)
    parameters = parameters_of(cell, np.random.default_rng([seed, 5]).bytes(16), cell.n_features)
    nonces = np.sort(np.random.default_rng([seed, 6]).integers(0, 2**64, cell.n_clients, dtype=np.uint64))
    sums, parts = ReportSums.zeros(parameters), []
    with threadpool_limits(limits=1):
        for start in range(0, cell.n_clients, _BLOCK):
            rows = drawn.rows[start : start + _BLOCK]
            coins = SystemCoins(len(rows))
            parts.append(report_encoder.encode(rows, parameters, nonces[start : start + _BLOCK], coins))
            sums = sums.merge(ReportSums.of(parts[-1], parameters))
        if parameters.depth:
            centers = decode_leaves.decode(sums, parameters, seed).centers
        else:
            reports = report_encoder.Reports(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            directions = decode_points.principal_directions(sums, parameters)
            points = decode_points.project(reports, parameters, directions)
            order = np.random.default_rng([seed, 7]).permutation(len(points))
            mixture = decode_points.fit_mixture(points[order], parameters, seed)
            soft = decode_points.SoftSums.of(reports, parameters, directions, mixture)
            centers = soft.centers(parameters, cell.n_clients).centers
    return separated_mixture.mean_cost(drawn.rows, centers)


def parameters_of(cell: Cell, key: bytes, n_features: int = N_FEATURES):  # type: ignore[no-untyped-def]
    """Public parameters, as the `encode` job would choose them."""
    from dapple_dp.schemas.reports.config import EncodeConfig
    from dapple_dp.transforms.numerics.reports.design import design

    shuffled = cell.method in ("shuffle", "clones")
    config = EncodeConfig.model_validate(
        {
            "experimental": True,
            "data": {"path": "lake", "features": "x", "client_id": "client_id"},
            "n_clusters": cell.n_clusters,
            "privacy": {"unit": "client", "epsilon": cell.epsilon, "delta": 1e-6 if shuffled else None},
            "tree": {"radius": separated_mixture.RADIUS},
            "reports": {
                "mode": "shuffle" if shuffled else "local",
                "variant": "nested" if shuffled else cell.method,
                "min_batch": cell.n_clients,
            },
        }
    )
    parameters = design(config, tuple(f"x[{index}]" for index in range(n_features)), key)
    return by_clones(parameters) if cell.method == "clones" else parameters


def by_clones(parameters):  # type: ignore[no-untyped-def]
    """The same collection, priced by the closed form that knows epsilon only."""
    from dapple_dp.transforms.numerics.reports.amplification import local_epsilon_for
    from dapple_dp.transforms.numerics.reports.mechanism import MOST_EPSILON, codeword_choice

    promise = parameters.guarantee
    local = local_epsilon_for(promise.epsilon, promise.delta, promise.min_batch, MOST_EPSILON)
    promise = dataclasses.replace(promise, local_epsilon=local)
    return dataclasses.replace(parameters, guarantee=promise, choices=((codeword_choice(local), local),))


def central_cost(cell: Cell, seed: int) -> float | None:
    """Cost of the central tree on the same draw at delta 1e-6; None where there is no such algorithm."""
    from dapple_dp.api import fit
    from dapple_dp.schemas.choices import Algorithm
    from dapple_dp.schemas.kmeans.fit_config import validated

    if "central_tree" not in set(Algorithm):
        return None
    drawn = separated_mixture.draw(seed, cell.n_clients, cell.n_features, cell.n_clusters, cell.separation)
    with tempfile.TemporaryDirectory() as temporary:
        separated_mixture.write_lake(Path(temporary), drawn.rows, max(1, cell.n_clients // 8))
        settings = {
            "experimental": True,
            "algorithm": "central_tree",
            "data": {"path": temporary, "features": "x"},
            "n_clusters": cell.n_clusters,
            "privacy": {"unit": "record", "epsilon": cell.epsilon, "delta": 1e-6},
            "tree": {"radius": separated_mixture.RADIUS},
        }
        return separated_mixture.mean_cost(drawn.rows, fit(validated(settings)).model.centers)


def speed(n_reports: int) -> dict[str, float]:
    """CPU seconds and memory of the `decode` command for this many reports, in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        write_reports(Path(temporary), n_reports)
        words = ("--runs", "unused", "--decode", temporary)
        return measurement.in_a_process("benchmarks.papers.one_round", *words) | {"n": n_reports}


def write_reports(folder: Path, n_reports: int) -> None:
    """Reports that say nothing: random nonces and indices, in 64 files."""
    import pyarrow.parquet as pq

    from dapple_dp.schemas.reports.rows import PARAMETERS_FILE, REPORTS_FOLDER, to_table

    parameters = parameters_of(Cell("", "nested", 100_000, 4.0), bytes(range(16)))
    rng = np.random.default_rng(0)
    (folder / REPORTS_FOLDER).mkdir()
    (folder / PARAMETERS_FILE).write_text(parameters.to_json())
    (folder / "job.yaml").write_text(f"reports: {{path: {folder}}}\n")
    for index, part in enumerate(np.array_split(np.arange(n_reports), 64)):
        nonces = rng.integers(0, 2**64, len(part), dtype=np.uint64)
        table = to_table(nonces, rng.integers(0, 256, len(part)).astype(np.uint16), parameters)
        pq.write_table(table, folder / REPORTS_FOLDER / f"part-{index:02d}.parquet", use_dictionary=False)


def timed_decode(folder: Path) -> dict[str, float]:
    """Runs the command in this process, which does nothing else."""
    importlib.import_module("dapple_dp.pipelines.command.main")  # before the clock runs
    words = ("reports", "decode", "--config", str(folder / "job.yaml"), "--output", str(folder / "out"))
    return measurement.measured(lambda: measurement.command(*words))


def report(costs: dict[Cell, list[float]], speeds: list[dict[str, float]]) -> list[str]:
    """Markdown lines: one table per figure."""
    lines = heading("One-round clustering of private reports")
    lines += [
        "Normalized cost, mean (standard deviation) over draws: d = 100, k = 8, r = 100 unless said otherwise. The",
        "origin alone costs about 0.98, the best centers 0.0001. `target` bounds the default variant, `published",
        "protocol` is what the paper's protocol was measured to cost on the same mixture.",
        "",
    ]
    lines += _table("Number of clients and epsilon", costs, ("n", "epsilon"), ("n_clients", "epsilon"), known=True)
    lines += _table("Shuffled reports and the central tree, central (1, 1e-6)", costs, ("shuffle",), ("n_clients",))
    lines += _table("Number of clusters (n = 100,000, epsilon 4)", costs, ("k",), ("n_clusters",))
    lines += _table("Separation (n = 100,000, epsilon 4)", costs, ("r",), ("separation",))
    lines += _table("Number of features (n = 100,000)", costs, ("d",), ("epsilon", "n_features"))
    return lines + (_speeds(speeds) if speeds else [])


def _speeds(speeds: list[dict[str, float]]) -> list[str]:
    """Time that decoding takes."""
    columns = ("reports", "CPU s", "CPU s per million", "per further million", "peak RSS MB")
    lines = ["## Decoding", "", "CPU time is that of the whole command, its start included.", ""]
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for before, each in zip([None, *speeds], speeds, strict=False):
        rate = f"{each['cpu'] / each['n'] * 1e6:.2f}"
        further = f"{(each['cpu'] - before['cpu']) / (each['n'] - before['n']) * 1e6:.2f}" if before else ""
        lines.append(f"| {each['n']:,} | {each['cpu']:.2f} | {rate} | {further} | {each['rss']:.0f} |")
    return lines


def _table(
    title: str,
    costs: dict[Cell, list[float]],
    figures: tuple[str, ...],
    axes: tuple[str, ...],
    known: bool = False,
) -> list[str]:
    """One figure; columns are methods."""
    rows: dict[tuple[float, ...], dict[str, list[float]]] = defaultdict(dict)
    for cell, values in costs.items():
        if cell.figure in figures and values:
            rows[tuple(getattr(cell, axis) for axis in axes)][cell.method] = values
    if not rows:
        return []
    methods = [name for name in METHODS if any(name in found for found in rows.values())]
    extra = ["target", "published protocol"] if known else []
    lines = [f"## {title}", "", f"| {' | '.join([*axes, *methods, *extra])} |"]
    lines.append("| --- " * (len(axes) + len(methods) + len(extra)) + "|")
    for key in sorted(rows):
        shown = [f"{value:,g}" if value < 1000 else f"{value:,.0f}" for value in key]
        shown += [_cell(rows[key].get(method)) for method in methods]
        if known:
            shown += [str(table.get(key, "")) for table in (TARGETS, PAPER_COLUMN)]
        lines.append(f"| {' | '.join(shown)} |")
    return [*lines, ""]


def _cell(values: list[float] | None) -> str:
    return "" if not values else f"{np.mean(values):.4g} ({np.std(values):.2g}; {len(values)})"


if __name__ == "__main__":
    main()
