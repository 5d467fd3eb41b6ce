"""Memory of a series of runs: the released sums and counts of each cluster, in a file that the next run reads."""

import dataclasses
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.kmeans.recurring.drift import number_or_none
from dapple_dp.schemas.settings.refusal import MalformedError

MEMORY_FILE = "memory.parquet"
MEMORY_SCHEMA = pa.schema(
    [
        pa.field("age", pa.int32(), nullable=False),
        pa.field("cluster", pa.int32(), nullable=False),
        pa.field("origin", pa.list_(pa.float64()), nullable=False),
        pa.field("noisy_sum", pa.list_(pa.float64()), nullable=False),
        pa.field("noisy_count", pa.float64(), nullable=False),
        pa.field("sum_stddev", pa.float64(), nullable=False),
        pa.field("count_stddev", pa.float64(), nullable=False),
    ]
)
MEMORY_DRIFT_SCORE = 3.1
"""Scores above this count as drift: a standard normal number exceeds it less than once in 1,000 times."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """Releases of n runs on k clusters, oldest run first; clusters have the same index in all runs.

    Attributes:
      origins: shape (n, k, d), feature units: point relative to which a run measured its sums.
      sums: shape (n, k, d), feature units: noisy.
      counts: shape (n, k): noisy.
      sums_stddevs: shape (n,): noise stddev of one entry of `sums`.
      counts_stddevs: shape (n,): noise stddev of one count.
    """

    origins: NDArray[np.float64]
    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    sums_stddevs: NDArray[np.float64]
    counts_stddevs: NDArray[np.float64]

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.counts)

    def then(self, later: "Memory", most: int) -> "Memory":
        """Returns these runs followed by later ones, cut to the last `most`."""
        names = [field.name for field in dataclasses.fields(self)]
        return Memory(**{name: np.concatenate([getattr(self, name), getattr(later, name)])[-most:] for name in names})

    def table(self, numbers: tuple[int, ...]) -> pa.Table:
        """Returns `memory.parquet`: a row per run and cluster, the newest run first (age 0)."""
        rows = [
            {
                "age": age,
                "cluster": number,
                "origin": self.origins[-1 - age, place],
                "noisy_sum": self.sums[-1 - age, place],
                "noisy_count": self.counts[-1 - age, place],
                "sum_stddev": self.sums_stddevs[-1 - age],
                "count_stddev": self.counts_stddevs[-1 - age],
            }
            for age in range(len(self))
            for place, number in enumerate(numbers)
        ]
        return pa.Table.from_pylist(rows, schema=MEMORY_SCHEMA)

    @classmethod
    def from_table(cls, table: pa.Table, numbers: tuple[int, ...], n_features: int) -> Self:
        """Inverse of `table`.

        Args:
          table: with schema `MEMORY_SCHEMA`.
          numbers: numbers of the clusters, ascending.
          n_features: d.

        Raises:
          MalformedError: unless each of these clusters appears once for every run, with numbers that a run could have
            released.
        """
        size, remainder = divmod(table.num_rows, max(1, len(numbers)))
        ages, clusters = (table.column(name).to_pylist() for name in ("age", "cluster"))
        expected = [(age, number) for age in range(size) for number in numbers]
        if remainder or not size or list(zip(ages, clusters, strict=True)) != expected:
            raise MalformedError("other clusters or runs")
        vectors = (_vectors(table.column(name), n_features) for name in ("origin", "noisy_sum"))
        origins, sums = (vector.reshape(size, len(numbers), n_features)[::-1] for vector in vectors)
        scalars = (table.column(name).to_numpy() for name in ("noisy_count", "sum_stddev", "count_stddev"))
        counts, sums_stddevs, counts_stddevs = (scalar.reshape(size, len(numbers))[::-1] for scalar in scalars)
        stddevs = np.stack([sums_stddevs, counts_stddevs])
        if not (np.isfinite(counts).all() and np.isfinite(stddevs).all() and (stddevs > 0.0).all()):
            raise MalformedError("numbers that aren't finite, or a noise stddev of 0")
        if (stddevs != stddevs[:, :, :1]).any():
            raise MalformedError("different noise for clusters of one run")
        return cls(
            origins=origins,
            sums=sums,
            counts=counts,
            sums_stddevs=sums_stddevs[:, 0],
            counts_stddevs=counts_stddevs[:, 0],
        )


def _vectors(column: pa.ChunkedArray, n_features: int) -> NDArray[np.float64]:
    """Converts a column of lists to vectors, shape (n, n_features), all finite."""
    result = np.array(column.to_pylist(), dtype=np.float64)
    if result.ndim != 2 or result.shape[1] != n_features or not np.isfinite(result).all():
        raise MalformedError("vectors of another width, or values that aren't finite")
    return result


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Remembered:
    """Memory of a run and those before it; clusters have the same indices as in its model.

    Attributes:
      memory: released sums and counts of all remembered runs.
      length: length of the long memory, in runs.
      short: length of the short memory, in runs.
      known: shape (k,): true if the long memory determines the center.
      noise: shape (k,), feature units: distance that noise alone moves the remembered mean; NaN if unknown.
      scores: shape (k,): of the distance between the two memories; at most standard normal if only noise and
        chance moved them, NaN if a count is too small for its noise.
    """

    memory: Memory
    length: int
    short: int
    known: NDArray[np.bool_]
    noise: NDArray[np.float64]
    scores: NDArray[np.float64]

    def to_json(self, numbers: tuple[int, ...]) -> dict[str, Any]:
        """Returns the part `memory` of `drift.json`."""
        clusters = [
            {"cluster": number, "noise": number_or_none(self.noise[place]), "score": number_or_none(self.scores[place])}
            for place, number in enumerate(numbers)
        ]
        return {
            "runs": len(self.memory),
            "length": self.length,
            "short_length": self.short,
            "threshold": MEMORY_DRIFT_SCORE,
            "drifting": self.drifting(numbers),
            "clusters": clusters,
        }

    def drifting(self, numbers: tuple[int, ...]) -> list[int]:
        """Returns the numbers of clusters whose two memories differ by more than noise and chance explain."""
        return [number for number, score in zip(numbers, self.scores, strict=True) if score > MEMORY_DRIFT_SCORE]
