"""The central tree on separated clusters, on overlapping ones and on census rows, and what it costs to run.

Every cost is that of a real `fit` of a lake on disk: mean squared distance of all rows to the nearest center. On
separated clusters (radius 1) that is the normalized cost of the literature; the origin alone costs 0.98, the best
centers 0.0001. The form of the tree is varied too: levels per round of splits (1 is the published form, which counts
every level) and normals at random instead of in a noisy subspace. Time and memory are those of the whole command.

    python -m benchmarks.central_tree --out benchmarks/results/central_tree.md
    python -m benchmarks.central_tree --parts separated --rows 100000 --epsilons 1
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measurement, mixture, separated_mixture
from benchmarks.separated_mixture import mean_cost

Costs = dict[str, list[float]]
PRIVACY = {"unit": "record", "epsilon": 1.0, "delta": 1e-6}
CENSUS_RADIUS = 11**0.5
MIXTURE_RADIUS = 11.0


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.2, 1.0, 4.0])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    import logging

    logging.disable(logging.WARNING)
    lines = report(arguments)
    measurement.show(lines, arguments.out)


def measure(job: Path) -> measurement.Figures:
    """The command, imports included."""
    return measurement.command("fit", "--config", str(job), "--output", str(job.with_name("out")))


def job(lake: Path, radius: float, n_clusters: int, **sections: Any) -> dict[str, Any]:
    """Settings of a fit without server data."""
    return {
        "algorithm": "central_tree",
        "experimental": True,
        "data": {"path": str(lake), "features": "x"},
        "n_clusters": n_clusters,
        "privacy": PRIVACY,
        "tree": {"radius": radius},
    } | sections


def without_tree(settings: dict[str, Any], radius: float) -> dict[str, Any]:
    """The same job for FedDP-KMeans, public points of the ball in place of server data."""
    rest = {name: value for name, value in settings.items() if name != "tree"}
    clipping = {"norm": radius, "center": "none"} | settings.get("clipping", {})
    return rest | {"algorithm": "feddp_kmeans", "clipping": clipping}


def cost_of(settings: dict[str, Any], rows: NDArray[np.floating]) -> float:
    """Cost of one fit."""
    from dapple_dp.api import fit
    from schemas.kmeans.fit_config import validated

    return mean_cost(rows, fit(validated(settings)).model.centers)


def with_epsilon(settings: dict[str, Any], epsilon: float) -> dict[str, Any]:
    return settings | {"privacy": settings["privacy"] | {"epsilon": epsilon}}


def separated(arguments: argparse.Namespace) -> Iterator[str]:
    """Costs by rows and epsilon, and the footprint of the command."""
    feet = []
    yield "| rows | epsilon | central tree | and one Lloyd step | optimum |"
    yield "| --- " * 5 + "|"
    for n_rows in arguments.rows:
        cells: dict[tuple[float, int], list[float]] = {}
        optima = []
        for seed in range(arguments.seeds):
            drawn = separated_mixture.draw(seed, n_rows)
            with tempfile.TemporaryDirectory() as folder:
                lake = Path(folder) / "rows"
                separated_mixture.write_lake(lake, drawn.rows.astype(np.float32), 62_500)
                best = np.stack([drawn.rows[drawn.labels == each].mean(axis=0) for each in range(8)])
                optima.append(mean_cost(drawn.rows, best))
                for epsilon in arguments.epsilons:
                    for steps in (0, 1):
                        settings = with_epsilon(job(lake, 1.0, 8, lloyd={"steps": steps}, seed=seed), epsilon)
                        cells.setdefault((epsilon, steps), []).append(cost_of(settings, drawn.rows))
                if seed == 0:
                    feet.append(footprint(Path(folder), job(lake, 1.0, 8), n_rows))
            print("separated", n_rows, seed, flush=True)
        for epsilon in arguments.epsilons:
            found = " | ".join(_cell(cells[epsilon, steps], 5) for steps in (0, 1))
            yield f"| {n_rows:,} | {epsilon:g} | {found} | {np.mean(optima):.5f} |"
    yield from ["", "## Time and memory of the command, 100 features, float32", ""]
    yield from ["| rows | wall, s | CPU, s | peak RSS, MB |", "| --- " * 4 + "|", *feet]


def footprint(folder: Path, settings: dict[str, Any], n_rows: int) -> str:
    """A line of the table of footprints."""
    path = folder / "job.yaml"
    path.write_text(json.dumps(settings))
    found = measurement.in_a_process("benchmarks.central_tree", "--measure", str(path))
    return f"| {n_rows:,} | {found['wall']:.1f} | {found['cpu']:.1f} | {found['rss']:.0f} |"


def forms(arguments: argparse.Namespace) -> Iterator[str]:
    """Costs by the form of the tree."""
    from transforms.numerics.kmeans import tree

    yield "| levels per round | normals | passes | separated | overlapping mixture | and one Lloyd step |"
    yield "| --- " * 6 + "|"
    usual = tree.LEVELS_PER_ROUND
    variants = [
        (1, "random"),
        (1, "subspace"),
        (2, "subspace"),
        (usual, "random"),
        (usual, "subspace"),
        (10, "subspace"),
    ]
    for levels, normals in variants:
        tree.LEVELS_PER_ROUND = levels
        costs: Costs = {"separated": [], "mixture": [], "lloyd": []}
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as folder:
                apart, near = separated_mixture.draw(seed, 100_000), mixture.draw(seed, 100_000)
                separated_mixture.write_lake(Path(folder) / "apart", apart.rows, 50_000)
                separated_mixture.write_lake(Path(folder) / "near", near.rows, 50_000)
                one = job(Path(folder) / "apart", 1.0, 8, seed=seed)
                two = job(Path(folder) / "near", MIXTURE_RADIUS, 10, seed=seed)
                for each in (one, two):
                    each["tree"] = each["tree"] | {"directions": normals}
                costs["separated"].append(cost_of(one, apart.rows))
                costs["mixture"].append(cost_of(two, near.rows))
                costs["lloyd"].append(cost_of(two | {"lloyd": {"steps": 1}}, near.rows))
        passes = len(tree.widths(20)) + (2 if normals == "subspace" else 1)
        found = " | ".join(_cell(values, 5 if name == "separated" else 3) for name, values in costs.items())
        print("form", levels, normals, flush=True)
        yield f"| {levels} | {normals} | {passes} | {found} |"
    tree.LEVELS_PER_ROUND = usual


def context(arguments: argparse.Namespace) -> Iterator[str]:
    """Costs beside FedDP-KMeans on overlapping data."""
    columns = ("data", "epsilon", "central tree", "and one Lloyd step", "FedDP-KMeans, no server data")
    yield f"| {' | '.join(columns)} | with server data | optimum |"
    yield "| --- " * 7 + "|"
    for name in ("mixture", "mixture, 2,000 clients", "census"):
        for epsilon in arguments.epsilons:
            costs: dict[str, list[float]] = {each: [] for each in ("tree", "lloyd", "ball", "server", "optimum")}
            for seed in range(arguments.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    for method, cost in one_context(Path(folder), name, epsilon, seed).items():
                        costs[method].append(cost)
            print(name, epsilon, flush=True)
            yield f"| {name} | {epsilon:g} | " + " | ".join(_cell(values, 3) for values in costs.values()) + " |"


def one_context(folder: Path, name: str, epsilon: float, seed: int) -> dict[str, float]:
    """Every method on one draw."""
    from sklearn.cluster import KMeans

    rows, server, radius = context_lake(folder, name, seed)
    settings = with_epsilon(job(folder / "clients", radius, 10, seed=seed), epsilon)
    if "clients" in name:
        settings["privacy"] = settings["privacy"] | {"unit": "client"}
        settings["data"] = settings["data"] | {"client_id": "client_id"}
        settings["clipping"] = {"client_rows": 50}
    ball = without_tree(settings, radius)
    clipping = ball["clipping"] | {"norm": "server_radius", "center": "server_mean"}
    jobs = {
        "tree": settings,
        "lloyd": settings | {"lloyd": {"steps": 1}},
        "ball": ball,
        "server": ball | {"clipping": clipping, "server_data": {"path": server}},
    }
    found = {method: cost_of(each, rows) for method, each in jobs.items()}
    return found | {"optimum": float(KMeans(10, n_init=5, random_state=0).fit(rows).inertia_) / len(rows)}


def context_lake(folder: Path, name: str, seed: int) -> tuple[NDArray[np.floating], str, float]:
    """Writes a lake `clients` and server data; returns rows, path of the server data, and public radius."""
    if name == "census":
        sys.path.insert(0, "examples/census")
        import pyarrow.parquet as pq
        from make_lake import make_lake  # type: ignore[import-not-found]

        make_lake(folder, seed)
        column = pq.read_table(folder / "clients", columns=["x"])["x"].combine_chunks()
        rows = column.flatten().to_numpy().reshape(len(column), -1)
        return rows, str(folder / "server.parquet"), CENSUS_RADIUS
    drawn = mixture.draw(seed, 100_000)
    mixture.write_lake(folder, drawn, 2, 25_000, 50 if "clients" in name else None)
    return drawn.rows, str(folder / "server.parquet"), MIXTURE_RADIUS


PARTS = {
    "separated": ("Separated clusters: 100 features, 8 clusters, separation 100", separated),
    "forms": ("The form of the tree, 100,000 rows, epsilon 1", forms),
    "context": ("Overlapping data, 10 clusters: 100,000 rows of the mixture, and census rows of 0/1 features", context),
}


def report(arguments: argparse.Namespace) -> list[str]:
    """Markdown lines."""
    from benchmarks.machine import heading

    lines = heading("Central tree: clustering without server data")
    lines += [f"Mean cost (standard deviation) of {arguments.seeds} draws, delta 1e-6, 20 half-spaces."]
    for part in arguments.parts:
        title, measured = PARTS[part]
        lines += ["", f"## {title}", "", *measured(arguments)]
    return lines


def _cell(values: list[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f} ({np.std(values):.{digits}f})"


if __name__ == "__main__":
    main()
