"""Who finds the best centers: every algorithm of Dapple, published protocols, diffprivlib, and k-means without privacy.

Sets: the six of the FastLloyd paper, scaled to [-1, 1]; rows of the mixture of the FedDP-KMeans paper; the census silos
of `examples/census`; MNIST as means of 2 x 2 pixels. The box of each set is public, and so is the ball around it.
Server data are those of mixture and census; the other sets have none. Privacy unit record; delta is 1 / (n log n) on
the six sets and 1e-6 elsewhere. Costs are mean squared distances of all rows to the nearest center, with k as the
papers have it. diffprivlib gives pure epsilon by its own account ([what an audit found](../docs/audit-of-others.md)).
What runs of ours are the rounds of a `fit` job on rows in memory. `SuLloyd`, `GLloyd` and `FastLloyd` are the published
protocols without rounds before them, `FedDP-KMeans, paper` has the published allocation.

Finished runs are kept in a file of JSON lines, so that a run that was stopped goes on where it was.

    python -m benchmarks.field --data FOLDER --mnist FILE --draws 10 --runs FILE --out benchmarks/results/field.md
"""

import argparse
import functools
import hashlib
import json
import logging
import math
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import data, measurement, mixture
from benchmarks.machine import heading
from benchmarks.separated_mixture import mean_cost

EPSILONS = (0.1, 0.4, 1.0, 4.0)
SIX = ("iris", "lsun", "s1", "house", "wine", "adult")
LARGE = ("mixture", "census", "mnist")
MIXTURE_ROWS, MNIST_ROWS = 20_000, 10_000
NOT_PRIVATE, OTHER = "scikit-learn, not private", "diffprivlib"
LLOYD: dict[str, dict[str, Any]] = {
    "SuLloyd": {"variant": "su", "post_process": "none"},
    "GLloyd": {"variant": "g", "post_process": "none"},
    "FastLloyd": {"variant": "fast", "init": "sphere_packing"},
    "dp_lloyd, best": {"init": "best"},
    "dp_lloyd, candidates": {"init": "candidates"},
}
SERVED: dict[str, dict[str, Any]] = {
    "feddp_kmeans": {"algorithm": "feddp_kmeans", "lloyd": {"steps": 1}},
    "FedDP-KMeans, paper": {"algorithm": "feddp_kmeans", "allocation": "paper"},
    "server_lloyds": {"algorithm": "server_lloyds", "lloyd": {"steps": 1}},
}
TREE = "central_tree"
METHODS = (NOT_PRIVATE, OTHER, *LLOYD, TREE, *SERVED)
FITTER = Path(__file__).with_name("fit_others.py")
_PART = 1 << 14


class Task(NamedTuple):
    """One draw of a set: `rows` (n, d) inside the box, its `bounds`, k, delta, and server data (q, d) or None."""

    rows: NDArray[np.float64]
    bounds: tuple[float, float]
    n_clusters: int
    delta: float
    server: NDArray[np.float64] | None = None


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, help="folder of npz files (`benchmarks.data` says which)")
    parser.add_argument("--mnist", type=Path, help="npz with x_train, y_train, x_test, y_test")
    parser.add_argument("--draws", type=int, default=9, help="of the six sets; a third of them of the large ones")
    parser.add_argument("--sets", nargs="+", choices=(*SIX, *LARGE), default=[*SIX, *LARGE])
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--runs", type=Path, help="file of finished runs, JSON lines; they are not run again")
    parser.add_argument("--others", type=Path, help="Python of an environment with diffprivlib; installed if left out")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines = heading("Who finds the best centers")
    lines += [
        "Mean cost (standard deviation) of the draws of each set. Empty cells need server data, which the set has not."
    ]
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(limits=1):
        python = arguments.others or _installed(Path(folder) / "venv")
        kept = KeptRuns(arguments.runs)
        for name in arguments.sets:
            lines += ["", *section(name, arguments, python, Path(folder), kept)]
            measurement.show(lines[-2 - len(METHODS) :], None)
            if arguments.out:
                arguments.out.write_text("\n".join(lines).rstrip() + "\n")


def _installed(folder: Path) -> Path:
    from benchmarks.audit_of_others import install

    return install(folder)


