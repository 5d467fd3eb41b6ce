"""A released clustering."""

import dataclasses
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dapple_dp.schemas.core.release import Release
from dapple_dp.schemas.errors import InputError
from dapple_dp.schemas.privacy.release_table import releases_from_table
from dapple_dp.schemas.settings import json_text
from dapple_dp.schemas.settings.refusal import Refusal

_FOREIGN = Refusal(kind=InputError, rule="metadata of a model's centers must be what fit wrote", remedy="fit again")
_PROXY_COSTS = b"proxy_costs"
_NOISY_COST = b"noisy_cost"
_NOISY_MEANS = b"noisy_means"
_COUNTED = b"counted"
BEFORE_LAST_STEP = "nearest to each center as it was before the last step moved it"
AT_CENTERS = "nearest to each center as it is published"
IN_UNITS = "center_in_units"
"""Column with the centers in the original units of the data's columns."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCost:
    """Released k-means cost of a model: mean squared distance of clipped rows to their nearest center.

    Attributes:
      mean: feature units squared, per row (privacy unit client: mean over clients of their means); may be negative.
      stddev: noise stddev of `mean`, to first order; feature units squared.
    """

    mean: float
    stddev: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterModel:
    """Centers that were computed only from releases and public data.

    Attributes:
      centers: float64, shape (n_clusters, n_features), feature units.
      noisy_sizes: float64, shape (n_clusters,): noisy number of rows (privacy unit record) or noisy weight
        of clients (unit client) per cluster; may be negative.
      releases: every noised aggregate behind the centers, in the order of the rounds.
      proxy_costs: shape (k_max,): released costs for 1 to k_max clusters, by which the number of clusters was
        chosen; empty if it was given.
      noisy_cost: released cost of the centers; None if the run didn't release it.
      noisy_means: shape of `centers`, feature units: means from the last round's sums and counts alone, before any
        shrinkage; None if the centers aren't such means.
      size_stddevs: shape (n_clusters,): stddev of the noise of each size; NaN if unknown.
      counted: words that complete "rows" to describe what sizes count; empty if sizes count no private rows.
      center_stddevs: shape of `centers`, feature units: stddev, to first order, that the noise of the last round
        causes in each coordinate of `noisy_means` (of `centers`, if those are None); NaN if unknown.
      numbers: numbers of the clusters, ascending; may continue those of an earlier run; empty for 0, 1, ...
    """

    centers: NDArray[np.float64]
    noisy_sizes: NDArray[np.float64]
    releases: tuple[Release, ...]
    proxy_costs: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    noisy_cost: NoisyCost | None = None
    noisy_means: NDArray[np.float64] | None = None
    size_stddevs: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))
    counted: str = ""
    center_stddevs: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Fills in NaN for noise that isn't given."""
        if not self.size_stddevs.size:
            object.__setattr__(self, "size_stddevs", np.full(len(self.centers), np.nan))
        if not self.center_stddevs.size:
            object.__setattr__(self, "center_stddevs", np.full(self.centers.shape, np.nan))

    @property
    def size_stddev(self) -> float:
        """Stddev of the noise of every size; NaN if sizes differ in it, or if it is unknown."""
        stddevs = self.size_stddevs
        return float(stddevs[0]) if len(stddevs) and (stddevs == stddevs[0]).all() else float("nan")

    @property
    def n_clusters(self) -> int:
        """Number of centers."""
        return len(self.centers)

    @property
    def cluster_numbers(self) -> tuple[int, ...]:
        """Numbers of the clusters, ascending."""
        return self.numbers or tuple(range(self.n_clusters))

    def renumbered(self, rows: NDArray[np.int64], numbers: tuple[int, ...]) -> "ClusterModel":
        """Returns the clusters in another order and under other numbers; releases stay unchanged.

        Args:
          rows: shape (n_clusters,): old index of each cluster in the new order.
          numbers: numbers of the clusters in the new order, ascending.
        """
        means = None if self.noisy_means is None else self.noisy_means[rows]
        return dataclasses.replace(
            self,
            centers=self.centers[rows],
            noisy_sizes=self.noisy_sizes[rows],
            noisy_means=means,
            size_stddevs=self.size_stddevs[rows],
            center_stddevs=self.center_stddevs[rows],
            numbers=() if numbers == tuple(range(self.n_clusters)) else numbers,
        )

    def centers_table(self, in_units: NDArray[np.float64] | None = None) -> pa.Table:
        """Returns `centers.parquet`: cluster int32, center fixed_size_list<double>[d], noisy_size double, their noise.

        The noise is in `size_stddev`, a double, and in `center_stddev`, a list like `center`.

        Args:
          in_units: shape (k, d), the centers in the original units of the columns, which become another list column,
            `center_in_units`; None if there are none.

        The metadata, as JSON, holds `counted`; and, if the model has them, `proxy_costs`, `noisy_cost` and
        `noisy_means`, a list per cluster.
        """
        n_features = self.centers.shape[1]
        columns = {
            "cluster": pa.array(self.cluster_numbers, pa.int32()),
            "center": _lists(self.centers, n_features),
            "noisy_size": pa.array(self.noisy_sizes, pa.float64()),
            "size_stddev": pa.array(self.size_stddevs, pa.float64()),
            "center_stddev": _lists(self.center_stddevs, n_features),
        }
        if in_units is not None:
            columns[IN_UNITS] = _lists(in_units, n_features)
        table = pa.table(columns)
        metadata = {_COUNTED: json.dumps(self.counted)} if self.counted else {}
        if len(self.proxy_costs):
            metadata[_PROXY_COSTS] = json.dumps(self.proxy_costs.tolist())
        if self.noisy_cost is not None:
            metadata[_NOISY_COST] = json.dumps(dataclasses.asdict(self.noisy_cost))
        if self.noisy_means is not None:
            metadata[_NOISY_MEANS] = json.dumps(self.noisy_means.tolist())
        return table.replace_schema_metadata(metadata) if metadata else table


