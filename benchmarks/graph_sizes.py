"""How large the graph of a fit and the listing of its files are, by the number of shards; nothing is run.

python -m benchmarks.graph_sizes --data FOLDER --shards 1000 100000 --out benchmarks/results/graph_sizes.md
"""

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from benchmarks import measurement, mixture
from benchmarks.machine import heading
from pipelines.command.main import main as command
from pipelines.run import graph
from schemas.errors import RunnerError

N_FEATURES = 20


def lake(data: Path, n_shards: int) -> Path:
    """Files of one row each, written once."""
    place = data / f"shards-{n_shards}"
    if not (place / "job.yaml").exists():
        mixture.write_large_lake(place, N_FEATURES, N_FEATURES, N_FEATURES)
        pq.write_table(mixture.table(np.zeros((1, N_FEATURES), np.float32)), place / "one.parquet")
        content = (place / "one.parquet").read_bytes()
        (place / "one.parquet").unlink()
        config: Any = mixture.config(place, "record", 1.0)
        (place / "many").mkdir()
        for index in range(n_shards):
            (place / "many" / f"part-{index:06d}.parquet").write_bytes(content)
        config["data"]["path"] = str(place / "many")
        (place / "job.yaml").write_text(yaml.safe_dump(config))
    return place / "job.yaml"


def measured(config: Path) -> measurement.Figures:
    """Bytes of graph and listing, seconds and memory of the launcher until the graph stands."""
    found: measurement.Figures = {}
    honest, start = graph.check_graph, time.perf_counter()

    def stop(pipeline: Any, promise: Any) -> Any:
        honest(pipeline, promise)
        found["graph"] = pipeline.to_runner_api().ByteSize()
        found["seconds"] = time.perf_counter() - start
        raise RunnerError("the graph has been measured; it is not run.")

    graph.check_graph = stop
    with tempfile.TemporaryDirectory() as place:
        honest_write = graph.run_graph

        def sized(*given: Any) -> Any:
            found["listing"] = sum(each.stat().st_size for each in Path(place).rglob("files.jsonl"))
            return honest_write(*given)

        from pipelines.run import round_driver

        round_driver.run_graph = sized
        command(["fit", "--config", str(config), "--output", f"{place}/out"])
    graph.check_graph, round_driver.run_graph = honest, honest_write
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shards", type=int, nargs="+", default=[1000, 100_000])
    words = parser.parse_args()
    lines = [
        *heading("Graph and listing by the number of shards"),
        "A fit over files of one row; the launcher has built and checked the graph, and stops there. Memory is the "
        "peak of the one process that measures all, in ascending order.",
        "",
        "| shards | graph, kB | listing, kB | launcher, s | launcher, MiB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for n_shards in sorted(words.shards):
        found = measured(lake(words.data, n_shards))
        lines.append(
            f"| {n_shards} | {found['graph'] / 1000:.0f} | {found['listing'] / 1000:.0f} | {found['seconds']:.1f} "
            f"| {found['memory']:.0f} |"
        )
    measurement.show(lines, words.out)


if __name__ == "__main__":
    main()
