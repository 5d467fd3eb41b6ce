"""What a profile costs per row: CPU time of the whole job, by what it asks for, over that of an almost empty lake.

PipelineDP with its own bounding of contributions is measured on the same rows for comparison. Each measurement is a
process of its own; CPU seconds, since they hardly depend on what else the machine does.

    python -m benchmarks.profile_cost --rows 1000000 --out benchmarks/results/profile_cost.md
"""

import argparse
import json
import operator
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import measurement

N_FEATURES, N_CLUSTERS, CLIENT_ROWS, GROUP_ROWS, FEW_ROWS = 10, 10, 20, 25_000, 1_000
AGE = {"lower": 0, "upper": 100}
PROFILES = {
    "sizes": {},
    "one mean": {"numeric": {"age": AGE}},
    "one public histogram": {"categorical": {"job": {"values": [f"job {index}" for index in range(20)]}}},
    "one column of percentiles": {"numeric": {"age": AGE | {"percentiles": [25, 50, 75]}}},
    "one histogram of unknown values": {"categorical": {"job": {}}},
    "percentiles, 10% of the units": {"numeric": {"age": AGE | {"percentiles": [25, 50, 75]}}, "sampling_rate": 0.1},
}
BOUNDED = "PipelineDP bounding by itself: count, mean, percentiles"
"""On a tenth of the rows, since it takes so long."""


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), arguments.rows, arguments.repeats, arguments.out)


def compare(folder: Path, n_rows: int, repeats: int, out: Path | None) -> None:
    from benchmarks.machine import heading

    for size in (n_rows, n_rows // 10, FEW_ROWS):
        write_lake(folder / str(size), size)
    lines = heading("Profile: cost per row")
    lines += [
        f"{n_rows:,} rows of {N_FEATURES} features, {N_CLUSTERS} clusters, {CLIENT_ROWS} rows per client in any order, "
        f"4 of them counted at unit client, local runner; medians of {repeats} runs. Per row: CPU time less that of "
        f"{FEW_ROWS:,} rows, which is start, plan and graph. The last line is of a tenth of the rows.",
        "",
        "| unit | profile | start, CPU s | per row, CPU microseconds | rows per CPU s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for unit, name in [(unit, name) for unit in ("record", "client") for name in PROFILES] + [("record", BOUNDED)]:
        size = n_rows // 10 if name == BOUNDED else n_rows
        many, few = (median_cpu(folder / str(each), unit, name, repeats) for each in (size, FEW_ROWS))
        per_row = (many - few) / (size - FEW_ROWS)
        lines.append(f"| {unit} | {name} | {few:.2f} | {1e6 * per_row:.1f} | {1 / per_row:,.0f} |")
        print(lines[-1], flush=True)
    measurement.show(lines, out)


def median_cpu(lake: Path, unit: str, name: str, repeats: int) -> float:
    words = ("benchmarks.profile_cost", "--measure", str(lake), unit, name)
    return statistics.median(measurement.in_a_process(*words) for _ in range(repeats))


def write_lake(folder: Path, n_rows: int) -> None:
    """A model, and rows whose clients are spread over all row groups."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.scenes.models import write_model

    rng = np.random.default_rng(0)
    centers = 10.0 * rng.standard_normal((N_CLUSTERS, N_FEATURES))
    labels = rng.integers(0, N_CLUSTERS, n_rows)
    points = centers[labels] + rng.standard_normal((n_rows, N_FEATURES))
    write_model(folder / "fit", centers)
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), N_FEATURES),
        "client_id": pa.array(rng.permutation(n_rows) // CLIENT_ROWS),
        "age": pa.array(np.clip(30.0 + 3.0 * labels + 10.0 * rng.standard_normal(n_rows), 0.0, 100.0)),
        "job": pa.array(np.char.add("job ", rng.integers(0, 20, n_rows).astype(str))),
    }
    pq.write_table(pa.table(columns), folder / "lake.parquet", row_group_size=GROUP_ROWS)


def measure(lake: str, unit: str, name: str) -> float:
    """CPU seconds of a job, imports not counted."""
    if name == BOUNDED:
        return measure_pipeline_dp(Path(lake))
    from pipelines import api
    from schemas.profile.config import ProfileConfig

    rows = {"max_rows_per_client": 4} if unit == "client" else {}
    config = ProfileConfig.model_validate(
        {
            "model": f"{lake}/fit",
            "data": {"path": f"{lake}/lake.parquet", "features": "x", "client_id": "client_id"},
            "privacy": {"unit": unit, "epsilon": 1.0, "delta": 1e-6},
            "profile": PROFILES[name] | rows,
        }
    )
    start = time.process_time()
    api.profile(config)
    return time.process_time() - start


def rows_of(lake: str):
    """(row, cluster, age): clusters are drawn, since only PipelineDP is measured."""
    import pyarrow.parquet as pq

    ages = pq.read_table(f"{lake}/lake.parquet", columns=["age"]).column("age").to_pylist()
    return ((index, index % N_CLUSTERS, age) for index, age in enumerate(ages))


def measure_pipeline_dp(lake: Path) -> float:
    import apache_beam as beam
    import pipeline_dp
    from pipeline_dp import Metrics

    from pipelines.run.options import beam_options

    start = time.process_time()
    accountant = pipeline_dp.PLDBudgetAccountant(1.0, 1e-6, pld_discretization=1e-3)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[Metrics.COUNT, Metrics.MEAN, *map(Metrics.PERCENTILE, (25, 50, 75))],
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        min_value=0,
        max_value=100,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
    )
    extractors = pipeline_dp.DataExtractors(*map(operator.itemgetter, range(3)))
    with beam.Pipeline(options=beam_options([])) as root:
        rows = root | beam.Create([str(lake)], reshuffle=False) | beam.FlatMap(rows_of)
        engine.aggregate(rows, params, extractors, list(range(N_CLUSTERS)))
        accountant.compute_budgets()
    return time.process_time() - start


if __name__ == "__main__":
    main()