def _lists(centers: NDArray[np.float64], n_features: int) -> pa.Array:
    """Converts an array, shape (n, n_features), to one list per row."""
    return pa.FixedSizeListArray.from_arrays(pa.array(centers.ravel(), pa.float64()), n_features)


def _array(table: pa.Table, name: str) -> NDArray[np.float64]:
    """Inverse of `_lists`."""
    flat = table.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, dtype=np.float64).reshape(table.num_rows, -1)


def model_from_tables(centers: pa.Table, releases: pa.Table) -> ClusterModel:
    """Inverse of `ClusterModel.centers_table` and `releases_to_table`."""
    metadata = centers.schema.metadata or {}
    ordered = centers.sort_by("cluster")
    with _FOREIGN.covers():
        # Costs may be infinite if points are far out.
        costs, cost, means, counted = (
            json_text.parse(metadata.get(name, b"null"), finite=False)
            for name in (_PROXY_COSTS, _NOISY_COST, _NOISY_MEANS, _COUNTED)
        )
        noisy_cost = None if cost is None else NoisyCost(**cost)
        noisy_means = None if means is None else np.array(means, dtype=np.float64)
        proxy_costs = np.array(costs or [], dtype=np.float64)
    numbers = tuple(ordered.column("cluster").to_pylist())
    return ClusterModel(
        centers=_array(ordered, "center"),
        noisy_sizes=ordered.column("noisy_size").to_numpy(),
        releases=releases_from_table(releases),
        proxy_costs=proxy_costs,
        noisy_cost=noisy_cost,
        noisy_means=noisy_means,
        size_stddevs=ordered.column("size_stddev").to_numpy(),
        counted=str(counted or ""),
        center_stddevs=_array(ordered, "center_stddev"),
        numbers=() if numbers == tuple(range(len(numbers))) else numbers,
    )


class ClusterNames(NamedTuple):
    """Names of clusters, the strongest first; clusters without a name have no row.

    Attributes:
      clusters: shape (n_names,), ascending: indices of clusters.
      terms: as written in the vocabulary.
      counts: shape (n_names,): noisy weight of the cluster's rows with this term: their number, or the sum over
        clients of the share of their rows.
      excess: shape (n_names,): difference to the count expected if the term were equally frequent in all clusters.
      count_stddev: noise stddev of a count.
      threshold: stddevs of noise that every excess is above, given the largest share that a cluster may have.
      most_false: upper bound on the expected number of names in a run that come from noise alone.
    """

    clusters: NDArray[np.int64]
    terms: tuple[str, ...]
    counts: NDArray[np.float64]
    excess: NDArray[np.float64]
    count_stddev: float
    threshold: float
    most_false: float

    def of(self, cluster: int) -> list[int]:
        """Returns the row numbers of a cluster, the strongest name first."""
        return [int(row) for row in np.flatnonzero(self.clusters == cluster)]

    def reordered(self, rows: Sequence[int]) -> "ClusterNames":
        """Returns the names with clusters in another order; `rows` holds the old index of each cluster."""
        order = [row for cluster in rows for row in self.of(cluster)]
        again = [index for index, cluster in enumerate(rows) for _ in self.of(cluster)]
        return self._replace(
            clusters=np.array(again, dtype=np.int64),
            terms=tuple(self.terms[row] for row in order),
            counts=self.counts[order],
            excess=self.excess[order],
        )

    def table(self, numbers: Sequence[int]) -> pa.Table:
        """Returns `names.parquet`: cluster int32, term string, noisy_count, count_stddev and excess, all doubles.

        Args:
          numbers: numbers of the clusters, in the order of their indices.
        """
        return pa.table(
            {
                "cluster": pa.array([numbers[index] for index in self.clusters], pa.int32()),
                "term": pa.array(self.terms, pa.string()),
                "noisy_count": pa.array(self.counts, pa.float64()),
                "count_stddev": pa.array(np.full(len(self.terms), self.count_stddev), pa.float64()),
                "excess": pa.array(self.excess, pa.float64()),
            }
        )
