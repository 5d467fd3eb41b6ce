"""Measurements in one process of `benchmarks.speed`, with the code of the checkout on the path. Prints JSON.

Passes are microseconds of CPU per row: the arms of a case follow each other, five times, and the least counts. In
`relative` some 30% of the rows lie beyond the radius and are shortened. `topics` are the rounds of a fit with names, on
average: those with `bits` share the integers of rows, and others get rows with their terms, as from a file.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy, or its threads wait busily

import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

CASES = {"10 x 50": ("absolute", "relative"), "10 x 32": ("client",), "20 x 256": ("topics",)}
CLIENT_ROWS, REPEATS, RADIUS = 20, 5, 0.35
Work = Callable[[], object]


def measured(work: Work) -> dict[str, float]:
    """CPU seconds and the peak of this process in megabytes."""
    start = time.process_time()
    work()
    took = time.process_time() - start
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"cpu": took, "rss": int(peak.split()[1]) / 1024}


def rows_of(form: str) -> Any:
    """10,000 rows of 4 numbers, as an array or a data frame."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-5.0, 5.0, size=(5, 4))[rng.integers(5, size=10_000)] + rng.normal(size=(10_000, 4))
    return rows if form == "array" else importlib.import_module("pandas").DataFrame(rows, columns=list("abcd"))


def model(library: str, epsilon: float = 1.0) -> Any:
    """An estimator; imports its library."""
    if library == "sklearn":
        from sklearn.cluster import KMeans

        return KMeans(5)
    from dapple_dp import DPKMeans

    return DPKMeans(5, epsilon=epsilon, delta=1e-6, domain=(-8.0, 8.0))


def fits(library: str, form: str) -> dict[str, Any]:
    """From `import` to the first centers, and later fits."""
    rows = rows_of(form)
    found = {"first": measured(lambda: model(library).fit(rows)), "second": measured(lambda: model(library).fit(rows))}
    return found | {"new epsilon": measured(lambda: model(library, 1.5).fit(rows))}


def search(library: str) -> dict[str, float]:
    """Fits 50 times: five numbers of clusters at two epsilons in five folds, import included."""
    rows = rows_of("array")

    def work() -> None:
        from sklearn.model_selection import GridSearchCV

        settings = {"n_clusters": range(2, 7), "epsilon": [1.0, 2.0]}
        GridSearchCV(model(library), settings, cv=5, refit=False).fit(rows)

    return measured(work)


def names() -> dict[str, float]:
    """Checks the most features that a job may have, among 100,000 columns of a file."""
    import pyarrow as pa

    from dapple_dp.schemas.kmeans.fit_config import validated
    from dapple_dp.schemas.tables.contract import TableContract

    columns = [f"c{index}" for index in range(100_000)]
    job = {
        "algorithm": "dp_lloyd",
        "data": {"path": "-", "features": columns[:8192]},
        "n_clusters": 5,
        "privacy": {"unit": "record", "epsilon": 1.0, "delta": 1e-6},
        "dp_lloyd": {"domain": [-4, 4]},
    }
    schema = pa.schema([(name, pa.float64()) for name in columns])
    return measured(lambda: TableContract.from_config(validated(job).data).check_schema(schema, "file"))


def floor(lake: str) -> dict[str, float]:
    """Least cost of rows of one list column: seconds to decode them once, and of one iteration on float32."""
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    decoded = used = 0.0
    with threadpool_limits(limits=1):
        for path in sorted(Path(lake).glob("*.parquet")):
            start = time.process_time()
            column = pq.read_table(path, columns=["x"], use_threads=False).column("x").combine_chunks()
            points = column.flatten().to_numpy().reshape(len(column), -1)
            middle = time.process_time()
            work = lloyd(points, points[:10].copy(), np.float32)
            begun = time.process_time()
            work()
            decoded, used = decoded + middle - start, used + time.process_time() - begun
    return {"decode": decoded, "iteration": used}


def lloyd(points: np.ndarray, centers: np.ndarray, kind: type) -> Work:
    """One iteration of scikit-learn's, by one thread."""
    from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense

    x, c = points.astype(kind), centers.astype(kind)
    size, n = np.zeros(len(c), kind), len(x)
    given = (x, np.ones(n, kind), c, c.copy(), size, np.zeros(n, np.int32), size.copy())
    return lambda: lloyd_iter_chunked_dense(*given, 1)


