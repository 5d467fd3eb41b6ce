"""Redraws the figures of FedDP-KMeans (Scott, Lampert, Saulpic 2025) and of its reviews.

- record: the mixture with 100 clients x 1000 rows, record level (Figure 1, left).
- client-1000, client-2000, client-5000: clients x 50 rows, client level (Figures 5, 2 left, 6).
- elbow: the number of clusters chosen among 1 to 20, both levels (additional experiments of the reviews).
- census-*: rows of UCI Adult, silos of one employment class, record level, in place of the census of Figures 1 right, 3
  and 4; needs --data.

`feddp_shares` draws Tables 2 to 5, `feddp_scores` the other figures of the reviews, `feddp_real` those whose data the
network has.

Methods of `fit` are sweeps that go on where they were interrupted, in the folder given by --work. Baselines that no job
has (`feddp_baselines`) run on the same files.

    python -m benchmarks.papers.feddp_kmeans --data DATA --work WORK --out benchmarks/results/feddp_kmeans
"""

import argparse
import collections
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import mixture
from benchmarks.machine import heading, write
from benchmarks.papers.feddp_baselines import Lake
from dapple_dp.api import fit
from dapple_dp.pipelines.run.options import beam_options
from dapple_dp.pipelines.trusted_zone import sweep
from dapple_dp.pipelines.trusted_zone.sweep_folder import RESULTS_FILE
from dapple_dp.schemas.kmeans.fit_config import validated
from dapple_dp.schemas.trusted_zone.sweep_config import merged, sweep_config
from dapple_dp.transforms.numerics.trusted_zone.curves import confidence_band

EPSILONS = [0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0]
FEW_EPSILONS = [0.4, 1.0, 2.0]
RECORD_ROWS, CLIENT_ROWS = 100_000, 50
"""Rows of the record-level mixture, and of each client at client level."""
CLIENTS = {"client-1000": 1000, "client-2000": 2000, "client-5000": 5000}
LARGEST_K = 20
STEPS, BASELINE_STEPS = [0, 1, 2], [1, 2, 5]
"""Lloyd rounds after FedDP-KMeans, and after starts that spend nothing."""
FEDDP: dict[str, dict[str, Any]] = {
    "FedDP-KMeans (tuned)": {"algorithm": "feddp_kmeans"},
    "FedDP-KMeans (paper's shares)": {"algorithm": "feddp_kmeans", "privacy": {"allocation": "paper"}},
    "FedDP-KMeans (published)": {"algorithm": "feddp_kmeans", "preset": "published", "clipping": {"center": "none"}},
}
BASELINES = {"ServerKMeans++": "server_kmeanspp", "ServerLloyds": "server_lloyds", "SpherePacking": "sphere_packing"}
AS_PRINTED: dict[str, Any] = {"privacy": {"allocation": "paper"}, "clipping": {"center": "none"}}
PRINTED = {f"{name} (published)": start for name, start in BASELINES.items()}
"""The baselines as the paper prints them: its noise, rows clipped around the origin, no shrinkage."""
COMPARED = {"FedDP-KMeans (tuned)": tuple(BASELINES), "FedDP-KMeans (published)": tuple(PRINTED)}
"""Each with the baselines that have the same additions, or none."""
POOLED = {"Optimal": {"algorithm": "optimal"}}
CLASSES = {"private": "Private", "self-employed": "Self-emp-not-inc", "local-government": "Local-gov"}
CATEGORICAL = ["education", "marital_status", "occupation", "relationship", "race", "sex", "native_country"]
NUMERIC = ["age", "capital_gain", "capital_loss", "hours_per_week"]
Rows = list[dict[str, Any]]
Lines = list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", nargs="*", help="some of them; default: all that the data allow")
    parser.add_argument("--data", type=Path, help="folder with adult_census.parquet")
    parser.add_argument("--work", type=Path, required=True, help="folder for generated lakes and sweeps")
    parser.add_argument("--out", type=Path, required=True, help="folder for tables")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    figures = _figures(arguments)
    if unknown := sorted(set(arguments.figures or ()) - figures.keys()):
        parser.error(f"--figures must be some of {', '.join(figures)}, got {unknown[0]}; census figures need --data")
    for name in arguments.figures or figures:
        start = time.perf_counter()
        lines = figures[name](name)
        took = time.perf_counter() - start
        text = heading(f"FedDP-KMeans: {name}") + lines
        write(text, arguments.out / f"{name}.md")
        print(f"{name}: {took:.0f} s", flush=True)


