"""Microseconds of CPU per row and round, of the checkout on the path and of scikit-learn's iteration of Lloyd's.

`benchmarks.engine` starts it once for each checkout and turn. The arms of a case follow each other, five times; the
least counts. In `relative` some 30% of the rows lie beyond the radius and are shortened.
"""

import json
import os
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy, or its threads wait busily

import numpy as np
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense

from dapple_dp.schemas.core.block import ClientBlock
from dapple_dp.transforms.core.statistics import clients, differences, lattice, rows
from dapple_dp.transforms.core.statistics.assignment import Assigner
from dapple_dp.transforms.core.statistics.frame import Frame
from dapple_dp.transforms.rounds.kept_frame import QuantizedFrame

CASES = [*((k, d) for k in (10, 64, 500) for d in (8, 50, 200)), (10, 32)]
CLIENT_ROWS, REPEATS, RADIUS = 20, 5, 0.35
Work = Callable[[], object]


def lloyd(points: np.ndarray, centers: np.ndarray, kind: type) -> Work:
    """One iteration of scikit-learn's, by one thread."""
    x, c = points.astype(kind), centers.astype(kind)
    given = (
        x,
        np.ones(len(x), kind),
        c,
        c.copy(),
        np.zeros(len(c), kind),
        np.zeros(len(x), np.int32),
        np.zeros(len(c), kind),
    )
    return lambda: lloyd_iter_chunked_dense(*given, 1)


def arms(k: int, d: int) -> tuple[int, dict[str, Work]]:
    """Number of rows, and what is measured, by name."""
    n, rng = int(np.clip(4e7 / (max(k, 10) * d), 4000, 200_000)) // CLIENT_ROWS * CLIENT_ROWS, np.random.default_rng(0)
    means = rng.normal(size=(k, d))
    means *= 0.5 / np.linalg.norm(means, axis=1, keepdims=True)
    points = means[rng.integers(0, k, n)] + rng.normal(size=(n, d)) * (RADIUS / np.sqrt(d))
    frame = Frame(lattice.Lattice(np.zeros(d), 1.0))
    integers = lattice.quantize(points, frame.lattice, lattice.SUM_BITS).astype(np.int32)
    centers = lattice.quantize(means, frame.lattice, lattice.SUM_BITS)
    known, radius = QuantizedFrame.of(frame, lattice.SUM_BITS), int(RADIUS * lattice.SUM_UNITS)
    around = differences.Neighborhoods(centers, radius, True)
    block, nearest = ClientBlock(integers, np.arange(0, n + 1, CLIENT_ROWS)), Assigner(centers)
    found: dict[str, Work] = {
        "absolute": lambda: rows.sums_and_counts(block, known, nearest, 1.0, 1.0),
        "relative": lambda: rows.relative_sums(block, known, around, radius),
        "client": lambda: clients.mean_sums_and_counts(block, known, nearest, 1.0, 1.0),
        "float64": lloyd(integers, centers, np.float64),
        "float32": lloyd(integers, centers, np.float32),
    }
    kinds = ("client",) if (k, d) == CASES[-1] else ("absolute", "relative")
    return n, {name: work for name, work in found.items() if name in (*kinds, "float64", "float32")}


def main() -> None:
    found = {}
    for k, d in CASES:
        n, works = arms(k, d)
        best = dict.fromkeys(works, np.inf)
        for _ in range(REPEATS):
            for name, work in works.items():
                start = time.process_time()
                work()
                best[name] = min(best[name], (time.process_time() - start) / n * 1e6)
        found |= {f"{k} x {d}, {name}": us for name, us in best.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