class KeptRuns:
    """Costs of finished runs by set, method, epsilon and draw, kept in a file of JSON lines if there is one."""

    def __init__(self, path: Path | None):
        self._path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._costs = {tuple(key): value for *key, value in map(json.loads, lines)}

    def costs(self, keys: Sequence[tuple[Any, ...]], work: Callable[[], list[float]]) -> list[float]:
        """Those of the keys; runs `work`, which gives all of them, if one is missing."""
        if not all(key in self._costs for key in keys):
            for key, value in zip(keys, work(), strict=True):
                self._costs[key] = value
                if self._path:
                    with self._path.open("a") as file:
                        file.write(json.dumps([*key, value]) + "\n")
        return [self._costs[key] for key in keys]


def section(name: str, arguments: argparse.Namespace, python: Path, folder: Path, kept: KeptRuns) -> Iterator[str]:
    """Markdown lines of one set."""
    found: dict[tuple[str, float], list[float]] = {}
    draws = arguments.draws if name in SIX else max(1, arguments.draws // 3)
    for seed in range(draws):
        task = drawn(name, seed, arguments)
        for keys, work in runs(name, task, seed, arguments.epsilons, python, folder):
            for (_, method, epsilon, _), value in zip(keys, kept.costs(keys, work), strict=True):
                found.setdefault((method, epsilon), []).append(value)
        print(name, seed, file=sys.stderr, flush=True)
    rows, n_features = task.rows.shape
    title = f"## {name}: {rows:,} rows, {n_features} features, k = {task.n_clusters}, draws: {draws}"
    return iter([title, "", *_table(found, arguments.epsilons)])


def runs(
    name: str, task: Task, seed: int, epsilons: list[float], python: Path, folder: Path
) -> Iterator[tuple[list[tuple[Any, ...]], Callable[[], list[float]]]]:
    """Keys and work of all runs on a draw; the work of a call gives the costs of its keys."""
    yield (
        [(name, OTHER, epsilon, seed) for epsilon in epsilons],
        functools.partial(others, task, epsilons, seed, python, folder),
    )
    yield (
        [(name, NOT_PRIVATE, epsilon, seed) for epsilon in epsilons],
        lambda: [without_privacy(task, seed)] * len(epsilons),
    )
    for epsilon in epsilons:
        for method, settings in jobs(task, epsilon, seed):
            label = f"{name} {method} {epsilon} {seed}"
            yield [(name, method, epsilon, seed)], functools.partial(_one_cost, task, settings, label)


def _one_cost(task: Task, settings: dict[str, Any], label: str) -> list[float]:
    return [cost(task, settings, label)]


def _table(found: dict[tuple[str, float], list[float]], epsilons: list[float]) -> Iterator[str]:
    yield f"| | {' | '.join(f'epsilon {epsilon:g}' for epsilon in epsilons)} |"
    yield "| --- " * (1 + len(epsilons)) + "|"
    for method in METHODS:
        cells = [_cell(found.get((method, epsilon))) for epsilon in epsilons]
        yield f"| {method} | {' | '.join(cells)} |"


def _cell(values: list[float] | None) -> str:
    return "" if not values else f"{np.mean(values):.4g} ({np.std(values):.2g})"


def drawn(name: str, seed: int, arguments: argparse.Namespace) -> Task:
    """A set's draw; only the mixture differs from seed to seed."""
    if name in SIX:
        from benchmarks.papers.fastlloyd import scaled

        rows = scaled(data.rows(name, arguments.data))
        return Task(rows, (-1.0, 1.0), data.SETS[name].n_clusters, 1.0 / (len(rows) * math.log(len(rows))))
    if name == "mixture":
        found = mixture.draw(seed, MIXTURE_ROWS)
        return Task(np.clip(found.rows, -2.5, 3.5), (-2.5, 3.5), 10, 1e-6, found.server)
    if name == "census":
        return _census(seed)
    if arguments.mnist is None:
        raise LookupError("mnist needs an npz file with x_train, y_train, x_test, y_test; give --mnist.")
    from benchmarks.papers.federated_clients import load

    images = load(arguments.mnist, 14).train[:MNIST_ROWS]
    return Task(images.reshape(len(images), -1).astype(np.float64), (0.0, 1.0), 10, 1e-6)


def _census(seed: int) -> Task:
    import pyarrow.parquet as pq

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "census"))
    from make_lake import make_lake  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        make_lake(Path(folder), seed)
        found = []
        for place in ("clients", "server.parquet"):
            column = pq.read_table(Path(folder) / place, columns=["x"])["x"].combine_chunks()
            found.append(column.flatten().to_numpy().reshape(len(column), -1).astype(np.float64))
    return Task(found[0], (0.0, 1.0), 10, 1e-6, found[1])