def _figures(arguments: argparse.Namespace) -> dict[str, Callable[[str], Lines]]:
    """A function for each figure."""
    work, seeds = arguments.work, arguments.seeds
    found: dict[str, Callable[[str], Lines]] = {
        "record": lambda name: comparison(work, name, _record_job(work), seeds),
        "elbow": lambda name: elbow(work, name, seeds),
    }
    for client_level in CLIENTS:
        found[client_level] = lambda name: comparison(work, name, _client_job(work, name), max(seeds // 2, 1))
    if arguments.data is not None:
        for name in CLASSES:
            found[f"census-{name}"] = lambda name: comparison(
                work, name, _census_job(work, arguments.data, name.removeprefix("census-")), max(seeds // 2, 1)
            )
    return found


def _record_job(work: Path) -> dict[str, Any]:
    """100 clients x 1000 rows."""
    lake = work / "lake-record"
    if not lake.exists():
        mixture.write_lake(lake, mixture.draw(0, RECORD_ROWS), 10, 1000, 1000)
    return job(lake, "record")


def _client_job(work: Path, name: str) -> dict[str, Any]:
    """A job of as many clients as its name says, with 50 rows each."""
    lake, n_clients = work / f"lake-{name}", CLIENTS[name]
    if not lake.exists():
        mixture.write_lake(lake, mixture.draw(0, CLIENT_ROWS * n_clients), 10, 10_000, CLIENT_ROWS)
    return job(lake, "client")


def job(lake: Path, unit: str) -> dict[str, Any]:
    """Settings that all methods share."""
    found: dict[str, Any] = mixture.config(lake, unit, 1.0)
    found["data"]["client_id"] = "client_id"
    return found


def _census_job(work: Path, data: Path, name: str) -> dict[str, Any]:
    """Silos of one employment class by occupation and education; server: 20 rows of it and 1000 others."""
    lake = work / f"lake-census-{name}"
    features = [*CATEGORICAL, *NUMERIC]
    if not lake.exists():
        rows = pq.read_table(data / "adult_census.parquet")
        inside = rows["workclass"].to_numpy(zero_copy_only=False) == CLASSES[name]
        rng = np.random.default_rng(0)
        ours, others = rng.permutation(np.flatnonzero(inside)), rng.permutation(np.flatnonzero(~inside))
        work_and_school = rows.select(["occupation", "education"]).to_pylist()
        silos = ["/".join(each.values()) for each in work_and_school]
        table = rows.select(features).append_column("silo", pa.array(silos)).take(ours[20:]).sort_by("silo")
        (lake / "clients").mkdir(parents=True)
        pq.write_table(table, lake / "clients" / "part-0.parquet")
        pq.write_table(rows.select(features).take(np.concatenate([ours[:20], others[:1000]])), lake / "server.parquet")
    encode = {each: {"kind": "one_hot", "vocabulary": "server"} for each in CATEGORICAL}
    bins = {each: {"kind": "quantile_bins", "bins": 5} for each in NUMERIC}
    data_section = {"path": str(lake / "clients"), "features": features, "client_id": "silo"}
    return job(lake, "record") | {"data": data_section, "encode": encode | bins}


def run_sweep(work: Path, name: str, job: dict[str, Any], methods: dict[str, Any], **options: Any) -> Rows:
    """Cells of a sweep, taken up where it was left."""
    base = {key: value for key, value in job.items() if key not in ("algorithm", "privacy")}
    privacy = {key: value for key, value in job["privacy"].items() if key != "epsilon"}
    settings = base | {
        "experimental": True,
        "privacy": privacy,
        "sweep": {"methods": methods, "epsilons": EPSILONS} | options,
    }
    output = work / f"sweep-{name}"
    if not (output / RESULTS_FILE).exists():
        sweep.execute(sweep_config(settings), beam_options([]), str(output))
    found: Rows = pq.read_table(output / RESULTS_FILE).to_pylist()
    return found


def comparison(work: Path, name: str, job: dict[str, Any], seeds: int) -> Lines:
    """Cost against epsilon of all methods, each with its best number of Lloyd rounds."""
    rows = run_sweep(work, f"{name}-feddp", job, FEDDP, seeds=seeds, settings={"lloyd.steps": STEPS})
    rows += [*baselines(job, seeds), *run_sweep(work, f"{name}-pooled", job, POOLED, seeds=min(seeds, 3))]
    best = best_settings(rows)
    lines = ["Cost / n, mean of seeds; in brackets half the 95% interval and the number of Lloyd rounds T.", ""]
    lines += table(best, lambda each: f"{each['mean']:.2f} ({each['half']:.2f}, T={each['settings'][-1:] or '-'})")
    verdicts = (verdict(best, name, rivals) for name, rivals in COMPARED.items())
    return [*lines, *(line for each in verdicts for line in ("", *each))]


def baselines(job: dict[str, Any], seeds: int) -> Iterator[dict[str, Any]]:
    """Cells of methods that no job has, on the rows of a job."""
    lake = Lake.of(job)
    varied = itertools.product((BASELINES | PRINTED).items(), BASELINE_STEPS, EPSILONS, range(seeds))
    for (name, start), steps, epsilon, seed in varied:
        changes = {"lloyd": {"steps": steps}, "privacy": {"epsilon": epsilon}, "seed": seed}
        asked = merged(merged(job, AS_PRINTED if name in PRINTED else {}), changes)
        cost = lake.cost(lake.started(start, asked, seed))
        yield {"method": name, "epsilon": epsilon, "settings": f"lloyd.steps={steps}", "cost": cost}
    for seed in range(min(seeds, 3)):
        cost = lake.cost(lake.k_fed(job["n_clusters"], seed))
        yield {"method": "k-FED", "epsilon": None, "settings": "", "cost": cost}


def best_settings(rows: Rows) -> dict[str, dict[float | None, dict[str, Any]]]:
    """Mean, half of the 95% interval, and the settings with the lowest mean, by method and epsilon."""
    costs = collections.defaultdict(list)
    for row in rows:
        costs[row["method"], row["epsilon"], row["settings"]].append(row["cost"])
    best: dict[str, dict[float | None, dict[str, Any]]] = collections.defaultdict(dict)
    for (method, epsilon, settings), values in costs.items():
        band = confidence_band(np.array(values))
        point = {"mean": band.mean, "half": band.high - band.mean, "settings": settings, "n": len(values)}
        if epsilon not in best[method] or band.mean < best[method][epsilon]["mean"]:
            best[method][epsilon] = point
    return best


def table(best: dict[str, dict[float | None, dict[str, Any]]], cell: Callable[[dict[str, Any]], str]) -> Lines:
    """Methods by epsilons; a method without privacy is the same at all of them."""
    epsilons = sorted({eps for points in best.values() for eps in points if eps is not None})
    lines = [
        "| method | " + " | ".join(f"eps {eps:g}" for eps in epsilons) + " |",
        "| --- " * (len(epsilons) + 1) + "|",
    ]
    for method, points in best.items():
        cells = [cell(points[eps] if eps in points else points[None]) for eps in epsilons]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def verdict(best: dict[str, dict[float | None, dict[str, Any]]], method: str, baselines: Iterable[str]) -> Lines:
    """Says if a method costs at most as much as each of the private baselines, epsilon by epsilon."""
    lines = []
    for epsilon, point in sorted(best[method].items()):  # type: ignore[type-var]
        rivals = {name: best[name][epsilon]["mean"] for name in baselines}
        nearest = min(rivals, key=lambda name: rivals[name])
        sign = "no worse than" if point["mean"] <= rivals[nearest] else "WORSE THAN"
        lines.append(
            f"- eps {epsilon:g}: {method} {point['mean']:.2f} is {sign} the best baseline, "
            f"{nearest} {rivals[nearest]:.2f}"
        )
    return lines


def elbow(work: Path, name: str, seeds: int) -> Lines:
    """Counts clusters of the ten that are found among up to twenty, with one curve of each level."""
    lines = ["| level | epsilon | chosen (times) | cost / n |", "| --- | --- | --- | --- |"]
    curves = {}
    choice = {"n_clusters": {"max": LARGEST_K, "choose": "elbow"}}
    for unit, job in (("record", _record_job(work)), ("client", _client_job(work, "client-2000"))):
        method = {"feddp": {"algorithm": "feddp_kmeans"} | choice}
        rows = run_sweep(work, f"{name}-{unit}", job, method, seeds=seeds, epsilons=FEW_EPSILONS)
        for epsilon in FEW_EPSILONS:
            some = [row for row in rows if row["epsilon"] == epsilon]
            times = sorted(collections.Counter(row["n_clusters"] for row in some).items())
            chosen = ", ".join(f"{k} ({n})" for k, n in times)
            lines.append(f"| {unit} | {epsilon:g} | {chosen} | {np.mean([row['cost'] for row in some]):.2f} |")
        curves[f"{unit} level, eps 1"] = fit(validated(job | choice)).model.proxy_costs
    lines += ["", "Cost of the weighted server points by the number of clusters, one run of each level.", ""]
    lines += [f"| k | {' | '.join(curves)} |", "| --- " * (len(curves) + 1) + "|"]
    for k, costs in enumerate(zip(*curves.values(), strict=True), start=1):
        lines.append(f"| {k} | {' | '.join(f'{cost:.2f}' for cost in costs)} |")
    return lines


if __name__ == "__main__":
    main()
