r"""What it costs to decode rows by the way in which they are in Parquet files.

Files are read as jobs read them: some thousand rows at a time, to a matrix whose numbers have been looked at. Layouts
take turns, in one process and by one thread; the smallest of the turns is shown beside the median, because other work
on the machine only adds to it.

    python -m benchmarks.decode_layouts --rows 1000000 --repeats 5 --out benchmarks/results/decode_layouts.md
"""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measurement
from benchmarks.machine import heading
from schemas.tables.contract import TableContract
from schemas.tables.shard import ShardRef
from transforms.files.formats import packed_rows
from transforms.tables import shard_rows
from transforms.tables.file_seal import open_parquet

FEATURES, GROUP_ROWS, SHOWN_ROWS = 50, 1 << 16, 10_000_000
NAMES = tuple(f"x{index}" for index in range(FEATURES))
PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lakes = written(Path(folder), arguments.rows)
        turns: dict[str, list[float]] = {name: [] for name in lakes}
        for _ in range(arguments.repeats):
            for name, (path, contract) in lakes.items():
                turns[name].append(decoded(path, contract) * SHOWN_ROWS / arguments.rows)
        sizes = {name: path.stat().st_size / arguments.rows for name, (path, _) in lakes.items()}
    lines = heading(f"Decoding of float32 rows x {FEATURES} by layout")
    lines += [f"| layout | bytes of a row | CPU s of {SHOWN_ROWS:,} rows, least | median |", "| --- " * 4 + "|"]
    lines += [
        f"| {name} | {sizes[name]:.0f} | {min(each):.2f} | {statistics.median(each):.2f} |"
        for name, each in turns.items()
    ]
    measurement.show(lines, arguments.out)


def written(folder: Path, n_rows: int) -> dict[str, tuple[Path, TableContract]]:
    """A file for each layout, with how it is read."""
    points = np.random.default_rng(0).normal(size=(n_rows, FEATURES)).astype(np.float32)
    flat = pa.array(points.ravel())
    lists = pa.table({"x": pa.FixedSizeListArray.from_arrays(flat, FEATURES)})
    columns = pa.table(dict(zip(NAMES, map(pa.array, np.ascontiguousarray(points.T)), strict=True)))
    as_list = TableContract(feature_list="x", n_features=FEATURES)
    as_columns = TableContract(features=NAMES, n_features=FEATURES)
    layouts = {
        "columns, snappy and dictionaries": (columns, as_columns, {}),
        "lists, snappy and dictionaries": (lists, as_list, {}),
        "columns, plain": (columns, as_columns, PLAIN),
        "lists, plain (`prepare`, before)": (lists, as_list, PLAIN),
        "lists, packed (`prepare`)": (_packed(points), as_list, PLAIN),
    }
    found = {}
    for index, (name, (table, contract, options)) in enumerate(layouts.items()):
        path = folder / f"{index}.parquet"
        pq.write_table(table, path, row_group_size=GROUP_ROWS, **options)
        found[name] = path, contract
    return found


def _packed(points: np.ndarray) -> pa.Table:
    column, packing = packed_rows.pack(points, "x")
    return pa.table({packing.column: column}).replace_schema_metadata(packed_rows.metadata_of(packing))


def decoded(path: Path, contract: TableContract) -> float:
    """CPU seconds of reading a file once."""
    start = time.process_time()
    with open_parquet(str(path)) as file:
        for group in range(file.num_row_groups):
            n_rows = file.metadata.row_group(group).num_rows
            for table in shard_rows.batches_of(file, ShardRef(str(path), group, n_rows), contract.types):
                contract.to_block(table, "a file")
    return time.process_time() - start


if __name__ == "__main__":
    main()
