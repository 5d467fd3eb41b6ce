"""What labels by float32 scores would save, where rows whose two best scores are close are scored again exactly.

A prototype for 512-bit vectors in C beside this file: it must give the integers of the compiled pass.

    python -m benchmarks.float32_first --rows 50000
"""

import ctypes
import dataclasses
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

from benchmarks import machine, measurement, topics
from schemas.tables.client_block import ClientBlock
from transforms.kmeans.protocols import PROTOCOLS
from transforms.numerics.kernel.row_pass import Tally
from transforms.numerics.statistics import lattice
from transforms.numerics.statistics.assignment import row_pass_of

LANES, BLOCK, D = 32, 96, 384
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")


def compiled(folder: str) -> Any:
    """The prototype."""
    target = f"{folder}/float32_first.so"
    source = str(Path(__file__).with_suffix(".c"))
    subprocess.run(["cc", *FLAGS, "-shared", "-o", target, source], check=True)
    return ctypes.CDLL(target).dapple_float32_first


def main() -> None:
    parser = measurement.script(__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    arguments = parser.parse_args()
    points = normalize(np.random.default_rng(0).normal(size=(arguments.rows, D)).astype(np.float32))
    config = topics.job(50, 1.0, "record", ("a",)).model_copy(update={"names": None})
    state = PROTOCOLS[config.algorithm].initial_state(config, np.zeros((0, D)), D)
    lines = [
        *machine.heading("Labels by float32 first"),
        "| centers | now | float32 first | quantizing, of both | again |",
    ]
    lines += ["| --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as folder:
        prototype = compiled(folder)
        for size in (100, 50):
            lines.append(row(prototype, dataclasses.replace(state, centers=state.centers[:size]), points))
    measurement.show(lines, arguments.out)


def row(prototype: Any, state: Any, points: Any) -> str:
    """CPU seconds of the median of five turns."""
    centers, size = state.centers, len(state.centers)
    current, squared = row_pass_of(state.assigner), lattice.squared_norms(centers)
    n_tiles = -(-size // LANES)
    padded, bias = np.zeros((n_tiles * LANES, D), np.float32), np.full(n_tiles * LANES, -3e38, np.float32)
    padded[:size], bias[:size] = 2.0 * centers, -squared
    tiles = np.ascontiguousarray(padded.reshape(n_tiles, LANES, D).transpose(0, 2, 1))
    # Each of D + 2 operations rounds by 2**-24 of 2 |x| |c| + |c|**2 at most, in either of two scores.
    largest = float(squared.max())
    gap = 2.02 * (D + 2) * 2.0**-24 * (2.0 * lattice.SUM_UNITS * np.sqrt(largest) + largest)
    rows, scores = np.empty(BLOCK * D, np.float32), np.empty(BLOCK * n_tiles * LANES, np.float32)
    doubled, took, again = 2.0 * centers, [], np.zeros(1, np.int64)

    def pointer(array: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def now() -> Tally:
        tally = Tally.zeros(size, D)
        for block in state.frame.integer_blocks(points, lattice.SUM_BITS):
            current.add(tally, block)
        return tally

    def first() -> Tally:
        tally = Tally.zeros(size, D)
        again[:] = 0
        for block in state.frame.integer_blocks(points, lattice.SUM_BITS):
            shape = [ctypes.c_int64(each) for each in (*block.shape, n_tiles, size)]
            given = (pointer(tiles), pointer(bias), *shape[2:], ctypes.c_float(gap), pointer(doubled), pointer(squared))
            out = map(pointer, (rows, scores, tally.sums, tally.inside, again))
            assert prototype(pointer(block), *shape[:2], *given, *out) == 0
        return tally

    def quantized() -> None:
        for _ in state.frame.integer_blocks(ClientBlock(points).points, lattice.SUM_BITS):
            pass

    for _ in range(5):
        took.append([topics._seconds(each) for each in (now, first, quantized)])
    for one, other in zip(now(), first(), strict=True):
        np.testing.assert_array_equal(one, other)
    before, after, read = np.median(took, axis=0)
    return f"| {size} | {before:.3f} | {after:.3f} | {read:.3f} | {again[0] / len(points):.2%} of rows |"


if __name__ == "__main__":
    main()
