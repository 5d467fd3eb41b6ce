"""What it costs to compare prepared files with their digests, when their row groups are listed."""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import measurement
from benchmarks.machine import heading
from pipelines.run.options import beam_options
from pipelines.tables import prepare, private_source
from schemas.kmeans.fit_config import validated
from schemas.tables.contract import TableContract
from tests.scenes import lake
from transforms.tables.file_seal import FileSeal
from transforms.tables.listing import ListedFile
from transforms.tables.read import _list_row_groups
from transforms.tables.shard_rows import read_blocks
from transforms.tables.source import Source

N_FILES, N_FEATURES = 8, 16
CONTRACT = TableContract(feature_list="x", n_features=N_FEATURES, client_id="client_id", by_client=True)


def prepared(folder: Path, n_rows: int) -> list[ListedFile]:
    """Files of a prepared folder, as a job lists them."""
    rows = lake.write_lake(
        folder / "lake", np.random.default_rng(0).normal(size=(n_rows, N_FEATURES)), np.arange(n_rows) // 20, n_files=4
    )
    os.makedirs(folder / "prepared")
    grouping = prepare.Grouping(contract=CONTRACT, folder=str(folder / "prepared"), n_shards=N_FILES)
    prepare.group(lake.staged(Source(path=rows), folder), beam_options([]), grouping)
    job = lake.job(str(folder / "prepared"), lake.write_server(folder / "server.parquet"), "client")
    source = private_source.private_source(validated(job))
    return list(source.listed.files) if source.listed is not None else []


def seconds(work: Iterator[object]) -> float:
    """CPU time of this process until an iterator ends."""
    start = time.process_time()
    for _ in work:
        pass
    return time.process_time() - start


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=9)
    words = parser.parse_args()
    lines = heading("Digests of prepared files")
    with tempfile.TemporaryDirectory() as place:
        files = prepared(Path(place), words.rows)
        size = sum(os.path.getsize(each.file) for each in files)
        plain = [each._replace(seal=FileSeal.of_text(each.seal)._replace(content="").text) for each in files]
        shards = [shard for each in plain for shard in _list_row_groups(each, CONTRACT)]
        kinds = {
            "row groups listed": lambda: (s for each in plain for s in _list_row_groups(each, CONTRACT)),
            "row groups listed, octets compared": lambda: (
                s for each in files for s in _list_row_groups(each, CONTRACT)
            ),
            "rows read once, as a round reads them": lambda: (
                b for shard in shards for b in read_blocks(shard, CONTRACT)
            ),
        }
        turns = [{kind: seconds(work()) for kind, work in kinds.items()} for _ in range(words.repeats)]
    lines += [
        f"{words.rows:,} rows of {N_FEATURES} features in {N_FILES} files, {size / 1e6:.1f} MB; CPU seconds, medians "
        f"of {words.repeats} turns, smallest and largest in brackets. Octets are compared once in a run of any "
        "number of rounds.",
        "",
        "| work | CPU s |",
        "| --- | --- |",
    ]
    for kind in kinds:
        found = [turn[kind] for turn in turns]
        lines.append(f"| {kind} | {statistics.median(found):.4f} ({min(found):.4f} to {max(found):.4f}) |")
    measurement.show(lines, words.out)


if __name__ == "__main__":
    main()
