"""Nights of new rows of one mixture, fitted from scratch or from the night before, at the same epsilon.

Every number is the mean over nights and draws of the cost (mean squared distance of the night's rows to the nearest
center), scaled so that the night's optimum is 49.95; `moved` counts centers that a drift report calls moved although
the mixture never changes, among all that it scored.

    python -m benchmarks.recurring --out benchmarks/results/recurring.md
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks import machine, measurement, mixture
from benchmarks.feddp_utility import CLIENT_ROWS, OPTIMUM, mean_cost
from pipelines.jobs.run_job import run_job
from pipelines.kmeans import fit
from schemas.kmeans.recurring.drift import DRIFT_SCORE

CELLS = (("record", 100_000, 0.05), ("record", 100_000, 0.2), ("client", 50_000, 0.4), ("client", 50_000, 1.0))


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--nights", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    lines = machine.heading("Recurring runs: cold, or from the night before")
    lines += ["| unit | rows | epsilon | first night | cold | warm | moved, cold | moved, warm |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for unit, n_rows, epsilon in CELLS:
        found = [series(unit, n_rows, epsilon, seed, arguments.nights) for seed in range(arguments.seeds)]
        lines.append(f"| {unit} | {n_rows:,} | {epsilon} | {' | '.join(summary(found))} |")
        print(lines[-1], flush=True)
    measurement.show(lines, arguments.out)


def summary(found: list[dict[str, list[float]]]) -> Iterator[str]:
    """Cells of one row."""
    for name in ("first", "cold", "warm"):
        yield f"{np.mean([cost for each in found for cost in each[name]]):.3f}"
    for name in ("cold scores", "warm scores"):
        scores = np.array([score for each in found for score in each[name]])
        yield f"{int((scores > DRIFT_SCORE).sum())} of {len(scores)}"


def series(unit: str, n_rows: int, epsilon: float, seed: int, nights: int) -> dict[str, list[float]]:
    """Costs and scores of one draw."""
    found: dict[str, list[float]] = {name: [] for name in ("first", "cold", "warm", "cold scores", "warm scores")}
    drawn, rng = mixture.draw(seed, 0), np.random.default_rng([seed, 7])
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(limits=1):
        folder = Path(temporary)
        last = {"cold": "", "warm": ""}
        for night in range(nights):
            rows = mixture.sample(rng, drawn.means, n_rows)
            lake = folder / f"night-{night}"
            mixture.write_lake(lake, drawn._replace(rows=rows), 2, n_rows // 4, CLIENT_ROWS)
            optimum = KMeans(len(drawn.means), init=drawn.means, n_init=1).fit(rows).inertia_ / n_rows
            for way in ("cold", "warm") if night else ("first",):
                output = run(lake, unit, epsilon, way, last.get(way, ""))
                centers = np.array(pq.read_table(Path(output) / "centers.parquet").column("center").to_pylist())
                found[way].append(mean_cost(rows, centers) * OPTIMUM / optimum)
                last |= {way: output} if night else dict.fromkeys(last, output)
                if night:
                    drift = json.loads((Path(output) / "drift.json").read_text())["clusters"]
                    scores = [each["movement_score"] for each in drift]
                    found[f"{way} scores"] += [score for score in scores if score is not None]
    return found


def run(lake: Path, unit: str, epsilon: float, way: str, previous: str) -> str:
    """One fit by the command; returns its output folder. Cold runs have no Lloyd round, which is their best."""
    sections: dict[str, object] = {"lloyd": {"steps": 1 if way == "warm" else 0}}
    if previous:
        sections["recurring"] = {"previous": previous, "warm_start": way == "warm"}
    job = lake / f"{way}.yaml"
    job.write_text(yaml.safe_dump(mixture.config(lake, unit, epsilon, **sections)))
    run_job(fit.JOB, ["--config", str(job), "--output", str(lake / way)])
    return str(lake / way)


if __name__ == "__main__":
    main()