def cases(k: int, d: int) -> tuple[int, dict[str, Work]]:
    """Number of rows, and what is measured, by name."""
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.transforms.core.statistics import clients, differences, lattice, rows
    from dapple_dp.transforms.core.statistics.assignment import Assigner
    from dapple_dp.transforms.core.statistics.frame import Frame
    from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame

    n, rng = int(np.clip(4e7 / (k * d), 4000, 200_000)) // CLIENT_ROWS * CLIENT_ROWS, np.random.default_rng(0)
    means = rng.normal(size=(k, d))
    means *= 0.5 / np.linalg.norm(means, axis=1, keepdims=True)
    points = (means[rng.integers(0, k, n)] + rng.normal(size=(n, d)) * (RADIUS / np.sqrt(d))).astype(np.float32)
    frame = Frame(lattice.Lattice(np.zeros(d), 1.0))
    integers = lattice.quantize(points, frame.lattice, lattice.SUM_BITS).astype(np.int32)
    centers = lattice.quantize(means, frame.lattice, lattice.SUM_BITS)
    known, radius = QuantizedFrame.of(frame, lattice.SUM_BITS), int(RADIUS * lattice.SUM_UNITS)
    around = differences.Neighborhoods(centers, radius, True)
    block, nearest = ClientBlock(integers, np.arange(0, n + 1, CLIENT_ROWS)), Assigner(centers)
    return n, {
        "absolute": lambda: rows.sums_and_counts(block, known, nearest, 1.0, 1.0),
        "relative": lambda: rows.relative_sums(block, known, around, radius),
        "client": lambda: clients.mean_sums_and_counts(block, known, nearest, 1.0, 1.0),
        "topics": topics(points, centers),
        "float64": lloyd(integers, centers, np.float64),
        "float32": lloyd(integers, centers, np.float32),
    }


def topics(points: np.ndarray, centers: np.ndarray) -> Work:
    """All rounds of a fit with names, around the same centers."""
    from benchmarks.topics import DELTA, MOST_PER_ROW, job
    from dapple_dp.schemas.core.block import ClientBlock
    from dapple_dp.transforms.core.accounting import calibrate
    from dapple_dp.transforms.kmeans.protocols import protocol_of
    from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame

    config, d = job(len(centers), 1.0, "record", tuple(map(str, range(5000)))), points.shape[1]
    protocol = protocol_of(config.algorithm)
    plan = calibrate("record", protocol.round_specs(config, d, 0), 1.0, DELTA, protocol.allocation(config))
    state = replace(protocol.initial_state(config, np.zeros((0, d)), d), centers=centers)
    codes = np.random.default_rng(1).integers(-1, 5000, (len(points), MOST_PER_ROW))
    block, rounds = ClientBlock(np.hstack([points, codes.astype(np.float32)])), protocol.rounds(config, plan)

    def work() -> None:
        kept = None
        for each in rounds:
            if each.bits is None:
                each.statistic(block, state)
                continue
            kept = kept or ClientBlock(state.frame.integers(block.points[:, :d], each.bits))
            each.statistic(kept, replace(state, frame=QuantizedFrame.of(state.frame, each.bits)))

    return work


def passes() -> dict[str, float]:
    """Microseconds by case, of the checkout and of scikit-learn."""
    from dapple_dp.schemas.kmeans.spherical_config import AUTO_STEPS
    from dapple_dp.transforms.numerics.kernel import row_pass

    if not row_pass.start():
        raise SystemExit("passes must be those of the compiled kernel, got none for this processor")
    found: dict[str, float] = {}
    for case, kinds in CASES.items():
        n, works = cases(*map(int, case.split(" x ")))
        best = dict.fromkeys((*kinds, "float64", "float32"), np.inf)
        for turn in range(REPEATS + 1):
            for kind in best:
                start = time.process_time()
                works[kind]()
                if turn:
                    best[kind] = min(best[kind], (time.process_time() - start) / n * 1e6)
        found |= {f"{case}, {kind}": us / (AUTO_STEPS + 1 if kind == "topics" else 1) for kind, us in best.items()}
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    arms: dict[str, Callable[..., Any]] = {each.__name__: each for each in (fits, search, names, floor, passes)}
    answer = arms[sys.argv[1]](*sys.argv[2:])
    files = {str(module.__file__) for name, module in list(sys.modules.items()) if name.startswith("dapple_dp.")}
    # An installed version must not stand in for a module that the checkout doesn't have.
    if strangers := [file for file in files if not file.startswith(os.getcwd())]:
        raise SystemExit(f"all modules must be those of {os.getcwd()}, got {strangers[0]}")
    print(json.dumps(answer))