def without_privacy(task: Task, seed: int) -> float:
    """Of scikit-learn's k-means."""
    from sklearn.cluster import KMeans

    return float(KMeans(task.n_clusters, n_init=3, random_state=seed).fit(task.rows).inertia_) / len(task.rows)


def others(task: Task, epsilons: list[float], seed: int, python: Path, folder: Path) -> list[float]:
    """Of diffprivlib's k-means in an environment of its own, one for each epsilon."""
    low, high = task.bounds
    common = {"rows": task.rows.tolist(), "n_clusters": task.n_clusters, "bounds": [low, high], "seeds": [seed]}
    (folder / "jobs.json").write_text(json.dumps({"jobs": [common | {"epsilon": epsilon} for epsilon in epsilons]}))
    subprocess.run([python, "-I", FITTER, folder / "jobs.json", folder / "fits.npz"], check=True)
    with np.load(folder / "fits.npz") as file:
        return [mean_cost(task.rows, file[f"centers_{index}"][0]) for index in range(len(epsilons))]


def jobs(task: Task, epsilon: float, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Methods of ours that the set can have, with their settings."""
    base = {
        "data": {"path": "rows", "features": "x", "public_rows": len(task.rows)},
        "n_clusters": task.n_clusters,
        "privacy": {"unit": "record", "epsilon": epsilon, "delta": task.delta},
        "seed": seed,
    }
    for name, options in LLOYD.items():
        yield name, base | {"algorithm": "dp_lloyd", "dp_lloyd": {"domain": list(task.bounds)} | options}
    low, high = task.bounds
    n_features = task.rows.shape[1]
    ball = {"radius": 0.5 * (high - low) * math.sqrt(n_features), "center": [0.5 * (low + high)] * n_features}
    yield TREE, base | {"algorithm": TREE, "tree": ball, "lloyd": {"steps": 1}}
    for name, options in SERVED.items() if task.server is not None else ():
        privacy = base["privacy"] | {"allocation": options.get("allocation", "tuned")}  # type: ignore[operator]
        rest = {key: value for key, value in options.items() if key != "allocation"}
        clipping = {"norm": "server_radius", "center": "server_mean"}
        yield name, base | {"privacy": privacy, "server_data": {"path": "server"}, "clipping": clipping} | rest


def cost(task: Task, settings: dict[str, Any], label: str) -> float:
    """Of one run; `label` makes its noise its own."""
    from schemas.kmeans.fit_config import validated
    from schemas.tables.client_block import ClientBlock
    from transforms.kmeans.protocols import PROTOCOLS
    from transforms.numerics.kmeans.starts import seeding
    from transforms.numerics.privacy.noise import draw_release
    from transforms.privacy import accounting

    config = validated(settings)
    protocol, privacy, n_features = PROTOCOLS[config.algorithm], config.privacy, task.rows.shape[1]
    server = seeding.points_in_ball(300, n_features, 1.0, 0) if task.server is None else task.server
    specs = protocol.round_specs(config, n_features, len(server))
    plan = accounting.calibrate(privacy.unit, specs, privacy.epsilon, privacy.delta, protocol.allocation(config))
    state, key = protocol.initial_state(config, server, n_features), hashlib.sha256(label.encode()).digest()
    for each in protocol.rounds(config, plan):
        broadcast, exact = state.broadcast(), 0
        for start in range(0, len(task.rows), _PART):
            exact = exact + each.statistic(ClientBlock(task.rows[start : start + _PART]), broadcast)
        state = each.step(state, draw_release(key, each.plan, exact))
    return mean_cost(task.rows, state.model().centers)


if __name__ == "__main__":
    main()
